"""What the two stages of Faster R-CNN learn from objects: Ren et al., arXiv 1506.01497, section 3.1.

Boxes are (x0, y0, x1, y1) in pixels, the last of which belong to them. Objects and regions of each image are a
sequence. How many anchors or regions count follows from boxes; which of too many do is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .box_choice import overlap
from .latest import latest
from .levels import computed, define_level
from .lod import no_sequences
from .lod_levels import bounds, parts
from .operands import Array, Input, Offsets, Operands, Output, Positive
from .registry import define
from .rules import check_classes
from .samples import sample
from .shapes import Sized, counted

_SAME = 1e-5  # shares that differ by less are the same
# Candidates, and how many of them are wanted -> those that count
Choose = Callable[[Array, int], Array]


def first(candidates: Array, count: int) -> Array:
    """Choose the first: what counts where nothing is drawn, and as many as where it is."""
    return candidates[:count]


def offsets_of(boxes: Array, objects: Array, weights: Sequence[float] = (1.0,) * 4) -> Array:
    """Return objects as offsets from boxes, [K, 4] each, divided by weights."""
    (middles, sizes), (places, lengths) = (
        (b[:, :2] + (b[:, 2:] - b[:, :2] + 1) / 2, b[:, 2:] - b[:, :2] + 1)
        for b in (boxes, objects)
    )
    moved = np.concatenate([(places - middles) / sizes, np.log(lengths / sizes)], 1)
    return moved / np.array(weights, boxes.dtype)


# -- rpn_target_assign ------------------------------------------------------------------------------


class RpnTargetAssign(Operands):
    anchor: Input
    gt_boxes: Input
    is_crowd: Input
    im_info: Input
    gt_boxes_lod: Offsets
    rpn_batch_size_per_im: int = 256
    rpn_straddle_thresh: float = 0.0
    rpn_positive_overlap: float = 0.7
    rpn_negative_overlap: float = 0.3
    rpn_fg_fraction: float = 0.5
    use_random: bool = True
    location_index: Output
    score_index: Output
    target_b_box: Output
    target_label: Output
    b_box_inside_weight: Output


class AnchorTargets(NamedTuple):
    """The anchors of all images that a network learns from, by number.

    ``places`` are anchors with an object, whose offsets are learnt (``weights`` 0 for an anchor in the place of
    one that counts as background); ``scores`` are anchors whose ``labels`` are learnt.
    """

    places: Array
    scores: Array
    offsets: Array
    labels: Array
    weights: Array


class Match(NamedTuple):
    """Anchors of one image, by number: those of objects (``front``), of background, and the object of each
    of the former."""

    front: Array
    back: Array
    owner: Array

    def learnt(self) -> tuple[Array, Array, Array]:
        """Return the anchors of objects, those whose offsets are learnt, and their weights.

        Background has none of the former; where it takes one, the first anchor stands in its place.
        """
        of_back = np.zeros(len(self.owner), bool)
        of_back[self.back] = True
        both = int(of_back[self.front].sum())
        real = np.sort(self.front[~of_back[self.front]])
        places = np.concatenate([np.repeat(self.front[:1], both), real])
        return real, places, np.repeat([0.0, 1.0], [both, len(real)])


def matched(anchors: Array, objects: Array, positive: float, negative: float) -> Match:
    """Match anchors with objects: those with much in common, and of each object those with the most."""
    share = overlap(anchors, objects, False, nearby=True)
    most = share.max(1, initial=0)
    below = share - share.max(0, initial=0)
    best = (np.abs(below, out=below) < _SAME).any(1)
    front, owner = np.flatnonzero(best | (most >= positive)), np.zeros(len(anchors), np.int64)
    if len(objects):
        owner[front] = share[front].argmax(1)
    return Match(front, np.flatnonzero(most < negative), owner)


@latest(RpnTargetAssign)
def _matches(a: Any) -> list[tuple[Array, Array, Match]]:
    """Match anchors that do not reach outside an image with its objects: numbers, objects, matches of each."""
    images = []
    ends = a.gt_boxes_lod[-1]
    crowds, objects_of = parts(a.is_crowd.reshape(-1), ends), parts(a.gt_boxes, ends)
    anchors = a.anchor.reshape(-1, 4)
    for crowd, objects, info in zip(crowds, objects_of, a.im_info, strict=True):
        height, width, scale = info
        inside, edge = np.arange(len(anchors)), a.rpn_straddle_thresh
        if edge >= 0:
            high = anchors[:, 2:] < np.array([width, height]) + edge
            inside = np.flatnonzero(((anchors[:, :2] >= -edge) & high).all(1))
        objects = objects[crowd == 0] * scale
        limits = a.rpn_positive_overlap, a.rpn_negative_overlap
        images.append((inside, objects, matched(anchors[inside], objects, *limits)))
    return images


def anchor_targets(a: Any, choose: Choose = first) -> AnchorTargets:
    """Choose of the anchors that match objects, and of background: no more than a number of an image count."""
    images: list[tuple[Array, ...]] = []
    anchors, batch = a.anchor.reshape(-1, 4), a.rpn_batch_size_per_im
    for number, (inside, objects, (front, back, owner)) in enumerate(_matches(a)):
        # Where anchors are drawn the best one of an object is no background: else the draw told how many count.
        back = np.setdiff1d(back, front) if a.use_random else back
        limit = (
            int(a.rpn_fg_fraction * batch) if a.rpn_fg_fraction > 0 and batch > 0 else len(inside)
        )
        front = choose(front, limit)
        back = choose(back, batch - len(front))
        real, places, weights = Match(front, back, owner).learnt()
        labels = np.repeat([1, 0], [len(real), len(back)])
        moved = offsets_of(anchors[inside[places]], objects[owner[places]])
        rows = (inside[places], inside[np.concatenate([real, np.sort(back)])])
        images.append((*(r + number * len(anchors) for r in rows), moved, labels, weights))
    whole = (np.concatenate(side) for side in zip(*images, strict=True))
    return AnchorTargets(*whole)


def _numbers_of(targets: AnchorTargets) -> dict[str, int]:
    """Return how many anchors have an object, and how many have a label."""
    return {"F": len(targets.places), "B": len(targets.scores)}


_OBJECTS = (
    "GtBoxes table [3.0 2.0 18.0 20.0; 12.0 6.0 30.0 28.0; 1.0 1.0 9.0 9.0], GtBoxes@LOD [2 1], "
    "IsCrowd table [0; 0; 0], ImInfo table [40.0 50.0 1.0; 30.0 60.0 2.0]"
)
_ANCHORS = (
    f"{_OBJECTS}, Anchor table [2.0 3.0 19.0 21.0; 11.0 7.0 29.0 26.0; 0.0 0.0 17.0 17.0; "
    "-9.0 2.0 9.0 9.0]"
)
define(
    "rpn_target_assign",
    RpnTargetAssign,
    Sized(
        "Anchor, GtBoxes [objects 4], ImInfo [sequences(GtBoxes) 3], IsCrowd integers "
        "-> LocationIndex int32 [F], ScoreIndex int32 [B], TargetLabel int32 [B 1], "
        "TargetBBox [F 4], BBoxInsideWeight [F 4]",
        counted(RpnTargetAssign, lambda a: _numbers_of(anchor_targets(a))),
    ),
    lod=no_sequences,
    random=True,
    samples=(
        sample(_ANCHORS, use_random=False),
        sample(_ANCHORS, use_random=False, rpn_batch_size_per_im=2, rpn_straddle_thresh=-1.0),
    ),
)

# -- retinanet_target_assign ------------------------------------------------------------------------


class RetinanetTargetAssign(Operands):
    anchor: Input
    gt_boxes: Input
    gt_labels: Input
    is_crowd: Input
    im_info: Input
    gt_boxes_lod: Offsets
    positive_overlap: float = 0.5
    negative_overlap: float = 0.4
    location_index: Output
    score_index: Output
    target_b_box: Output
    target_label: Output
    b_box_inside_weight: Output
    foreground_number: Output


@latest(RetinanetTargetAssign)
def class_targets(a: Any) -> tuple[AnchorTargets, Array]:
    """Match all anchors with objects, whose classes are the labels; count those learnt in each image, and one.

    Lin et al., "Focal Loss for Dense Object Detection", arXiv 1708.02002, section 4.
    """
    images: list[tuple[Array, ...]] = []
    columns = (a.gt_boxes, a.gt_labels.reshape(-1), a.is_crowd.reshape(-1))
    lists = (parts(rows, a.gt_boxes_lod[-1]) for rows in columns)
    anchors = a.anchor.reshape(-1, 4)
    for number, (objects, classes, crowd, info) in enumerate(zip(*lists, a.im_info, strict=True)):
        objects, classes = objects[crowd == 0] * info[2], classes[crowd == 0]
        pairs = matched(anchors, objects, a.positive_overlap, a.negative_overlap)
        real, places, weights = pairs.learnt()
        labels = np.concatenate([classes[pairs.owner[real]], np.zeros_like(pairs.back)])
        moved = offsets_of(anchors[places], objects[pairs.owner[places]])
        first_row = number * len(anchors)
        scores = np.concatenate([real, pairs.back]) + first_row
        images.append((places + first_row, scores, moved, labels, weights))
    counts = np.array([len(places) + 1 for places, *_ in images])
    whole = (np.concatenate(side) for side in zip(*images, strict=True))
    return AnchorTargets(*whole), counts


_CLASSES = f"{_ANCHORS}, GtLabels table [1; 3; 2]"
define(
    "retinanet_target_assign",
    RetinanetTargetAssign,
    Sized(
        "Anchor, GtBoxes [objects 4], ImInfo [sequences(GtBoxes) 3], IsCrowd integers, GtLabels integers "
        "-> LocationIndex int32 [F], ScoreIndex int32 [B], TargetLabel int32 [B 1], "
        "TargetBBox [F 4], BBoxInsideWeight [F 4], ForegroundNumber int32 [sequences(GtBoxes) 1]",
        counted(RetinanetTargetAssign, lambda a: _numbers_of(class_targets(a)[0])),
    ),
    lod=no_sequences,
    samples=(sample(_CLASSES), sample(_CLASSES, positive_overlap=0.9, negative_overlap=0.95)),
)

# -- generate_proposal_labels -----------------------------------------------------------------------


class GenerateProposalLabels(Operands):
    rpn_rois: Input
    gt_classes: Input
    is_crowd: Input
    gt_boxes: Input
    im_info: Input
    batch_size_per_im: int = 256
    fg_fraction: float = 0.25
    fg_thresh: float = 0.25
    bg_thresh_hi: float = 0.5
    bg_thresh_lo: float = 0.0
    bbox_reg_weights: Sequence[float] = [0.1, 0.1, 0.2, 0.2]
    class_nums: Positive = 81
    use_random: bool = True
    is_cascade_rcnn: bool = False
    is_cls_agnostic: bool = False
    rpn_rois_lod: Offsets
    gt_boxes_lod: Offsets
    rois: Output
    labels_int32: Output
    bbox_targets: Output
    bbox_inside_weights: Output
    bbox_outside_weights: Output


class RegionTargets(NamedTuple):
    """Of each image: regions that count, their classes (0: background), and offsets of objects from them."""

    boxes: Array
    labels: Array
    offsets: Array


def region_targets(a: Any, choose: Choose = first) -> list[RegionTargets]:
    """Match regions, and the objects themselves, with objects; in a cascade regions alone, and all count."""
    images = []
    if not a.is_cls_agnostic:
        check_classes(a.gt_classes, a.class_nums, "GtClasses", "class_nums")
    ends = a.gt_boxes_lod[-1]
    columns = (
        (a.rpn_rois, a.rpn_rois_lod[-1]),
        (a.gt_classes.reshape(-1), ends),
        (a.is_crowd.reshape(-1), ends),
    )
    lists = (parts(rows, level) for rows, level in (*columns, (a.gt_boxes, ends)))
    for rois, classes, crowd, objects, info in zip(*lists, a.im_info, strict=True):
        boxes = rois / info[2]
        if a.is_cascade_rcnn:
            boxes = boxes[(boxes[:, 2:] - boxes[:, :2] + 1 > 0).all(1)]
        else:
            boxes = np.concatenate([objects, boxes])
        share = overlap(boxes, objects, False, nearby=True)
        most = share.max(1, initial=0)
        if not a.is_cascade_rcnn:
            most[: len(objects)][crowd != 0] = -1
        front = np.flatnonzero(most >= a.fg_thresh)
        back = (most >= a.bg_thresh_lo) & (most < a.bg_thresh_hi) & (most < a.fg_thresh)
        back = np.flatnonzero(back)
        if not a.is_cascade_rcnn:
            front = choose(front, int(a.batch_size_per_im * a.fg_fraction))
            back = choose(back, a.batch_size_per_im - len(front))
        owner = (np.abs(share[front] - most[front, None]) < _SAME).argmax(1)
        labels = np.concatenate([classes[owner], np.zeros(len(back), classes.dtype)])
        moved = offsets_of(boxes[front], objects[owner], a.bbox_reg_weights)
        chosen = boxes[np.concatenate([front, back])] * info[2]
        images.append(RegionTargets(chosen, labels, moved))
    return images


_TARGETS = ("Rois", "LabelsInt32", "BboxTargets", "BboxInsideWeights", "BboxOutsideWeights")


_CANDIDATES = (
    f"{_OBJECTS}, RpnRois table [2.0 3.0 19.0 21.0; 11.0 7.0 29.0 26.0; 0.0 0.0 17.0 17.0; "
    "9.0 2.0 20.0 9.0], RpnRois@LOD [3 1], GtClasses table [1; 2; 2]"
)
_FEW = {"class_nums": 3, "use_random": False}
_REGIONS = (
    sample(_CANDIDATES, **_FEW),
    sample(_CANDIDATES, **_FEW, batch_size_per_im=2, fg_fraction=0.5, fg_thresh=0.6),
    sample(_CANDIDATES, **_FEW, is_cascade_rcnn=True, is_cls_agnostic=True),
)
define(
    "generate_proposal_labels",
    GenerateProposalLabels,
    Sized(
        "RpnRois [regions 4], GtBoxes [objects 4], ImInfo [N 3], "
        "GtClasses [objects 1?], IsCrowd [objects 1?] "
        "-> Rois [S 4], LabelsInt32 int32 [S 1], "
        + ", ".join(f"{slot} [S 4*class_nums]" for slot in _TARGETS[2:]),
        "sequences(RpnRois) == N; RpnRois must have a sequence for each image of ImInfo",
        "sequences(GtBoxes) == N; GtBoxes must have a sequence for each image of ImInfo",
        counted(
            GenerateProposalLabels,
            lambda a: {"S": sum(len(image.boxes) for image in region_targets(a))},
        ),
    ),
    lod=computed("lod_of_regions", " ".join(_TARGETS), "RpnRois GtBoxes"),
    random=True,
    samples=_REGIONS,
    refuses=(sample(_CANDIDATES, "GtClasses table [1; 2; 99]", **_FEW),),
)
define_level(
    "lod_of_regions",
    GenerateProposalLabels,
    lambda a: bounds([image.boxes for image in region_targets(a)]),
    count=lambda op: op.sequences("GtBoxes"),
    samples=_REGIONS,
)
