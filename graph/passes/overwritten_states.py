"""Keep what a persistable held for nodes that read it behind a write: all its values have one memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..ir.graph import STATE, TEMP, Graph, Node, Value
from ..program.role import overwritten_name
from .target import Pass, Target


def keep_overwritten_states(graph: Graph, target: Target) -> Graph:
    """Copy a persistable's value before a node overwrites it, if nodes behind that read it; they read the copy.

    Such are gradient ops, which read what their op read, and what passes moved.
    """
    overwritten = set(_read_behind_a_write(graph))
    if not overwritten:
        return graph
    computed = {value for node in graph.nodes for value in node.writes()}
    present = {value.name: value for value in overwritten - computed}
    nodes: list[Node] = []
    copies: dict[Value, Value] = {}
    for node in graph.nodes:
        reading = node.reading(copies)
        for written in (value for value in node.writes() if value.kind == STATE):
            value = present.get(written.name)
            if value in overwritten:
                nodes.append(_copy(value, node))
                (copies[value],) = nodes[-1].writes()
            present[written.name] = written
        nodes.append(reading)
    return graph.with_nodes(nodes)


def _read_behind_a_write(graph: Graph) -> Iterator[Value]:
    """Yield the values of persistables that a node reads when another value has taken their place."""
    present: dict[str, Value] = {}
    for node in graph.nodes:
        states = [value for value in node.reads() if value.kind == STATE]
        yield from (v for v in states if present.setdefault(v.name, v) is not v)
        present |= {value.name: value for value in node.writes() if value.kind == STATE}


def _copy(value: Value, node: Node) -> Node:
    """Return the node that copies a value for those behind ``node``."""
    name = overwritten_name(value.name, value.version)
    copy = replace(value, kind=TEMP, name=name)
    return Node("assign", {"X": (value,)}, {"Out": (copy,)}, {}, node.role, node.where)


PASS = Pass(
    "keep_overwritten_states",
    keep_overwritten_states,
    lambda target: True,
    "no later pass moves what reads or writes a persistable",
)
