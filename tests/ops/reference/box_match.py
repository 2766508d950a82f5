"""Boxes matched with objects, one at a time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from .registry import reference

Slots = dict[str, Any]


@reference("box_clip")
def box_clip(ins: Slots, attrs: Slots) -> Slots:
    out = ins["Input"].copy()
    for (begin, end), (height, width, scale) in zip(
        pairwise(ins["Input@LOD"][-1]), ins["ImInfo"], strict=True
    ):
        for k, side in enumerate((width, height, width, height)):
            last = np.floor(side / scale + 0.5) - 1
            out[begin:end, ..., k] = np.clip(out[begin:end, ..., k], 0, last)
    return {"Output": out}


@reference("bipartite_match")
def bipartite_match(ins: Slots, attrs: Slots) -> Slots:
    whole = ins["DistMat"]
    ends = ins["DistMat@LOD"][-1] if ins.get("DistMat@LOD") else [0, len(whole)]
    columns = whole.shape[1]
    match = np.full((len(ends) - 1, columns), -1)
    share = np.zeros(match.shape)
    for n, (begin, end) in enumerate(pairwise(ends)):
        dist, left = whole[begin:end], set(range(end - begin))
        while left:
            free = [(dist[r, c], r, c) for r in left for c in range(columns) if match[n, c] < 0]
            if not free:
                break
            best, row, column = max(free)
            match[n, column], share[n, column] = row, best
            left.remove(row)
        for c in range(columns):
            best = dist[:, c].max()
            near = attrs["match_type"] == "per_prediction" and best >= attrs["dist_threshold"]
            if match[n, c] < 0 and near:
                match[n, c], share[n, c] = dist[:, c].argmax(), best
    return {"ColToRowMatchIndices": match, "ColToRowMatchDist": share}


@reference("target_assign")
def target_assign(ins: Slots, attrs: Slots) -> Slots:
    x, match = ins["X"], ins["MatchIndices"]
    out = np.full((*match.shape, x.shape[2]), attrs["mismatch_value"], x.dtype)
    weight = np.zeros((*match.shape, 1))
    for n, p in np.ndindex(*match.shape):
        if match[n, p] >= 0:
            out[n, p] = x[ins["X@LOD"][-1][n] + match[n, p], p % x.shape[1]]
            weight[n, p] = 1
    for n, (begin, end) in enumerate(pairwise(ins.get("NegIndices@LOD", [[0]])[-1])):
        for p in ins["NegIndices"][begin:end, 0]:
            out[n, p], weight[n, p] = attrs["mismatch_value"], 1
    return {"Out": out, "OutWeight": weight}


def negatives(ins: Slots, attrs: Slots) -> tuple[list[list[int]], Any]:
    """For each image the boxes without an object that count; and what is still matched."""
    match, lists = ins["MatchIndices"].copy(), []
    for n, row in enumerate(match):
        hard = attrs["mining_type"] == "hard_example"
        loss = ins["ClsLoss"][n] + (ins["LocLoss"][n] if hard and "LocLoss" in ins else 0)
        near = ins["MatchDist"][n] >= attrs["neg_dist_threshold"]
        may = [p for p in range(len(row)) if hard or (row[p] < 0 and not near[p])]
        count = attrs["sample_size"] if hard else int((row >= 0).sum() * attrs["neg_pos_ratio"])
        worst = sorted(may, key=lambda p: -loss[p])[:count]
        lists.append(sorted(p for p in worst if row[p] < 0))
        for p in range(len(row)):
            if hard and p not in worst:
                row[p] = -1
    return lists, match


@reference("mine_hard_examples")
def mine_hard_examples(ins: Slots, attrs: Slots) -> Slots:
    lists, match = negatives(ins, attrs)
    return {
        "NegIndices": np.array([p for own in lists for p in own]).reshape(-1, 1),
        "UpdatedMatchIndices": match,
    }


@reference("lod_mined")
def lod_mined(ins: Slots, attrs: Slots) -> Slots:
    return {"Out": np.cumsum([0, *map(len, negatives(ins, attrs)[0])])}
