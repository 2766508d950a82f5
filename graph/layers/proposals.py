"""Layers of Faster R-CNN and of pyramids of maps: Ren et al., arXiv 1506.01497; Lin et al., arXiv 1612.03144.

Boxes are (x0, y0, x1, y1) in pixels. Objects and regions of each image are a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...strategies.errors import InvalidValue
from ..program.variable import Variable
from .arguments import check_variable
from .boxes import numbers
from .helper import LayerHelper, constant_layer, constant_layers
from .shape import gather, reshape

_WEIGHTS = (0.1, 0.1, 0.2, 0.2)


def generate_proposals(
    scores: Variable,
    bbox_deltas: Variable,
    im_info: Variable,
    anchors: Variable,
    variances: Variable,
    pre_nms_top_n: int = 6000,
    post_nms_top_n: int = 1000,
    nms_thresh: float = 0.5,
    min_size: float = 0.1,
    eta: float = 1.0,
    name: str | None = None,
    return_rois_num: bool = False,
) -> tuple[Variable, ...]:
    """Regions [R, 4] that may hold an object, the best of those that overlap, and their scores [R, 1].

    Args:
        scores: [N, A, H, W], how likely an object is.
        bbox_deltas: [N, 4 A, H, W], offsets from anchors.
        im_info: [N, 3], heights and widths of images, and what they were scaled by.
        anchors: [H, W, A, 4]; ``variances`` are as large.
        pre_nms_top_n: how many of each image are looked at; ``post_nms_top_n``: how many stay.
        nms_thresh: of which overlap on the lower one goes; ``eta`` is for :func:`multiclass_nms`.
        min_size: how high and wide a region must be, in pixels before scaling.
        return_rois_num: return also where regions of each image end, int32 [N].
    """
    rois, probs, ends = constant_layers(
        "generate_proposals",
        name,
        "RpnRois RpnRoiProbs RpnRoisLod",
        scores=scores,
        bbox_deltas=bbox_deltas,
        im_info=im_info,
        anchors=anchors,
        variances=variances,
        pre_nms_topN=pre_nms_top_n,
        post_nms_topN=post_nms_top_n,
        nms_thresh=nms_thresh,
        min_size=min_size,
        eta=eta,
    )
    return (rois, probs, ends) if return_rois_num else (rois, probs)


def rpn_target_assign(
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable,
    gt_boxes: Variable,
    is_crowd: Variable,
    im_info: Variable,
    rpn_batch_size_per_im: int = 256,
    rpn_straddle_thresh: float = 0.0,
    rpn_fg_fraction: float = 0.5,
    rpn_positive_overlap: float = 0.7,
    rpn_negative_overlap: float = 0.3,
    use_random: bool = True,
) -> tuple[Variable, ...]:
    """Return predictions and targets of a region proposal network.

    They are scores [B, 1], offsets [F, 4], labels [B, 1], target offsets and their weights [F, 4].

    Args:
        bbox_pred: offsets [N, anchors, 4]; ``cls_logits`` [N, anchors, 1].
        anchor_box: [anchors, 4]; ``anchor_var`` is not read.
        gt_boxes: [objects, 4], before images were scaled; ``is_crowd`` int32 [objects, 1]: 1 for many at once.
        rpn_batch_size_per_im: how many anchors of an image count, ``rpn_fg_fraction`` of them with an object.
        rpn_straddle_thresh: how far anchors may reach outside, -1: as far as they do.
        rpn_positive_overlap: from which overlap on an anchor has an object; each object also has its best one.
        rpn_negative_overlap: below which it has none.
        use_random: draw those that count where there are more; else the first do.
    """
    targets = constant_layers(
        "rpn_target_assign",
        None,
        "LocationIndex ScoreIndex TargetLabel TargetBBox BBoxInsideWeight",
        anchor=anchor_box,
        gt_boxes=gt_boxes,
        is_crowd=is_crowd,
        im_info=im_info,
        rpn_batch_size_per_im=rpn_batch_size_per_im,
        rpn_straddle_thresh=rpn_straddle_thresh,
        rpn_positive_overlap=rpn_positive_overlap,
        rpn_negative_overlap=rpn_negative_overlap,
        rpn_fg_fraction=rpn_fg_fraction,
        use_random=use_random,
    )
    return _predicted(bbox_pred, cls_logits, 1, targets)


def _predicted(
    bbox_pred: Variable, cls_logits: Variable, classes: int, targets: Sequence[Variable]
) -> tuple[Variable, ...]:
    """Return the scores and offsets of the anchors that count, and what is expected of them.

    ``targets`` begin with the numbers of the anchors whose offsets, and of those whose scores count.
    """
    located, scored, *expected = targets
    scores = gather(reshape(cls_logits, shape=[-1, classes]), scored)
    return (scores, gather(reshape(bbox_pred, shape=[-1, 4]), located), *expected)


def retinanet_target_assign(
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable,
    gt_boxes: Variable,
    gt_labels: Variable,
    is_crowd: Variable,
    im_info: Variable,
    num_classes: int = 1,
    positive_overlap: float = 0.5,
    negative_overlap: float = 0.4,
) -> tuple[Variable, ...]:
    """Return predictions of RetinaNet (Lin et al., arXiv 1708.02002): scores [B, num_classes], offsets [F, 4].

    Behind them: labels [B, 1] (0: background), expected offsets and weights [F, 4], and int32 [N, 1]: one more
    than how many anchors of each image have an object.

    Args:
        bbox_pred: offsets [N, anchors, 4]; ``cls_logits`` [N, anchors, num_classes].
        gt_labels: int32 [objects, 1], from 1; the others are those of :func:`rpn_target_assign`.
        positive_overlap: from which overlap on an anchor has an object; each object also has its best one.
        negative_overlap: below which it is background.
    """
    targets = constant_layers(
        "retinanet_target_assign",
        None,
        "LocationIndex ScoreIndex TargetLabel TargetBBox BBoxInsideWeight ForegroundNumber",
        anchor=anchor_box,
        gt_boxes=gt_boxes,
        gt_labels=gt_labels,
        is_crowd=is_crowd,
        im_info=im_info,
        positive_overlap=positive_overlap,
        negative_overlap=negative_overlap,
    )
    return _predicted(bbox_pred, cls_logits, num_classes, targets)


def generate_proposal_labels(
    rpn_rois: Variable,
    gt_classes: Variable,
    is_crowd: Variable,
    gt_boxes: Variable,
    im_info: Variable,
    batch_size_per_im: int = 256,
    fg_fraction: float = 0.25,
    fg_thresh: float = 0.25,
    bg_thresh_hi: float = 0.5,
    bg_thresh_lo: float = 0.0,
    bbox_reg_weights: Any = _WEIGHTS,
    class_nums: int | None = None,
    use_random: bool = True,
    is_cls_agnostic: bool = False,
    is_cascade_rcnn: bool = False,
) -> tuple[Variable, ...]:
    """Regions [S, 4] that a second stage learns from, their classes [S, 1], and [S, 4 class_nums] thrice.

    These are offsets of objects, and weights inside and outside of the loss: 0 but for the region's class.

    Args:
        rpn_rois: [R, 4], regions of scaled images; objects join them, but in a cascade.
        gt_classes: int32 [objects, 1]; other objects' arguments are those of :func:`rpn_target_assign`.
        batch_size_per_im: how many regions of an image count, ``fg_fraction`` of them with an object.
        fg_thresh: from which overlap on a region has an object; from ``bg_thresh_lo`` to ``bg_thresh_hi`` it is
            background, class 0.
        bbox_reg_weights: what offsets are divided by.
        use_random: draw those that count where there are more; else the first do.
        is_cls_agnostic: offsets are those of class 1, whatever the class.

    Raises:
        InvalidValue: there is no ``class_nums``.
    """
    op_type = "generate_proposal_labels"
    if class_nums is None:
        raise InvalidValue(
            f"{op_type} needs class_nums, the number of classes with the background."
        )
    return constant_layers(
        op_type,
        None,
        "Rois LabelsInt32 BboxTargets BboxInsideWeights BboxOutsideWeights",
        rpn_rois=rpn_rois,
        gt_classes=gt_classes,
        is_crowd=is_crowd,
        gt_boxes=gt_boxes,
        im_info=im_info,
        batch_size_per_im=batch_size_per_im,
        fg_fraction=fg_fraction,
        fg_thresh=fg_thresh,
        bg_thresh_hi=bg_thresh_hi,
        bg_thresh_lo=bg_thresh_lo,
        bbox_reg_weights=numbers(bbox_reg_weights, "bbox_reg_weights", op_type, 4),
        class_nums=class_nums,
        use_random=use_random,
        is_cls_agnostic=is_cls_agnostic,
        is_cascade_rcnn=is_cascade_rcnn,
    )


def generate_mask_labels(
    im_info: Variable,
    gt_classes: Variable,
    is_crowd: Variable,
    gt_segms: Variable,
    rois: Variable,
    labels_int32: Variable,
    num_classes: int,
    resolution: int,
) -> tuple[Variable, ...]:
    """Regions [K, 4] that a mask is learnt for, int32 [K, 1] numbers in their image, and masks.

    Masks are int32 [K, num_classes resolution^2]: 1 inside, 0 outside of the object, at the region's class; -1,
    which does not count, elsewhere. An image without regions of objects has its first one of background.

    Args:
        gt_segms: [points, 2], x and y in the image as it was: of an image sequences for objects, of an object
            for polygons, of a polygon for points (three levels).
        rois: [R, 4], regions of scaled images, whose classes are ``labels_int32``, [R, 1]; both are results of
            :func:`generate_proposal_labels`, as the other arguments are its arguments.
        num_classes: how many classes, with the background.
        resolution: sides of a mask, in pixels.
    """
    return constant_layers(
        "generate_mask_labels",
        None,
        "MaskRois RoiHasMaskInt32 MaskInt32",
        im_info=im_info,
        gt_classes=gt_classes,
        is_crowd=is_crowd,
        gt_segms=gt_segms,
        rois=rois,
        labels_int32=labels_int32,
        num_classes=num_classes,
        resolution=resolution,
    )


def collect_fpn_proposals(
    multi_rois: Sequence[Variable],
    multi_scores: Sequence[Variable],
    min_level: int,
    max_level: int,
    post_nms_top_n: int,
    name: str | None = None,
) -> Variable:
    """The ``post_nms_top_n`` regions [R, 4] with the highest scores of those of all maps, by image."""
    op_type = "collect_fpn_proposals"
    count = max_level - min_level + 1
    lists = {"MultiLevelRois": multi_rois[:count], "MultiLevelScores": multi_scores[:count]}
    for slot, variables in lists.items():
        for variable in variables:
            check_variable(variable, slot, op_type)
    attrs = {"post_nms_topN": post_nms_top_n}
    return constant_layer(op_type, name, **lists, **attrs)


def distribute_fpn_proposals(
    fpn_rois: Variable,
    min_level: int,
    max_level: int,
    refer_level: int,
    refer_scale: int,
    name: str | None = None,
) -> tuple[list[Variable], Variable]:
    """Regions by the map that they are read from, larger ones from coarser maps; and where each stands.

    A region as large as a square of side ``refer_scale`` is read from the map ``refer_level``.
    """
    levels = {"min_level": min_level, "max_level": max_level, "refer_level": refer_level}
    return regions_by_map(fpn_rois, name, refer_scale=refer_scale, **levels)


def regions_by_map(
    rois: Variable, name: str | None, **levels: Any
) -> tuple[list[Variable], Variable]:
    """Append ``distribute_fpn_proposals`` with its attributes ``levels``."""
    op_type, last = "distribute_fpn_proposals", levels["max_level"]
    helper = LayerHelper(op_type, name)
    maps = [helper.new(rois.dtype) for _ in range(levels["min_level"], last + 1)]
    fields = {"fpn_rois": rois, "multi_fpn_rois": maps, **levels}
    (index,) = helper.constant_layers(op_type, "RestoreIndex", **fields)
    return maps, index
