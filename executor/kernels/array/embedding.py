"""Embedding lookups; the gradient adds rows in the order of the ids, so it is the same every time."""

from __future__ import annotations

from functools import partial
from typing import Any

from ....graph.ops import embedding as ops
from ....graph.ops.operands import Array
from ...device.device import Device
from ..registry import Step, kernel
from .equal_rows import grouped
from .indexing import checked_rows, taken


@kernel("lookup_table", "lookup_table_v2", low=True)
def lookup(dev: Device, a: ops.LookupTable) -> list[Step]:
    flat, rows = a.ids.reshape(-1), a.out.reshape(-1, a.w.shape[1])
    padding = ops.padding_row(a.padding_idx, a.w.shape[0])
    steps = checked_rows(dev, "lookup_table", flat, a.w.shape[0])
    steps.append(taken(dev, a.w, flat, rows))
    if padding != -1:
        steps.append(lambda: rows.__setitem__(flat == padding, 0))
    return steps


def sum_rows(xp: Any, index: Array, rows: Array, sums: Array) -> None:
    """Write the sum of the rows that share an index to that row of ``sums``; others stay as they are."""
    if index.size == 0:
        return
    order, numbers, starts = grouped(xp, index)
    sums[numbers] = xp.add.reduceat(rows[order], starts, axis=0)


@kernel("lookup_table_grad", "lookup_table_v2_grad")
def lookup_grad(dev: Device, a: ops.LookupTableGrad) -> list[Step]:
    xp, d_w = dev.xp, a.d_w
    flat, rows = a.ids.reshape(-1), a.d_out.reshape(-1, d_w.shape[1])
    padding = ops.padding_row(a.padding_idx, d_w.shape[0])

    def add() -> None:
        sum_rows(xp, flat, rows, d_w)
        if flat.size and padding != -1:
            d_w[padding] = 0

    return [partial(d_w.fill, 0), add]


@kernel("lookup_table_dequant")
def lookup_dequant(dev: Device, a: ops.LookupTableDequant) -> list[Step]:
    """A byte tells how far a number is on the way from the least to the largest."""
    xp, flat, out = dev.xp, a.ids.reshape(-1), a.out.reshape(-1, a.out.shape[-1])
    padding = a.padding_idx

    def run() -> None:
        rows = xp.ascontiguousarray(a.w[flat])
        least, largest = rows[:, :1], rows[:, 1:2]
        numbers = xp.ascontiguousarray(rows[:, 2:]).view(xp.uint8)
        out[...] = (largest - least) / ops.DEPTH * numbers + least
        if padding != -1:
            out[flat == padding] = 0

    return [*checked_rows(dev, "lookup_table_dequant", flat, a.w.shape[0]), run]
