"""Which of the boxes that detectors begin with answer for which objects, and which for none (SSD).

Liu et al., arXiv 1512.02325, section 2.2. Legend: N images, G objects of all images (those of each
are a sequence), P boxes that detectors begin with.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from . import formula as f
from .largest import largest_first
from .levels import computed, define_level
from .lod import no_sequences
from .lod_levels import bounds
from .operands import Array, Input, Offsets, Operands, Output
from .registry import Inference, define
from .rules import one_level
from .samples import sample
from .shapes import Sized, counted, in_sequences

# -- box_clip ---------------------------------------------------------------------------------------


class BoxClip(Operands):
    input: Input
    input_lod: Offsets
    im_info: Input
    output: Output


def box_clip(a: BoxClip) -> f.Results:
    """Boxes end at the last pixels of their images, whose sizes are those before they were scaled."""
    number = f.sequence_of(a.input_lod[-1], a.input.shape[0])
    info = f.take(a.im_info, number)
    ones = (1,) * (a.input.ndim - 2)
    edges = []
    for k in range(4):
        side = info[:, 1 - k % 2] / info[:, 2]
        last = (f.floor(side + 0.5) - 1).reshape(-1, *ones)
        edges.append(f.maximum(f.minimum(a.input[..., k], last), 0)[..., None])
    return {"output": f.concatenate(edges, a.input.ndim - 1)}


define(
    "box_clip",
    BoxClip,
    Sized("Input [... 4], ImInfo [sequences(Input) 3] -> Output as Input", in_sequences("Input")),
    formula=box_clip,
    samples=(
        sample(
            "Input -5.0:40.0 [3 4], Input@LOD [1 2], ImInfo table [30.0 20.0 1.0; 41.0 61.0 2.0]"
        ),
        sample(
            "Input -5.0:40.0 [3 2 4], Input@LOD [2 1], ImInfo table [30.0 20.0 1.0; 40.0 60.0 2.0]"
        ),
    ),
)

# -- bipartite_match --------------------------------------------------------------------------------


class BipartiteMatch(Operands):
    dist_mat: Input
    dist_mat_lod: Offsets
    col_to_row_match_indices: Output
    col_to_row_match_dist: Output
    match_type: Literal["bipartite", "per_prediction"] = "bipartite"
    dist_threshold: float = 0.5


def _count_images(op: Inference) -> dict[str, int]:
    """Without sequences there is one image."""
    one_level(op, "DistMat")
    alone = op.exact and not op.has("DistMat@LOD")
    return {"images": 1 if alone else op.sequences("DistMat")}


_DISTANCES = "DistMat uniform [5 7]"
define(
    "bipartite_match",
    BipartiteMatch,
    Sized(
        "DistMat floats [objects P] "
        "-> ColToRowMatchIndices int32 [images P], ColToRowMatchDist [images P]",
        _count_images,
    ),
    lod=no_sequences,
    samples=(
        sample(_DISTANCES, "DistMat@LOD [2 3]"),
        sample(_DISTANCES, "DistMat@LOD [1 4]", match_type="per_prediction"),
        sample("DistMat uniform [5 3]"),
    ),
)

# -- target_assign ----------------------------------------------------------------------------------


class TargetAssign(Operands):
    x: Input
    x_lod: Offsets
    match_indices: Input
    neg_indices: Input | None
    neg_indices_lod: Offsets
    out: Output
    out_weight: Output
    mismatch_value: int = 0


_MATCHED = "MatchIndices table [0 -1 1 -1; -1 2 0 0]"
_LISTS = f"X@LOD [2 3], {_MATCHED}"
_NEGATIVES = "NegIndices table [1; 0], NegIndices@LOD [1 1]"
define(
    "target_assign",
    TargetAssign,
    Sized(
        "X [G parts K], MatchIndices integers [N P] -> Out [N P K], OutWeight float32 [N P 1]",
        "parts in (1, P); X must be [G, 1 or P, K]",
        "sequences(X) == N; X must have a sequence for each row of MatchIndices",
        "sequences(NegIndices) == N; NegIndices must have a sequence for each row of MatchIndices",
    ),
    lod=no_sequences,
    samples=(
        sample("X [5 4 3]", _LISTS),
        sample("X [5 1 2]", _LISTS, _NEGATIVES, mismatch_value=7),
    ),
)

# -- mine_hard_examples -----------------------------------------------------------------------------


class MineHardExamples(Operands):
    cls_loss: Input
    loc_loss: Input | None
    match_indices: Input
    match_dist: Input
    neg_pos_ratio: float = 1.0
    neg_dist_threshold: float = 0.5
    sample_size: int = 0
    mining_type: Literal["max_negative", "hard_example"] = "max_negative"
    neg_indices: Output
    updated_match_indices: Output


def mined(a: Any) -> list[Array]:
    """Return, for each image, the numbers of the boxes without an object that are wrong the most.

    With ``hard_example`` those with an object count among them, and stay matched only if they are wrong, too.
    """
    hard, numbers = a.mining_type == "hard_example", []
    loss = a.cls_loss if a.loc_loss is None or not hard else a.cls_loss + a.loc_loss
    for row, matched, dist in zip(loss, a.match_indices, a.match_dist, strict=True):
        alone = (matched == -1) & (dist < a.neg_dist_threshold)
        candidates = np.arange(len(row)) if hard else np.flatnonzero(alone)
        count = a.sample_size if hard else int((matched != -1).sum() * a.neg_pos_ratio)
        best = largest_first(row[candidates])[:count]
        numbers.append(np.sort(candidates[best]))
    return numbers


def negatives(a: Any) -> list[Array]:
    """Return the numbers of the boxes, of those chosen in each image, that have no object."""
    return [own[matched[own] == -1] for own, matched in zip(mined(a), a.match_indices, strict=True)]


_LOSSES = (
    "ClsLoss uniform [2 5], MatchDist 0.0:0.6 [2 5], "
    "MatchIndices table [0 -1 -1 -1 -1; -1 1 -1 0 -1]"
)
_HARD = {"mining_type": "hard_example", "sample_size": 3}
_MINED = (sample(_LOSSES, neg_pos_ratio=2.0), sample(_LOSSES, "LocLoss uniform [2 5]", **_HARD))
define(
    "mine_hard_examples",
    MineHardExamples,
    Sized(
        "MatchIndices [N P], ClsLoss [N P], MatchDist [N P], LocLoss [N P] "
        "-> NegIndices int32 [K 1], UpdatedMatchIndices as MatchIndices",
        counted(MineHardExamples, lambda a: {"K": sum(map(len, negatives(a)))}),
    ),
    lod=computed("lod_mined", "NegIndices"),
    samples=_MINED,
)
define_level(
    "lod_mined",
    MineHardExamples,
    lambda a: bounds(negatives(a)),
    count=lambda op: op.shape("MatchIndices")[0],
    samples=(*_MINED, sample(_LOSSES)),
)
