"""What a fused group makes may lie where an operand did that nobody needs any more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.executor.host.arena import spec_of
from rowlock.executor.kernels.capabilities import capabilities
from rowlock.executor.kernels.registry import KERNELS, bind
from rowlock.graph.compile import Compiled, compile_program
from rowlock.graph.lowering.memory import MemoryOptions
from rowlock.graph.ops.fusion import FUSION
from rowlock.graph.ops.registry import OPS, Inference
from rowlock.graph.passes.target import Target
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.types import to_numpy
from tests.conftest import draws, sample
from tests.graph.random_nets import random_net
from tests.graph.test_memory import check_contents, feeds_of, planned
from tests.ops import harness
from tests.programs import own_programs

L = fluid.layers
LLVM = pytest.param(
    "llvm", marks=pytest.mark.skipif(not capabilities().get("llvm"), reason="needs llvm")
)


def compiled(build: Any) -> Compiled:
    with own_programs() as (main, _):
        x = fluid.data("x", [None, 8])
        loss = build(x)
    target = Target(strategy=BuildStrategy(enable_auto_fusion=True))
    return compile_program(main, ("x",), (loss.name,), target, capabilities(frozenset()))


def chain(x: Any) -> Any:
    for _ in range(3):  # products keep the groups apart
        x = L.fc(L.tanh(L.scale(x, 2.0)), 8, bias_attr=False)
    return L.mean(x)


def test_a_chain_takes_the_place_of_what_it_reads() -> None:
    program, feeds = compiled(chain).program, [spec_of(np.zeros((64, 8), np.float32))]
    plan, beside = (planned(program, feeds, MemoryOptions(True, on)) for on in (True, False))
    check_contents(plan)
    groups = [n for n in plan.usage.nodes if n.op == FUSION]
    places = [(n.inputs["X"][0], n.outputs["Out"][0]) for n in groups]
    assert [plan.roots[out] == plan.roots[x] for x, out in places] == [True] * 3
    assert len(plan.spans) <= len(beside.spans) - 3


def test_a_sum_does_not_take_the_place_of_its_bias() -> None:
    """The bias is read for every row, its gradient grows from row to row."""
    op = OPS[FUSION]
    assert op.places is not None
    (sample,) = op.samples
    inputs, attrs = harness.draw(op, sample, "float32")
    read = {"X": [spec_of(a) for a in inputs["X"]]}
    places = op.places(Inference(op, read, attrs))
    # X: full, bias, full; Out: full, full, the bias's gradient
    assert set(places) == {("Out", k, "X", j) for k in (0, 1) for j in (0, 2)}


@pytest.mark.parametrize("back_end", ["numpy", LLVM])
def test_every_place_gives_the_same_bits(back_end: str) -> None:
    op = OPS[FUSION]
    assert op.places is not None and (FUSION, back_end) in KERNELS
    inputs, attrs = harness.draw(op, op.samples[0], "float32")
    specs = [spec_of(a) for a in inputs["X"]]
    results = op.infer(Inference(op, {"X": specs}, attrs))["Out"]

    def run(place: Any = None) -> list[Any]:
        x = [a.copy() for a in inputs["X"]]
        out = [np.full(s.shape, np.nan, to_numpy(s.dtype)) for s in results]
        if place is not None:
            out[place[1]] = x[place[3]]
        for step in bind(FUSION, {"X": x}, {"Out": out}, attrs, harness.Device(), back_end):
            step()
        return out

    beside = run()
    for place in op.places(Inference(op, {"X": specs}, attrs)):
        for one, other in zip(beside, run(place), strict=True):
            np.testing.assert_array_equal(one, other, err_msg=str(place))


@draws(10, 40)
def test_random_programs_keep_their_bits(draws: int) -> None:
    shared = 0
    for seed in sample(40, draws):
        net = random_net(seed)
        program = net.compile(enable_auto_fusion=True).program
        plan = planned(program, feeds_of(net), MemoryOptions())
        check_contents(plan)
        for node in (n for n in plan.usage.nodes if n.op == FUSION):
            read = {plan.roots[i] for i in node.inputs["X"] if i in plan.roots}
            shared += any(plan.roots.get(i) in read for i in node.outputs["Out"])
        expected, state = net.run(program, MemoryOptions(True, False))
        fetched, after = net.run(program, MemoryOptions())
        for ours, theirs in zip(fetched, expected, strict=True):
            for one, other in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(one, other, err_msg=f"net {seed}")
        for name, array in state.items():
            np.testing.assert_array_equal(after[name], array, err_msg=f"net {seed}: {name}")
    assert draws < 40 or shared > 20
