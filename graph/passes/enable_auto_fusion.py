"""enable_auto_fusion: groups of elementwise ops become one op each, which writes only what others need.

A group holds ops of one shape, rank and part of the step that pass values to each other, by casts between
single and low precision, too; an operand from
outside may be broadcast, and the gradient of such an operand is summed by the group. All of a group runs at one
point in the order, so no path may lead out of it and back.
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
    kept = graph.needed(target.fetches)
    readers: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        for value in node.reads():
            readers.setdefault(value, []).append(node)
    found = [_computing(group.nodes, readers) for group in planner.groups()]
    groups = [nodes for nodes in found if len(nodes) > 1]
    if not groups:
        return graph.noted(f"enable_auto_fusion: nothing fused: {planner.why()}")
    swap: dict[Node, Node] = {}
    for group in groups:
        swap |= dict.fromkeys(group, _fused(group, readers, kept))
    nodes = _ordered(graph.nodes, planner.needs, swap)
    sizes = ", ".join(str(len(group)) for group in groups)
    return graph.with_nodes(nodes).noted(
        f"enable_auto_fusion: fused {len(groups)} group(s) of elementwise ops; of {sizes} ops"
    )


def _computing(nodes: Sequence[Node], readers: dict[Value, list[Node]]) -> list[Node]:
    """Leave out what hands a group's gradient on as it is: alone, it takes no memory and no time."""
    inside = set(nodes)
    for node in reversed(nodes):
        views = OPS[node.op].views if node.op in BINARY_BACKWARD and not node.grads else {}
        handed = views and all(
            slot in views and value.spec == sole_value(node.inputs, views[slot]).spec  # type: ignore[union-attr]
            for slot, held in node.outputs.items()
            for value in held
            if value is not None
        )
        if handed and not any(n in inside for v in node.writes() for n in readers.get(v, ())):
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
        whole = len(others) < len(node.reads())
        if others and (node.op not in BINARY or not whole):
            return None
    return shape, VarType.FP64 in types, node.role & ~int(OpRole.Loss), node.at


class _Group:
    """Nodes that will be one, and the groups that must run before it.

    From those in ``direct`` it only reads values; to it from those in ``through`` leads a path through others.
    """

    def __init__(self, key: Key, node: Node) -> None:
        self.key = key
        self.nodes = [node]
        self.direct: set[_Group] = set()
        self.through: set[_Group] = set()
        self._into: _Group | None = None

    def now(self) -> _Group:
        """Return the group that this one has become part of."""
        return self if self._into is None else self._into.now()

    def follows(self, other: _Group) -> bool:
        """Tell whether the other must run before this one for more than its values' sake."""
        through, direct = _now(self.through), _now(self.direct) - {other}
        return other in _reach(through | direct)

    def take(self, other: _Group) -> None:
        """Make another group part of this one."""
        self.nodes += other.nodes
        self.direct |= other.direct
        self.through |= other.through
        other._into = self
        self.direct = _now(self.direct) - {self}
        self.through = _now(self.through)


def _now(groups: Iterable[_Group]) -> set[_Group]:
    return {group.now() for group in groups}


def _reach(groups: Iterable[_Group]) -> set[_Group]:
    """Return groups and all that must run before them."""
    found: set[_Group] = set()
    waiting = list(groups)
    while waiting:
        group = waiting.pop()
        if group not in found:
            found.add(group)
            waiting += _now(group.direct | group.through)
    return found


class _Planner:
    """Lets each node join the groups whose values it reads, if no path leads from them to it through others."""

    def __init__(self, graph: Graph, casts: bool) -> None:
        self.nodes = graph.nodes
        self._casts = casts
        self.needs = needs_of(graph.nodes)
        self._place = {node: i for i, node in enumerate(graph.nodes)}
        self._group: dict[Node, _Group] = {}
        self._behind: dict[
            Node, set[_Group]
        ] = {}  # of nodes in no group: the groups they come after
        self.able = 0
        self.apart = 0

    def groups(self) -> list[_Group]:
        """Return the groups, in the order of their first members."""
        for node in self.nodes:
            key = _domain(node) if self._casts or node.op != "cast" else None
            if key is None:
                self._behind[node] = {g for n in self.needs[node] for g in self._up_to(n)}
            else:
                self.able += 1
                self._join(node, key)
        made = list(dict.fromkeys(group.now() for group in self._group.values()))
        for group in made:
            group.nodes.sort(key=self._place.__getitem__)
        return made

    def why(self) -> str:
        """Say why there is no group."""
        if not self.able:
            return "the program has no elementwise ops on floats"
        if self.apart:
            return f"{self.apart} times a path between two elementwise ops led through other ops"
        return f"none of {self.able} elementwise ops passes a value to another of its shape"

    def _join(self, node: Node, key: Key) -> None:
        home = _Group(key, node)
        for other in self.needs[node]:
            if other in self._group and self._passes(other, node):
                home.direct.add(self._group[other].now())
            else:
                home.through |= self._up_to(other)
        for group in sorted(_now(home.direct), key=lambda g: self._place[g.nodes[0]]):
            if group.key != key or group is home:
                continue
            if home.follows(group) or group.follows(home):
                self.apart += 1
                continue
            group.take(home)
            home = group
        self._group[node] = home

    def _up_to(self, node: Node) -> set[_Group]:
        """Return the groups that have run when a node has."""
        return {self._group[node].now()} if node in self._group else _now(self._behind[node])

    def _passes(self, maker: Node, node: Node) -> bool:
        """Tell whether all that a node needs of another is values of the shape of its group."""
        key = self._group[maker].now().key
        passed = [v for v in maker.writes() if v in node.reads()]
        return bool(passed) and all(v.spec.shape == key[0] for v in passed)


def _fused(
    members: Sequence[Node], readers: dict[Value, list[Node]], kept: frozenset[Value]
) -> Node:
    inside = set(members)
    written = dict.fromkeys(v for node in members for v in node.writes())
    read = dict.fromkeys(v for node in members for v in node.reads() if v not in written)
    grads = tuple(pair for node in members for pair in node.grads)
    finished = {value for _, value in grads}
    results = [
        v
        for v in written
        if v in kept or v in finished or any(n not in inside for n in readers.get(v, ()))
    ]
    number = {value: i for i, value in enumerate((*read, *written))}
    role = 0
    for node in members:
        role |= node.role
    body = [plain(node, number) for node in members]
    attrs = {"body": body, "results": [number[v] for v in results]}
    where = members[0].where
    return Node(
        FUSION,
        {"X": tuple(read)},
        {"Out": tuple(results)},
        attrs,
        role,
        where,
        grads,
        members[0].at,
    )


def _ordered(
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
    for unit, before in waits.items():
        for other in before:
            followers.setdefault(other, []).append(unit)
    missing = {unit: len(before) for unit, before in waits.items()}
    by_place = {i: unit for unit, i in place.items()}
    ready = [i for unit, i in place.items() if not missing[unit]]
    heapq.heapify(ready)
    made: list[Node] = []
    while ready:
        unit = by_place[heapq.heappop(ready)]
        made.append(unit)
        for follower in followers.get(unit, ()):
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, place[follower])
    assert len(made) == len(place), "groups wait for each other"
    return made


PASS = Pass(
    "enable_auto_fusion",
    fuse_elementwise,
    lambda target: target.strategy is not None and target.strategy.enable_auto_fusion,
    "takes what more special fusions left; gradients are finished by it before they meet",
)
