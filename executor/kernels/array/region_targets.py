"""What Faster R-CNN learns; on the host, where the number of results is read."""

from __future__ import annotations

import numpy as np

from ....graph.ops import region_targets as ops
from ....graph.ops.operands import Array
from ...device.device import Device
from ..registry import Step, each_step, kernel
from .draw import order
from .random import drawn_with

ON = ("numpy",)


def _chooser(dev: Device, use_random: bool) -> ops.Choose:
    """Return a function that chooses candidates, in their order: the first, or random ones."""
    if not use_random:
        return ops.first
    stream = drawn_with(dev, 0)

    def choose(candidates: Array, count: int) -> Array:
        if len(candidates) <= count:
            return candidates
        return candidates[np.sort(order(stream, len(candidates))[:count])]

    return choose


@kernel("rpn_target_assign", on=ON)
def rpn_target_assign(dev: Device, a: ops.RpnTargetAssign) -> Step:
    choose = _chooser(dev, a.use_random)

    def run() -> None:
        targets = ops.anchor_targets(a, choose)
        a.location_index[...], a.score_index[...] = targets.places, targets.scores
        a.target_b_box[...], a.target_label[:, 0] = targets.offsets, targets.labels
        a.b_box_inside_weight[...] = targets.weights[:, None]

    return run


@each_step("retinanet_target_assign", on=ON)
def retinanet_target_assign(a: ops.RetinanetTargetAssign) -> None:
    targets, counts = ops.class_targets(a)
    a.location_index[...], a.score_index[...] = targets.places, targets.scores
    a.target_b_box[...], a.target_label[:, 0] = targets.offsets, targets.labels
    a.b_box_inside_weight[...] = targets.weights[:, None]
    a.foreground_number[:, 0] = counts


@kernel("generate_proposal_labels", on=ON)
def generate_proposal_labels(dev: Device, a: ops.GenerateProposalLabels) -> Step:
    choose = _chooser(dev, a.use_random)

    def run() -> None:
        images = ops.region_targets(a, choose)
        a.rois[...] = np.concatenate([image.boxes for image in images])
        labels = np.concatenate([image.labels for image in images])
        a.labels_int32[:, 0] = labels
        wide = a.bbox_targets.reshape(-1, a.class_nums, 4)
        wide[...], a.bbox_inside_weights[...] = 0, 0
        at = np.flatnonzero(labels > 0)
        classes = np.ones_like(at) if a.is_cls_agnostic else labels[at]
        wide[at, classes] = np.concatenate(
            [image.offsets[image.labels[: len(image.offsets)] > 0] for image in images]
        )
        a.bbox_inside_weights.reshape(wide.shape)[at, classes] = 1
        a.bbox_outside_weights[...] = a.bbox_inside_weights

    return run
