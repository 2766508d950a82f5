"""Give whole regions between collectives to a compiler (Paddle's is CINN, here XLA).

A region is a set of nodes that can run as one: nothing outside it lies between two of them. It holds only
nodes of one kind: all depend on the batch or none does (a place without rows skips the former), and one rank,
or every rank, runs them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..ir.graph import FEED, STATE, Graph, Node, Value
from ..ops.collective import COLLECTIVES
from ..ops.region import REGION
from .target import Pass, Target

_WORTH = 2  # nodes: a region of one only adds a call
Kind = tuple[bool, int]


def compile_regions(graph: Graph, target: Target) -> Graph:
    """Replace nodes that the compiler takes by a region, wherever two or more can run as one."""
    if target.compiles is None:
        return graph.noted(
            "build_cinn_pass: no effect: jax is not installed (pip install '.[xla]')"
        )
    builder = _Builder(graph, target)
    nodes: list[Node] = []
    stretch: list[Node] = []
    for node in graph.nodes:
        if node.op in COLLECTIVES:
            nodes += [*builder.with_regions(stretch), node]
            stretch = []
        else:
            stretch.append(node)
    nodes += builder.with_regions(stretch)
    note = _left_out(nodes, target.compiles)
    if not builder.regions:
        return graph.noted(f"build_cinn_pass: no two ops can be compiled as one{note}")
    counts = ", ".join(str(len(region.attrs["body"])) for region in builder.regions)
    result = graph.with_nodes(nodes)
    return result.noted(
        f"build_cinn_pass: XLA compiles {len(builder.regions)} region(s) of {counts} ops{note}"
    )


def _left_out(nodes: Iterable[Node], takes: Callable[[Node], bool]) -> str:
    """Describe which ops stay outside the regions, and why."""
    inside = [n for n in nodes if n.op not in COLLECTIVES and n.op != REGION]
    foreign = Counter(node.op for node in inside if not takes(node))
    alone = sum(takes(node) for node in inside)
    counts = "".join(f", {count} {op}" for op, count in sorted(foreign.items()))
    lines = f"; outside, for they have no lowering:{counts[1:]}" if counts else ""
    return lines + (f"; {alone} with no neighbour to join" if alone else "")


class _Builder:
    """Groups the nodes between two collectives, and makes regions of groups."""

    def __init__(self, graph: Graph, target: Target) -> None:
        assert target.compiles is not None
        self._takes = target.compiles
        self._fetches = {graph.latest[name] for name in target.fetches if name in graph.latest}
        self._readers = graph.readers()
        self._from_batch = _from_batch(graph)
        self.regions: list[Node] = []

    def with_regions(self, nodes: Sequence[Node]) -> Sequence[Node]:
        """Return the nodes with regions among them, in an order that respects data and memory."""
        kinds = {node: self._kind(node) for node in nodes if self._takes(node)}
        for kind in dict.fromkeys(kinds.values()):
            nodes = self._with_regions_of(nodes, {n for n in nodes if kinds.get(n) == kind})
        return nodes

    def _kind(self, node: Node) -> Kind:
        return node in self._from_batch, node.at

    def _with_regions_of(self, nodes: Sequence[Node], members: set[Node]) -> Sequence[Node]:
        """Make the nodes ``able`` regions, in as few stages as the other nodes between them allow.

        In each stage the other nodes come first, for they need regions of earlier stages only.
        """
        if len(members) < _WORTH:
            return nodes
        needs = needs_of(nodes)
        stage: dict[Node, int] = {}
        for node in nodes:
            later = [stage[n] + (n in members and node not in members) for n in needs[node]]
            stage[node] = max(later, default=0)
        ordered: list[Node] = []
        for number in range(max(stage.values()) + 1):
            stage_nodes = [node for node in nodes if stage[node] == number]
            inside = [node for node in stage_nodes if node in members]
            ordered += [node for node in stage_nodes if node not in members]
            ordered += [self._region(inside)] if len(inside) >= _WORTH else inside
        return ordered

    def _region(self, nodes: Sequence[Node]) -> Node:
        writes = {value: None for node in nodes for value in node.writes()}
        reads = dict.fromkeys(v for node in nodes for v in node.reads() if v not in writes)
        results = [value for value in writes if self._lasts(value, writes, set(nodes))]
        number = {value: i for i, value in enumerate((*reads, *writes))}
        region = Node(
            REGION,
            {"X": tuple(reads)},
            {"Out": tuple(results)},
            {
                "body": [plain(node, number) for node in nodes],
                "results": [number[value] for value in results],
            },
            nodes[0].role,
            nodes[0].where,
            tuple(pair for node in nodes for pair in node.grads),
            nodes[0].at,
        )
        self.regions.append(region)
        return region

    def _lasts(self, value: Value, writes: Mapping[Value, None], inside: set[Node]) -> bool:
        """Tell whether a value is needed outside: read, fetched, or a persistable's last in the region."""
        if value in self._fetches or any(n not in inside for n in self._readers.get(value, ())):
            return True
        newer = (v for v in writes if v.name == value.name and v.version > value.version)
        return value.kind == STATE and next(newer, None) is None


def plain(node: Node, number: Mapping[Value, int]) -> dict[str, Any]:
    """Return a node as plain data for the body of a region, values by their ``number`` (-1: None)."""
    inputs, outputs = (
        {slot: [-1 if v is None else number[v] for v in values] for slot, values in slots.items()}
        for slots in (node.inputs, node.outputs)
    )
    return {
        "op": node.op,
        "inputs": inputs,
        "outputs": outputs,
        "attrs": dict(node.attrs),
        "where": node.where,
    }


def needs_of(nodes: Sequence[Node]) -> dict[Node, set[Node]]:
    """Return the nodes that each node must follow: makers of its inputs, users of persistables it overwrites.

    All versions of a persistable lie in the same memory.
    """
    maker: dict[Value, Node] = {}
    users: dict[str, list[Node]] = {}
    needs: dict[Node, set[Node]] = {}
    for node in nodes:
        sources = {maker[value] for value in node.reads() if value in maker}
        for value in node.writes():
            if value.kind == STATE:
                sources.update(users.get(value.name, ()))
        for value in (*node.reads(), *node.writes()):
            if value.kind == STATE:
                users.setdefault(value.name, []).append(node)
        maker.update(dict.fromkeys(node.writes(), node))
        needs[node] = sources - {node}
    return needs


def _from_batch(graph: Graph) -> set[Node]:
    """Return the nodes that compute from the batch's rows, collectives aside."""
    varying = {v for v in graph.feeds if v.kind == FEED and v.spec.shape[:1] == (-1,)}
    dependent: set[Node] = set()
    for node in graph.nodes:
        if node.op not in COLLECTIVES and varying.intersection(node.reads()):
            dependent.add(node)
            varying.update(value for value in node.writes() if value.kind != STATE)
    return dependent


PASS = Pass(
    "build_cinn_pass",
    compile_regions,
    lambda target: target.strategy is not None and target.strategy.build_cinn_pass,
    "regions lie between collectives, whose order is final by now, and include fused ops",
)
