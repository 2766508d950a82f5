"""Values that must be known before a step is bound, because shapes depend on their elements.

They are computed on the host from what is fed, by the kernels of their own ops; plans are kept by what was fed
for them. (``program/known.py`` has those that are known when a program is built.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from ..ops.collective import COLLECTIVES
from ..ops.registry import OPS
from .graph import STATE
from .replica_program import NodeRecord, ReplicaProgram, ValueRecord


class KnownValues(NamedTuple):
    """Places of feeds in the feed list, numbers of nodes, and the positions of all values known by them."""

    feeds: tuple[int, ...]
    nodes: frozenset[int]
    positions: frozenset[int]


def known_values(program: ReplicaProgram) -> KnownValues:
    """Return what must be known before a segment is bound."""
    targets = {i for node in program.nodes for i in _read_before(node)}
    nodes = _computing(program.nodes, targets)
    feeds = tuple(k for k, i in enumerate(program.feeds) if i in targets)
    return KnownValues(feeds, frozenset(nodes), frozenset(targets))


def unknown(before: Sequence[NodeRecord], node: NodeRecord, values: Sequence[ValueRecord]) -> bool:
    """Tell whether a shape depends on elements that nodes before do not compute from feeds alone."""
    targets = _read_before(node)
    if not targets:
        return False
    if any(
        OPS[before[k].op].random or before[k].op in COLLECTIVES for k in _computing(before, targets)
    ):
        return True
    return any(values[i].kind == STATE for i in targets)


def reads_elements(node: NodeRecord) -> bool:
    """Tell whether a shape depends on elements of what a node reads."""
    return bool(_read_before(node))


def _read_before(node: NodeRecord) -> set[int]:
    """Return the positions of the values whose elements a node's shape rule reads."""
    slots = OPS[node.op].values_read(node.attrs, node.inputs)
    return {i for slot in slots for i in node.inputs[slot] if i >= 0}


def _computing(nodes: Sequence[NodeRecord], targets: set[int]) -> list[int]:
    """Return the numbers of the nodes that compute values; all that these read is added to ``targets``."""
    numbers = []
    for number, node in reversed(list(enumerate(nodes))):
        results = {i for positions in node.outputs.values() for i in positions if i in targets}
        if results:
            numbers.append(number)
            slots = _slots_read(node, results)
            targets |= {i for slot in slots for i in node.inputs.get(slot, ()) if i >= 0}
    return numbers


def _slots_read(node: NodeRecord, results: Collection[int]) -> set[str]:
    """Return the input slots on which some results of a node depend."""
    needs, slots = OPS[node.op].needs(node.attrs), set[str]()
    for slot, positions in node.outputs.items():
        if any(i in results for i in positions):
            slots |= set(needs.get(slot, node.inputs))
    return slots
