"""How well boxes are found; on the host, where the number of results is read."""

from __future__ import annotations

from ....graph.ops import detection_map as ops
from ..registry import each_step

ON = ("numpy",)


@each_step("detection_map", on=ON)
def detection_map(a: ops.DetectionMap) -> None:
    judgements = ops.judged(a, a.detect_res_lod[-1], a.label_lod[-1])
    rows = [row for own in judgements.rows for row in own]
    a.accum_pos_count[:, 0] = judgements.counts
    a.accum_true_pos[:, 0] = a.accum_false_pos[:, 0] = [score for score, _ in rows]
    a.accum_true_pos[:, 1] = [hit for _, hit in rows]
    a.accum_false_pos[:, 1] = [not hit for _, hit in rows]
    a.mean[...] = ops.mean_precision(judgements, a.background_label, a.ap_type)


@each_step("lod_of_classes", on=ON)
def lod_of_classes(a: ops.OffsetsOfClasses) -> None:
    a.out[...] = ops.judged(a, a.x, a.y).ends()
