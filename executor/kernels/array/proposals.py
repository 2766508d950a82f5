"""Regions that may hold an object; on the host, where the number of results is read."""

from __future__ import annotations

import numpy as np

from ....graph.ops import proposals as ops
from ..registry import each_step

ON = ("numpy",)


@each_step("collect_fpn_proposals", on=ON, low=True)
def collect_fpn_proposals(a: ops.CollectFpnProposals) -> None:
    best, _ = ops.collected(a)
    a.fpn_rois[...] = np.concatenate(a.rois)[best]


@each_step("distribute_fpn_proposals", on=ON)
def distribute_fpn_proposals(a: ops.DistributeFpnProposals) -> None:
    maps = ops.maps_of(a)
    for number, rois in enumerate(a.multi_fpn_rois):
        if rois is not None:
            rois[...] = a.fpn_rois[maps == number]
    a.restore_index[np.argsort(maps, kind="stable"), 0] = np.arange(len(maps))
