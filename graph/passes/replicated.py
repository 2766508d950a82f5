"""Find the values that all replicas have alike, bit for bit, so that one replica's can stand for another's.

Alike are the results of all-reduce and broadcast, constants, numbers drawn for a whole tensor, persistables
to which only such values are written, and results computed from these alone. Not alike are rows, numbers drawn
for rows, a place's share of the samples, the results of a single rank, and values that depend on them, such as
the moving statistics of a batch norm over its place's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from ...strategies.types import to_numpy
from ..ir.graph import EVERYWHERE, FEED, STATE, Graph, Value
from ..ops.collective import BARRIER, COLLECTIVES, REDUCE, RING_SCATTER
from ..ops.region import REGION
from ..ops.registry import OPS
from ..ops.rules import product
from .target import Target

_ALIKE = COLLECTIVES - {REDUCE, BARRIER, RING_SCATTER}  # they leave the same with all
KEPT_BYTES = 1 << 20  # the most that the driver stores of a place's own values


def replicated(graph: Graph, target: Target) -> frozenset[Value]:
    """Return the values that all replicas have alike.

    A persistable is alike at the beginning of a step if this program, and by the target other programs, leave
    it alike at the end.
    """
    if target.replicas == 1:
        return frozenset([*graph.values(), *graph.latest.values()])
    newest = _newest_states(graph)
    own = set(target.own_states)
    while True:
        alike = _find_alike(graph, target, own)
        differing = {name for name, value in newest.items() if value not in alike}
        if differing <= own:
            return alike
        own |= differing


def place_states(graph: Graph, alike: frozenset[Value], target: Target) -> list[Value]:
    """Return the last values of persistables that differ by place, if the driver is to store them.

    Large ones it does not store: models that train apart would slow each step.
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


def _find_alike(graph: Graph, target: Target, own: set[str]) -> frozenset[Value]:
    """Return the values that are alike if only these persistables (``own``) differ when a step begins."""
    computed = {value for node in graph.nodes for value in node.writes()}
    alike = {
        value
        for value in (*graph.values(), *graph.latest.values())
        if value not in computed and _begins_alike(value, target, own)
    }
    for node in graph.nodes:
        if node.op in _ALIKE:
            alike.update(node.writes())
        elif node.at == EVERYWHERE and node.op not in (REDUCE, RING_SCATTER):
            results_alike = _results_alike(node.op, node.attrs, node.inputs, alike, target)
            for slot, values in node.outputs.items():
                alike.update(v for k, v in enumerate(values) if v and results_alike(slot, k))
    return frozenset(alike)


def _begins_alike(value: Value, target: Target, own: set[str]) -> bool:
    if value.kind == FEED:
        return value.spec.shape[:1] != (-1,) and value.name in target.whole_feeds
    return value.kind == STATE and value.name not in own


def _results_alike(
    op: str,
    attrs: Mapping[str, Any],
    inputs: Mapping[str, Sequence[Any]],
    alike: Container[Any],
    target: Target,
) -> Callable[[str, int], bool]:
    """Return a function of slot and position that tells whether an op's output is alike (-1, None: no value).

    A place without rows leaves out the ops that read rows, so their results are not alike then, whatever they
    depend on; an op that would only hand on its operands leaves those as they are.
    """
    if op == REGION:
        inside = _inside(attrs["body"], [value in alike for value in inputs["X"]], target)
        return lambda slot, k: attrs["results"][k] in inside
    declaration = OPS[op]
    needs = declaration.needs(attrs) if declaration.only_uses(attrs) or not target.may_idle else {}
    by_place = declaration.by_place(attrs)

    def is_alike(slot: str, k: int) -> bool:
        operands = (v for s in needs.get(slot, inputs) for v in inputs.get(s, ()))
        return not by_place and all(v in alike for v in operands if v is not None and v != -1)

    return is_alike


def _inside(
    body: Sequence[Mapping[str, Any]], inputs_alike: Sequence[bool], target: Target
) -> set[int]:
    """Return the numbers of the values in a region that are alike."""
    alike = {i for i, is_alike in enumerate(inputs_alike) if is_alike}
    for node in body:
        results_alike = _results_alike(node["op"], node["attrs"], node["inputs"], alike, target)
        for slot, numbers in node["outputs"].items():
            alike.update(i for k, i in enumerate(numbers) if results_alike(slot, k))
    return alike
