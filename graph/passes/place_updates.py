"""Reduce mode: the owner of a gradient alone updates its parameter and broadcasts it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..ir.graph import FEED, STATE, Graph, Node, Value
from ..ops.collective import BROADCAST, COLLECTIVES, GATHER_ROWS, REDUCE, SPREAD_ROWS
from ..ops.registry import OPS
from ..program.role import OpRole
from .collectives import make_collective, newest_versions, roots_of
from .target import Pass, Target


def place_updates(graph: Graph, target: Target) -> Graph:
    """Run nodes that depend on one owner's gradients at that owner; broadcast the values that others read.

    A node that reads values of several owners (the norm over all gradients), or values of an owner and of its
    place's own rows (a layer that is used again behind its update), runs everywhere, on values that are
    broadcast first. At the end of the step a persistable is broadcast if any other rank begins the next
    step by reading it: parameters are, an optimizer's state is not.
    """
    assert target.strategy is not None
    placer = _Placer(graph)
    nodes = [placed for node in graph.nodes for placed in placer.place(node)]
    latest = {name: placer.swap.get(value, value) for name, value in graph.latest.items()}
    readers = _readers_of_old_values(nodes, placer.owner)
    stale = [
        value
        for value in latest.values()
        if value in placer.owner and readers.get(value.name, set()) - {placer.owner[value]}
    ]
    for group in _groups(stale, target.strategy.fuse_broadcast_ops):
        nodes.append(placer.broadcast(group, "the end of the step"))
    return graph.with_nodes(nodes, placer.swap)


class _Placer:
    """Knows which values exist at their owner only, and which are ``local``: computed from a place's rows."""

    def __init__(self, graph: Graph) -> None:
        self.newest = newest_versions(graph)
        self.local = {value for value in graph.feeds if value.kind == FEED}
        self.owner: dict[Value, int] = {}
        self.swap: dict[Value, Value] = {}

    def place(self, node: Node) -> Iterator[Node]:
        node = node.reading(self.swap)
        if node.op in (REDUCE, GATHER_ROWS):
            self.owner.update(roots_of(node))
            yield node
            return
        if node.op == SPREAD_ROWS:
            (rows, *_) = node.reads()
            yield replace(node, attrs={**node.attrs, "root": self.owner[rows]})
            return
        owned = [value for value in dict.fromkeys(node.reads()) if value in self.owner]
        owners = {self.owner[value] for value in owned}
        differs = not self.local.isdisjoint(node.reads())
        if len(owners) > 1 or (owners and differs):
            for group in _groups(owned, fused=True):
                yield self.broadcast(group, node.where)
            node = node.reading(self.swap)
        elif owners:
            (rank,) = owners
            node = replace(node, at=rank)
            self.owner.update(dict.fromkeys(node.writes(), rank))
        if differs and node.op not in COLLECTIVES:
            self.local.update(self._local_results(node))
        yield node

    def _local_results(self, node: Node) -> Iterator[Value]:
        """Yield what a node computes from local values; a result may need some of the operands only."""
        needs = OPS[node.op].needs(node.attrs)
        for slot, results in node.outputs.items():
            slots = needs.get(slot, node.inputs)
            operands = [value for name in slots for value in node.inputs.get(name, ())]
            if not self.local.isdisjoint(operands):
                yield from (value for value in results if value is not None)

    def broadcast(self, values: list[Value], where: str) -> Node:
        roots = [self.owner[value] for value in values]
        node, copies = make_collective(
            BROADCAST, values, where, int(OpRole.Optimize), self.newest, roots
        )
        self.swap.update(copies)
        return node


def _readers_of_old_values(nodes: list[Node], owner: dict[Value, int]) -> dict[str, set[int]]:
    """Return, per persistable, the ranks that read its value from before the step (-1: all of them)."""
    ranks: dict[str, set[int]] = {}
    for node in nodes:
        for value in node.reads():
            if value.kind == STATE and value not in owner:
                ranks.setdefault(value.name, set()).add(node.at)
    return ranks


def _groups(values: list[Value], fused: bool) -> list[list[Value]]:
    """Return the values of each collective: those of one dtype, or every value by itself."""
    if not fused:
        return [[value] for value in values]
    by_dtype: dict[int, list[Value]] = {}
    for value in values:
        by_dtype.setdefault(int(value.spec.dtype), []).append(value)
    return list(by_dtype.values())


PASS = Pass(
    "place_updates",
    place_updates,
    lambda target: target.many and target.reduces_to == "Reduce",
    "owners are known once gradients are reduced; its broadcasts are ordered with the other collectives",
)
