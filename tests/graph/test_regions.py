"""Regions for a compiler: random training programs mean the same with them, on their own kernels and on XLA."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rowlock.executor.kernels.capabilities import capabilities
from rowlock.graph.compile import Compiled, compile_program
from rowlock.graph.ir.capabilities import BackEnd
from rowlock.graph.ops.region import REGION
from rowlock.graph.passes.target import Target
from rowlock.strategies.build import BuildStrategy
from tests.conftest import draws, sample
from tests.graph.random_nets import RandomNet, random_net

GRAPHS, ON_XLA = 60, 6
needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="XLA needs jax (rowlock[xla])"
)


def regions(compiled: Compiled) -> list[Any]:
    return [node for node in compiled.report.graph.nodes if node.op == REGION]


def compiled_with(net: RandomNet, takes: Any, wanted: bool = True) -> Compiled:
    """Compile a net for one place and NumPy, with regions that hold what ``takes`` does (None: no compiler)."""
    able = dict(capabilities(frozenset()))
    if takes is not None:
        able["xla"] = BackEnd("numpy", {REGION: takes})
    build = BuildStrategy(build_cinn_pass=wanted, fuse_bn_add_act_ops=False)
    target = Target(strategy=build, has_loss=True)
    compiled = compile_program(net.main, tuple(net.feeds[0]), net.fetches, target, able)
    nodes = tuple(replace(node, kernel="numpy") for node in compiled.program.nodes)
    return Compiled(replace(compiled.program, nodes=nodes), compiled.report)


def agree(net: RandomNet, results: Any, wanted: Any, seed: int, states: bool = True) -> None:
    """Assert that losses, and persistables, are those of the plain program."""
    near = 1e-9 if net.dtype == "float64" else 5e-5
    for ours, theirs in zip(results[0], wanted[0], strict=True):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=near, atol=near, err_msg=str(seed))
    for name, other in wanted[1].items() if states else ():
        np.testing.assert_allclose(results[1][name], other, rtol=near, atol=near, err_msg=name)


@draws(10, GRAPHS)
def test_any_choice_of_ops_can_be_grouped(draws: int) -> None:
    """Which ops a compiler takes is drawn: whatever is left outside, the program means the same."""
    sizes = []
    for seed in sample(GRAPHS, draws):
        net = random_net(seed)
        draw = np.random.default_rng(seed)
        plain = compiled_with(net, None, wanted=False)
        kinds = {node.op for node in plain.report.graph.nodes}
        outside = {op for op in sorted(kinds) if draw.random() < 0.2} | {"dropout"}
        with_regions = compiled_with(net, lambda node, out=outside: node.op not in out)
        sizes += [len(node.attrs["body"]) for node in regions(with_regions)]
        agree(net, net.run(with_regions.program), net.run(plain.program), seed)
    assert draws < GRAPHS or (len(sizes) > GRAPHS and max(sizes) > 20)


@needs_jax
@draws(1, ON_XLA // 2)
def test_xla_computes_the_same(draws: int) -> None:
    """A bias before batch norm has a gradient of rounding errors, of which Adam makes whole steps."""
    for seed in sample(ON_XLA, draws):
        net = random_net(seed)
        plain = net.compile(fuse_bn_add_act_ops=False)
        build = BuildStrategy(build_cinn_pass=True, fuse_bn_add_act_ops=False)
        target, able = Target(strategy=build, has_loss=True), capabilities(frozenset({"xla"}))
        compiled = compile_program(net.main, tuple(net.feeds[0]), net.fetches, target, able)
        assert regions(compiled), seed
        exact = all(node.op != "batch_norm" for node in plain.report.graph.nodes)
        agree(net, net.run(compiled.program), net.run(plain.program), seed, states=exact)


def test_explain_says_what_stays_outside_and_why() -> None:
    net = random_net(0)
    report = str(compiled_with(net, lambda node: node.op != "mul").report)
    assert "build_cinn_pass: XLA compiles" in report
    assert "outside, for they have no lowering:" in report and "mul" in report
    assert "jax is not installed" in str(compiled_with(net, None).report)
    nothing = str(compiled_with(net, lambda node: False).report)
    assert "no two ops can be compiled as one" in nothing
