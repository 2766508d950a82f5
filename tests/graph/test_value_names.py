"""Names of values: each has a name and version of its own, behind the reader and behind passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import rowlock.fluid as fluid
from rowlock.graph.ir.data_loops import Body
from rowlock.graph.ir.graph import STATE, Graph, Value
from rowlock.graph.ir.reader import from_program
from rowlock.graph.pipeline import check
from tests.reference import control_flow_cases, decoding_cases, dynamic_nets

L = fluid.layers


def nested() -> Any:
    """Return a program of two rounds that have two rounds each."""
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x, two = fluid.data("x", [2]), L.fill_constant([1], "int64", 2)
        i, j = (L.fill_constant([1], "int64", 0) for _ in range(2))
        outer, inner = L.less_than(i, two), L.less_than(j, two)
        loop, inner_loop = L.While(outer), L.While(inner)
        with loop.block():
            L.assign(L.fill_constant([1], "int64", 0), j)
            L.less_than(j, two, cond=inner)
            with inner_loop.block():
                L.assign(L.scale(x, 2.0), x)
                L.less_than(L.increment(j), two, cond=inner)
            L.less_than(L.increment(i), two, cond=outer)
    return main


NETS: dict[str, Any] = {"nested": lambda: [nested()]}
for module in (control_flow_cases, decoding_cases, dynamic_nets):
    NETS[module.__name__.split(".")[-1]] = lambda module=module: [
        module.build(fluid, name)[0] for name in module.Nets(fluid).cases()
    ]


def graph_of(main: Any) -> Graph:
    data = [v for v in main.global_block().vars.values() if v.is_data]
    names = [f"{v.name}@LOD{k}" for v in data for k in range(v.lod_level)]
    return from_program(main, [*(v.name for v in data), *names])


def graphs(graph: Graph) -> Iterator[Graph]:
    """Yield a graph, and those of the loops in it."""
    yield graph
    for node in graph.nodes:
        if isinstance(node.attrs.get("block"), Body):
            yield from graphs(node.attrs["block"].graph)


@pytest.mark.parametrize("nets", NETS)
def test_no_two_values_share_name_and_version(nets: str) -> None:
    for main in NETS[nets]():
        values: set[Value] = set()
        for graph in graphs(graph_of(main)):
            check(graph, "reader")
            values |= {v for v in graph.values() if v.kind != STATE or v.version}
        shared = Counter((v.name, v.version) for v in values)
        assert set(shared.values()) == {1}, shared.most_common(3)


def test_a_pass_that_makes_a_temporary_again_is_named() -> None:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        twice = L.relu(L.relu(fluid.data("x", [2])))
    graph = graph_of(main)
    first, second = graph.nodes
    (value,) = (v for v in second.writes() if v is graph.latest[twice.name])
    twin = replace(value, name=first.writes()[0].name, version=first.writes()[0].version)
    mutated = graph.with_nodes([first, replace(second, outputs={"Out": (twin,)})], {value: twin})
    with pytest.raises(AssertionError, match=r"twins: .* makes .* again"):
        check(mutated, "twins")
