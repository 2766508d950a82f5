"""Boxes and polygons that are merged and stay, a pair at a time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from .box_choice import shared
from .registry import reference

Slots = dict[str, Any]


def _sides(polygon: Any) -> list[tuple[Any, Any]]:
    return [(polygon[k - 1], polygon[k]) for k in range(len(polygon))]


def _cuts(polygon: Any, x: float) -> list[float]:
    """Where a vertical line meets the sides of a polygon."""
    heights = []
    for (x0, y0), (x1, y1) in _sides(polygon):
        if min(x0, x1) < x < max(x0, x1):
            heights.append(y0 + (y1 - y0) * (x - x0) / (x1 - x0))
    return sorted(heights)


def _area(*polygons: Any) -> float:
    """The area that all have in common: strips between corners and crossings, each as high as its middle."""
    edges = {float(x) for polygon in polygons for x, _ in polygon}
    sides = [side for polygon in polygons for side in _sides(polygon)]
    for (p, q), (r, s) in ((a, b) for a in sides for b in sides):
        one, other = q - p, s - r
        turn = one[0] * other[1] - one[1] * other[0]
        if turn:
            at = ((r - p)[0] * other[1] - (r - p)[1] * other[0]) / turn
            edges.add(float(p[0] + at * one[0]))
    total = 0.0
    for left, right in pairwise(sorted(edges)):
        cuts = [_cuts(polygon, (left + right) / 2) for polygon in polygons]
        spans = [list(zip(c[::2], c[1::2], strict=True)) for c in cuts]
        while len(spans) > 1:
            first, second, *rest = spans
            both = [(max(a, c), min(b, d)) for a, b in first for c, d in second]
            spans = [[span for span in both if span[0] < span[1]], *rest]
        total += (right - left) * sum(b - a for a, b in spans[0])
    return total


def _shared(one: Any, other: Any, attrs: Slots) -> float:
    if len(one) == 4:
        return shared(one, other, 0 if attrs["normalized"] else 1)
    polygons = [each.astype("float64").reshape(-1, 2) for each in (one, other)]
    both = _area(*polygons)
    return both / (_area(polygons[0]) + _area(polygons[1]) - both) if both else 0.0


def _rows(boxes: Any, scores: Any, attrs: Slots) -> list[list[float]]:
    """Of one image with one class."""
    boxes, scores, stay = boxes.copy(), scores.copy(), [0]
    for k in range(1, len(boxes)):
        last = stay[-1]
        if _shared(boxes[k], boxes[last], attrs) <= attrs["nms_threshold"]:
            stay.append(k)
            continue
        weights = scores[[k, last]]
        boxes[last] = np.average(boxes[[k, last]], axis=0, weights=weights)
        scores[last] = weights.sum()
    order = sorted(
        (k for k in stay if scores[k] > attrs["score_threshold"]), key=lambda k: -scores[k]
    )
    best: list[int] = []
    for k in order[: attrs["nms_top_k"]]:
        if all(_shared(boxes[k], boxes[other], attrs) <= attrs["nms_threshold"] for other in best):
            best.append(k)
    return [[0, scores[k], *boxes[k]] for k in best[: attrs["keep_top_k"]]]


def _images(ins: Slots, attrs: Slots) -> list[list[list[float]]]:
    images = zip(ins["BBoxes"], ins["Scores"], strict=True)
    return [_rows(boxes, scores[0], attrs) for boxes, scores in images]


@reference("locality_aware_nms")
def locality_aware_nms(ins: Slots, attrs: Slots) -> Slots:
    rows = [row for image in _images(ins, attrs) for row in image]
    return {"Out": np.array(rows or [[-1]])}


@reference("lod_of_merged")
def lod_of_merged(ins: Slots, attrs: Slots) -> Slots:
    counts = [len(image) for image in _images(ins, attrs)]
    return {"Out": np.cumsum([0, *counts]) if sum(counts) else np.array([0, 1])}
