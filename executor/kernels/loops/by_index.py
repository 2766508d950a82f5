"""Rows picked by number, and rows added up by number in the order of their positions, in compiled loops.

Sources are [stack, row, element]; one vector of numbers is for the whole stack, a matrix has a row for each. A
number outside the rows counts as the nearest row: a kernel that must not have that checks it before.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ....graph.ops.operands import Array
from ...codegen.text_loops import bind_text, named
from ...device.device import Device
from ..array import formula as arrays
from ..registry import Step

_LOOPS = """
    for s in range(stack):
        for k in range(count):
            row = np.int64(load(index, s * apart + k))
            row = select(row < 0, 0, row)
            row = select(row < rows, row, rows - 1)
            here = (s * rows + row) * width
            there = (s * count + k) * width
            if width == 1:
                {one}
            else:
                for i in range(width):
                    {each}
"""
_PICK = "store(last, there{i}, load(first, here{i}))"
_ADD = "store(last, here{i}, load(last, here{i}) + load(first, there{i}))"


_PICKED, _ADDED = (
    _LOOPS.format(one=what.format(i=""), each=what.format(i=" + i")) for what in (_PICK, _ADD)
)


def looped(index: Array, *arrays: Array) -> bool:
    """Tell whether the loops take these arrays."""
    ordered = all(a.flags.c_contiguous for a in (index, *arrays))
    return (
        ordered
        and index.dtype in (np.int32, np.int64)
        and all(a.dtype == np.float32 for a in arrays)
    )


def rows(dev: Device, source: Array, index: Array, out: Array) -> list[Step]:
    """Return the call that copies rows."""
    if not looped(index, source, out):
        return arrays.rows(dev, source, index, out)
    return _call(_PICKED, source, index, out, (*source.shape[:2], *out.shape[1:]))


def row_sums(dev: Device, index: Array, values: Array, out: Array) -> list[Step]:
    """Return the calls that add rows of values to zeros, to the rows of ``out`` that ``index`` names."""
    if not looped(index, values, out):
        return arrays.row_sums(dev, index, values, out)
    return [partial(out.fill, 0), *add_rows(index, values, out)]


def add_rows(index: Array, values: Array, out: Array) -> list[Step]:
    """Return the call that adds rows of values to the rows of ``out`` that ``index`` names."""
    return _call(_ADDED, values, index, out, (*out.shape[:2], *values.shape[1:]))


def _call(text: str, first: Array, index: Array, last: Array, sizes: tuple[int, ...]) -> list[Step]:
    numbers = named("stack rows count width", sizes)
    numbers["apart"] = index.shape[1] if index.ndim == 2 else 0
    return [bind_text(text, {"first": first, "index": index, "last": last}, **numbers)]


_ROW_OF_LARGEST = """
    for s in range(count):
        begin, end, to = np.int64(ends[s]), np.int64(ends[s + 1]), s * width
        for c in range(width):
            store(out, to + c, select(begin < end, begin, np.int64(-1)))
        if begin < end:
            for c in range(width):
                store(best, c, load(x, begin * width + c))
        for r in range(begin + 1, end):
            for c in range(width):
                v, most = load(x, r * width + c), load(best, c)
                more = (v > most) | ((v != v) & (most == most))  # the first nan is the largest
                store(best, c, select(more, v, most))
                store(out, to + c, select(more, r, load(out, to + c)))
"""


def row_of_largest(dev: Device, offsets: Array, x: Array, out: Array) -> list[Step]:
    """Return the call that writes the first row of the largest element, by sequence and column."""
    if not looped(offsets, x) or not out.flags.c_contiguous:
        return arrays.row_of_largest(dev, offsets, x, out)
    best = dev.scratch(out.shape[1:], x.dtype)
    count, width = out.shape
    operands = {"ends": offsets, "x": x, "out": out, "best": best}
    return [bind_text(_ROW_OF_LARGEST, operands, count=count, width=width)]
