"""Boxes that stay, a pair at a time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from .registry import reference

Slots = dict[str, Any]


def shared(one: Any, other: Any, end: float = 0) -> float:
    """What two boxes (x0, y0, x1, y1) have in common, of what they cover."""
    sides = [min(one[k + 2], other[k + 2]) - max(one[k], other[k]) for k in range(2)]
    if min(sides) < 0:
        return 0.0
    both = (sides[0] + end) * (sides[1] + end)
    areas = [(b[2] - b[0] + end) * (b[3] - b[1] + end) if b[2] >= b[0] and b[3] >= b[1] else 0
             for b in (one, other)]  # fmt: skip
    return float(both / (sum(areas) - both)) if both else 0.0


def staying(boxes: Any, scores: Any, threshold: float, eta: float = 1, end: float = 0) -> list[int]:
    """The numbers of the boxes that stay, best first."""
    stay: list[int] = []
    for number in sorted(range(len(scores)), key=lambda k: -scores[k]):
        if all(shared(boxes[number], boxes[other], end) <= threshold for other in stay):
            stay.append(number)
            threshold *= eta if eta < 1 and threshold > 0.5 else 1
    return stay


def images(ins: Slots, levels: Any) -> list[tuple[Any, Any]]:
    """Boxes [C, M, 4] and scores [C, M] of each image."""
    boxes, scores = ins["BBoxes"], ins["Scores"]
    if scores.ndim == 3:
        return [(np.stack([b] * len(s)), s) for b, s in zip(boxes, scores, strict=True)]
    return [(boxes[b:e].transpose(1, 0, 2), scores[b:e].T) for b, e in pairwise(levels)]


def rows_of(ins: Slots, attrs: Slots, levels: Any) -> list[list[Any]]:
    whole = []
    for boxes, scores in images(ins, levels):
        rows = []
        for c in range(len(scores)):
            order = sorted(range(len(scores[c])), key=lambda k: -scores[c][k])
            order = [k for k in order if scores[c][k] > attrs["score_threshold"]]
            order = order[: attrs["nms_top_k"]] if attrs["nms_top_k"] >= 0 else order
            settings = attrs["nms_threshold"], attrs["nms_eta"], 0 if attrs["normalized"] else 1
            stay = staying(boxes[c][order], scores[c][order], *settings)
            by_place = ins["Scores"].ndim == 2
            stay = sorted(stay, key=order.__getitem__) if by_place else stay
            if c != attrs["background_label"]:
                rows += [[c, scores[c][order[k]], *boxes[c][order[k]]] for k in stay]
        if 0 <= attrs["keep_top_k"] < len(rows):
            rows = sorted(rows, key=lambda row: -row[1])[: attrs["keep_top_k"]]
            rows = sorted(rows, key=lambda row: row[0])
        whole.append(rows)
    return whole


def decayed_rows(ins: Slots, attrs: Slots) -> list[list[Any]]:
    """(number, row) of the boxes of each image, best first."""
    whole, end = [], 0 if attrs["normalized"] else 1
    for n, (boxes, classes) in enumerate(zip(ins["BBoxes"], ins["Scores"], strict=True)):
        rows = []
        for c, scores in enumerate(classes):
            order = sorted(range(len(scores)), key=lambda k: -scores[k])
            order = [k for k in order if scores[k] > attrs["score_threshold"]]
            order = order[: attrs["nms_top_k"]] if attrs["nms_top_k"] >= 0 else order
            hidden: list[float] = []  # the most that a better box covers of each
            for i, k in enumerate(order):
                factor = 1.0
                shares = [shared(boxes[k], boxes[j], end) for j in order[:i]]
                for share, most in zip(shares, hidden, strict=True):
                    if attrs["use_gaussian"]:
                        factor = min(factor, np.exp((most**2 - share**2) * attrs["gaussian_sigma"]))
                    elif most < 1:
                        factor = min(factor, (1 - share) / (1 - most))
                hidden.append(max(shares, default=0))
                score = scores[k] * factor
                if c != attrs["background_label"] and score > attrs["post_threshold"]:
                    rows.append((n * len(boxes) + k, [c, score, *boxes[k]]))
        rows.sort(key=lambda pair: -pair[1][1])
        whole.append(rows[: attrs["keep_top_k"]] if attrs["keep_top_k"] >= 0 else rows)
    return whole


@reference("matrix_nms")
def matrix_nms(ins: Slots, attrs: Slots) -> Slots:
    rows = [pair for image in decayed_rows(ins, attrs) for pair in image]
    return {
        "Out": np.array([row for _, row in rows]).reshape(-1, 6),
        "Index": np.array([[k] for k, _ in rows]).reshape(-1, 1),
    }


@reference("lod_of_decayed")
def lod_of_decayed(ins: Slots, attrs: Slots) -> Slots:
    return {"Out": np.cumsum([0, *map(len, decayed_rows(ins, attrs))])}


def _images(ins: Slots, attrs: Slots) -> list[Any]:
    return rows_of(ins, attrs, ins["BBoxes@LOD"][-1] if ins.get("BBoxes@LOD") else None)


@reference("multiclass_nms", "multiclass_nms2")
def multiclass_nms(ins: Slots, attrs: Slots) -> Slots:
    return {"Out": np.array([row for image in _images(ins, attrs) for row in image])}


@reference("lod_of_choice")
def lod_of_choice(ins: Slots, attrs: Slots) -> Slots:
    counts = [len(rows) for rows in _images(ins, attrs)]
    return {"Out": np.cumsum([0, *counts]) if sum(counts) else np.array([0, 1])}
