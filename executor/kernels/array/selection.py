"""Elements that differ, and places of those that are not zero. On the host, where their number is read."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.ops.operands import Array
from ....graph.ops.selection import Distinct, Unique, UniqueWithCounts, WhereIndex, distinct
from ..registry import each_step


@each_step("where_index", on=("numpy",))
def where_index(a: WhereIndex) -> None:
    flat = np.flatnonzero(a.condition)
    for axis, places in enumerate(np.unravel_index(flat, a.condition.shape)):
        a.out[:, axis] = places


def _along(x: Array, axis: int) -> tuple[Array, Distinct]:
    """Return the slices along an axis that differ, in order, and where and how often they come."""
    values, first, numbers, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    return values, Distinct(first, numbers.reshape(-1), counts)


def _in_order(known: Distinct, order: Array) -> Distinct:
    """Return the same in another order of what differs."""
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return Distinct(known.first[order], place[known.numbers], known.counts[order])


@each_step("unique", on=("numpy",))
def unique(a: Unique) -> None:
    """In the order in which elements come first, or sorted."""
    if a.axis:
        values, known = _along(a.x, a.axis[0])
        if not a.is_sorted:
            order = np.argsort(known.first)
            values, known = values.take(order, a.axis[0]), _in_order(known, order)
    else:
        known = distinct(a)
        if a.is_sorted:
            known = _in_order(known, np.argsort(a.x[known.first]))
        values = a.x[known.first]
    a.out[...] = values
    results = (known.numbers, known.first, known.counts)
    for out, result in zip((a.index, a.indices, a.counts), results, strict=True):
        if out is not None:
            out[...] = result


@each_step("unique_with_counts", on=("numpy",))
def unique_with_counts(a: UniqueWithCounts) -> None:
    settings: dict[str, Any] = {"indices": None, "axis": [], "is_sorted": False}
    unique(Unique.of({**vars(a), **settings}))
