"""Masks that Mask R-CNN learns; on the host, where the number of results is read."""

from __future__ import annotations

import numpy as np

from ....graph.ops import mask_targets as ops
from ..registry import each_step

ON = ("numpy",)


@each_step("generate_mask_labels", on=ON)
def generate_mask_labels(a: ops.GenerateMaskLabels) -> None:
    images = ops.mask_targets(a)
    boxes, numbers, labels, masks = map(np.concatenate, zip(*images, strict=True))
    a.mask_rois[...], a.roi_has_mask_int32[:, 0] = boxes, numbers
    at = np.flatnonzero(labels > 0)
    a.mask_int32[...] = -1
    wide = a.mask_int32.reshape(-1, a.num_classes, masks[0].size)
    wide[at, labels[at]] = masks[at].reshape(len(at), -1)
