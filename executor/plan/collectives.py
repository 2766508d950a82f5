"""What a replica calls for a collective, by the kind of group that it is in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...graph.ir.replica_program import NodeRecord
from ...graph.ops.collective import ALL_REDUCE, BARRIER, REDUCE
from .buckets import Bucket, Collectives

Call = Callable[[], Any]


def bind_collective(
    node: NodeRecord,
    group: Collectives,
    bucket: Bucket | None,
    held: Sequence[Any],
    rank: int | None,
    copy: Callable[[Any, Any], Any],
    when: Mapping[str, Any],
) -> list[Call]:
    """Return the calls of a collective. ``held``: where its values lie; ``when``: deadline and tag.

    What is reduced lies in its bucket already; what is broadcast is copied into it (``copy``) and out.
    """
    if node.op == BARRIER or bucket is None:
        return [partial(group.barrier, **when)]
    if node.op == ALL_REDUCE:
        return [group.bound_all_reduce(bucket.flat, "sum", **when)]
    roots = node.attrs["roots"]
    if node.op == REDUCE:
        return [_of_parts("reduce_parts", group, bucket, roots, when)]
    call = _of_parts("broadcast_parts", group, bucket, roots, when)
    ways = list(zip(roots, bucket.parts, held, strict=True))
    return [
        *(partial(copy, part, array) for root, part, array in ways if root == rank),
        call,
        *([call.finish] if hasattr(call, "finish") else []),
        *(partial(copy, array, part) for root, part, array in ways if root != rank),
    ]


def _of_parts(
    name: str, group: Collectives, bucket: Bucket, roots: Sequence[int], when: Mapping[str, Any]
) -> Call:
    """Return the call that moves each part of a bucket; a GPU's group has one for its streams."""
    bound: Callable[..., Call] | None = getattr(group, f"bound_{name}", None)
    if bound is not None:
        return bound(bucket.flat, bucket.ends, roots, **when)
    return partial(getattr(group, name), bucket.flat, bucket.ends, roots, **when)
