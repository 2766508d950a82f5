"""The gradients of a convolution's images and of its filters are nodes of their own."""

from __future__ import annotations

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.graph.ir.graph import Graph
from rowlock.graph.ir.reader import from_program
from rowlock.graph.passes import split_conv_grads
from rowlock.graph.passes.target import Target
from rowlock.graph.pipeline import check
from tests.programs import executor_after, own_programs

L = fluid.layers


def graph_of(layer: str) -> Graph:
    """Return the graph of a program that trains two layers; images have no gradient."""
    with own_programs() as (main, _):
        hidden = L.data("image", [2, 6, 6])
        for filters in (3, 4):
            hidden = getattr(L, layer)(hidden, filters, filter_size=3, bias_attr=False)
        loss = L.mean(hidden)
        fluid.optimizer.SGD(0.1).minimize(loss)
    return from_program(main, ["image"])


@pytest.mark.parametrize("layer", ["conv2d", "conv2d_transpose"])
def test_each_result_has_a_node(layer: str) -> None:
    before = graph_of(layer)
    after = split_conv_grads.PASS.run(before, Target())
    check(after, "split_conv_grads")
    op = f"{layer}_grad"
    assert [len(n.writes()) for n in before.nodes if n.op == op] == [2, 1]
    parts = [n for n in after.nodes if n.op == op]
    assert [[v.name for v in n.writes()] for n in parts] == [
        [f"{layer}_1.w_0@GRAD"],
        [f"{layer}_0.tmp_0@GRAD"],
        [f"{layer}_0.w_0@GRAD"],
    ]
    assert [[name for name, _ in n.grads] for n in parts] == [
        [f"{layer}_1.w_0"],
        [],
        [f"{layer}_0.w_0"],
    ]
    assert any("1 convolutions have a node for the gradient of filters" in n for n in after.notes)
    assert split_conv_grads.PASS.run(after, Target()) is after


def test_both_orders_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    def losses() -> list[float]:
        with own_programs(3) as (main, startup):
            hidden = L.data("image", [3, 9, 9])
            for filters in (4, 6):
                hidden = L.conv2d(hidden, filters, 3, padding=1, act="relu")
            loss = L.mean(L.square(hidden))
            fluid.optimizer.Momentum(0.05, 0.9).minimize(loss)
        image = np.random.default_rng(2).normal(size=(8, 3, 9, 9)).astype("float32")
        with fluid.scope_guard(fluid.Scope()):
            exe = executor_after(startup)
            return [float(exe.run(main, {"image": image}, [loss])[0][0]) for _ in range(4)]

    apart = losses()
    monkeypatch.setattr(split_conv_grads, "GRADIENTS", ())
    assert losses() == apart
