"""Gradients of embeddings as rows, on a GPU: merged by row, taken out of a table and put back.

How many rows are left when equal ones are merged stays on the GPU: those left over have the number behind the
table's last, and no kernel asks for their count.
"""

from __future__ import annotations

from ....graph.ops.operands import Array
from ....graph.ops.selected_rows import MergeRows, PutRows, TakeRows
from ...codegen.cuda_launches import MOST, divisors, each, longs, read
from ...cuda.runtime import Step
from ...device.device import Device
from .by_index import MergedSums
from .copies import UNITS, moved, widest
from .support import cuda


@cuda("merge_rows")
def merge_rows(dev: Device, a: MergeRows) -> list[Step]:
    """Add up the values of equal rows, in the order of their places: the same sum every time."""
    sums = MergedSums(dev, a.rows, a.height, a.out_rows)
    return [*sums.steps, *sums.into(a.out_values, a.values)]


@cuda("take_rows")
def take_rows(dev: Device, a: TakeRows) -> list[Step]:
    """Copy rows; unused ones behind the merged rows get the last one."""
    return _between(dev, "take", a.table, a.rows, a.out)


@cuda("put_rows")
def put_rows(dev: Device, a: PutRows) -> list[Step]:
    """Write the rows that there are."""
    return [*moved(dev, a.out, a.table), *_between(dev, "put", a.out, a.rows, a.values)]


def _between(dev: Device, way: str, table: Array, rows: Array, values: Array) -> list[Step]:
    """Return the copies between rows of a table and ``values`` [len(rows), width]; ``way`` is take or put."""
    if not values.size:
        return []
    if values.size >= MOST and len(rows) > 1:
        half = len(rows) // 2
        return [
            *_between(dev, way, table, rows[:half], values[:half]),
            *_between(dev, way, table, rows[half:], values[half:]),
        ]
    per = values.size // rows.size
    width = widest(dev, values.itemsize, per, [], [table, values])
    units = per * values.itemsize // width
    taken = "values[i] = table[(row < height ? row : height - 1) * units + (i - k * units)];"
    put = "if (row < height) table[row * units + (i - k * units)] = values[i];"
    body = f"""
    const unsigned k = over(i, units_magic, units_shift);
    const long long row = rows[k];
    {taken if way == "take" else put}"""
    unit = UNITS[width]
    arguments = [(f"{unit}* table", table), (f"{unit}* values", values), *read(rows=rows)]
    arguments += [*divisors(units=units), *longs(height=len(table))]
    return [each(dev, f"{way}_rows", body, arguments, rows.size * units, ("index.cuh",))]
