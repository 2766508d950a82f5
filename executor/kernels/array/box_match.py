"""Which boxes answer for which objects; on the host, as in Paddle."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ....graph.ops.box_match import (
    BipartiteMatch,
    MineHardExamples,
    TargetAssign,
    mined,
    negatives,
)
from ....graph.ops.operands import Array
from ..registry import each_step

ON = ("numpy",)
_LEAST = 1e-6  # what less in common than this does not match


@each_step("bipartite_match", on=ON)
def bipartite_match(a: BipartiteMatch) -> None:
    """The pair with the most in common first, each object and each box once; then what is near enough."""
    indices, shares = a.col_to_row_match_indices, a.col_to_row_match_dist
    indices[...], shares[...] = -1, 0
    ends = a.dist_mat_lod[-1] if a.dist_mat_lod else (0, len(a.dist_mat))
    for match, share, (begin, end) in zip(indices, shares, pairwise(ends), strict=True):
        dist = a.dist_mat[begin:end]
        _pairs(dist, match, share)
        if a.match_type == "per_prediction" and len(dist):
            best = dist.max(0)
            near = (match == -1) & (best >= max(a.dist_threshold, _LEAST))
            match[near], share[near] = dist.argmax(0)[near], best[near]


def _pairs(dist: Array, match: Array, share: Array) -> None:
    left = np.where(dist < _LEAST, 0, dist)  # of objects and boxes that are not matched
    for _ in range(min(dist.shape)):
        row, column = np.unravel_index(left.argmax(), dist.shape)
        if not left[row, column]:
            return
        match[column], share[column] = row, left[row, column]
        left[row], left[:, column] = 0, 0


@each_step("target_assign", on=ON, low=True)
def target_assign(a: TargetAssign) -> None:
    width = a.x.shape[1]
    columns, elements = np.arange(a.match_indices.shape[1]) % width, a.x.reshape(-1, *a.x.shape[2:])
    none = np.full_like(elements, a.mismatch_value, shape=(1, *elements.shape[1:]))
    elements = np.concatenate([elements, none])
    a.out_weight[..., 0] = a.match_indices >= 0
    for number, match in enumerate(a.match_indices):
        first, last = a.x_lod[-1][number : number + 2]
        if match.max(initial=-1) >= last - first:
            raise ValueError(
                f"target_assign: image {number} has {last - first} rows in X, and a box of it matches row "
                f"{match.max()}: feed as many rows (labels) as objects (boxes) for each image"
            )
        places = np.where(match < 0, len(elements) - 1, (first + match) * width + columns)
        np.take(elements, places, 0, a.out[number], mode="clip")
        if a.neg_indices is not None:
            begin, end = a.neg_indices_lod[-1][number : number + 2]
            negative = a.neg_indices[begin:end, 0]
            a.out[number, negative], a.out_weight[number, negative] = a.mismatch_value, 1


@each_step("mine_hard_examples", on=ON)
def mine_hard_examples(a: MineHardExamples) -> None:
    a.neg_indices[:, 0] = np.concatenate(negatives(a))
    a.updated_match_indices[...] = a.match_indices
    if a.mining_type == "hard_example":
        for match, own in zip(a.updated_match_indices, mined(a), strict=True):
            match[np.isin(np.arange(len(match)), own, invert=True)] = -1
