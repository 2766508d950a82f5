"""Regions that may hold an object: Faster R-CNN (Ren et al., arXiv 1506.01497), FPN (Lin et al., 1612.03144).

Boxes are (x0, y0, x1, y1) in pixels, the last of which belong to them. Legend: N images, A anchors of a cell,
H x W cells, R regions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...strategies.types import VarType
from .box_choice import suppressed
from .largest import largest_first
from .latest import latest
from .levels import computed, computed_level, define_level
from .lod import Lods
from .lod_levels import bounds
from .operands import Array, Input, Inputs, Offsets, Operands, Output, Outputs, named
from .registry import Inference, Spec, Specs, define
from .rules import hold_floats, known_operands, match, merge_dims
from .samples import normal, sample, table, uniform
from .shapes import Sized, counted

_LARGEST = math.log(1000 / 16)  # logarithm of how many times its anchor a region is wide


# -- generate_proposals -----------------------------------------------------------------------------


class GenerateProposals(Operands):
    scores: Input
    bbox_deltas: Input
    im_info: Input
    anchors: Input
    variances: Input
    pre_nms_topN: int = 6000
    post_nms_topN: int = 1000
    nms_thresh: float = 0.5
    min_size: float = 0.1
    eta: float = 1.0
    pixel_offset: bool = True
    rpn_rois: Output
    rpn_roi_probs: Output
    rpn_rois_lod: Output | None


def decoded(anchors: Array, deltas: Array, variances: Array, last: int = 1) -> Array:
    """Return the boxes [R, 4] that offsets from anchors stand for; ``last`` (0 or 1): how many pixels more."""
    sizes = anchors[:, 2:] - anchors[:, :2] + last
    middles = anchors[:, :2] + 0.5 * sizes
    scaled = deltas * variances
    middles = middles + scaled[:, :2] * sizes
    sizes = sizes * np.exp(np.minimum(scaled[:, 2:], _LARGEST))
    return np.concatenate([middles - sizes / 2, middles + sizes / 2 - last], 1)


@latest(GenerateProposals)
def proposals(a: Any) -> list[tuple[Array, Array]]:
    """Return the boxes of each image that stay, and their scores, best first."""
    anchors, variances = a.anchors.reshape(-1, 4), a.variances.reshape(-1, 4)
    images = []
    for scores, deltas, (height, width, scale) in zip(
        a.scores, a.bbox_deltas, a.im_info, strict=True
    ):
        scores = scores.transpose(1, 2, 0).reshape(-1)
        deltas = deltas.reshape(-1, 4, *deltas.shape[1:]).transpose(2, 3, 0, 1).reshape(-1, 4)
        best = largest_first(scores, a.pre_nms_topN if a.pre_nms_topN > 0 else -1)
        last = int(a.pixel_offset)
        boxes = decoded(anchors[best], deltas[best], variances[best], last)
        boxes = np.clip(boxes, 0, np.array([width, height, width, height], boxes.dtype) - last)
        sides = boxes[:, 2:] - boxes[:, :2]
        stays = (sides / scale + last >= max(a.min_size, 1.0)).all(1)
        if a.pixel_offset:
            stays &= (boxes[:, :2] + (sides + 1) / 2 <= np.array([width, height])).all(1)
        at = np.flatnonzero(stays)
        boxes, scores = boxes[at], scores[best[at]]
        if a.nms_thresh > 0:
            stay = suppressed(
                boxes, scores, a.nms_thresh, a.eta, not a.pixel_offset, a.post_nms_topN or -1
            )
            boxes, scores = boxes[stay], scores[stay]
        images.append((boxes, scores[:, None]))
    return images


def _proposed(a: GenerateProposals) -> Mapping[str, Any]:
    images = proposals(a)
    boxes, scores = (list(side) for side in zip(*images, strict=True))
    ends = bounds(boxes)[1:]
    return {
        "rpn_rois": np.concatenate(boxes),
        "rpn_roi_probs": np.concatenate(scores),
        "rpn_rois_lod": ends,
    }


_MAPS = {
    "Scores": uniform(2, 2, 2, 3),
    "BboxDeltas": normal(2, 8, 2, 3),
    "ImInfo": table([[40.0, 50.0, 1.0], [30.0, 60.0, 2.0]]),
    "Anchors": table([[[[4.0, 3.0, 21.0, 24.0], [2.5, 9.0, 33.0, 19.0]]] * 3] * 2),
    "Variances": table([[[[1.0, 0.9, 0.8, 0.7]] * 2] * 3] * 2),
}
_PROPOSED = (
    sample(_MAPS),
    sample(_MAPS, pre_nms_topN=8, post_nms_topN=3, nms_thresh=0.7, min_size=3.0),
    sample(_MAPS, min_size=100.0),
    sample(_MAPS, pre_nms_topN=8, pixel_offset=False),
)
define(
    "generate_proposals",
    GenerateProposals,
    Sized(
        "Scores floats [N A H W], BboxDeltas as Scores [N 4*A H W], ImInfo [N 3], "
        "Anchors [H W A 4], Variances [H W A 4] "
        "-> RpnRois [R 4], RpnRoiProbs [R 1], RpnRoisLod int32 [N]",
        counted(GenerateProposals, lambda a: {"R": sum(len(boxes) for boxes, _ in proposals(a))}),
    ),
    host=_proposed,
    lod=computed("lod_of_proposals", "RpnRois RpnRoiProbs"),
    samples=_PROPOSED,
)
define_level(
    "lod_of_proposals",
    GenerateProposals,
    lambda a: bounds([boxes for boxes, _ in proposals(a)]),
    count=lambda op: op.shape("Scores")[0],
    samples=_PROPOSED,
)

# -- collect_fpn_proposals --------------------------------------------------------------------------


class CollectFpnProposals(Operands):
    rois: Inputs = named("MultiLevelRois")
    rois_lod: Offsets = named("MultiLevelRois@LOD")
    scores: Inputs = named("MultiLevelScores")
    fpn_rois: Output
    post_nms_topN: int = 0


def collected(a: Any) -> tuple[Array, Array]:
    """Return the numbers of the best regions of all maps, by image, and where each image's begin."""
    images = len(a.rois_lod[0]) - 1
    image = np.concatenate([np.repeat(np.arange(images), np.diff(ends)) for ends in a.rois_lod])
    scores = np.concatenate([scores.reshape(-1) for scores in a.scores])
    best = largest_first(scores)[: a.post_nms_topN]
    best = best[np.argsort(image[best], kind="stable")]
    return best, np.searchsorted(image[best], np.arange(images + 1))


