"""Find patterns in a graph and replace them by other nodes, for the fusion passes.

A :class:`GraphRewriter` knows which nodes write and read a value and whether the value may vanish into a fused
node, and puts that node in. Where it may not, the rewriter records the reason for ``explain()``.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ..ir.graph import STATE, Graph, Node, Slots, Value
from ..program.role import OpRole
from .target import Target

Change = tuple[Sequence[Node], Node]  # nodes, and the one that takes their place
_REASONS_SHOWN = 4


class GraphRewriter:
    """A graph that is being rewritten: makers and readers of values, and where nodes stand in the order.

    ``refused`` counts reasons why something that looked like the pattern was left alone.
    """

    def __init__(self, graph: Graph, target: Target) -> None:
        self.graph = graph
        self.refusals: Counter[str] = Counter()
        self.maker: dict[Value, Node] = {}
        self._fetches = graph.needed(target.fetches)
        self._readers: dict[Value, list[Node]] = {}
        self._versions: dict[str, list[Node]] = {}  # persistable -> nodes that read or write it
        self._at: dict[Node, float] = {}
        for i, node in enumerate(graph.nodes):
            self._enter(node, float(i))

    def nodes(self, *op_types: str) -> list[Node]:
        """Return the nodes of these ops that are still there, in order."""
        matches = [node for node in self._at if node.op in op_types]
        return sorted(matches, key=self._at.__getitem__)

    def holds(self, node: Node) -> bool:
        """Tell whether a node is still there."""
        return node in self._at

    def readers(self, value: Value) -> list[Node]:
        """Return the nodes that read a value."""
        return list(dict.fromkeys(self._readers.get(value, ())))

    def writer(self, value: Value | None, *op_types: str) -> Node | None:
        """Return the node that computes a value, if it is one of these ops (no types: any op)."""
        node = self.maker.get(value) if value is not None else None
        return node if node is not None and (not op_types or node.op in op_types) else None

    def reader(self, value: Value | None, op_type: str, slot: str) -> Node | None:
        """Return the first node of a type that reads a value in a slot."""
        if value is None:
            return None
        matches = (n for n in self.readers(value) if n.op == op_type)
        return next((n for n in matches if value in n.inputs.get(slot, ())), None)

    def can_fuse_away(self, value: Value, into: Collection[Node]) -> bool:
        """Tell whether only the nodes ``into`` need a value; if others do, record the reason."""
        maker = self.maker.get(value)
        if maker is None:
            return False
        others = [node for node in self.readers(value) if node not in into]
        why = ""
        if value in self._fetches:
            why = "is fetched"
        elif value.kind == STATE:
            why = "is persistable"
        elif maker.role & OpRole.Backward and any(value is grad for _, grad in maker.grads):
            why = "is a parameter's gradient"
        elif others:
            why = f"has another reader, {' and '.join(sorted({n.op for n in others}))}"
        return self.refuse(f"{output_of(maker)} {why}") if why else True

    def refuse(self, reason: str) -> bool:
        """Record a reason; return False."""
        self.refusals[reason] += 1
        return False

    def fuse(self, old: Sequence[Node], new: Node) -> bool:
        """Replace nodes by one, behind the makers of its inputs and before the readers of its outputs.

        The new node finishes the gradients that the old ones did. Returns False and records the reason if the
        old nodes differ in role, rank or device, or there is no such place.
        """
        roles = {node.role & ~int(OpRole.Loss) for node in old}
        if len(roles) > 1 or len({node.at for node in old}) > 1:
            return self.refuse(f"{_describe(old)} differ in role or rank")
        if len({node.host for node in old}) > 1:
            return self.refuse(f"{_describe(old)} are kept apart by device_guard")
        role = functools.reduce(operator.or_, (node.role for node in old))
        results = new.writes()
        grads = tuple(pair for node in old for pair in node.grads if pair[1] in results)
        place = self._place(old, new)
        if place is None:
            return self.refuse(f"{_describe(old)} have no common place in the order")
        for node in old:
            self._leave(node)
        fused = replace(new, role=role, at=old[0].at, grads=grads, host=old[0].host)
        self._enter(fused, place)
        return True

    def fuse_all(self, pairs: Sequence[Change]) -> bool:
        """:meth:`fuse` every pair (old nodes, new node), or none of them: a forward op and its gradient op."""
        replacements: list[tuple[list[tuple[Node, float]], Node]] = []
        for old, new in pairs:
            places = [(node, self._at[node]) for node in old]
            if not self.fuse(old, new):
                for nodes, fused in reversed(replacements):
                    self._leave(self.maker[fused.writes()[0]])
                    for node, place in nodes:
                        self._enter(node, place)
                return False
            replacements.append((places, new))
        return True

    def result(self, name: str, fused: Mapping[str, int], absent: str) -> Graph:
        """Return the rewritten graph with a note: the counts of each kind in ``fused``, or why they are zero.

        ``absent`` names what the program lacks if nothing looked like the pattern.
        """
        counts = [f"{count} {what}" for what, count in fused.items() if count]
        reasons = [
            f"{reason}{f' ({count} times)' if count > 1 else ''}"
            for reason, count in self.refusals.most_common(_REASONS_SHOWN)
        ]
        more = len(self.refusals) - len(reasons)
        reasons += [f"and {more} more reasons"] if more > 0 else []
        if not counts:
            return self.graph.noted(f"{name}: nothing fused: {'; '.join(reasons) or absent}")
        rest = f"; left alone: {'; '.join(reasons)}" if reasons else ""
        nodes = sorted(self._at, key=self._at.__getitem__)
        return self.graph.with_nodes(nodes).noted(f"{name}: fused {', '.join(counts)}{rest}")

    def _enter(self, node: Node, place: float) -> None:
        self._at[node] = place
        self.maker.update(dict.fromkeys(node.writes(), node))
        for value in node.reads():
            self._readers.setdefault(value, []).append(node)
        for value in (*node.reads(), *node.writes()):
            if value.kind == STATE:
                self._versions.setdefault(value.name, []).append(node)

    def _leave(self, node: Node) -> None:
        del self._at[node]
        for value in node.writes():
            del self.maker[value]
        for value in node.reads():
            self._readers[value] = [n for n in self._readers[value] if n is not node]
        for value in (*node.reads(), *node.writes()):
            if value.kind == STATE:
                self._versions[value.name] = [
                    n for n in self._versions[value.name] if n is not node
                ]

    def _place(self, old: Sequence[Node], new: Node) -> float | None:
        """Return a place after all that must come before, preferably that of the last old node."""
        before = [self.maker[v] for v in new.reads() if v in self.maker]
        after = [node for value in new.writes() for node in self.readers(value)]
        for member, other in self._sharing(old):
            (before if self._at[other] < self._at[member] else after).append(other)
        first = max((self._at[n] for n in before if n not in old), default=-1.0)
        last = min(
            (self._at[n] for n in after if n not in old), default=float(len(self.graph.nodes))
        )
        latest = max(self._at[node] for node in old)
        if first < latest < last:
            return latest
        return (first + last) / 2 if first < last else None

    def _sharing(self, old: Sequence[Node]) -> Iterable[tuple[Node, Node]]:
        """Yield pairs that keep their order: versions of a persistable lie in one place in memory."""
        for node in old:
            versions = {v.name: v.version for v in node.reads() if v.kind == STATE}
            versions |= {v.name: v.version for v in node.writes() if v.kind == STATE}
            for name, version in versions.items():
                for other in self._versions[name]:
                    others = (
                        v.version for v in (*other.reads(), *other.writes()) if v.name == name
                    )
                    if other not in old and any(v != version for v in others):
                        yield node, other


def sole_value(values: Slots, slot: str) -> Value | None:
    """Return the value in a slot that holds one, None if it is not in use."""
    return next(iter(values.get(slot, ())), None)


def other_operand(total: Node, value: Value) -> Value | None:
    """Return the other operand of a sum of two (None if there is none, or more)."""
    others = [operand for operand in total.reads() if operand is not value]
    return others[0] if len(others) == 1 and len(total.reads()) == 2 else None


def nonempty_slots(slots: Mapping[str, Value | None]) -> dict[str, tuple[Value | None, ...]]:
    """Return slots in a node's form, without those that hold nothing."""
    return {slot: (value,) for slot, value in slots.items() if value is not None}


def output_of(node: Node) -> str:
    """Name the output of a node in an error or note, with the user's line."""
    return f"the output of {node.op} (built at {node.where})"


def _describe(nodes: Sequence[Node]) -> str:
    return f"{' and '.join(node.op for node in nodes)} (built at {nodes[0].where})"
