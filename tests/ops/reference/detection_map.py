"""How well boxes are found, a box at a time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from .registry import reference

Slots = dict[str, Any]


def shared(one: Any, other: Any) -> float:
    sides = [min(one[k + 2], other[k + 2]) - max(one[k], other[k]) for k in range(2)]
    both = sides[0] * sides[1] if min(sides) > 0 else 0.0
    areas = [max(b[2] - b[0], 0) * max(b[3] - b[1], 0) for b in (one, other)]
    return float(both / (sum(areas) - both)) if both else 0.0


def judgements(ins: Slots, attrs: Slots, found_ends: Any, object_ends: Any) -> Any:
    """Objects that count, by class, and (score, whether it is one) of what is found."""
    counts = [0] * attrs["class_num"]
    rows: list[list[tuple[float, int]]] = [[] for _ in counts]
    for (b, e), (first, last) in zip(pairwise(found_ends), pairwise(object_ends), strict=True):
        objects = ins["Label"][first:last]
        easy = [attrs["evaluate_difficult"] or len(o) < 6 or not o[1] for o in objects]
        for o, counts_ in zip(objects, easy, strict=True):
            counts[int(o[0])] += bool(counts_)
        for label in range(len(counts)):
            own = [k for k, o in enumerate(objects) if int(o[0]) == label]
            candidates = [row for row in ins["DetectRes"][b:e] if int(row[0]) == label]
            if own:
                candidates.sort(key=lambda row: -row[1])
            taken = set()
            for row in candidates:
                box = np.minimum(np.maximum(row[2:], 0), 1)
                share, k = max(((shared(box, objects[k][-4:]), -k) for k in own), default=(0.0, 0))
                hit = share > attrs["overlap_threshold"]
                if hit and not easy[-k]:
                    continue
                rows[label].append((row[1], int(hit and k not in taken)))
                taken |= {k} if hit else set()
    return counts, rows


def precision(count: int, rows: list[tuple[float, int]], kind: str) -> float:
    hits, points = 0, []
    for n, (_, hit) in enumerate(sorted(rows, key=lambda row: -row[0])):
        hits += hit
        points.append((hits / count, hits / (n + 1)))
    if kind == "11point":
        tops = [max((p for r, p in points if r >= k / 10), default=0.0) for k in range(11)]
        return sum(tops) / 11
    before, total = 0.0, 0.0
    for recall, share in points:
        total += share * (recall - before)
        before = recall
    return total


@reference("detection_map")
def detection_map(ins: Slots, attrs: Slots) -> Slots:
    ends = ins["DetectRes@LOD"][-1], ins["Label@LOD"][-1]
    counts, rows = judgements(ins, attrs, *ends)
    flat = [row for own in rows for row in own]
    judged = [
        precision(count, own, attrs["ap_type"])
        for count, own in zip(counts, rows, strict=True)
        if count not in (0, attrs["background_label"])
    ]
    return {
        "AccumPosCount": np.array(counts)[:, None],
        "AccumTruePos": np.array(flat, float).reshape(-1, 2),
        "AccumFalsePos": np.array([(score, 1 - hit) for score, hit in flat]).reshape(-1, 2),
        "MAP": np.array([np.mean(judged) if judged else 0.0]),
    }


@reference("lod_of_classes")
def lod_of_classes(ins: Slots, attrs: Slots) -> Slots:
    _, rows = judgements(ins, attrs, ins["DetectRes@LOD"][-1], ins["Label@LOD"][-1])
    return {"Out": np.cumsum([0, *map(len, rows)])}
