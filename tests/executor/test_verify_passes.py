"""verify_passes: what a pass breaks is found on the first step, and named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.graph import pipeline
from rowlock.graph.ir.graph import Graph
from rowlock.graph.passes.target import Pass, Target
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.errors import ExecutionError
from tests.contract.nets import OPTIMIZERS, Net, feed
from tests.programs import own_programs

FUSIONS = {
    "fuse_relu_depthwise_conv": True, "fuse_bn_act_ops": True, "fuse_gemm_epilogue": True,
    "fuse_elewise_add_act_ops": True, "fused_attention": True, "sync_batch_norm": True,
}  # fmt: skip


def broken(change: Any) -> Pass:
    """A pass that changes the tanh of the net."""

    def run(graph: Graph, target: Target) -> Graph:
        nodes = [change(node) if node.op == "tanh" else node for node in graph.nodes]
        return graph.with_nodes(node for node in nodes if node is not None)

    return Pass("break_it", run, lambda target: True, "for this test")


def with_pass(monkeypatch: pytest.MonkeyPatch, first: Pass) -> None:
    monkeypatch.setattr(pipeline, "PIPELINE", (first, *pipeline.PIPELINE))


@pytest.mark.parametrize("kind", ["AllReduce", "Reduce"])
def test_sound_passes_pass_and_nothing_is_changed(kind: str) -> None:
    """A run that is verified draws and learns what one that is not does."""
    build = {**FUSIONS, "reduce_strategy": BuildStrategy.ReduceStrategy[kind]}
    results = []
    for verifies in (True, False):
        with rowlock.cluster(launcher="threads"):
            net = Net(optimizer=OPTIMIZERS["adam"], drop=0.5)
            program = net.compiled(2, build={**build, "verify_passes": verifies})
            losses = [net.run(program, feed(6, step), [net.loss])[0] for step in range(3)]
            results.append((losses, net.parameters()))
            notes = [n for n in program.explain().graph.notes if n.startswith("verify_passes")]
            assert bool(notes) is verifies
            assert not verifies or "values on the first batch" in notes[0]
    (losses, parameters), (plain_losses, plain) = results
    np.testing.assert_array_equal(losses, plain_losses)
    for name, value in plain.items():
        np.testing.assert_array_equal(parameters[name], value)


def test_what_a_pass_breaks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with_pass(monkeypatch, broken(lambda node: replace(node, op="softsign")))
    with rowlock.cluster(launcher="threads"):
        net = Net()
        program = net.compiled(2, build={"verify_passes": True})
        before = net.parameters()
        says = r"break_it changed 'fc_0.tmp_2': softsign \(built at .*nets\.py:\d+.*\) makes"
        with pytest.raises(ExecutionError, match=says):
            net.run(program, feed(6), [net.loss])
        for name, value in net.parameters().items():
            np.testing.assert_array_equal(value, before[name])
        unverified = net.compiled(2)
        assert np.isfinite(net.run(unverified, feed(6), [net.loss])[0]).all()


def test_a_small_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def steeper(node: Any) -> Any:
        attrs = {"scale": 1.0 + 1e-4, "bias": 0.0, "bias_after_scale": True}
        return replace(node, op="scale", attrs=attrs) if node.role == 0 else node

    def scaled(graph: Graph, target: Target) -> Graph:
        return graph.with_nodes(steeper(n) if n.op == "assign" else n for n in graph.nodes)

    with_pass(monkeypatch, Pass("scale_it", scaled, lambda target: True, "for this test"))
    with rowlock.cluster(launcher="threads"):
        with own_programs() as (main, _):
            x = fluid.data("x", [None, 4])
            y = fluid.layers.assign(x)
        build = BuildStrategy(verify_passes=True)
        program = fluid.CompiledProgram(main, build_strategy=build)
        exe = fluid.Executor(fluid.CPUPlace())
        with pytest.raises(ExecutionError, match=r"scale_it changed .*rounding explains"):
            exe.run(program, {"x": np.ones((2, 4), "float32")}, [y])


def test_what_nothing_makes_any_more_is_found_when_compiling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_pass(monkeypatch, broken(lambda node: None))
    with rowlock.cluster(launcher="threads"):
        net = Net()
        program = net.compiled(2, build={"verify_passes": True})
        with pytest.raises(AssertionError, match=r"break_it: .*mul.* reads fc_0.tmp_2 before"):
            net.run(program, feed(6), [net.loss])


def test_a_lost_update_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(graph: Graph, target: Target) -> Graph:
        return graph.with_nodes(graph.nodes[:-1])

    with_pass(monkeypatch, Pass("lose_it", lose, lambda target: target.has_loss, "for this test"))
    with rowlock.cluster(launcher="threads"):
        net = Net()
        program = net.compiled(1, build={"verify_passes": True})
        with pytest.raises(ExecutionError, match=r"lose_it lost what is written to 'fc_"):
            net.run(program, feed(6), [net.loss])