def collect_shape(op: Inference) -> Mapping[str, Specs]:
    """As many regions as wanted, at most all."""
    specs, scores = op.specs("MultiLevelRois"), op.specs("MultiLevelScores")
    op.require(len(specs) == len(scores), "each map has regions and scores")
    op.require(all(s.shape[1:] in ((4,), (-1,)) for s in specs), "MultiLevelRois must be [R, 4]")
    for rois, own in zip(specs, scores, strict=True):
        alike = merge_dims(rois.shape[0], own.shape[0]) is not None
        op.require(alike, "a map must have as many scores as regions")
    if op.sequences("MultiLevelRois") >= 0:
        levels = op.specs("MultiLevelRois@LOD")
        images = sorted({level.shape[0] - 1 for level in levels if level.shape[0] > 0})
        together = len(levels) == len(specs) and len(images) <= 1
        op.require(
            together,
            f"each of the {len(specs)} maps must have regions in a sequence for each image; {len(levels)} have "
            f"sequences, of {' and '.join(map(str, images))} images",
        )
    counts = [spec.shape[0] for spec in specs]
    count = -1 if min(counts) < 0 else min(sum(counts), op.attr("post_nms_topN"))
    return {"FpnRois": Spec((count, 4), specs[0].dtype)}


_LEVELS = (
    "MultiLevelRois* [3 4] [4 4], MultiLevelRois@LOD [2 1] [1 3], "
    "MultiLevelScores* uniform [3 1] [4 1]"
)
define(
    "collect_fpn_proposals",
    CollectFpnProposals,
    collect_shape,
    lod=computed("lod_collected", "FpnRois", "MultiLevelRois"),
    samples=(sample(_LEVELS, post_nms_topN=5), sample(_LEVELS, post_nms_topN=50)),
    refuses=(
        sample(_LEVELS, "MultiLevelScores* uniform [3 1]", post_nms_topN=5),
        sample(_LEVELS, "MultiLevelScores* uniform [3 1] [3 1]", post_nms_topN=5),
        sample(_LEVELS, "MultiLevelRois@LOD [2 1]", post_nms_topN=5),
        sample(_LEVELS, "MultiLevelRois@LOD [2 1] [4]", post_nms_topN=5),
    ),
)
define_level(
    "lod_collected",
    CollectFpnProposals,
    lambda a: collected(a)[1],
    count=lambda op: op.sequences("MultiLevelRois"),
    samples=(sample(_LEVELS, post_nms_topN=5),),
)

# -- distribute_fpn_proposals -----------------------------------------------------------------------


class MapsOfRegions(Operands):
    fpn_rois: Input
    min_level: int = 2
    max_level: int = 5
    refer_level: int = 4
    refer_scale: int = 224
    pixel_offset: bool = True


