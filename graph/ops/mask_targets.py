"""Masks that Mask R-CNN learns from polygons: He et al., arXiv 1703.06870, section 3.1.

Boxes are (x0, y0, x1, y1), points (x, y) in pixels. Objects are sequences of polygons, these of points.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from .box_choice import overlap
from .levels import computed, define_level
from .lod_levels import bounds, parts
from .operands import Array, Input, Offsets, Operands, Output, Positive
from .registry import Inference, define
from .rules import check_classes, merge_dims
from .samples import offsets, sample, table
from .shapes import Sized, counted

_FINE = 5  # steps of an outline in a pixel: middles of pixels are points of this grid


class GenerateMaskLabels(Operands):
    im_info: Input
    gt_classes: Input
    is_crowd: Input
    gt_segms: Input
    rois: Input
    labels_int32: Input
    gt_segms_lod: Offsets
    rois_lod: Offsets
    mask_rois: Output
    roi_has_mask_int32: Output
    mask_int32: Output
    num_classes: Positive = 81
    resolution: Positive = 14


class MaskTargets(NamedTuple):
    """Of one image: regions [K, 4], their numbers in it [K], classes [K], masks bool [K, M, M]."""

    boxes: Array
    numbers: Array
    labels: Array
    masks: Array


_CHOSEN = "labels_int32 rois_lod"  # tell which regions have a mask


def masked_regions(a: Any) -> Iterator[Array]:
    """Yield the numbers of those regions of each image that are of an object; else its first, of background."""
    for own in parts(a.labels_int32.reshape(-1), a.rois_lod[-1]):
        front = np.flatnonzero(own > 0)
        yield front if front.size else np.flatnonzero(own == 0)[:1]


def filled(outline: Array, size: int) -> Array:
    """Return which middles of size x size pixels lie in a closed outline, bool [size, size].

    The outline is walked on a finer grid. Where it passes the middle of a column all pixels below change sides.
    """
    points = (_FINE * outline.astype(np.float64) + 0.5).astype(np.int64)
    walk = np.concatenate([_steps(*ends) for ends in pairwise([*points, points[0]])])
    turns = np.flatnonzero(np.diff(walk[:, 0]))
    (x, y), (next_x, next_y) = walk[turns].T, walk[turns + 1].T
    column = (np.where(next_x < x, next_x, next_x - 1) + 0.5) / _FINE - 0.5
    row = np.ceil(np.clip((np.minimum(y, next_y) + 0.5) / _FINE - 0.5, 0, size))
    inside = (np.floor(column) == column) & (column >= 0) & (column <= size - 1)
    changes = np.zeros((size, size + 1), np.int64)
    np.add.at(changes, (column[inside].astype(np.int64), row[inside].astype(np.int64)), 1)
    # A change below the last row is one above the next column's first: columns are walked behind each other.
    flat = changes[:, :size].copy()
    flat[1:, 0] += changes[:-1, size]
    return (flat.cumsum() % 2).astype(bool).reshape(size, size).T


def _steps(begin: Array, end: Array) -> Array:
    """Return the points of a line on the grid, [steps, 2]; a line and its reverse have the same."""
    reach = end - begin
    along = 0 if abs(reach[0]) >= abs(reach[1]) else 1
    low, high = (end, begin) if reach[along] < 0 else (begin, end)
    t = np.arange(abs(reach[along]) + 1)
    slope = (high - low)[1 - along] / max(len(t) - 1, 1)
    line = np.empty((len(t), 2), np.int64)
    line[:, along] = low[along] + t
    line[:, 1 - along] = (low[1 - along] + slope * t + 0.5).astype(np.int64)
    return line[::-1] if reach[along] < 0 else line


def mask_targets(a: Any) -> list[MaskTargets]:
    """Give each region of an object the polygons whose bounds it has most in common with, seen from its box."""
    images = []
    check_classes(np.maximum(a.labels_int32, 0), a.num_classes, "LabelsInt32", "num_classes")
    objects, polygons, points = a.gt_segms_lod
    size, classes = a.resolution, a.gt_classes.reshape(-1)
    rows = (parts(each, a.rois_lod[-1]) for each in (a.rois, a.labels_int32.reshape(-1)))
    for n, (rois, labels, numbers) in enumerate(zip(*rows, masked_regions(a), strict=True)):
        scale = a.im_info[n, 2]
        boxes = rois[numbers] / scale
        masks = np.zeros((len(numbers), size, size), bool)
        outlines = [
            [a.gt_segms[points[p] : points[p + 1]] for p in range(polygons[k], polygons[k + 1])]
            for k in range(objects[n], objects[n + 1])
            if classes[k] > 0 and not a.is_crowd.reshape(-1)[k]
        ]
        if outlines and (labels[numbers] > 0).any():
            corners = [np.concatenate(own) for own in outlines]
            bounds = np.stack([np.concatenate([c.min(0), c.max(0)]) for c in corners])
            owners = overlap(boxes, bounds, False, nearby=True).argmax(1)
            for mask, box, owner in zip(masks, boxes, owners, strict=True):
                sides = np.maximum(box[2:] - box[:2], 1)
                for outline in outlines[owner]:
                    mask |= filled((outline - box[:2]) * np.float32(size) / sides, size)
        images.append(MaskTargets(boxes * scale, numbers, labels[numbers], masks))
    return images


def _check_levels(op: Inference) -> None:
    """Refuse polygons that are not those of the objects of the images."""
    if op.sequences("GtSegms") < 0:
        return
    levels = op.specs("GtSegms@LOD")
    op.require(
        len(levels) == 3,
        "GtSegms must have three levels of sequences (objects of an image, polygons of an object, points "
        f"of a polygon), and has {len(levels)}",
    )
    images, objects = (max(level.shape[0] - 1, -1) for level in levels[:2])
    fits = merge_dims(images, op.shape("ImInfo")[0]) is not None
    op.require(fits, "GtSegms must have a sequence for each image of ImInfo")
    fits = merge_dims(objects, op.shape("GtClasses")[0]) is not None
    op.require(fits, f"GtClasses must have a row for each of the {objects} objects of GtSegms")


_POLYGONS = {
    "ImInfo": table([[40.0, 50.0, 1.0], [30.0, 60.0, 2.0]]),
    "GtClasses": table([[1], [2], [2]]),
    "IsCrowd": table([[0], [1], [0]]),
    "GtSegms": table(
        [
            *([3.0, 2.0], [18.0, 5.0], [9.0, 20.0]),
            *([12.0, 6.0], [30.0, 6.0], [30.0, 28.0], [12.0, 28.0]),
            *([1.0, 1.0], [9.0, 3.0], [2.0, 9.0]),
            *([4.0, 4.0], [12.0, 3.0], [7.0, 12.0]),
        ]
    ),
    "GtSegms@LOD": [offsets(2, 1), offsets(1, 1, 2), offsets(3, 4, 3, 3)],
    "Rois": table(
        [
            [2.0, 3.0, 19.0, 21.0],
            [11.0, 7.0, 29.0, 26.0],
            [0.0, 0.0, 17.0, 17.0],
            [1.0, 2.0, 24.0, 21.0],
        ]
    ),
    "Rois@LOD": [offsets(3, 1)],
    "LabelsInt32": table([[1], [0], [2], [2]]),
}
_SMALL = {"num_classes": 3, "resolution": 6}
_SEGMENTED = (
    sample(_POLYGONS, **_SMALL),
    sample(_POLYGONS, "LabelsInt32 table [0; 0; 0; 1]", **_SMALL),
)
define(
    "generate_mask_labels",
    GenerateMaskLabels,
    Sized(
        "Rois [regions 4], GtSegms [points 2], ImInfo [N 3], GtClasses integers [objects 1?], "
        "IsCrowd integers [objects 1?], LabelsInt32 integers [regions 1?] "
        "-> MaskRois [K 4], RoiHasMaskInt32 int32 [K 1], "
        "MaskInt32 int32 [K num_classes*resolution*resolution]",
        "sequences(Rois) == N; Rois must have a sequence for each image of ImInfo",
        _check_levels,
        counted(GenerateMaskLabels, lambda a: {"K": sum(map(len, masked_regions(a)))}, _CHOSEN),
    ),
    lod=computed("lod_of_masks", "MaskRois RoiHasMaskInt32 MaskInt32", "Rois"),
    samples=_SEGMENTED,
    refuses=(sample(_POLYGONS, "GtSegms@LOD [6 7]", **_SMALL),),
)
define_level(
    "lod_of_masks",
    GenerateMaskLabels,
    lambda a: bounds(list(masked_regions(a))),
    reads=f"rois {_CHOSEN}",
    count=lambda op: op.specs("Rois@LOD")[-1].shape[0] - 1,
    samples=(*_SEGMENTED, sample(_POLYGONS, "LabelsInt32 table [1; 0; 2; 0]")),
)
