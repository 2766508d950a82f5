"""Gradients of embeddings as rows: merged by row, and rows that are put back into a table."""

from __future__ import annotations

from functools import partial
from typing import Any

from ....graph.ops.selected_rows import MergeRows, PutRows, TakeRows
from ...device.device import Device
from ..registry import Step, kernel
from .equal_rows import grouped
from .indexing import taken


@kernel("merge_rows")
def merge_rows(dev: Device, a: MergeRows) -> list[Step]:
    """Add up the values of equal rows, in the order of their places: the same sum every time."""
    xp: Any = dev.xp
    if not a.rows.size:
        return []

    def merge() -> None:
        if bool((a.rows[1:] > a.rows[:-1]).all()):
            # merged before, as what trainers send to servers
            a.out_rows[...], a.out_values[...] = a.rows, a.values
            return
        order, numbers, starts = grouped(xp, a.rows)
        count = starts.size
        a.out_rows[:count] = numbers
        a.out_rows[count:] = a.height
        xp.add.reduceat(a.values[order], starts, axis=0, out=a.out_values[:count])
        a.out_values[count:] = 0

    return [merge]


@kernel("take_rows", low=True)
def take_rows(dev: Device, a: TakeRows) -> list[Step]:
    """Copy rows; what is left over among merged rows gets the last one."""
    inside, last = dev.scratch(a.rows.shape, a.rows.dtype), a.table.shape[0] - 1
    return [partial(dev.xp.minimum, a.rows, last, out=inside), taken(dev, a.table, inside, a.out)]


@kernel("put_rows", low=True)
def put_rows(dev: Device, a: PutRows) -> list[Step]:
    """Write the rows that there are; what is left over among merged rows is behind them."""
    xp: Any = dev.xp
    height = a.table.shape[0]

    def put() -> None:
        count = int(xp.searchsorted(a.rows, height))
        a.out[a.rows[:count]] = a.values[:count]

    beside = a.out is not a.table and not xp.may_share_memory(a.out, a.table)
    return [*([partial(xp.copyto, a.out, a.table)] if beside else []), put]
