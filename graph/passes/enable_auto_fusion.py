"""enable_auto_fusion: groups of elementwise ops become one op each, which writes only what others need.

A group holds ops of one shape, rank and phase of the step that pass values to each other, also through casts
between single and low precision. An operand from outside may be broadcast; the group sums its gradient. A
group runs at one point in the order, so no path may lead out of it and back.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from ...strategies.types import FLOATS, VarType
from ..ir.graph import STATE, Graph, Node, Value
from ..ops.fusion import FUSION
from ..ops.pointwise import BINARY, BINARY_BACKWARD, pointwise
from ..ops.registry import OPS
from ..program.role import OpRole
from .build_cinn_pass import needs_of, plain
from .match import sole_value
from .target import Pass, Target

Key = tuple[tuple[int, ...], bool, int, int]


def fuse_elementwise(graph: Graph, target: Target) -> Graph:
    """Gather groups along the data, then put each in the place of its members."""
    compiled = target.strategy is not None and target.strategy.build_cinn_pass
    planner = _Planner(graph, casts=not compiled)
    fetches = graph.needed(target.fetches)
    readers = graph.readers()
    candidates = [_computing(group.nodes, readers) for group in planner.groups()]
    groups = [nodes for nodes in candidates if len(nodes) > 1]
    if not groups:
        return graph.noted(f"enable_auto_fusion: nothing fused: {planner.describe_absence()}")
    swap: dict[Node, Node] = {}
    for group in groups:
        swap |= dict.fromkeys(group, _fuse(group, readers, fetches))
    nodes = _order(graph.nodes, planner.needs, swap)
    sizes = ", ".join(str(len(group)) for group in groups)
    return graph.with_nodes(nodes).noted(
        f"enable_auto_fusion: fused {len(groups)} group(s) of elementwise ops; of {sizes} ops"
    )


def _computing(nodes: Sequence[Node], readers: dict[Value, list[Node]]) -> list[Node]:
    """Leave out nodes that pass a gradient on unchanged: alone they are views, without memory or time."""
    inside = set(nodes)
    for node in reversed(nodes):
        views = OPS[node.op].views if node.op in BINARY_BACKWARD and not node.grads else {}
        passes_on = views and all(
            slot in views and value.spec == sole_value(node.inputs, views[slot]).spec  # type: ignore[union-attr]
            for slot, values in node.outputs.items()
            for value in values
            if value is not None
        )
        if passes_on and not any(n in inside for v in node.writes() for n in readers.get(v, ())):
            inside.discard(node)
    return [node for node in nodes if node in inside]


def _domain(node: Node) -> Key | None:
    """Return what the members of a group have in common, None if the node cannot be one."""
    values = [*node.reads(), *node.writes()]
    if node.host or not pointwise(node.op) or not node.writes() or not values[0].spec.shape:
        return None
    types = {v.spec.dtype for v in values}
    same = len(types) == 1 or (node.op == "cast" and VarType.FP64 not in types)
    if not same or not types <= set(FLOATS) or any(v.kind == STATE for v in node.writes()):
        return None
    if node.op in BINARY_BACKWARD:
        (down,) = node.inputs["Out@GRAD"]
        shape = down.spec.shape if down else ()
    else:
        shape = node.writes()[0].spec.shape
        others = [v for v in values if v.spec.shape != shape]
        broadcasts = len(others) < len(node.reads())
        if others and (node.op not in BINARY or not broadcasts):
            return None
    return shape, VarType.FP64 in types, node.role & ~int(OpRole.Loss), node.at


class _Group:
    """Nodes that will be fused, and the groups that must run before them.

    The group only reads values of those in ``direct``; from those in ``through`` a path leads to it through
    nodes of no group.
    """

    def __init__(self, key: Key, node: Node) -> None:
        self.key = key
        self.nodes = [node]
        self.direct: set[_Group] = set()
        self.through: set[_Group] = set()
        self._into: _Group | None = None

    def current(self) -> _Group:
        """Return the group that has taken this one in (itself if none has)."""
        return self if self._into is None else self._into.current()

    def follows(self, other: _Group) -> bool:
        """Tell whether the other must run before this one for more than its values' sake."""
        through, direct = _current(self.through), _current(self.direct) - {other}
        return other in _reach(through | direct)

    def take(self, other: _Group) -> None:
        """Make another group part of this one."""
        self.nodes += other.nodes
        self.direct |= other.direct
        self.through |= other.through
        other._into = self
        self.direct = _current(self.direct) - {self}
        self.through = _current(self.through)


def _current(groups: Iterable[_Group]) -> set[_Group]:
    return {group.current() for group in groups}


def _reach(groups: Iterable[_Group]) -> set[_Group]:
    """Return groups and all that must run before them."""
    reached: set[_Group] = set()
    queue = list(groups)
    while queue:
        group = queue.pop()
        if group not in reached:
            reached.add(group)
            queue += _current(group.direct | group.through)
    return reached


