"""Groups of elementwise ops: what joins, what stays apart, and what is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import rowlock
import rowlock.fluid as fluid
from rowlock.graph.ir.graph import Graph, Node
from rowlock.graph.ir.reader import from_program
from rowlock.graph.ir.replica_program import lower
from rowlock.graph.passes.enable_auto_fusion import fuse_elementwise
from rowlock.graph.passes.target import Target
from rowlock.strategies.build import BuildStrategy
from tests.contract.nets import Net, assert_close, feed
from tests.programs import own_programs

L = fluid.layers


def fused(build: Any, *fetches: str) -> Graph:
    """Build a program, return its graph after the pass."""
    with own_programs() as (main, _):
        fetched = build(fluid.data("x", [None, 4]))
    names = tuple(v.name for v in fetched)
    graph = fuse_elementwise(from_program(main, ["x"]), Target(fetches=(*names, *fetches)))
    assert fuse_elementwise(graph, Target(fetches=names)).nodes == graph.nodes, "settled"
    return graph


def groups(graph: Graph) -> list[list[str]]:
    return [[part["op"] for part in n.attrs["body"]] for n in graph.nodes if n.op == "fusion_group"]


def test_a_chain_with_two_ends() -> None:
    graph = fused(lambda x: [L.tanh(L.scale(x, 2.0)), L.relu(L.scale(x, 3.0))])
    assert groups(graph) == [["scale", "tanh"], ["scale", "relu"]]
    assert [len(n.outputs["Out"]) for n in graph.nodes] == [1, 1], (
        "what lies between is not written"
    )


def test_a_fetched_value_is_written_too() -> None:
    def build(x: Any) -> list[Any]:
        middle = L.scale(x, 2.0)
        return [middle, L.tanh(middle)]

    (node,) = fused(build).nodes
    assert len(node.outputs["Out"]) == 2


def test_no_path_leads_out_and_back() -> None:
    def build(x: Any) -> list[Any]:
        a = L.tanh(x)
        b = L.fc(a, 4, bias_attr=False)
        return [L.elementwise_add(L.relu(a), L.sigmoid(b))]

    graph = fused(build)
    assert groups(graph) == [["tanh", "relu"], ["sigmoid", "elementwise_add"]]
    assert [n.op for n in graph.nodes] == ["fusion_group", "mul", "fusion_group"]


def test_why_nothing_is_fused() -> None:
    def path(x: Any) -> list[Any]:
        a = L.tanh(x)
        return [L.elementwise_add(a, L.fc(a, 4, bias_attr=False))]

    assert "nothing fused: 1 times a path" in fused(path).notes[-1]
    assert "none of 1 elementwise ops" in fused(lambda x: [L.tanh(x)]).notes[-1]
    assert "no elementwise ops" in fused(lambda x: [L.fc(x, 4, bias_attr=False)]).notes[-1]


def test_broadcast_operands_and_their_gradients() -> None:
    """A bias joins the group; its gradient is summed there, and finished there for the collectives."""
    net, plain = Net(layers=2), Net(layers=2)
    with rowlock.cluster(launcher="threads"):
        program, other = net.compiled(2, build={"enable_auto_fusion": True}), plain.compiled(2)
        for step in range(3):
            (loss,) = net.run(program, feed(6, step), [net.loss])
            (expected,) = plain.run(other, feed(6, step), [plain.loss])
            np.testing.assert_allclose(loss, expected, rtol=1e-6)
    assert_close(net.parameters(), plain.parameters(), 1e-6)
    nodes = program.explain().graph.nodes
    bodies: list[Node] = [n for n in nodes if n.op == "fusion_group"]
    assert ["elementwise_add", "tanh"] in [[p["op"] for p in n.attrs["body"]] for n in bodies]
    assert any(grad == "fc_0.b_0" for n in bodies for grad, _ in n.grads)


def test_a_gradient_that_is_handed_on_is_not_written_again() -> None:
    """Of a sum's gradient both operands' are views; the group before it writes it once."""
    with own_programs() as (main, _):
        inner = L.fc(fluid.data("x", [None, 4]), 4, bias_attr=False)
        summed = L.elementwise_add(L.fc(inner, 4, bias_attr=False), inner)
        loss = L.mean(L.tanh(L.scale(summed, 2.0)))
        fluid.optimizer.SGD(0.1).minimize(loss)
    graph = fuse_elementwise(from_program(main, ["x"]), Target(fetches=(loss.name,)))
    back = next(
        n for n in graph.nodes if groups(graph)[-1] == [p["op"] for p in n.attrs.get("body", ())]
    )
    assert groups(graph) == [["elementwise_add", "scale", "tanh"], ["tanh_grad", "scale"]]
    assert len(back.outputs["Out"]) == 1
    (passed_on,) = (n for n in graph.nodes if n.op == "elementwise_add_grad")
    assert len(passed_on.writes()) == 2


def test_the_switch_is_off_by_default() -> None:
    assert not BuildStrategy().enable_auto_fusion


def test_the_schedule_does_not_know_source_lines() -> None:
    with own_programs() as (main, _):
        result = L.tanh(L.scale(fluid.data("x", [None, 4]), 2.0))
    graph = fuse_elementwise(from_program(main, ["x"]), Target(fetches=(result.name,)))
    (group,) = graph.nodes
    body = [{**inner, "where": "elsewhere.py:1"} for inner in group.attrs["body"]]
    moved = replace(group, attrs={**group.attrs, "body": body}, where="elsewhere.py:1")
    graphs = graph, graph.with_nodes([moved])
    schedules = {
        lower(g, [result.name], dict.fromkeys(g.nodes, ""), seed=1).schedule for g in graphs
    }
    assert len(schedules) == 1
