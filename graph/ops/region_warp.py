"""Regions of images (ROIs) read at points that are data: bins that move, and quadrilaterals made upright.

The regions of image n are sequence n of ROIs. Dai and others, "Deformable convolutional networks", arXiv
1703.06211, section 2.2; Sun and others, "TextNet", arXiv 1812.09900, section 3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from . import formula as f
from .lod import no_sequences
from .operands import Array, Input, Offsets, Operands, Output, Positive, named
from .registry import define, slope
from .samples import offsets, sample, table
from .shapes import Sized, numbers

_NEAR = 1e-4  # numbers that differ by less are equal, of those that a perspective makes


class DeformableRegionPool(Operands):
    input: Input
    rois: Input = named("ROIs")
    rois_at: Offsets = named("ROIs@LOD")
    trans: Input
    top_count: Output
    output: Output
    no_trans: bool = False
    spatial_scale: float = 1.0
    output_dim: Positive = 1
    group_size: Sequence[int] = [1, 1]
    pooled_height: Positive = 1
    pooled_width: Positive = 1
    part_size: Sequence[int] = [1, 1]
    sample_per_part: Positive = 1
    trans_std: float = 0.1


def deformable_region_pool(a: DeformableRegionPool) -> f.Results:
    """The mean of points evenly in each bin, which is moved by parts of its region's size.

    Halves of pixels are the edges of images: points outside do not count, others are moved onto pixels.
    """
    n, _, height, width = a.input.shape
    regions = a.rois.shape[0]
    classes = 1 if a.no_trans else a.trans.shape[1] // 2
    groups, each = a.group_size, a.output_dim // classes
    image = f.checked(
        f.sequence_of(a.rois_at[-1], regions, "ROIs"),
        n,
        f.outside("deformable_psroi_pooling", n, "the image of a sequence of ROIs", "images"),
    )
    bins, sizes = (a.pooled_height, a.pooled_width), (height, width)
    row, column = _points(a, classes)
    inside = (row >= -0.5) & (row <= height - 0.5) & (column >= -0.5) & (column <= width - 0.5)
    points = [_onto(row, height), _onto(column, width)]
    wanted = classes * each * groups[0] * groups[1]
    x = (
        a.input[:, :wanted]
        .reshape(n, classes, each, *groups, height, width)
        .transpose(0, 1, 3, 4, 5, 6, 2)
    )
    first = image.reshape(-1, 1, 1, 1) * classes + f.table(
        np.arange(classes).reshape(-1, 1, 1), np.int64
    )
    for k in range(2):
        number = np.minimum(np.arange(bins[k]) * groups[k] // bins[k], groups[k] - 1)
        first = first * groups[k] + f.table(
            number.reshape((-1, 1) if k == 0 else (1, -1)), np.int64
        )
    source = x.reshape(-1, each)
    values = _between(source, first.reshape(*first.shape, 1, 1), points, sizes)
    values = f.where(inside.reshape(*inside.shape, 1), values, 0)
    counts = f.where(inside, f.full(inside.shape, 1, a.input.dtype), 0).sum((-2, -1), keepdims=True)
    mean = values.sum((-3, -2)) / f.maximum(counts.reshape(*counts.shape[:4], 1), 1)
    shape = (regions, a.output_dim, *bins)
    every = f.broadcast(counts.reshape(regions, classes, 1, *bins), (regions, classes, each, *bins))
    return {
        "output": mean.transpose(0, 1, 4, 2, 3).reshape(shape),
        "top_count": every.reshape(shape),
    }


def _points(a: DeformableRegionPool, classes: int) -> list[Array]:
    """Return rows and columns of the points in bins, in pixels: [R, classes, bins, bins, points, points]."""
    corners = f.floor(f.absolute(a.rois) + 0.5) * f.sign(a.rois)  # halves go away from zero
    places, bins, per_bin = [], (a.pooled_height, a.pooled_width), a.sample_per_part
    for k in range(2):  # rows, columns
        start = corners[:, 1 - k] * a.spatial_scale - 0.5
        size = f.maximum((corners[:, 3 - k] + 1) * a.spatial_scale - 0.5 - start, 0.1)
        size = size.reshape(-1, 1, 1, 1)
        number = np.indices(bins)[k].reshape(1, *bins)
        begin = start.reshape(-1, 1, 1, 1) + f.table(number, a.rois.dtype) * (size * (1 / bins[k]))
        if not a.no_trans:
            begin = begin + _moves(a, classes, 1 - k) * size
        begin = begin.reshape(*begin.shape, 1, 1)
        step = (size * (1 / bins[k] / per_bin)).reshape(-1, 1, 1, 1, 1, 1)
        within = np.arange(per_bin).reshape((-1, 1) if k == 0 else (1, -1))
        point = begin + f.table(within, a.rois.dtype) * step
        places.append(f.broadcast(point, (a.rois.shape[0], classes, *bins, per_bin, per_bin)))
    return places


def _moves(a: DeformableRegionPool, classes: int, k: int) -> Array:
    """Return by what part of a region its bins move along an axis: [R, classes, bins, bins]."""
    moves = a.trans.reshape(-1, classes, 2, *a.trans.shape[2:])[:, :, k] * a.trans_std
    for axis, count, parts in (
        (2, a.pooled_height, a.part_size[0]),
        (3, a.pooled_width, a.part_size[1]),
    ):
        moves = f.take(moves, np.arange(count) * parts // count, axis)
    return moves


def _onto(place: Array, size: int) -> Array:
    return f.minimum(f.maximum(place, 0.0), size - 1.0)


def _between(source: Array, first: Array, points: Sequence[Array], sizes: Sequence[int]) -> Array:
    """Return what lies at points of images, between pixels: the points' shape, and channels.

    ``source`` [pixels of all images, channels]; ``first`` is where the points' images begin.
    """
    lows = [f.floor(point) for point in points]
    total = None
    for row, y_share in _sides(points[0], lows[0], sizes[0]):
        for column, x_share in _sides(points[1], lows[1], sizes[1]):
            index = (first * sizes[0] + row) * sizes[1] + column
            term = f.take(source, index) * (y_share * x_share).reshape(*row.shape, 1)
            total = term if total is None else total + term
    assert total is not None
    return total


def _sides(point: Array, low: Array, size: int) -> list[tuple[Array, Array]]:
    """Return the pixels around points along an axis, and their shares; the same one twice on a pixel."""
    share = point - low
    high = f.minimum(low + 1, size - 1.0)
    return [(low.astype(np.int64), 1 - share), (high.astype(np.int64), share)]


_ROIS = "ROIs table [1.0 0.5 4.2 3.1; 0.3 1.2 9.7 6.4; 2.1 2.6 3.3 7.8]"
_AT = f"{_ROIS}, ROIs@LOD [2 1]"
_BINS = {"pooled_height": 2, "pooled_width": 3, "sample_per_part": 2}
_MOVES = "Trans -0.9:0.9 [3 4 2 3]"

define(
    "deformable_psroi_pooling",
    DeformableRegionPool,
    Sized(
        "Input floats [N C H W], ROIs as Input [R 4], Trans as Input "
        "-> TopCount [R output_dim pooled_height pooled_width], "
        "Output [R output_dim pooled_height pooled_width]",
        *numbers(2, 1, "group_size", "part_size"),
        "C >= output_dim * prod(group_size); Input must have output_dim x group_size channels",
        "no_trans or Trans == (ROIs[0], *Trans[1:2], *part_size); "
        "Trans must be [R, channels, rows, columns], of part_size",
        "no_trans or Trans[1] > 0 and Trans[1] % 2 == 0 and output_dim % (Trans[1] // 2) == 0; "
        "Trans must have two channels for each class, by which output_dim divides",
        lambda op: {"images": op.sequences("ROIs")},
    ),
    formula=deformable_region_pool,
    lod=no_sequences,
    samples=(
        sample("Input [2 4 6 8]", _AT, _MOVES, **_BINS, output_dim=4, part_size=[2, 3]),
        sample(
            "Input [2 12 6 8]",
            _AT,
            "Trans -1.0:1.0 [3 2 1 2]",
            **_BINS,
            output_dim=2,
            group_size=[2, 3],
            part_size=[1, 2],
            spatial_scale=0.7,
            trans_std=0.3,
        ),
        sample("Input [2 2 6 8]", _AT, _MOVES, **_BINS, output_dim=2, no_trans=True),
    ),
    slope=slope("input rois rois_at trans top_count d_output", "d_input d_trans"),
)


class RegionPerspective(Operands):
    x: Input
    rois: Input = named("ROIs")
    rois_at: Offsets = named("ROIs@LOD")
    out: Output
    mask: Output
    transform_matrix: Output
    out2_in_idx: Output | None
    out2_in_weights: Output | None
    spatial_scale: float = 1.0
    transformed_height: Positive = 1
    transformed_width: Positive = 1


class Quads(NamedTuple):
    """Quadrilaterals: columns and rows of corners, [R, 1, 1] each, clockwise from the top left one."""

    x: list[Array]
    y: list[Array]

    def side(self, k: int, other: int) -> Array:
        """Return the distance between two corners."""
        return f.sqrt((self.x[k] - self.x[other]) ** 2 + (self.y[k] - self.y[other]) ** 2)


def region_perspective(a: RegionPerspective) -> f.Results:
    """Where the perspective leads outside of the region, or of the image, there is 0."""
    n, c, height, width = a.x.shape
    scaled = f.constant(a.rois) * a.spatial_scale
    corners = scaled.reshape(-1, 8, 1, 1)
    quads = Quads([corners[:, 2 * k] for k in range(4)], [corners[:, 2 * k + 1] for k in range(4)])
    matrix = _perspective(quads, a.transformed_height, a.transformed_width)
    column, row = np.meshgrid(
        np.arange(a.transformed_width), np.arange(a.transformed_height), indexing="xy"
    )
    to_x, to_y, over = (
        matrix[k] * f.table(column, a.x.dtype)
        + matrix[k + 1] * f.table(row, a.x.dtype)
        + matrix[k + 2]
        for k in (0, 3, 6)
    )
    places = to_y / over, to_x / over
    inside = _covers(quads, *places)
    for place, size in zip(places, (height, width), strict=True):
        inside = inside & (place - -0.5 >= -_NEAR) & (place - (size - 0.5) <= _NEAR)
    sizes = (height, width)
    safe = [f.where(inside, place, 0) for place in places]
    points = [_snapped(place, size) for place, size in zip(safe, sizes, strict=True)]
    image = f.checked(
        f.sequence_of(a.rois_at[-1], a.rois.shape[0], "ROIs"),
        n,
        f.outside("roi_perspective_transform", n, "the image of a sequence of ROIs", "images"),
    )
    source = a.x.transpose(0, 2, 3, 1).reshape(-1, c)
    values = _between(source, image.reshape(-1, 1, 1), points, sizes)
    values = f.where(inside.reshape(*inside.shape, 1), values, 0)
    mask = inside.astype(np.int32)
    terms = [f.broadcast(m, (m.shape[0] if m.ndim else a.rois.shape[0], 1, 1)) for m in matrix]
    return {
        "out": values.transpose(0, 3, 1, 2),
        "mask": mask.reshape(-1, 1, *mask.shape[1:]),
        "transform_matrix": f.concatenate(terms, 1).reshape(-1, 9),
        "out2_in_idx": f.table(np.zeros((0, 4)), np.int32),
        "out2_in_weights": f.table(np.zeros((0, 4)), a.x.dtype),
    }


def _perspective(quads: Quads, height: int, width: int) -> list[Array]:
    """Return the matrix [9] from upright pixels to quadrilaterals: (x, y, 1) times a factor, row by row.

    Regions narrower than they may be get fewer columns, so that they keep their form. Heckbert, "Fundamentals
    of texture mapping and image warping" (1989), section 2.2.3.
    """
    x, y = quads
    across, down = (
        (quads.side(0, 1) + quads.side(2, 3)) / 2,
        (quads.side(1, 2) + quads.side(3, 0)) / 2,
    )
    rows = max(2, height)
    columns = f.floor(across * (rows - 1) / down + 0.5) + 1
    last_column, last_row = f.maximum(f.minimum(columns, float(width)), 2.0) - 1, rows - 1
    x1, x2, x3 = x[1] - x[2], x[3] - x[2], x[0] - x[1] + x[2] - x[3]
    y1, y2, y3 = y[1] - y[2], y[3] - y[2], y[0] - y[1] + y[2] - y[3]
    area = x1 * y2 - x2 * y1 + 1e-5
    m6 = (x3 * y2 - x2 * y3) / area / last_column
    m7 = (x1 * y3 - x3 * y1) / area / last_row
    m3 = (y[1] - y[0] + m6 * last_column * y[1]) / last_column
    m4 = (y[3] - y[0] + m7 * last_row * y[3]) / last_row
    m0 = (x[1] - x[0] + m6 * last_column * x[1]) / last_column
    m1 = (x[3] - x[0] + m7 * last_row * x[3]) / last_row
    return [m0, m1, x[0], m3, m4, y[0], m6, m7, m6 * 0 + 1]


def _covers(quads: Quads, y: Array, x: Array) -> Array:
    """Tell whether points lie in quadrilaterals, or on their sides."""
    on_side, crossings = None, None
    for k in range(4):
        (x0, x1), (y0, y1) = ((c[k], c[(k + 1) % 4]) for c in quads)
        left, right = f.minimum(x0, x1), f.maximum(x0, x1)
        top, bottom = f.minimum(y0, y1), f.maximum(y0, y1)
        level = f.absolute(y0 - y1) < _NEAR
        at = (y - y0) * (x1 - x0) / f.where(level, y0 * 0 + 1, y1 - y0) + x0
        on_level = (
            (f.absolute(y - y0) < _NEAR)
            & (f.absolute(y - y1) < _NEAR)
            & (x - left > -_NEAR)
            & (x - right < _NEAR)
        )
        within = (y - top > -_NEAR) & (y - bottom < _NEAR)
        near = f.absolute(at - x) < _NEAR
        passes = (y - top >= _NEAR) & (y - bottom <= _NEAR)
        on = f.where(level, on_level, near & (within | passes))
        crosses = f.where(level, x * 0, f.where(passes & (at - x > _NEAR), x * 0 + 1, 0))
        on_side = on if on_side is None else on_side | on
        crossings = crosses if crossings is None else crossings + crosses
    assert on_side is not None and crossings is not None
    odd = crossings - f.floor(crossings * 0.5) * 2 > 0.5
    return on_side | odd


def _snapped(place: Array, size: int) -> Array:
    """Return places as ones on the image; those on its last pixel, or nearly so, are there."""
    place = _onto(place, size)
    return f.where(f.floor(place) - (size - 1) > -_NEAR, place * 0 + (size - 1), place)


_QUADS = table(
    [
        [1.0, 1.2, 5.5, 0.6, 6.1, 4.2, 0.7, 4.6],
        [2.0, 0.5, 9.5, 1.5, 8.0, 5.5, 1.0, 4.0],
        [0.0, 0.0, 4.0, 0.0, 4.0, 3.0, 0.0, 3.0],
    ]
)
_CORNERS = {"ROIs": _QUADS, "ROIs@LOD": [offsets(2, 1)]}
_UPRIGHT = {"transformed_height": 3, "transformed_width": 4}

define(
    "roi_perspective_transform",
    RegionPerspective,
    Sized(
        "X floats [N C H W], ROIs as X [R 8] "
        "-> Out [R C transformed_height transformed_width], "
        "Mask int32 [R 1 transformed_height transformed_width], TransformMatrix [R 9], "
        "Out2InIdx int32 [0 4], Out2InWeights [0 4]",
        lambda op: {"sequences": op.sequences("ROIs")},
    ),
    formula=region_perspective,
    lod=no_sequences,
    samples=(
        sample("X [2 3 6 8]", _CORNERS, **_UPRIGHT),
        sample("X [2 1 6 8]", _CORNERS, **_UPRIGHT, spatial_scale=0.7),
    ),
    slope=slope("(x) rois rois_at d_out", "d_x"),
)
