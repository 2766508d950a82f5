"""The loss of YOLOv3, a box and a cell at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference


def shared(one: Any, other: Any) -> float:
    """What two boxes (x, y, width, height) have in common, of what they cover."""
    sides = [
        min(one[k] + one[k + 2] / 2, other[k] + other[k + 2] / 2)
        - max(one[k] - one[k + 2] / 2, other[k] - other[k + 2] / 2)
        for k in range(2)
    ]
    both = sides[0] * sides[1] if min(sides) > 0 else 0.0
    return both / (one[2] * one[3] + other[2] * other[3] - both)


def entropy(x: float, expected: float) -> float:
    p = 1 / (1 + np.exp(-x))
    return float(-expected * np.log(p) - (1 - expected) * np.log(1 - p))


@reference("yolov3_loss")
def yolov3_loss(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, boxes, classes, mask = ins["X"], ins["GTBox"], attrs["class_num"], attrs["anchor_mask"]
    n, _, grid, _ = x.shape
    x = x.reshape(n, len(mask), 5 + classes, grid, grid)
    anchors = np.array(attrs["anchors"]).reshape(-1, 2) / (attrs["downsample_ratio"] * grid)
    grown, smooth = attrs["scale_x_y"], min(1 / classes, 1 / 40) * attrs["use_label_smooth"]
    match = np.full(boxes.shape[:2], -1)
    sure, loss = np.zeros((n, len(mask), grid, grid)), np.zeros(n)
    for b, k, i, j in np.ndindex(*sure.shape):
        cell = x[b, k, :, i, j]
        middle = [grown / (1 + np.exp(-cell[m])) - (grown - 1) / 2 + (j, i)[m] for m in range(2)]
        guess = [*np.array(middle) / grid, *np.exp(cell[2:4]) * anchors[mask[k]]]
        best = max((shared(guess, box) for box in boxes[b] if min(box[2:]) > 0), default=0)
        sure[b, k, i, j] = -1 if best > attrs["ignore_thresh"] else 0
    for b, t in np.ndindex(*match.shape):
        box, label = boxes[b, t], ins["GTLabel"][b, t]
        if min(box[2:]) <= 0:
            continue
        fits = [shared([0, 0, *box[2:]], [0, 0, *anchor]) for anchor in anchors]
        best = int(np.argmax(fits))
        if best not in mask:
            continue
        k = match[b, t] = mask.index(best)
        j, i = (int(v * grid) for v in box[:2])
        score = ins["GTScore"][b, t] if "GTScore" in ins else 1.0
        sure[b, k, i, j], cell = score, x[b, k, :, i, j]
        place = sum(entropy(cell[m], box[m] * grid - (j, i)[m]) for m in range(2))
        place += abs(cell[2:4] - np.log(box[2:] / anchors[best])).sum()
        loss[b] += place * (2 - box[2] * box[3]) * score
        for c in range(classes):
            loss[b] += entropy(cell[5 + c], 1 - smooth if c == label else smooth) * score
    for b, k, i, j in np.ndindex(*sure.shape):
        score = sure[b, k, i, j]
        if score >= 0:
            loss[b] += entropy(x[b, k, 4, i, j], float(score > 0)) * (score or 1)
    return {"Loss": loss, "ObjectnessMask": sure, "GTMatchMask": match}
