"""Rows picked by number, and rows added up by number in the order of their positions, in compiled loops.

Sources are [stack, row, element]; one vector of numbers is for the whole stack, a matrix has a row for each. A
number outside the rows counts as the nearest row: a kernel that must not have that checks it before.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from ....graph.ops.operands import Array
from ...codegen import native
from ...device.device import Device
from ...host.writes import address
from ..array import formula as arrays
from ..registry import Step

_LOOPS = """
def run(words):
    first, index, last = f32(words[0]), {kind}(words[1]), f32(words[2])
    stack, rows, count, width, apart = words[3], words[4], words[5], words[6], words[7]
    for s in range(stack):
        for k in range(count):
            row = np.int64(load(index, s * apart + k, 1, 3))
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
_PICK = "store(last, there{i}, load(first, here{i}, 0, 3), 2, 3)"
_ADD = "store(last, here{i}, load(last, here{i}, 2, 3) + load(first, there{i}, 0, 3), 2, 3)"


_KINDS = {np.dtype(np.int32): "i32", np.dtype(np.int64): "i64"}


@lru_cache
def _source(what: str, kind: str) -> str:
    return _LOOPS.format(kind=kind, one=what.format(i=""), each=what.format(i=" + i"))


def looped(index: Array, *arrays: Array) -> bool:
    """Tell whether the loops take these arrays."""
    ordered = all(a.flags.c_contiguous for a in (index, *arrays))
    return ordered and index.dtype in _KINDS and all(a.dtype == np.float32 for a in arrays)


def rows(dev: Device, source: Array, index: Array, out: Array) -> list[Step]:
    """Return the call that copies rows."""
    if not looped(index, source, out):
        return arrays.rows(dev, source, index, out)
    return _call(_PICK, source, index, out, (*source.shape[:2], *out.shape[1:]))


def row_sums(dev: Device, index: Array, values: Array, out: Array) -> list[Step]:
    """Return the calls that add rows of values to zeros, to the rows of ``out`` that ``index`` names."""
    if not looped(index, values, out):
        return arrays.row_sums(dev, index, values, out)
    return [partial(out.fill, 0), *add_rows(index, values, out)]


def add_rows(index: Array, values: Array, out: Array) -> list[Step]:
    """Return the call that adds rows of values to the rows of ``out`` that ``index`` names."""
    return _call(_ADD, values, index, out, (*out.shape[:2], *values.shape[1:]))


def _call(what: str, first: Array, index: Array, last: Array, sizes: tuple[int, ...]) -> list[Step]:
    apart = index.shape[1] if index.ndim == 2 else 0
    words = [*(address(a) for a in (first, index, last)), *sizes, apart]
    return [native.launch(_source(what, _KINDS[index.dtype]), words, first, index, last)]


_ROW_OF_LARGEST = """
def run(words):
    ends, x, out, best = {kind}(words[0]), f32(words[1]), i64(words[2]), f32(words[3])
    for s in range(words[4]):
        begin, end, to, width = np.int64(ends[s]), np.int64(ends[s + 1]), s * words[5], words[5]
        for c in range(width):
            store(out, to + c, select(begin < end, begin, np.int64(-1)), 1, 3)
        if begin < end:
            for c in range(width):
                store(best, c, load(x, begin * width + c, 0, 3), 2, 3)
        for r in range(begin + 1, end):
            for c in range(width):
                v, most = load(x, r * width + c, 0, 3), load(best, c, 2, 3)
                more = (v > most) | ((v != v) & (most == most))  # the first nan is the largest
                store(best, c, select(more, v, most), 2, 3)
                store(out, to + c, select(more, r, load(out, to + c, 1, 3)), 1, 3)
"""


def row_of_largest(dev: Device, offsets: Array, x: Array, out: Array) -> list[Step]:
    """Return the call that writes the first row of the largest element, by sequence and column."""
    if not looped(offsets, x) or not out.flags.c_contiguous:
        return arrays.row_of_largest(dev, offsets, x, out)
    best = dev.scratch(out.shape[1:], x.dtype)
    words = [*(address(a) for a in (offsets, x, out, best)), *out.shape]
    text = _ROW_OF_LARGEST.format(kind=_KINDS[offsets.dtype])
    return [native.launch(text, words, offsets, x, out, best)]
