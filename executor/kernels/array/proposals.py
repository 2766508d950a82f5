"""Regions that may hold an object; on the host, where the number of results is read."""

from __future__ import annotations

import numpy as np

from ....graph.ops import proposals as ops
from ....graph.ops.lod_levels import bounds
from ...device.device import Device
from ..registry import Step, kernel

ON = ("numpy",)


@kernel("generate_proposals", on=ON)
def generate_proposals(dev: Device, a: ops.GenerateProposals) -> Step:
    def run() -> None:
        images = ops.proposals(a)
        a.rpn_rois[...] = np.concatenate([boxes for boxes, _ in images])
        a.rpn_roi_probs[...] = np.concatenate([scores for _, scores in images])
        if a.rpn_rois_lod is not None:
            a.rpn_rois_lod[...] = bounds([boxes for boxes, _ in images])[1:]

    return run


@kernel("lod_of_proposals", on=ON)
def lod_of_proposals(dev: Device, a: ops.OffsetsOfProposals) -> Step:
    def run() -> None:
        a.out[...] = bounds([boxes for boxes, _ in ops.proposals(a)])

    return run


@kernel("collect_fpn_proposals", on=ON, low=True)
def collect_fpn_proposals(dev: Device, a: ops.CollectFpnProposals) -> Step:
    def run() -> None:
        best, _ = ops.collected(a.scores, a.rois_lod, a.post_nms_topN)
        a.fpn_rois[...] = np.concatenate(a.rois)[best]

    return run


@kernel("lod_collected", on=ON, low=True)
def lod_collected(dev: Device, a: ops.OffsetsCollected) -> Step:
    def run() -> None:
        a.out[...] = ops.collected(a.y, a.x, a.post_nms_topN)[1]

    return run


@kernel("distribute_fpn_proposals", on=ON)
def distribute_fpn_proposals(dev: Device, a: ops.DistributeFpnProposals) -> Step:
    def run() -> None:
        maps = ops.maps_of(a)
        for number, rois in enumerate(a.multi_fpn_rois):
            if rois is not None:
                rois[...] = a.fpn_rois[maps == number]
        a.restore_index[np.argsort(maps, kind="stable"), 0] = np.arange(len(maps))

    return run


@kernel("lod_distributed", on=ON)
def lod_distributed(dev: Device, a: ops.OffsetsDistributed) -> Step:
    def run() -> None:
        before = np.concatenate([[0], np.cumsum(ops.maps_of(a) == a.number)])
        a.out[...] = before[a.x]

    return run


@kernel("retinanet_detection_output", on=ON)
def retinanet_detection_output(dev: Device, a: ops.RetinanetDetectionOutput) -> Step:
    def run() -> None:
        a.out[...] = np.concatenate(ops.detections(a))

    return run


@kernel("lod_of_detections", on=ON)
def lod_of_detections(dev: Device, a: ops.OffsetsOfDetections) -> Step:
    def run() -> None:
        a.out[...] = bounds(ops.detections(a))

    return run