class DistributeFpnProposals(MapsOfRegions):
    fpn_rois_lod: Offsets
    multi_fpn_rois: Outputs
    restore_index: Output


class RegionsOfMap(DistributeFpnProposals):
    number: int = 0  # of the map


@latest(MapsOfRegions)
def maps_of(a: Any) -> Array:
    """Return the number of the map that each region is read from: larger ones from coarser maps."""
    left, top, right, bottom = a.fpn_rois.T
    width, height, last = right - left, bottom - top, int(a.pixel_offset)
    area = np.where((width < 0) | (height < 0), 0, (width + last) * (height + last))
    level = np.floor(np.log2(np.sqrt(area) / a.refer_scale + 1e-6) + a.refer_level)
    return (np.clip(level, a.min_level, a.max_level) - a.min_level).astype(np.int64)


def distribute_shape(op: Inference) -> Mapping[str, Specs]:
    """Some regions for each map, and the place of each among those of all maps."""
    rois = op.spec("FpnRois")
    match(op, FpnRois="R 4")
    low, high = op.attr("min_level"), op.attr("max_level")
    op.require(low <= high, f"min_level={low} must not be above max_level={high}")
    op.sequences("FpnRois")
    counts, operands = ([-1] * (high - low + 1), known_operands(op, MapsOfRegions))
    if operands is not None:
        counts = np.bincount(maps_of(operands), minlength=len(counts)).tolist()
    index = Spec((rois.shape[0], 1), VarType.INT32)
    return {
        "MultiFpnRois": [Spec((count, 4), rois.dtype) for count in counts],
        "RestoreIndex": index,
    }


def distribute_lod(op: Lods[Any]) -> Mapping[str, tuple[Any, ...] | list[tuple[Any, ...]]]:
    """The regions of each image, on each map."""
    maps = range(op.attrs["max_level"] - op.attrs["min_level"] + 1)
    if not op.of("FpnRois"):
        return {}
    levels = [computed_level(op, "lod_distributed", number=k) for k in maps]
    return {"MultiFpnRois": [(level,) for level in levels]}


def ends_on_map(a: Any) -> Array:
    """Return where the regions of each image begin and end on one map."""
    before = np.concatenate([[0], np.cumsum(maps_of(a) == a.number)])
    return before[a.fpn_rois_lod[-1]]


_REGIONS = "FpnRois table [1.0 2.0 30.0 40.0; 0.0 0.0 200.0 300.0; 5.0 5.0 9.0 9.0]"
define(
    "distribute_fpn_proposals",
    DistributeFpnProposals,
    distribute_shape,
    reads_values=lambda attrs: ("FpnRois",),
    lod=distribute_lod,
    samples=(
        sample(_REGIONS, "FpnRois@LOD [2 1]"),
        sample(
            _REGIONS,
            "FpnRois@LOD [0 3]",
            min_level=1,
            max_level=3,
            refer_level=2,
            refer_scale=30,
            pixel_offset=False,
        ),
    ),
    refuses=(sample("FpnRois [3 5], FpnRois@LOD [3]"),),
)
define_level(
    "lod_distributed",
    RegionsOfMap,
    ends_on_map,
    count=lambda op: op.sequences("FpnRois"),
    samples=(sample(_REGIONS, "FpnRois@LOD [2 1]", number=2),),
)

# -- retinanet_detection_output ---------------------------------------------------------------------


class RetinanetDetectionOutput(Operands):
    boxes: Inputs = named("BBoxes")
    scores: Inputs
    anchors: Inputs
    im_info: Input
    score_threshold: float = 0.05
    nms_top_k: int = 1000
    nms_threshold: float = 0.3
    nms_eta: float = 1.0
    keep_top_k: int = 100
    out: Output


@latest(RetinanetDetectionOutput)
def detections(a: Any) -> list[Array]:
    """Return the detections of each image, [K, 6]: class (from 1), score and box, best first.

    Of each map the best ``nms_top_k`` scores count that are above the threshold, of the last map above 0: Lin
    et al., arXiv 1708.02002, section 4.1.
    """
    images = []
    for n, (height, width, scale) in enumerate(a.im_info):
        last = np.array([np.round(width / scale), np.round(height / scale)] * 2) - 1
        rows = []
        for level, (deltas, scores, anchors) in enumerate(
            zip(a.boxes, a.scores, a.anchors, strict=True)
        ):
            own, classes = scores[n].reshape(-1), scores.shape[2]
            at = np.flatnonzero(own > (a.score_threshold if level < len(a.scores) - 1 else 0.0))
            at = at[largest_first(own[at], a.nms_top_k)]
            anchor, label = np.divmod(at, classes)
            boxes = _moved(anchors.reshape(-1, 4)[anchor], deltas[n][anchor])
            boxes = np.clip(boxes / scale, 0, last.astype(boxes.dtype))
            rows.append(
                np.concatenate([1 + label[:, None].astype(own.dtype), own[at, None], boxes], 1)
            )
        images.append(_best_of_classes(np.concatenate(rows).astype(a.scores[0].dtype), a))
    return images


