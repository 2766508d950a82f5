"""Insert a collective for each gradient, and pack collectives into buckets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...strategies.types import to_numpy
from ..ir.graph import Graph, Node, Value
from ..ops.collective import ALL_REDUCE, GATHER_ROWS, REDUCE
from ..ops.dgc import DGC
from ..ops.rules import product
from ..program.role import OpRole
from .target import Pass, Target


def newest_versions(graph: Graph) -> dict[str, int]:
    """Return the highest version of each name."""
    newest: dict[str, int] = {}
    for value in graph.values():
        newest[value.name] = max(value.version, newest.get(value.name, 0))
    return newest


def make_collective(
    op: str,
    values: Sequence[Value],
    where: str,
    role: int,
    newest: dict[str, int],
    roots: Sequence[int] = (),
) -> tuple[Node, dict[Value, Value]]:
    """Return a collective over values, and its result for each of them: versions above the ``newest``.

    A name may be written again behind the collective (a regularizer adds to the gradient in place).
    """
    results: dict[Value, Value] = {}
    for value in values:
        newest[value.name] = newest.get(value.name, value.version) + 1
        results[value] = replace(value, version=newest[value.name])
    attrs = {"bucket": 0, **({"roots": list(roots)} if roots else {})}
    node = Node(op, {"X": tuple(values)}, {"Out": tuple(results.values())}, attrs, role, where)
    return node, results


def roots_of(node: Node) -> dict[Value, int]:
    """Return the owner of each value that a collective brings to one rank."""
    roots = node.attrs["roots"] if node.op == REDUCE else [node.attrs["root"]] * 2
    return dict(zip(node.writes(), roots, strict=True))


def insert_collectives(graph: Graph, target: Target) -> Graph:
    """Sum each parameter's gradient over the replicas, behind the node that finishes it.

    AllReduce: everywhere. Reduce: at one owner, the rank that owns the fewest elements so far.
    """
    swap: dict[Value, Value] = {}
    nodes: list[Node] = []
    owned = [0] * target.replicas
    newest = newest_versions(graph)
    to_owners = target.reduces_to == "Reduce"

    def owner_of(elements: int) -> int:
        rank = owned.index(min(owned))
        owned[rank] += abs(elements)
        return rank

    for node in graph.nodes:
        if node.op == DGC:  # each place adds its part of the decay
            node = replace(node, attrs={**node.attrs, "share": 1 / target.replicas})
        if node.op == GATHER_ROWS and to_owners:
            root = owner_of(node.attrs["height"] * node.reads()[1].spec.shape[1])
            node = replace(node, attrs={**node.attrs, "root": root})
        nodes.append(node.reading(swap))
        for parameter, grad in node.grads if node.role & OpRole.Backward else ():
            op = REDUCE if to_owners else ALL_REDUCE
            roots = [owner_of(product(grad.spec.shape))] if to_owners else []
            collective, sums = make_collective(
                op, [grad], node.where, int(OpRole.Backward), newest, roots
            )
            if node.op == DGC and not to_owners:
                collective = _of_the_largest(collective, node)
            nodes.append(replace(collective, grads=((parameter, sums[grad]),)))
            swap.update(sums)
    return graph if nodes == list(graph.nodes) else graph.with_nodes(nodes, swap)


def _of_the_largest(collective: Node, node: Node) -> Node:
    """Return an all-reduce that knows how many elements of what a node sends are not zero, by its step."""
    ramp = {name: node.attrs[name] for name in ("sparsity", "rampup_begin_step", "rampup_step")}
    inputs = {**collective.inputs, "Step": node.inputs["current_step"]}
    return replace(collective, inputs=inputs, attrs={**collective.attrs, **ramp})


def coalesce_gradients(graph: Graph, target: Target) -> Graph:
    """Join collectives of gradients of one dtype into buckets of limited size, in order of completion.

    A bucket is sent when its last gradient is written, or before something reads one of its members.
    """
    nodes = tuple(_coalesce(graph, target))
    return graph if len(nodes) == len(graph.nodes) else graph.with_nodes(nodes)


def _coalesce(graph: Graph, target: Target) -> Iterator[Node]:
    pending: list[Node] = []
    size = 0
    for node in graph.nodes:
        if not (node.op in (ALL_REDUCE, REDUCE) and node.grads) or "Step" in node.inputs:
            results = {value for member in pending for value in member.writes()}
            if results.intersection(node.reads()):
                yield from _bucket(pending)
                pending, size = [], 0
            yield node
            continue
        (grad,) = node.reads()
        nbytes = product(grad.spec.shape) * to_numpy(grad.spec.dtype).itemsize
        other_dtype = bool(pending) and pending[0].reads()[0].spec.dtype != grad.spec.dtype
        full = size + nbytes > target.bucket_bytes or len(pending) == target.bucket_members
        if pending and (full or other_dtype):
            yield from _bucket(pending)
            pending, size = [], 0
        pending.append(node)
        size += nbytes
    yield from _bucket(pending)


def _bucket(members: list[Node]) -> Iterator[Node]:
    if members:
        roots = [root for m in members for root in m.attrs.get("roots", ())]
        yield replace(
            members[-1],
            inputs={"X": tuple(v for m in members for v in m.reads())},
            outputs={"Out": tuple(v for m in members for v in m.writes())},
            attrs={**members[-1].attrs, **({"roots": roots} if roots else {})},
            grads=tuple(pair for m in members for pair in m.grads),
        )


INSERT = Pass(
    "insert_collectives",
    insert_collectives,
    lambda target: target.many and target.reduces_to != "_NoReduce",
    "needs every gradient's last writer, before packing",
)
COALESCE = Pass(
    "coalesce_gradients",
    coalesce_gradients,
    lambda target: (
        target.many and target.strategy is not None and target.strategy.fuse_all_reduce_ops
    ),
    "packs the collectives of insert_collectives",
)
