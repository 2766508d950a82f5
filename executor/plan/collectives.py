"""Bind each collective of a program to calls of the replica's group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ...graph.ir.replica_program import NodeRecord
from ...graph.ops.collective import (
    ALL_REDUCE,
    BARRIER,
    REDUCE,
    RING_BROADCAST,
    RING_GATHER,
    RING_REDUCE,
)
from ...strategies.errors import InvalidValue
from ..cuda.runtime import Fork
from .buckets import Bucket
from .group import Call, CollectiveGroup, When
from .sparse import SparseSum


def bind_ring(
    node: NodeRecord, group: CollectiveGroup, x: Any, out: Any, device: Any, when: When
) -> list[Call]:
    """Return the calls of a collective on values that lie in no bucket; ``device`` has their arrays."""
    copy, attrs = device.xp.copyto, node.attrs
    if node.op == RING_REDUCE:
        return [partial(copy, out, x), partial(group.all_reduce, out, attrs["reduce"], when)]
    if node.op == RING_BROADCAST:
        return [partial(copy, out, x), partial(group.broadcast, out, attrs["root"], when)]
    if attrs["nranks"] != group.size:
        raise InvalidValue(
            f"{node.op}: nranks is {attrs['nranks']}, and {group.size} trainers meet. Built at {node.where}."
        )

    def gather() -> None:
        copy(out, device.xp.concatenate(group.all_gather(x, when)))

    def scatter() -> None:
        copy(out, group.reduce_scatter(device.xp.split(x, group.size), when=when))

    return [gather if node.op == RING_GATHER else scatter]


def bind_collective(
    node: NodeRecord,
    group: CollectiveGroup,
    bucket: Bucket | None,
    values: Sequence[Any],
    rank: int | None,
    copy: Callable[[Any, Any], Any],
    when: When,
    step: Any = None,
) -> list[Call]:
    """Return the calls of a collective. ``values``: their arrays; ``when``: for how long to wait.

    ``step``: the array of the step's number, if which calls these are depends on it.

    What is reduced lies in its bucket already; what is broadcast is copied into it (``copy``) and out.
    """
    if node.op == BARRIER or bucket is None:
        return [partial(group.barrier, when)]
    if node.op == ALL_REDUCE and bucket.largest:
        return [SparseSum(group, bucket, step, node.attrs, when)]
    if node.op == ALL_REDUCE:
        return [group.bound_all_reduce(bucket.flat, "sum", when)]
    roots = node.attrs["roots"]
    if node.op == REDUCE:
        return [group.bound_reduce_parts(bucket.flat, bucket.ends, roots, "sum", when)]
    call = group.bound_broadcast_parts(bucket.flat, bucket.ends, roots, when)
    ways = list(zip(roots, bucket.parts, values, strict=True))
    return [
        *(partial(copy, part, array) for root, part, array in ways if root == rank),
        call,
        *([call.finish] if isinstance(call, Fork) else []),
        *(partial(copy, array, part) for root, part, array in ways if root != rank),
    ]
