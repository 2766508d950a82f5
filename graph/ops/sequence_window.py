"""Windows of rows inside sequences (LoD), and of images as sequences.

Legend: N rows, B sequences, D elements of a row, K rows of a window; C channels, P patches of an image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import formula as f
from .levels import level_from
from .lod import like, no_sequences
from .operands import Array, Input, Offsets, Operands, Output, Positive, named
from .registry import Op, define, slope
from .samples import sample
from .sequence import bounds_of_rows
from .shapes import Sized, in_sequences, numbers, rows_or_padded


def _window(a: Any, rows: int, start: int, size: int) -> tuple[Array, Array, Array, Array]:
    """Return the rows of each row's window [N, K], the nearest inside its sequence, and where that lies."""
    _, begin, end = bounds_of_rows(a, rows)
    begin, end = begin.reshape(-1, 1), end.reshape(-1, 1)
    at = f.table(np.arange(rows)[:, None] + np.arange(start, start + size), "int64")
    return at, f.minimum(f.maximum(at, begin), end - 1), begin, end


# -- sequence_conv ----------------------------------------------------------------------------------


class SequenceConv(Operands):
    x: Input
    padding_data: Input | None
    filter: Input
    x_lod: Offsets
    paddingTrainable: bool = False
    contextLength: Positive = 1
    contextStart: int = 0
    contextStride: int = 1
    out: Output


def sequence_conv(a: SequenceConv) -> f.Results:
    """The rows around each row, beside each other, times Filter; outside a sequence are 0, or PaddingData.

    Its first rows stand before the start (the last of them just before it), the others behind the end.
    """
    rows, width = a.x.shape
    at, inside, begin, end = _window(a, rows, a.contextStart, a.contextLength)
    if a.paddingTrainable:
        before = rows + max(0, -a.contextStart)
        beyond = f.where(at < begin, at - begin, at - end) + before
        assert a.padding_data is not None  # as the shape rule demands
        source = f.concatenate([a.x, a.padding_data])
        window = f.take(source, f.where(f.not_equal(at, inside), beyond, inside))
    else:
        outside = f.not_equal(at, inside).reshape(rows, a.contextLength, 1)
        window = f.where(outside, 0, f.take(a.x, inside))
    return {"out": window.reshape(rows, a.contextLength * width) @ a.filter}


_CONV = "X [5 2], X@LOD [2 0 3]"
_CONV_3 = f"{_CONV}, Filter [6 4]"
define(
    "sequence_conv",
    SequenceConv,
    Sized(
        "X [N D], Filter [contextLength*D filters] -> Out [N filters]",
        in_sequences("X"),
        "contextStride == 1; contextStride must be 1",
        "rows = max(0, -contextStart) + max(0, contextStart + contextLength - 1)",
        "not paddingTrainable or PaddingData == (rows, D); "
        "PaddingData must have a row for each that a window overlaps",
    ),
    formula=sequence_conv,
    samples=(
        sample(_CONV_3, contextLength=3, contextStart=-1),
        sample(_CONV_3, contextLength=3, contextStart=-3),
        sample(_CONV, "Filter [4 3]", contextLength=2, contextStart=1),
        sample(
            _CONV_3, "PaddingData [2 2]", contextLength=3, contextStart=-1, paddingTrainable=True
        ),
    ),
    refuses=(sample("X [5 2], X@LOD [1 1] [2 0 3], Filter [2 4]"),),
    slope=slope("x padding_data filter d_out x_lod", "d_padding_data d_filter d_x"),
)


# -- row_conv ---------------------------------------------------------------------------------------


class RowConv(Operands):
    x: Input
    filter: Input
    x_lod: Offsets
    out: Output


def row_conv(a: RowConv) -> f.Results:
    """The sum of a row and those behind it in its sequence, each times its row of Filter."""
    size = a.filter.shape[0]
    if a.x.ndim == 3:
        ahead = f.padded(a.x, [(0, 0), (0, size - 1), (0, 0)])
        parts = [ahead[:, k : k + a.x.shape[1]] * a.filter[k] for k in range(size)]
        return {"out": sum(parts[1:], parts[0])}
    at, inside, _, _ = _window(a, a.x.shape[0], 0, size)
    outside = f.not_equal(at, inside).reshape(-1, size, 1)
    return {"out": (f.where(outside, 0, f.take(a.x, inside)) * a.filter).sum(1)}


define(
    "row_conv",
    RowConv,
    Sized("X [... D], Filter [rows D] -> Out", rows_or_padded),
    formula=row_conv,
    samples=(sample("X [5 2], X@LOD [2 0 3], Filter [3 2]"), sample("X [2 4 3], Filter [2 3]")),
    refuses=(sample("X [5 2], Filter [3 2]"),),
    slope=slope("x filter d_out x_lod", "d_filter d_x", lod=no_sequences),
)


# -- sequence_enumerate -----------------------------------------------------------------------------


class SequenceEnumerate(Operands):
    x: Input
    x_lod: Offsets
    out: Output
    win_size: int = 2
    pad_value: int = 0


def sequence_enumerate(a: SequenceEnumerate) -> f.Results:
    """A number and those behind it in its sequence, then ``pad_value``."""
    at, inside, _, _ = _window(a, a.x.shape[0], 0, a.win_size)
    return {"out": f.where(f.not_equal(at, inside), a.pad_value, f.take(a.x.reshape(-1), inside))}