def _moved(anchors: Array, deltas: Array) -> Array:
    sizes = anchors[:, 2:] - anchors[:, :2] + 1
    middles = anchors[:, :2] + sizes / 2 + deltas[:, :2] * sizes
    sizes = np.exp(deltas[:, 2:]) * sizes
    return np.concatenate([middles - sizes / 2, middles + sizes / 2 - 1], 1)


def _best_of_classes(rows: Array, a: Any) -> Array:
    """Return the rows that stay where boxes of one class overlap, and of all classes the best."""
    stay = []
    for label in np.unique(rows[:, 0]):
        at = np.flatnonzero(rows[:, 0] == label)
        best = suppressed(rows[at, 2:], rows[at, 1], a.nms_threshold, a.nms_eta, False)
        stay.append(at[best])
    chosen = rows[np.concatenate(stay)] if stay else rows
    return chosen[largest_first(chosen[:, 1], a.keep_top_k)]


_OF_PYRAMID = ("BBoxes", "Scores", "Anchors", "ImInfo")


def detections_shape(op: Inference) -> Mapping[str, Specs]:
    """[K, 6]."""
    hold_floats(op, "BBoxes", "Scores", "Anchors")
    maps = [op.specs(slot) for slot in ("BBoxes", "Scores", "Anchors")]
    op.require(len({len(own) for own in maps}) == 1, "BBoxes, Scores and Anchors must be as many")
    for boxes, scores, anchors in zip(*maps, strict=True):
        ranks = (len(boxes.shape), len(scores.shape), len(anchors.shape)) == (3, 3, 2)
        fits = ranks and {boxes.shape[2], anchors.shape[1]} <= {4, -1}
        op.require(fits, "maps must have BBoxes [N, M, 4], Scores [N, M, C] and Anchors [M, 4]")
        counts = {boxes.shape[1], scores.shape[1], anchors.shape[0]} - {-1}
        op.require(len(counts) <= 1, "a map must have as many boxes as scores and anchors")
    match(op, ImInfo="N 3")
    images = {spec.shape[0] for own in maps[:2] for spec in own}
    counts = (images | {op.shape("ImInfo")[0]}) - {-1}
    op.require(len(counts) <= 1, "BBoxes, Scores and ImInfo must have as many images")
    operands = known_operands(op, RetinanetDetectionOutput)
    count = -1 if operands is None else sum(map(len, detections(operands)))
    return {"Out": Spec((count, 6), maps[1][0].dtype)}


_PYRAMID: dict[str, Any] = {
    "BBoxes": [normal(2, 3, 4), normal(2, 2, 4)],
    "Scores": [uniform(2, 3, 2), uniform(2, 2, 2)],
    "Anchors": [
        table([[4.0, 3.0, 21.0, 24.0], [2.5, 9.0, 33.0, 19.0], [5.0, 4.0, 21.0, 25.0]]),
        table([[0.0, 0.0, 39.0, 49.0], [3.0, 1.0, 35.0, 45.0]]),
    ],
    "ImInfo": table([[40.0, 50.0, 1.0], [30.0, 60.0, 2.0]]),
}
_LIMITS: dict[str, Any] = {"nms_top_k": 4, "keep_top_k": 3, "score_threshold": 0.5, "nms_eta": 0.9}
_DETECTED = (sample(_PYRAMID), sample(_PYRAMID, **_LIMITS))
define(
    "retinanet_detection_output",
    RetinanetDetectionOutput,
    detections_shape,
    host=lambda a: {"out": np.concatenate(detections(a))},
    reads_values=lambda attrs: _OF_PYRAMID,
    lod=computed("lod_of_detections", "Out"),
    samples=_DETECTED,
    refuses=(
        sample(_PYRAMID, "Scores* uniform [2 3 2] [2 3 2]"),
        sample(
            _PYRAMID, "Anchors* table [4.0 3.0 21.0 24.0; 2.5 9.0 33.0 19.0; 5.0 4.0 21.0 25.0]"
        ),
        sample(_PYRAMID, "ImInfo table [40.0 50.0 1.0;]"),
    ),
)
define_level(
    "lod_of_detections",
    RetinanetDetectionOutput,
    lambda a: bounds(detections(a)),
    count=lambda op: op.shape("ImInfo")[0],
    samples=_DETECTED,
)
