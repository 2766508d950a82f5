"""Gradients that nothing reads are not computed."""

from __future__ import annotations

import rowlock.fluid as fluid
from rowlock.graph.ir.graph import Graph
from rowlock.graph.ir.reader import from_program
from rowlock.graph.passes.target import Target
from rowlock.graph.passes.unread_gradients import PASS
from rowlock.graph.pipeline import run_pipeline
from rowlock.strategies.build import BuildStrategy
from tests.programs import own_programs

L = fluid.layers


def program() -> fluid.Program:
    """Two sums with one constant, whose gradient is a sum of two that reduce rows."""
    with own_programs() as (main, _):
        x = fluid.data("x", [None, 4, 4])
        mask = L.triu(L.fill_constant([4, 4], "float32", -1.0), 1)
        h = L.elementwise_add(L.fc(x, 4, num_flatten_dims=2), mask, axis=1)
        h = L.elementwise_add(L.fc(h, 4, num_flatten_dims=2), mask, axis=1)
        fluid.optimizer.SGD(0.1).minimize(L.mean(L.square(h)))
    return main


def run(*fetches: str) -> tuple[Graph, Graph]:
    graph = from_program(program(), ["x"])
    return graph, PASS.run(graph, Target(strategy=BuildStrategy(), fetches=fetches))


def written(graph: Graph) -> set[str]:
    return {value.name for node in graph.nodes for value in node.writes()}


def test_the_gradient_of_a_constant_is_left_out_with_its_sum() -> None:
    graph, changed = run("mean_0.tmp_0")
    masks = {name for name in written(graph) if name.startswith("triu_0.tmp_0@GRAD")}
    assert len(masks) == 3
    assert written(graph) - written(changed) == masks
    assert len(changed.nodes) == len(graph.nodes) - 1, "its sum; others compute gradients of x, too"
    assert PASS.run(changed, Target(strategy=BuildStrategy())) is changed
    assert f"{PASS.name}: left out 3" in changed.notes


def test_what_is_fetched_is_computed() -> None:
    graph, changed = run("triu_0.tmp_0@GRAD")
    assert changed is graph


def test_gradients_of_parameters_are_computed_without_an_update() -> None:
    with own_programs() as (main, _):
        loss = L.mean(L.fc(fluid.data("x", [None, 4]), 2))
        fluid.append_backward(loss)
    graph = from_program(main, ["x"])
    target = Target(strategy=BuildStrategy(), has_loss=True, replicas=2)
    changed, _ = run_pipeline(graph, target)
    assert {name for name in written(graph) if name.endswith("_0@GRAD")} <= written(changed)


def test_an_image_that_is_cast_gets_no_gradient_beside_its_filters() -> None:
    with own_programs() as (main, _):
        image = L.cast(fluid.data("x", [None, 3, 8, 8], "uint8"), "float32")
        fluid.optimizer.SGD(0.1).minimize(L.mean(L.conv2d(image, 4, 3)))
    graph = from_program(main, ["x"])
    changed = PASS.run(graph, Target(strategy=BuildStrategy()))
    assert written(graph) - written(changed) == {"cast_0.tmp_0@GRAD"}
    assert "conv2d_0.w_0@GRAD" in written(changed)