class _Planner:
    """Joins each node to the groups whose values it reads, unless a path through others leads to it too."""

    def __init__(self, graph: Graph, casts: bool) -> None:
        self.nodes = graph.nodes
        self._casts = casts
        self.needs = needs_of(graph.nodes)
        self._place = {node: i for i, node in enumerate(graph.nodes)}
        self._group: dict[Node, _Group] = {}
        # of nodes in no group: the groups they come after
        self._behind: dict[Node, set[_Group]] = {}
        self.candidates = 0
        self.detours = 0

    def groups(self) -> list[_Group]:
        """Return the groups, in the order of their first members."""
        for node in self.nodes:
            key = _domain(node) if self._casts or node.op != "cast" else None
            if key is None:
                self._behind[node] = {g for n in self.needs[node] for g in self._up_to(n)}
            else:
                self.candidates += 1
                self._join(node, key)
        groups = list(dict.fromkeys(group.current() for group in self._group.values()))
        for group in groups:
            group.nodes.sort(key=self._place.__getitem__)
        return groups

    def describe_absence(self) -> str:
        """Describe why there is no group."""
        if not self.candidates:
            return "the program has no elementwise ops on floats"
        if self.detours:
            return f"{self.detours} times a path between two elementwise ops led through other ops"
        return f"none of {self.candidates} elementwise ops passes a value to another of its shape"

    def _join(self, node: Node, key: Key) -> None:
        home = _Group(key, node)
        for other in self.needs[node]:
            if other in self._group and self._passes(other, node):
                home.direct.add(self._group[other].current())
            else:
                home.through |= self._up_to(other)
        for group in sorted(_current(home.direct), key=lambda g: self._place[g.nodes[0]]):
            if group.key != key or group is home:
                continue
            if home.follows(group) or group.follows(home):
                self.detours += 1
                continue
            group.take(home)
            home = group
        self._group[node] = home

    def _up_to(self, node: Node) -> set[_Group]:
        """Return the groups that have run when a node has."""
        return (
            {self._group[node].current()} if node in self._group else _current(self._behind[node])
        )

    def _passes(self, maker: Node, node: Node) -> bool:
        """Tell whether a node needs nothing of another but values of the shape of that node's group."""
        key = self._group[maker].current().key
        values = [v for v in maker.writes() if v in node.reads()]
        return bool(values) and all(v.spec.shape == key[0] for v in values)


def _fuse(
    members: Sequence[Node], readers: dict[Value, list[Node]], fetches: frozenset[Value]
) -> Node:
    inside = set(members)
    writes = dict.fromkeys(v for node in members for v in node.writes())
    reads = dict.fromkeys(v for node in members for v in node.reads() if v not in writes)
    grads = tuple(pair for node in members for pair in node.grads)
    finished = {value for _, value in grads}
    results = [
        v
        for v in writes
        if v in fetches or v in finished or any(n not in inside for n in readers.get(v, ()))
    ]
    number = {value: i for i, value in enumerate((*reads, *writes))}
    role = 0
    for node in members:
        role |= node.role
    body = [plain(node, number) for node in members]
    attrs = {"body": body, "results": [number[v] for v in results]}
    where = members[0].where
    return Node(
        FUSION,
        {"X": tuple(reads)},
        {"Out": tuple(results)},
        attrs,
        role,
        where,
        grads,
        members[0].at,
    )


def _order(
    nodes: Sequence[Node], needs: dict[Node, set[Node]], swap: dict[Node, Node]
) -> list[Node]:
    """Return the nodes with groups in the place of their members, in an order close to the original one."""
    place = {swap.get(node, node): i for i, node in enumerate(nodes)}  # a group: of its last member
    waits: dict[Node, set[Node]] = {unit: set() for unit in place}
    for node in nodes:
        unit = swap.get(node, node)
        waits[unit].update(swap.get(n, n) for n in needs[node])
        waits[unit].discard(unit)
    followers: dict[Node, list[Node]] = {}
    for unit, earlier in waits.items():
        for other in earlier:
            followers.setdefault(other, []).append(unit)
    pending = {unit: len(earlier) for unit, earlier in waits.items()}
    by_place = {i: unit for unit, i in place.items()}
    ready = [i for unit, i in place.items() if not pending[unit]]
    heapq.heapify(ready)
    ordered: list[Node] = []
    while ready:
        unit = by_place[heapq.heappop(ready)]
        ordered.append(unit)
        for follower in followers.get(unit, ()):
            pending[follower] -= 1
            if not pending[follower]:
                heapq.heappush(ready, place[follower])
    assert len(ordered) == len(place), "groups wait for each other"
    return ordered


PASS = Pass(
    "enable_auto_fusion",
    fuse_elementwise,
    lambda target: target.strategy is not None and target.strategy.enable_auto_fusion,
    "fuses the ops that more special fusions leave; finishes gradients before they are reduced",
)
