"""How well boxes are found: the mean over classes of the average precision. Everingham et al., PASCAL VOC.

Boxes are (x0, y0, x1, y1) in shares of the image. What is found, and the objects, of each image are a sequence.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Literal, NamedTuple

import numpy as np

from .box_choice import overlap
from .levels import computed, define_level
from .lod_levels import parts
from .operands import Array, Input, Offsets, Operands, Output, Positive, named
from .registry import define
from .rules import are_classes, check_classes
from .samples import offsets, sample, table
from .shapes import Sized, counted

_SAME = 1e-6  # shares of objects that differ by less are the same


class DetectionMap(Operands):
    detect_res: Input
    label: Input
    has_state: Input | None
    pos_count: Input | None
    true_pos: Input | None
    false_pos: Input | None
    detect_res_lod: Offsets
    label_lod: Offsets
    accum_pos_count: Output
    accum_true_pos: Output
    accum_false_pos: Output
    mean: Output = named("MAP")
    class_num: Positive
    background_label: int = 0
    overlap_threshold: float = 0.5
    evaluate_difficult: bool = True
    ap_type: Literal["integral", "11point"] = "integral"


class Judgements(NamedTuple):
    """Of each class: how many objects count, and (score, whether it is an object) of what is found."""

    counts: Array
    rows: list[list[tuple[float, bool]]]

    def after(self, earlier: Judgements) -> Judgements:
        """Return the detections of earlier batches and of this one."""
        pairs = zip(earlier.rows, self.rows, strict=True)
        return Judgements(earlier.counts + self.counts, [[*old, *new] for old, new in pairs])

    def ends(self) -> Array:
        """Return where the rows of each class begin and end."""
        return np.cumsum([0, *map(len, self.rows)])


_JUDGED = "detect_res label detect_res_lod label_lod"  # decide over judgements


def judged(a: Any) -> Judgements:
    """Match what is found with objects of its class: the best first, each object once.

    Boxes of other numbers than classes have do not count, as in Paddle.

    Raises:
        InvalidValue: an object has such a number.
    """
    check_classes(a.label[:, 0], a.class_num, "Label", "class_num")
    counts = np.zeros(a.class_num, np.int64)
    rows: list[list[tuple[float, bool]]] = [[] for _ in range(a.class_num)]
    for guesses, objects in zip(
        parts(a.detect_res, a.detect_res_lod[-1]), parts(a.label, a.label_lod[-1]), strict=True
    ):
        boxes = objects[:, -4:]
        hard = np.zeros(len(objects), bool)
        if objects.shape[1] == 6 and not a.evaluate_difficult:
            hard = np.abs(objects[:, 1]) > _SAME
        classes = objects[:, 0].astype(np.int64)
        np.add.at(counts, classes[~hard], 1)
        by_class: defaultdict[int, list[Array]] = defaultdict(list)
        for row in guesses[are_classes(guesses[:, 0], a.class_num)]:
            by_class[int(row[0])].append(row)
        for label in sorted(by_class):
            own = np.flatnonzero(classes == label)
            candidates = np.stack(by_class[label])
            if own.size:
                candidates = candidates[np.argsort(-candidates[:, 1], kind="stable")]
            rows[label] += _judged_class(candidates, boxes[own], hard[own], a.overlap_threshold)
    return Judgements(counts, rows)


def _judged_class(
    candidates: Array, boxes: Array, hard: Array, threshold: float
) -> list[tuple[float, bool]]:
    rows, visited = [], np.zeros(len(boxes), bool)
    shares = overlap(np.clip(candidates[:, 2:], 0, 1), boxes, True)
    for row, share in zip(candidates, shares, strict=True):
        best = int(share.argmax()) if len(share) else -1
        if best >= 0 and share[best] > threshold:
            if hard[best]:
                continue
            rows.append((float(row[1]), not visited[best]))
            visited[best] = True
        else:
            rows.append((float(row[1]), False))
    return rows


def mean_precision(judgements: Judgements, background: int, kind: str) -> float:
    """Return the mean over classes with objects of the average precision; a class never found has 0."""
    precisions = []
    for count, rows in zip(judgements.counts, judgements.rows, strict=True):
        # Paddle compares the number of objects with the background's label.
        if count in (0, background):
            continue
        if not rows:
            precisions.append(0.0)
            continue
        scores, hits = np.array([s for s, _ in rows]), np.array([hit for _, hit in rows])
        hits = np.cumsum(hits[np.argsort(-scores, kind="stable")])
        recall, precision = hits / count, hits / np.arange(1, len(hits) + 1)
        precisions.append((_at_eleven if kind == "11point" else _below)(recall, precision))
    return float(np.mean(precisions)) if precisions else 0.0


def _below(recall: Array, precision: Array) -> float:
    steps = np.diff(recall, prepend=0)
    return float((precision * steps)[steps > _SAME].sum())


def _at_eleven(recall: Array, precision: Array) -> float:
    levels = np.arange(11) / 10
    return float(np.mean([precision[recall >= level].max(initial=0) for level in levels]))


_FOUND = {
    "DetectRes": table(
        [
            [1.0, 0.9, 0.1, 0.1, 0.5, 0.5],
            [1.0, 0.8, 0.12, 0.1, 0.5, 0.52],
            [2.0, 0.7, 0.6, 0.6, 0.9, 0.8],
            [1.0, 0.3, 0.0, 0.2, 0.3, 0.5],
            [2.0, 0.6, 0.3, 0.2, 1.2, 0.5],
        ]
    ),
    "DetectRes@LOD": [offsets(3, 2)],
    "Label": table(
        [
            [1.0, 0.0, 0.1, 0.1, 0.5, 0.5],
            [2.0, 1.0, 0.6, 0.6, 0.9, 0.8],
            [1.0, 0.0, 0.02, 0.2, 0.3, 0.5],
            [2.0, 0.0, 0.3, 0.2, 1.0, 0.5],
            [2.0, 0.0, 0.0, 0.0, 0.2, 0.2],
        ]
    ),
    "Label@LOD": [offsets(2, 3)],
}
_BATCHES = (
    sample(_FOUND, class_num=3),
    sample(_FOUND, class_num=4, evaluate_difficult=False, ap_type="11point"),
)
define(
    "detection_map",
    DetectionMap,
    Sized(
        "DetectRes floats [detected 6], Label as DetectRes [objects columns], HasState integers [1] "
        "-> AccumPosCount int32 [class_num 1], AccumTruePos float32 [judged 2], "
        "AccumFalsePos float32 [judged 2], MAP float32 [1]",
        "columns in (5, 6); Label must be [K, 5] or [K, 6]",
        "PosCount is None and TruePos is None and FalsePos is None; "
        "judgements of other steps cannot be fed: HasState has a pass go on",
        "sequences(DetectRes) == sequences(Label); "
        "DetectRes and Label must have a sequence for each image",
        counted(DetectionMap, lambda a: {"judged": int(judged(a).ends()[-1])}, _JUDGED),
    ),
    lod=computed("lod_of_classes", "AccumTruePos AccumFalsePos", "DetectRes Label"),
    samples=_BATCHES,
)
define_level(
    "lod_of_classes",
    DetectionMap,
    lambda a: judged(a).ends(),
    reads=_JUDGED,
    count=lambda op: op.attr("class_num"),
    samples=_BATCHES,
)
