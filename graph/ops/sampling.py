"""Images read at positions that are data: grids of positions, and what lies there.

Spatial transformer networks: Jaderberg and others, arXiv 1506.02025.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from . import formula as f
from .norm import CHANNELS
from .operands import Array, Input, Operands, Output, named
from .registry import define, slope
from .samples import sample
from .shapes import Sized


class AffineChannel(Operands):
    x: Input
    scale: Input
    bias: Input
    out: Output
    data_layout: Literal["NCHW", "NHWC", "AnyLayout"] = "AnyLayout"


def affine_channel(a: AffineChannel) -> f.Results:
    """X * Scale + Bias, by channel."""
    after = 0 if a.data_layout == "NHWC" else a.x.ndim - 2
    spread = (-1,) + (1,) * after
    return {"out": a.x * a.scale.reshape(spread) + a.bias.reshape(spread)}


_CHANNELS = "Scale [3], Bias [3]"

define(
    "affine_channel",
    AffineChannel,
    Sized(
        "X, Scale [channels], Bias [channels] -> Out as X",
        "len(X) > 1; X must have 2 dimensions or more",
        CHANNELS,
    ),
    formula=affine_channel,
    samples=(
        sample("X [2 3 4 2]", _CHANNELS, data_layout="NCHW"),
        sample("X [2 4 2 3]", _CHANNELS, data_layout="NHWC"),
        sample("X [4 3]", _CHANNELS),
    ),
    slope=slope(
        "x scale d_out",
        "d_x d_scale d_bias",
        shape=Sized("X, Scale -> X@GRAD as X, Scale@GRAD as Scale, Bias@GRAD as Scale"),
    ),
)


class AffineGrid(Operands):
    theta: Input
    output_shape_tensor: Input | None = named("OutputShape")
    output: Output
    use_cudnn: bool = True
    output_shape: Sequence[int] = []
    align_corners: bool = True


def affine_grid(a: AffineGrid) -> f.Results:
    """[x, y] = Theta [x', y', 1]: where each element of the result is found, from -1 to 1."""
    height, width = a.output_shape[2:]
    x, y = (_middles(size, a.align_corners) for size in (width, height))
    base = np.ones((height, width, 3))
    base[..., 0], base[..., 1] = x, y[:, None]
    rows = f.table(base.reshape(-1, 3), a.theta.dtype)
    return {"output": (rows @ a.theta.transpose(0, 2, 1)).reshape(-1, height, width, 2)}


def _middles(size: int, align_corners: bool) -> Array:
    """Return the positions of elements, from -1 to 1: of the outermost, or of their outer edges."""
    if align_corners:
        return np.linspace(-1, 1, size)
    return (np.arange(size) * 2 + 1) / size - 1


define(
    "affine_grid",
    AffineGrid,
    Sized(
        "Theta [N 2 3] -> Output [N height width 2]",
        "len(output_shape) == 4; output_shape must be [N, C, H, W]",
        "height, width = output_shape[2:]",
        "min(output_shape[2:]) > 0; output_shape must have a height and a width above 0",
        "output_shape[0] in (N, 0, -1); Theta must have a matrix for each image of output_shape",
    ),
    numbers={"OutputShape": "output_shape"},
    formula=affine_grid,
    samples=(
        sample("Theta [2 2 3]", output_shape=[2, 3, 4, 3]),
        sample("Theta [2 2 3]", output_shape=[2, 3, 2, 5], align_corners=False),
    ),
    slope=slope(
        "output_shape_tensor d_output",
        "d_theta",
        numbers={"OutputShape": "output_shape"},
        shape=Sized("Output@GRAD [N height width 2] -> Theta@GRAD [N 2 3]"),
    ),
)


class GridSampler(Operands):
    x: Input
    grid: Input
    output: Output
    use_cudnn: bool = True
    align_corners: bool = True
    mode: Literal["bilinear", "nearest"] = "bilinear"
    padding_mode: Literal["zeros", "border", "reflection"] = "zeros"


def grid_sampler(a: GridSampler) -> f.Results:
    """Weigh the elements around each position; outside are zeros, unless ``padding_mode`` says otherwise."""
    n, c, height, width = a.x.shape
    x_RC = a.x.transpose(0, 2, 3, 1).reshape(-1, c)
    places = [_pixels(a.grid[..., k], size, a) for k, size in ((0, width), (1, height))]
    first = f.table(np.arange(n).reshape(n, 1, 1) * (height * width), np.int64)
    total = None
    for (column, x_share), (row, y_share) in (
        (x, y)
        for y in neighbours(places[1], height, a.mode)
        for x in neighbours(places[0], width, a.mode)
    ):
        index = first + row * width + column
        term = f.take(x_RC, index.reshape(-1))
        if a.mode == "bilinear" or a.padding_mode == "zeros":  # otherwise every weight is 1
            term = term * (x_share * y_share).reshape(-1, 1)
        total = term if total is None else total + term
    assert total is not None
    return {"output": total.reshape(n, *a.grid.shape[1:3], c).transpose(0, 3, 1, 2)}


def _pixels(position: Array, size: int, a: GridSampler) -> Array:
    """Return positions from -1 to 1 as positions in an image of ``size`` elements."""
    place = (
        (position + 1) * ((size - 1) / 2) if a.align_corners else (position + 1) * (size / 2) - 0.5
    )
    if a.padding_mode == "reflection":
        low, span = (0.0, size - 1.0) if a.align_corners else (-0.5, float(size))
        if span == 0:
            return place * 0
        way = f.absolute(place - low)
        way = way - f.floor(way * (0.5 / span)) * (2 * span)  # there and back
        place = f.minimum(way, 2 * span - way) + low
    if a.padding_mode != "zeros":
        place = f.minimum(f.maximum(place, 0.0), size - 1.0)
    return place


def neighbours(place: Array, size: int, mode: str = "bilinear") -> list[tuple[Array, Array]]:
    """Return the elements around positions along an axis, and their weights: 0 outside."""
    low = f.floor(place + 0.5) if mode == "nearest" else f.floor(place)
    share = place - low
    sides = [(low, 1 - share), (low + 1, share)] if mode == "bilinear" else [(low, place * 0 + 1)]
    pairs = []
    for side, weight in sides:
        inside = (side >= 0) & (side <= size - 1)
        index = f.minimum(f.maximum(side, 0.0), size - 1.0).astype(np.int64)
        pairs.append((index, f.where(inside, weight, 0.0)))
    return pairs


_GRID = "Grid -1.3:1.3 [2 3 2 2]"

define(
    "grid_sampler",
    GridSampler,
    Sized(
        "X [N C H W], Grid [N H' W' 2] -> Output [N C H' W']",
        lambda op: op.require(
            0 not in op.shape("X")[2:], "the height and the width of X must be above 0"
        ),
    ),
    formula=grid_sampler,
    samples=(
        sample("X [2 3 4 5]", _GRID),
        sample("X [2 3 4 5]", _GRID, align_corners=False, padding_mode="border"),
        sample("X [2 3 4 5]", _GRID, padding_mode="reflection"),
        sample("X [2 3 4 5]", _GRID, align_corners=False, mode="nearest"),
    ),
    refuses=(sample("X [2 3 0 5]", _GRID),),
    slope=slope("x grid d_output", "d_x d_grid"),
)
