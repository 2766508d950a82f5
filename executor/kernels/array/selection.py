"""Elements that differ, and places of those that are not zero. On the host, where their number is read."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.ops.selection import Unique, UniqueWithCounts, WhereIndex
from ...device.device import Device
from ..registry import Step, each_step, kernel


@each_step("where_index", on=("numpy",))
def where_index(a: WhereIndex) -> None:
    a.out[...] = np.argwhere(a.condition)


@kernel("unique", on=("numpy",))
def unique(dev: Device, a: Unique) -> Step:
    """In the order in which elements come first, or sorted."""
    axis = a.axis[0] if a.axis else None

    def run() -> None:
        values, first, number, count = np.unique(
            a.x, return_index=True, return_inverse=True, return_counts=True, axis=axis
        )
        order = np.arange(first.size) if a.is_sorted else np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(order.size)
        a.out[...] = values.take(order, axis or 0)
        for out, result in (
            (a.index, place[number.reshape(-1)]),
            (a.indices, first[order]),
            (a.counts, count[order]),
        ):
            if out is not None:
                out[...] = result

    return run


@kernel("unique_with_counts", on=("numpy",))
def unique_with_counts(dev: Device, a: UniqueWithCounts) -> Step:
    settings: dict[str, Any] = {"indices": None, "axis": [], "is_sorted": False}
    return unique(dev, Unique.of({**vars(a), **settings}))
