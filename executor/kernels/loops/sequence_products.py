"""Products over two sequences (LoD) at a time: images of several sizes with filters, rows with rows.

A product of matrices is made for each image, or pair of sequences, of which formulas gather one number at a
time. Where sequences do not belong together, the formula computes the step, or says what is wrong.
Legend: E, D numbers of a row; T = dim_t; P pixels of all results of a convolution.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ....graph.ops.operands import Array, Operands
from ....graph.ops.sequence_image import VarConv2d
from ....graph.ops.sequence_match import MatchMatrixTensor
from ....strategies.types import VarType
from ...codegen.native import Launch
from ...codegen.text_loops import bind_text, named
from ...device.device import Device
from ..registry import Step, by_arrays, kernel, of_types
from .spans import readable

_TYPES = of_types(VarType.FP32, VarType.INT32, VarType.INT64)


def _by_formula(op_type: str, a: Operands) -> None:
    """Compute a step whose sequences no product takes, in memory of its own."""
    for step in by_arrays(op_type, Device(), a):
        step()


def _rise(ends: Array, rows: int) -> bool:
    """Tell whether offsets rise from 0 to a number of rows."""
    return bool(ends[0] == 0 and ends[-1] == rows and (ends[1:] >= ends[:-1]).all())


class _Pair(NamedTuple):
    """Rows of X, of Y and of results that belong together, and the shape of these: (T, rows, rows)."""

    x: slice
    y: slice
    out: slice
    shape: tuple[int, int, int]


def _pairs(a: Any, results: int) -> list[_Pair] | None:
    """Return the pairs of sequences; None where they do not fit rows or results."""
    ends = a.x_lod[-1], a.y_lod[-1], a.out_lod[-1]
    sizes = len(a.x), len(a.y), results
    if len({len(e) for e in ends}) > 1 or not all(map(_rise, ends, sizes)):
        return None
    heights, lengths, counts = (np.diff(e) for e in ends)
    if (counts != a.dim_t * heights * lengths).any():
        return None
    spans = ([slice(*pair) for pair in pairwise(e)] for e in ends)
    shapes = ((a.dim_t, int(h), int(n)) for h, n in zip(heights, lengths, strict=True))
    return [_Pair(*row) for row in zip(*spans, shapes, strict=True)]


def _turned(rows_NTE: Array, pair: _Pair) -> Array:
    """Return the rows of a sequence of X as matrices: [T, rows, E]."""
    return rows_NTE[pair.x].transpose(1, 0, 2)


@kernel("match_matrix_tensor", on=("llvm",), takes=_TYPES)
def match_matrix_tensor(dev: Device, a: MatchMatrixTensor) -> list[Step]:
    """x W, of all rows; then by pair its products with y, a matrix for each t."""
    if not readable(a.x, a.y, a.w, a.out, a.tmp):
        return by_arrays("match_matrix_tensor", dev, a)
    sizes = len(a.x), a.dim_t, a.y.shape[1]
    tmp_NTE = dev.scratch(sizes, np.float32) if a.tmp is None else a.tmp.reshape(sizes)
    w_DK, tmp_NK = a.w.reshape(len(a.w), -1), tmp_NTE.reshape(len(a.x), -1)

    def run() -> None:
        pairs = _pairs(a, len(a.out))
        if pairs is None:
            _by_formula("match_matrix_tensor", a)
            return
        np.matmul(a.x, w_DK, tmp_NK)
        for pair in pairs:
            np.matmul(_turned(tmp_NTE, pair), a.y[pair.y].T, a.out[pair.out].reshape(pair.shape))

    return [run]


@kernel("match_matrix_tensor_grad", on=("llvm",), takes=_TYPES)
def match_matrix_tensor_grad(dev: Device, a: Any) -> list[Step]:
    if not readable(a.x, a.y, a.w, a.tmp, a.d_out, a.d_x, a.d_y, a.d_w):
        return by_arrays("match_matrix_tensor_grad", dev, a)
    sizes = len(a.x), a.dim_t, a.y.shape[1]
    tmp_NTE, d_tmp_NTE = a.tmp.reshape(sizes), dev.scratch(sizes, np.float32)
    w_DK, d_tmp_NK = a.w.reshape(len(a.w), -1), d_tmp_NTE.reshape(len(a.x), -1)

    def run() -> None:
        pairs = _pairs(a, len(a.d_out))
        if pairs is None:
            _by_formula("match_matrix_tensor_grad", a)
            return
        for pair in pairs:
            d_out = a.d_out[pair.out].reshape(pair.shape)
            np.matmul(d_out, a.y[pair.y], _turned(d_tmp_NTE, pair))
            if a.d_y is not None:
                rows = pair.shape[0] * pair.shape[1]
                left = _turned(tmp_NTE, pair).reshape(rows, sizes[2])
                np.matmul(d_out.reshape(rows, pair.shape[2]).T, left, a.d_y[pair.y])
        if a.d_x is not None:
            np.matmul(d_tmp_NK, w_DK.T, a.d_x)
        if a.d_w is not None:
            np.matmul(a.x.T, d_tmp_NK, a.d_w.reshape(w_DK.shape))

    return [run]


# What windows hold goes from images (x) to col, or back, and is added there. For each image, a matrix of col
# has a line for each element of the window: these lie ``apart``, or (0) behind each other, image by image.
_WINDOWS = """
    window = channels * tall * broad
    for b in range(images):
        high, wide = np.int64(rows[b + 1] - rows[b]), np.int64(columns[b + 1] - columns[b])
        lines, across = (high - 1) // by_line + 1, (wide - 1) // by_column + 1
        begin = np.int64(results[b]) // filters
        for k in range(window):
            plane = np.int64(starts[b]) + k // (tall * broad) * high * wide
            dy, dx = k // broad % tall - tall // 2, k % broad - broad // 2
            place = begin + k * apart if apart else begin * window + k * lines * across
            # The columns of results for which this one of the window lies on the image
            left = min(max(-(dx // by_column), 0), across)
            right = max(min(-((dx - wide) // by_column), across), left)
            for i in range(lines):
                y, to = i * by_line + dy, place + i * across
                source = plane + y * wide + dx
                inside = (y >= 0) & (y < high)
                low, top = select(inside, left, across), select(inside, right, across)
{clear}
                if by_column == 1:
                    for j in range(low, top):
                        {dense}
                else:
                    for j in range(low, top):
                        {strided}
"""
_CLEAR = """
                for j in range(low):
                    store(col, to + j, np.float32(0))
                for j in range(top, across):
                    store(col, to + j, np.float32(0))
"""


def _windows(each: str, clear: str = "") -> str:
    dense, strided = each.format(at="source + j"), each.format(at="source + j * by_column")
    return _WINDOWS.format(clear=clear.strip("\n"), dense=dense, strided=strided)


_UNFOLD = _windows("store(col, to + j, load(x, {at}))", _CLEAR)
_FOLD = _windows("store(x, {at}, load(x, {at}) + load(col, to + j))")


def _levels(a: Any) -> tuple[Array, ...]:
    return a.x_lod[-1], a.row_lod[-1], a.column_lod[-1], a.out_lod[-1]


def _moved(text: str, a: Any, x: Array, col: Array, apart: int) -> Launch:
    levels = _levels(a)
    arrays = {"x": x, "col": col, **named("starts rows columns results", levels)}
    sizes = a.InputChannel, a.KernelH, a.KernelW, a.StrideH, a.StrideW, a.OutputChannel
    numbers = named("channels tall broad by_line by_column filters", sizes)
    return bind_text(text, arrays, **numbers, apart=apart, images=len(levels[0]) - 1)


def _fit(a: Any, results: int) -> bool:
    """Tell whether images and results have as many numbers as rows and columns ask for."""
    starts, out = a.x_lod[-1], a.out_lod[-1]
    height, width = np.diff(a.row_lod[-1]), np.diff(a.column_lod[-1])
    counts = np.diff(starts), np.diff(out), height, width
    if len({len(count) for count in counts}) > 1 or min(c.min(initial=0) for c in counts) < 0:
        return False
    pixels = ((height - 1) // a.StrideH + 1) * ((width - 1) // a.StrideW + 1)
    whole = (counts[0] == a.InputChannel * height * width) & (counts[1] == a.OutputChannel * pixels)
    return bool(whole.all()) and _rise(starts, len(a.x)) and _rise(out, results)


def _images(a: Any, out: Array) -> Iterator[tuple[slice, Array]]:
    """Give the pixels of each image, and its numbers among the results: [channels, pixels]."""
    ends = a.out_lod[-1].tolist()
    for begin, end in pairwise(ends):
        pixels = slice(begin // a.OutputChannel, end // a.OutputChannel)
        yield pixels, out[begin:end].reshape(a.OutputChannel, pixels.stop - pixels.start)


@kernel("var_conv_2d", on=("llvm",), takes=_TYPES)
def var_conv_2d(dev: Device, a: VarConv2d) -> list[Step]:
    """Windows as columns, image by image; then their products with W."""
    if not readable(a.x, a.w, a.out, a.col, *_levels(a)):
        return by_arrays("var_conv_2d", dev, a)
    window, pixels = a.w.shape[1], len(a.out) // a.OutputChannel
    col = dev.array_or_scratch(a.col, (window * pixels, 1), np.float32)
    unfold = _moved(_UNFOLD, a, a.x, col, 0)

    def run() -> None:
        if not _fit(a, len(a.out)):
            _by_formula("var_conv_2d", a)
            return
        unfold()
        for place, out in _images(a, a.out):
            columns = col[place.start * window : place.stop * window]
            np.matmul(a.w, columns.reshape(window, out.shape[1]), out)

    return [run]


@kernel("var_conv_2d_grad", on=("llvm",), takes=_TYPES)
def var_conv_2d_grad(dev: Device, a: Any) -> list[Step]:
    """As the convolution, of all images at once: with columns of windows, and of their gradients."""
    if not readable(a.x, a.w, a.d_out, a.d_x, a.d_w, *_levels(a)):
        return by_arrays("var_conv_2d_grad", dev, a)
    (filters, window), pixels = a.w.shape, len(a.d_out) // a.OutputChannel
    d_out = dev.scratch((filters, pixels), np.float32)
    col = dev.scratch((window, pixels), np.float32)
    unfold = None if a.d_w is None else _moved(_UNFOLD, a, a.x, col, pixels)
    fold = None if a.d_x is None else _moved(_FOLD, a, a.d_x, col, pixels)

    def run() -> None:
        if not _fit(a, len(a.d_out)):
            _by_formula("var_conv_2d_grad", a)
            return
        for place, d_image in _images(a, a.d_out):
            d_out[:, place] = d_image
        if unfold is not None:
            unfold()
            np.matmul(d_out, col.T, a.d_w)
        if fold is not None:
            np.matmul(a.w.T, d_out, col)
            a.d_x.fill(0)
            fold()

    return [run]
