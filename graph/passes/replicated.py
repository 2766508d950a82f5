"""Which values all replicas have alike, bit for bit, so that one replica's can stand for another's.

Alike are the results of all-reduce and broadcast, constants, numbers drawn for a whole tensor, persistables
that nothing else is written to, and what is computed of these alone. Not alike are rows, numbers drawn for
rows, a place's share of the samples, what one rank computes, and whatever depends on them: the moving
statistics of a batch norm that looks at its place's rows, for one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from ...strategies.types import to_numpy
from ..ir.graph import EVERYWHERE, FEED, STATE, Graph, Value
from ..ops.collective import ALL_REDUCE, BROADCAST, REDUCE
from ..ops.region import REGION
from ..ops.registry import OPS
from ..ops.rules import product
from .target import Target

KEPT_BYTES = 1 << 20  # of a place's own values, that the driver keeps


def replicated(graph: Graph, target: Target) -> frozenset[Value]:
    """Return the values that all replicas have alike.

    A persistable is alike at the beginning of a step if it is at the end: what a program writes
    to it counts, and what the target says of other programs.
    """
    if target.replicas == 1:
        return frozenset([*graph.values(), *graph.latest.values()])
    newest = _newest_states(graph)
    own = set(target.own_states)
    while True:
        alike = _alike(graph, target, own)
        differing = {name for name, value in newest.items() if value not in alike}
        if differing <= own:
            return alike
        own |= differing


def kept_states(graph: Graph, alike: frozenset[Value], target: Target) -> list[Value]:
    """Return the last values of persistables that differ by place, if the driver is to keep them.

    It does not if they are large: models that train apart would slow each step.
    """
    if not target.keeps:
        return []
    everywhere = {value for node in graph.nodes if node.at == EVERYWHERE for value in node.writes()}
    newest = _newest_states(graph).values()
    own = [value for value in newest if value not in alike and value in everywhere]
    return own if sum(map(nbytes, own)) <= KEPT_BYTES else []


def nbytes(value: Value) -> int:
    """Return the bytes of a persistable."""
    return abs(product(value.spec.shape)) * to_numpy(value.spec.dtype).itemsize


def _newest_states(graph: Graph) -> dict[str, Value]:
    """Return the last value of each persistable that the graph writes."""
    return {
        value.name: value for node in graph.nodes for value in node.writes() if value.kind == STATE
    }


def _alike(graph: Graph, target: Target, own: set[str]) -> frozenset[Value]:
    """Return the values that are alike if only these persistables (``own``) differ when a step begins."""
    made = {value for node in graph.nodes for value in node.writes()}
    alike = {
        value
        for value in (*graph.values(), *graph.latest.values())
        if value not in made and _begins_alike(value, target, own)
    }
    for node in graph.nodes:
        if node.op in (ALL_REDUCE, BROADCAST):
            alike.update(node.writes())
        elif node.at == EVERYWHERE and node.op != REDUCE:
            made_alike = _made_alike(node.op, node.attrs, node.inputs, alike, target)
            for slot, values in node.outputs.items():
                alike.update(v for k, v in enumerate(values) if v and made_alike(slot, k))
    return frozenset(alike)


def _begins_alike(value: Value, target: Target, own: set[str]) -> bool:
    if value.kind == FEED:
        return value.spec.shape[:1] != (-1,) and value.name in target.whole_feeds
    return value.kind == STATE and value.name not in own


def _made_alike(
    op: str,
    attrs: Mapping[str, Any],
    inputs: Mapping[str, Sequence[Any]],
    alike: Container[Any],
    target: Target,
) -> Callable[[str, int], bool]:
    """Return what tells whether an output of an op, by slot and place in it, is alike; -1 and None are none.

    A place without rows leaves out the ops that read rows, so what these make is not alike then,
    whatever it depends on; an op that would only hand on what it reads leaves that as it is.
    """
    if op == REGION:
        inside = _inside(attrs["body"], [value in alike for value in inputs["X"]], target)
        return lambda slot, k: attrs["results"][k] in inside
    declared = OPS[op]
    needs = declared.needs(attrs) if declared.only_uses(attrs) or not target.may_idle else {}
    by_place = declared.by_place(attrs)

    def is_alike(slot: str, k: int) -> bool:
        read = (v for s in needs.get(slot, inputs) for v in inputs.get(s, ()))
        return not by_place and all(v in alike for v in read if v is not None and v != -1)

    return is_alike


def _inside(body: Sequence[Mapping[str, Any]], given: Sequence[bool], target: Target) -> set[int]:
    """Return the numbers of the values in a region that are alike."""
    alike = {i for i, one in enumerate(given) if one}
    for node in body:
        told = _made_alike(node["op"], node["attrs"], node["inputs"], alike, target)
        for slot, held in node["outputs"].items():
            alike.update(i for k, i in enumerate(held) if told(slot, k))
    return alike
