"""Regions read at points that are data: point by point, and by solving for the perspective."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .region_pool import _linear, _nearest
from .registry import reference

Arrays = dict[str, Any]


def _images_of(ins: Arrays) -> list[int]:
    counts = np.diff(ins["ROIs@LOD"][-1])
    return [n for n, count in enumerate(counts) for _ in range(count)]


def _pixel(x: Any, at: list[float]) -> float:
    """What lies at a point that is moved onto the image."""
    y, z = (min(max(a, 0), size - 1) for a, size in zip(at, x.shape, strict=True))
    return _linear(x, (y, z))


@reference("deformable_psroi_pooling")
def deformable_psroi_pooling(ins: Arrays, attrs: Arrays) -> Arrays:
    x, rois, trans, scale = ins["Input"], ins["ROIs"], ins["Trans"], attrs["spatial_scale"]
    bins, points = (attrs["pooled_height"], attrs["pooled_width"]), attrs["sample_per_part"]
    classes = 1 if attrs["no_trans"] else trans.shape[1] // 2
    out = np.zeros((len(rois), attrs["output_dim"], *bins))
    counts = np.zeros(out.shape)
    images = _images_of(ins)
    for r, c, *at in np.ndindex(*out.shape):
        label = c * classes // attrs["output_dim"]
        starts, sizes = [], []
        for k in range(2):
            first = _nearest(rois[r, 1 - k]) * scale - 0.5
            size = max((_nearest(rois[r, 3 - k]) + 1) * scale - 0.5 - first, 0.1)
            part = [at[j] * attrs["part_size"][j] // bins[j] for j in range(2)]
            move = 0 if attrs["no_trans"] else trans[r, 2 * label + 1 - k, part[0], part[1]]
            starts.append(first + at[k] * size / bins[k] + move * attrs["trans_std"] * size)
            sizes.append(size / bins[k] / points)
        group = [at[j] * attrs["group_size"][j] // bins[j] for j in range(2)]
        channel = (c * attrs["group_size"][0] + group[0]) * attrs["group_size"][1] + group[1]
        image = x[images[r], channel]
        for step in np.ndindex(points, points):
            place = [starts[k] + step[k] * sizes[k] for k in range(2)]
            if all(-0.5 <= a <= n - 0.5 for a, n in zip(place, image.shape, strict=True)):
                out[(r, c, *at)] += _pixel(image, place)
                counts[(r, c, *at)] += 1
    return {"Output": out / np.maximum(counts, 1), "TopCount": counts}


def _perspective(quad: Any, height: int, width: int) -> Any:
    """The map of an upright rectangle's corners to those of a quadrilateral: eight linear equations."""
    sides = [math.dist(quad[k], quad[(k + 1) % 4]) for k in range(4)]
    rows = max(2, height)
    across, down = (sides[0] + sides[2]) / 2, (sides[1] + sides[3]) / 2
    columns = max(2, min(math.floor(across * (rows - 1) / down + 0.5) + 1, width))
    equations, results = [], []
    corners = [(0, 0), (columns - 1, 0), (columns - 1, rows - 1), (0, rows - 1)]
    for (u, v), (x, y) in zip(corners, quad, strict=True):
        equations += [[u, v, 1, 0, 0, 0, -u * x, -v * x], [0, 0, 0, u, v, 1, -u * y, -v * y]]
        results += [x, y]
    matrix = np.append(np.linalg.solve(equations, results), 1).reshape(3, 3)
    one, other = quad[1] - quad[2], quad[3] - quad[2]
    area = one[0] * other[1] - other[0] * one[1]
    matrix[2, :2] *= area / (area + 1e-5)  # Paddle's way around regions without area
    for k, (corner, last) in enumerate(((1, columns - 1), (3, rows - 1))):
        matrix[:2, k] = (quad[corner] - quad[0]) / last + matrix[2, k] * quad[corner]
    return matrix.ravel()


def _within(quad: Any, point: tuple[float, float]) -> bool:
    """Tell whether a point lies in a quadrilateral that bulges outwards, or on its sides."""
    turns = []
    for k in range(4):
        (x0, y0), (x1, y1) = quad[k], quad[(k + 1) % 4]
        cross = (x1 - x0) * (point[1] - y0) - (y1 - y0) * (point[0] - x0)
        turns.append(cross / math.dist((x0, y0), (x1, y1)))
    return min(turns) > -1e-4 or max(turns) < 1e-4


@reference("roi_perspective_transform")
def roi_perspective_transform(ins: Arrays, attrs: Arrays) -> Arrays:
    x, size = ins["X"], (attrs["transformed_height"], attrs["transformed_width"])
    out = np.zeros((len(ins["ROIs"]), x.shape[1], *size))
    mask, matrices = np.zeros((len(out), 1, *size), "int32"), np.zeros((len(out), 9))
    for r, image in enumerate(_images_of(ins)):
        quad = ins["ROIs"][r].reshape(4, 2) * attrs["spatial_scale"]
        matrices[r] = _perspective(quad, *size)
        for p, q in np.ndindex(*size):
            u, v, w = matrices[r].reshape(3, 3) @ [q, p, 1]
            at = [v / w, u / w]
            on = all(-0.5 <= a <= n - 0.5 for a, n in zip(at, x.shape[2:], strict=True))
            if on and _within(quad, (u / w, v / w)):
                mask[r, 0, p, q] = 1
                out[r, :, p, q] = [_pixel(plane, at) for plane in x[image]]
    empty = np.zeros((0, 4))
    return {"Out": out, "Mask": mask, "TransformMatrix": matrices, "Out2InIdx": empty.astype("int32"),
            "Out2InWeights": empty}  # fmt: skip