define(
    "sequence_enumerate",
    SequenceEnumerate,
    Sized(
        "X integers [N 1] -> Out [N win_size]",
        in_sequences("X"),
        lambda op: op.require(
            op.attr("win_size") > 1, f"win_size must be 2 or more, got {op.attr('win_size')}"
        ),
    ),
    formula=sequence_enumerate,
    samples=(
        sample("X 0:9 [5 1], X@LOD [2 0 3]", win_size=2),
        sample("X 0:9 [5 1], X@LOD [2 0 3]", win_size=4, pad_value=-1),
    ),
    refuses=(sample("X 0:9 [5 1], X@LOD [2 0 3]", win_size=1),),
)


# -- im2sequence ------------------------------------------------------------------------------------


class Im2Sequence(Operands):
    x: Input
    y: Input | None
    out: Output
    kernels: Sequence[int] = [1, 1]
    strides: Sequence[int] = [1, 1]
    paddings: Sequence[int] = [0, 0, 0, 0]
    out_stride: Sequence[int] = [1, 1]


def patches(shape: Sequence[int], attrs: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many rows and columns of patches images [B, C, height, width] have; -1: unknown."""
    up, left, down, right = attrs["paddings"]
    sizes = zip(
        shape[2:], (up + down, left + right), attrs["kernels"], attrs["strides"], strict=True
    )
    rows, columns = (
        max(0, (n + pad - k) // step + 1) if n >= 0 else -1 for n, pad, k, step in sizes
    )
    return rows, columns


def im2sequence(a: Im2Sequence) -> f.Results:
    """The patches of each image, row by row; the elements of one channel by channel."""
    up, left, down, right = a.paddings
    x = f.padded(a.x, [(0, 0), (0, 0), (up, down), (left, right)])
    rows, columns = patches(a.x.shape, vars(a))
    corner = [np.arange(n) * step for n, step in zip((rows, columns), a.strides, strict=True)]
    inside = [np.arange(n) for n in a.kernels]
    at_h, at_w = (c[:, None] + i for c, i in zip(corner, inside, strict=True))
    at = at_h[:, None, :, None] * x.shape[3] + at_w[None, :, None, :]
    count, channels = a.x.shape[:2]
    picked = f.take(x.reshape(count, channels, -1), at.reshape(rows * columns, -1), axis=2)
    out = picked.transpose(0, 2, 1, 3)
    return {"out": out.reshape(count * rows * columns, channels * a.kernels[0] * a.kernels[1])}


define(
    "im2sequence",
    Im2Sequence,
    Sized(
        "X floats [B C height width] -> Out [patches elements]",
        "Y is None; patches of images of several sizes (Y) are not built",
        "len(X) == 4; X must hold images [B, C, height, width]",
        *numbers(2, 1, "kernels", "strides"),
        *numbers(4, 0, "paddings"),
        "rooms = [n + a + b for n, a, b in zip(X[2:], paddings[:2], paddings[2:])]",
        "counts = [(n - k) // step + 1 for n, k, step in zip(rooms, kernels, strides)]",
        "every(count > 0 for count in counts); the kernel exceeds the padded images",
        "patches, elements = X[0] * prod(counts), X[1] * prod(kernels)",
    ),
    lod=level_from("lod_of_patches", X="X"),
    formula=im2sequence,
    samples=(
        sample("X [2 3 4 5]", kernels=[2, 2], strides=[1, 2]),
        sample("X [2 2 3 3]", kernels=[3, 2], paddings=[1, 0, 2, 1]),
    ),
    slope=slope("(x) d_out", "d_x"),
)


# -- sequence_topk_avg_pooling ----------------------------------------------------------------------


class SequenceTopKAvgPooling(Operands):
    x: Input
    row: Input = named("ROW")
    column: Input = named("COLUMN")
    x_lod: Offsets
    row_lod: Offsets = named("ROW@LOD")
    column_lod: Offsets = named("COLUMN@LOD")
    topks: Sequence[int] = [1]
    channel_num: Positive = 1
    out: Output
    pos: Output = named("pos")


class SequenceTopKAvgPoolingGrad(SequenceTopKAvgPooling, reads="* pos"):
    d_out: Input
    d_x: Output


_PAIRS = "X [20 1], ROW [5 2], COLUMN [5 3], X@LOD [12 0 8], ROW@LOD [2 1 2], COLUMN@LOD [3 0 2]"
define(
    "sequence_topk_avg_pooling",
    SequenceTopKAvgPooling,
    Sized(
        "X [N 1], ROW [rows ...], COLUMN "
        "-> Out as X [rows channel_num*averages], pos int32 [rows*channel_num*most]",
        "topks and topks == sorted(topks) and topks[0] > 0; topks must be positive and rise",
        "averages, most = len(topks), topks[-1]",
        "sequences(X) == sequences(ROW); X, ROW and COLUMN must have equally many sequences",
        "sequences(ROW) == sequences(COLUMN); X, ROW and COLUMN must have equally many sequences",
    ),
    lod=like("ROW", "Out"),
    samples=(sample(_PAIRS, topks=[1, 3], channel_num=2),),
    slope=Op("sequence_topk_avg_pooling_grad", SequenceTopKAvgPoolingGrad, shapes_of=("X",)),
)
