"""Boxes and polygons of text, merged with their neighbours and then suppressed.

Zhou and others, "EAST", arXiv 1704.03155, section 3.6. How many stay is known only in a step. Legend: N images,
M boxes of an image, C classes, D numbers of a box: its sides, or x and y of each corner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .box_choice import Choice, chosen_rows, overlap, sequences_of, suppressed
from .compiled import HostFunction
from .largest import largest_first
from .latest import latest
from .levels import computed, define_level
from .operands import Array, Input, Operands, Output
from .registry import Inference, Specs, define
from .rules import hold_floats, known_operands, match, of_shape
from .samples import sample, table, uniform

_SIZES = (4, 8, 16, 24, 32)  # of a box, and of polygons with 4, 8, 12 and 16 corners
Point = tuple[float, float]


class LocalityAwareNms(Operands):
    b_boxes: Input
    scores: Input
    out: Output
    background_label: int = -1
    score_threshold: float = 0.0
    nms_top_k: int = 0
    nms_threshold: float = 0.3
    nms_eta: float = 1.0
    keep_top_k: int = 0
    normalized: bool = True


def shared(box: Array, other: Array, normalized: bool) -> float:
    """Return what two boxes or polygons have in common, of what both cover."""
    if len(box) == 4:
        return float(overlap(box[None], other[None], normalized)[0, 0])
    corners, others = box.reshape(-1, 2), other.reshape(-1, 2)
    if (corners.min(0) >= others.max(0)).any() or (others.min(0) >= corners.max(0)).any():
        return 0.0
    first, second = _triangles(corners), _triangles(others)
    common = sum(i * j * _common_area(one, two) for i, one in first for j, two in second)
    areas = [
        abs(sum(sign * _area(triangle) for sign, triangle in each)) for each in (first, second)
    ]
    common = abs(common)
    return common / (areas[0] + areas[1] - common) if common and min(areas) else 0.0


def _triangles(corners: Array) -> list[tuple[int, list[Point]]]:
    """Return triangles that add up to a polygon, those with the sign -1 taken off; all turn one way."""
    points: list[Point] = [(float(x), float(y)) for x, y in corners]
    triangles = []
    for k in range(1, len(points) - 1):
        triangle = [points[0], points[k], points[k + 1]]
        area = _area(triangle)
        if area:
            triangles.append((1, triangle) if area > 0 else (-1, triangle[::-1]))
    return triangles


def _area(points: list[Point]) -> float:
    """Return the area within points, below 0 if they turn the other way."""
    total = 0.0
    for (x0, y0), (x1, y1) in zip(points, points[1:] + points[:1], strict=True):
        total += x0 * y1 - x1 * y0
    return total / 2


def _common_area(points: list[Point], other: list[Point]) -> float:
    """Return the area that two triangles share: one is cut along each side of the other."""
    for (x0, y0), (x1, y1) in zip(other, other[1:] + other[:1], strict=True):
        sides = [(x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) for x, y in points]
        inside: list[Point] = []
        for k, ((x, y), side) in enumerate(zip(points, sides, strict=True)):
            before, (x_before, y_before) = sides[k - 1], points[k - 1]
            if (side >= 0) != (before >= 0):
                share = before / (before - side)
                inside.append(
                    (x_before + share * (x - x_before), y_before + share * (y - y_before))
                )
            if side >= 0:
                inside.append((x, y))
        points = inside
    return _area(points)


@HostFunction
def merged(boxes: Array, scores: Array, normalized: bool, threshold: float) -> Array:
    """Merge each box with the one before, in place, where they overlap; return the numbers of what is left.

    A merged box is the mean of its parts by their scores, and has the sum of these.
    """
    stay = list(range(min(len(boxes), 1)))
    for k in range(1, len(boxes)):
        last = stay[-1]
        if shared(boxes[k], boxes[last], normalized) > threshold:
            total = scores[k] + scores[last]
            boxes[last] = (boxes[k] * scores[k] + boxes[last] * scores[last]) / total
            scores[last] = total
        else:
            stay.append(k)
    return np.array(stay, np.int64)


def _suppressed(boxes: Array, scores: Array, order: Array, a: Any) -> list[int]:
    """Return the numbers of boxes that stay, of those in ``order``, the best first."""
    if boxes.shape[1] == 4:
        settings = a.nms_threshold, a.nms_eta, a.normalized
        return order[suppressed(boxes[order], scores[order], *settings)].tolist()
    stay: list[int] = []
    threshold = a.nms_threshold
    for number in order.tolist():
        if any(shared(boxes[number], boxes[k], a.normalized) > threshold for k in stay):
            continue
        stay.append(number)
        threshold *= a.nms_eta if a.nms_eta < 1 and threshold > 0.5 else 1
    return stay


def _of_image(boxes: Array, all_scores: Array, a: Any) -> Array:
    """Return what stays of an image, class by class: [K, D + 2]. All classes merge the same boxes."""
    rows: list[tuple[int, int]] = []
    for label, scores in enumerate(all_scores):
        if label == a.background_label:
            continue
        left = merged(boxes, scores, a.normalized, a.nms_threshold)
        left = left[scores[left] > a.score_threshold]
        order = left[largest_first(scores[left], a.nms_top_k)]
        rows += [(label, number) for number in _suppressed(boxes, scores, order, a)]
    labels, numbers = np.array(rows, np.int64).reshape(-1, 2).T
    own = all_scores[labels, numbers]
    return np.column_stack([labels.astype(boxes.dtype), own, boxes[numbers]])


@latest(LocalityAwareNms)
def chosen(a: Any) -> Choice:
    """Merge and choose boxes: ``nms_top_k`` of each class, ``keep_top_k`` of all."""
    width = a.b_boxes.shape[2] + 2
    parts = [np.zeros((0, width), a.b_boxes.dtype)]
    counts = []
    for boxes, scores in zip(np.array(a.b_boxes), np.array(a.scores), strict=True):
        rows = _of_image(boxes, scores, a)
        if -1 < a.keep_top_k < len(rows):
            best = largest_first(rows[:, 1], a.keep_top_k)
            rows = rows[best[np.argsort(rows[best, 0], kind="stable")]]
        parts.append(rows)
        counts.append(len(rows))
    images = np.repeat(np.arange(len(counts)), counts)
    return Choice(np.concatenate(parts), np.arange(len(images)), images, len(counts))


def _known(op: Inference) -> Choice | None:
    """Check boxes and scores; return the choice, or None if they are not known yet."""
    _match_boxes(op)
    operands = known_operands(op, LocalityAwareNms)
    return None if operands is None else chosen(operands)


def locality_shape(op: Inference) -> Mapping[str, Specs]:
    """[K, D + 2]; if no box stays, one row [-1]."""
    choice, size = _known(op), op.shape("BBoxes")[2]
    count = -1 if choice is None else len(choice.rows)
    shape = (1, 1) if count == 0 else (count, size + 2 if size > 0 else -1)
    return {"Out": of_shape(shape, op.spec("BBoxes"))}


def _match_boxes(op: Inference) -> None:
    hold_floats(op, "BBoxes", "Scores")
    match(op, Scores="N C M", BBoxes="N M D")
    size = op.shape("BBoxes")[2]
    op.require(size in (-1, *_SIZES), f"a box has 4, 8, 16, 24 or 32 numbers, not {size}")


_BOXES = [[0.1, 0.1, 0.5, 0.5], [0.12, 0.1, 0.5, 0.52], [0.6, 0.6, 0.9, 0.8], [0.1, 0.15, 0.5, 0.5]]
_QUADS = [
    [[0.1, 0.1, 0.5, 0.15, 0.5, 0.5, 0.1, 0.4], [0.1, 0.1, 0.5, 0.1, 0.5, 0.45, 0.15, 0.4]],
    [[0.6, 0.2, 0.9, 0.2, 0.9, 0.6, 0.7, 0.3], [0.1, 0.1, 0.5, 0.1, 0.5, 0.45, 0.15, 0.4]],
]


_TOP = {"nms_top_k": 10, "keep_top_k": 5, "score_threshold": 0.3}
_TEXT = {"BBoxes": table(_QUADS), "Scores": uniform(2, 1, 2, low=0.2)}
_SAMPLES = (
    sample({"BBoxes": table([_BOXES])}, "Scores 0.2:1.0 [1 1 4]", **_TOP),
    sample(_TEXT, **_TOP, normalized=False),
)
_REFUSES = (
    sample("BBoxes uniform [2 4 5], Scores uniform [2 1 4]"),
    sample("BBoxes uniform [2 4 8], Scores uniform [2 1 3]"),
)

define(
    "locality_aware_nms",
    LocalityAwareNms,
    locality_shape,
    host=lambda a: chosen_rows(chosen(a)),
    reads_values=lambda attrs: ("BBoxes", "Scores"),
    lod=computed("lod_of_merged", "Out"),
    samples=_SAMPLES,
    refuses=_REFUSES,
)
define_level(
    "lod_of_merged",
    LocalityAwareNms,
    lambda a: chosen(a).offsets(),
    count=lambda op: sequences_of(_known(op)),
    reads_values=lambda attrs: ("BBoxes", "Scores"),
    samples=(*_SAMPLES, sample(_TEXT, **{**_TOP, "score_threshold": 9.0})),
    refuses=_REFUSES,
)
