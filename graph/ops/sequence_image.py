"""Convolution of images of several sizes: sequences (LoD) of numbers. Legend: P pixels of all results.

An image is [channels, height, width]: its sequence in ROW has as many rows as it is high, in COLUMN as wide.
"""

from __future__ import annotations

import numpy as np

from . import formula as f
from .levels import level_from
from .operands import Array, Input, Offsets, Operands, Output, Positive, named
from .registry import define, slope
from .samples import sample
from .sequence import result
from .shapes import Sized, equally_many, rows_of_result


class VarConvAttributes(Operands):
    InputChannel: Positive = 1
    OutputChannel: Positive = 1
    KernelH: Positive = 1
    KernelW: Positive = 1
    StrideH: Positive = 1
    StrideW: Positive = 1


class VarConv2d(VarConvAttributes):
    x: Input
    row: Input = named("ROW")
    column: Input = named("COLUMN")
    w: Input
    x_lod: Offsets
    row_lod: Offsets = named("ROW@LOD")
    column_lod: Offsets = named("COLUMN@LOD")
    out_lod: Offsets
    out: Output
    col: Output


def var_conv_2d(a: VarConv2d) -> f.Results:
    """Products of W with the window around every stride-th pixel, that has zeros outside the image.

    Of K elements along a side, K // 2 lie before the pixel.
    """
    rows, channels = result(a).shape[0], a.OutputChannel
    pixels = rows // channels
    ends = f.floor_divide(a.out_lod[-1], channels)
    image = f.sequence_of(ends, pixels, "Out")
    begin, height, width = (
        f.take(part, image).reshape(-1, 1)
        for part in (a.x_lod[-1], _lengths(a.row_lod[-1]), _lengths(a.column_lod[-1]))
    )
    place = (f.table(range(pixels), "int64") - f.take(ends, image)).reshape(-1, 1)
    columns = f.floor_divide(width - 1, a.StrideW) + 1
    line = f.floor_divide(place, columns)
    channel, dy, dx = np.indices((a.InputChannel, a.KernelH, a.KernelW)).reshape(3, -1)
    y = line * a.StrideH + f.table(dy - a.KernelH // 2)
    x = (place - line * columns) * a.StrideW + f.table(dx - a.KernelW // 2)
    near_y, near_x = (f.minimum(f.maximum(at, 0), n - 1) for at, n in ((y, height), (x, width)))
    source = begin + (f.table(channel) * height + near_y) * width + near_x
    window = f.where(f.not_equal(y, near_y), 0, f.take(a.x.reshape(-1), source))
    window = f.where(f.not_equal(x, near_x), 0, window)
    return {"out": _by_image(window @ a.w.T, ends), "col": _by_image(window, ends)}


def _lengths(level: Array) -> Array:
    return level[1:] - level[:-1]


def _by_image(values: Array, ends: Array) -> Array:
    """Return [P, channels] image by image, and channel by channel within: [P channels, 1]."""
    pixels, channels = values.shape
    image = f.sequence_of(ends * channels, pixels * channels, "Out")
    begin, count = f.take(ends, image), f.take(_lengths(ends), image)
    within = f.table(range(pixels * channels), "int64") - begin * channels
    channel = f.floor_divide(within, count)
    source = (begin + within - channel * count) * channels + channel
    return f.take(values.reshape(-1), source).reshape(-1, 1)


_IMAGES = (
    "X [44 1], ROW [7 2], COLUMN [8 3], W [3 12], X@LOD [24 0 20], ROW@LOD [4 1 2], "
    "COLUMN@LOD [3 0 5], Out@LOD [18 0 15]"
)
_SIZES = {"InputChannel": 2, "OutputChannel": 3, "KernelH": 3, "KernelW": 2, "StrideH": 2}
define(
    "var_conv_2d",
    VarConv2d,
    Sized(
        "X floats [N 1], W [OutputChannel InputChannel*KernelH*KernelW] -> "
        "Out [rows 1], Col [rows//OutputChannel*InputChannel*KernelH*KernelW 1]",
        equally_many("X", "ROW", "COLUMN"),
        rows_of_result("rows"),
    ),
    reads_values=lambda attrs: ("Out@LOD",),
    lod=level_from("lod_of_images", X="X@LOD", Y="ROW@LOD", Z="COLUMN@LOD"),
    formula=var_conv_2d,
    samples=(sample(_IMAGES, **_SIZES),),
    refuses=(sample(_IMAGES, "ROW@LOD [4 3]", **_SIZES),),
    slope=slope("x row column w d_out x_lod row_lod column_lod out_lod", "d_x d_w"),
)
