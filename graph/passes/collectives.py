"""Let the replicas' gradients meet: insert all-reduces, pack them into buckets, fix one order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...strategies.types import to_numpy
from ..ir import Graph, Node, Value
from ..ops.rules import product
from ..role import OpRole
from .target import Pass, Target

ALL_REDUCE = "fused_all_reduce"


def _all_reduce(values: list[Value], where: str) -> tuple[Node, dict[Value, Value]]:
    """Return a node that sums each value over the replicas, and the sums by the value they replace."""
    sums = {value: replace(value, version=value.version + 1) for value in values}
    node = Node(
        ALL_REDUCE,
        {"X": tuple(values)},
        {"Out": tuple(sums.values())},
        {"bucket": 0},
        int(OpRole.Backward),
        where,
    )
    return node, sums


def insert_collectives(graph: Graph, target: Target) -> Graph:
    """After each node that finishes a parameter's gradient, all-reduce that gradient."""
    swap: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes.append(node.reading(swap))
        if node.role & OpRole.Backward:
            for _, grad in node.grads:
                reduce_node, sums = _all_reduce([grad], node.where)
                nodes.append(reduce_node)
                swap.update(sums)
    return graph.with_nodes(nodes, swap) if swap else graph


def coalesce_gradients(graph: Graph, target: Target) -> Graph:
    """Join all-reduces of one dtype into buckets of at most ``bucket_bytes``, in order of completion.

    A bucket is sent when its last gradient is written, or before something reads one of its members.
    """
    nodes = tuple(_coalesced(graph, target.bucket_bytes))
    return graph if len(nodes) == len(graph.nodes) else graph.with_nodes(nodes)


def _coalesced(graph: Graph, limit: int) -> Iterator[Node]:
    pending: list[Node] = []
    size = 0
    for node in graph.nodes:
        if node.op != ALL_REDUCE:
            waiting = {value for member in pending for value in member.writes()}
            if waiting.intersection(node.reads()):
                yield from _joined(pending)
                pending, size = [], 0
            yield node
            continue
        (grad,) = node.reads()
        nbytes = product(grad.spec.shape) * to_numpy(grad.spec.dtype).itemsize
        other = bool(pending) and pending[0].reads()[0].spec.dtype != grad.spec.dtype
        if pending and (size + nbytes > limit or other):
            yield from _joined(pending)
            pending, size = [], 0
        pending.append(node)
        size += nbytes
    yield from _joined(pending)


def _joined(members: list[Node]) -> Iterator[Node]:
    if members:
        yield replace(
            members[-1],
            inputs={"X": tuple(v for m in members for v in m.reads())},
            outputs={"Out": tuple(v for m in members for v in m.writes())},
        )


def order_collectives(graph: Graph, target: Target) -> Graph:
    """Number the collectives in the order in which every rank will meet them."""
    number = 0
    nodes = []
    for node in graph.nodes:
        if node.op == ALL_REDUCE:
            nodes.append(replace(node, attrs={**node.attrs, "bucket": number}))
            number += 1
        else:
            nodes.append(node)
    return graph.with_nodes(nodes) if number else graph


def _many(target: Target) -> bool:
    return target.has_loss and target.replicas > 1


def _fused(target: Target) -> bool:
    return (
        _many(target) and target.strategy is not None and bool(target.strategy.fuse_all_reduce_ops)
    )


INSERT = Pass(
    "insert_collectives",
    insert_collectives,
    _many,
    "needs every gradient's last writer, before packing",
)
COALESCE = Pass(
    "coalesce_gradients", coalesce_gradients, _fused, "packs what insert_collectives made"
)
ORDER = Pass("order_collectives", order_collectives, _many, "numbers what is left after packing")
