"""What a replica calls for a collective, by the kind of group that it is in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...graph.ir.replica_program import NodeRecord
from ...graph.ops.collective import ALL_REDUCE, BARRIER, REDUCE
from ..cuda.runtime import Fork
from .buckets import Bucket
from .group import Call, CollectiveGroup


def bind_collective(
    node: NodeRecord,
    group: CollectiveGroup,
    bucket: Bucket | None,
    values: Sequence[Any],
    rank: int | None,
    copy: Callable[[Any, Any], Any],
    when: Mapping[str, Any],
) -> list[Call]:
    """Return the calls of a collective. ``values``: their arrays; ``when``: deadline and tag.

    What is reduced lies in its bucket already; what is broadcast is copied into it (``copy``) and out.
    """
    if node.op == BARRIER or bucket is None:
        return [partial(group.barrier, **when)]
    if node.op == ALL_REDUCE:
        return [group.bound_all_reduce(bucket.flat, "sum", **when)]
    roots = node.attrs["roots"]
    if node.op == REDUCE:
        return [group.bound_reduce_parts(bucket.flat, bucket.ends, roots, **when)]
    call = group.bound_broadcast_parts(bucket.flat, bucket.ends, roots, **when)
    ways = list(zip(roots, bucket.parts, values, strict=True))
    return [
        *(partial(copy, part, array) for root, part, array in ways if root == rank),
        call,
        *([call.finish] if isinstance(call, Fork) else []),
        *(partial(copy, array, part) for root, part, array in ways if root != rank),
    ]
