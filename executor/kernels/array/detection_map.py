"""How well boxes are found; on the host, where the number of results is read."""

from __future__ import annotations

from ....graph.ops import detection_map as ops
from ....graph.program.role import program_name
from ....strategies.errors import InvalidValue
from ...device.device import Device
from ..registry import Step, kernel

ON = ("numpy",)


@kernel("detection_map", on=ON)
def detection_map(dev: Device, a: ops.DetectionMap) -> Step:
    name, passes = program_name(dev.output), dev.passes

    def of_pass(judgements: ops.Judgements, begun: bool) -> ops.Judgements:
        """Return the judgements of the pass, with those of this batch."""
        if begun:
            if name not in passes:
                raise InvalidValue(
                    "detection_map: the earlier batches of this pass were not measured here. Reset the metric "
                    "before a pass, and measure all of it on one place, by one Executor."
                )
            judgements = judgements.after(passes[name])
        passes[name] = judgements
        return judgements

    def run() -> None:
        judgements = ops.judged(a)
        rows = [row for own in judgements.rows for row in own]
        a.accum_pos_count[:, 0] = judgements.counts
        a.accum_true_pos[:, 0] = a.accum_false_pos[:, 0] = [score for score, _ in rows]
        a.accum_true_pos[:, 1] = [hit for _, hit in rows]
        a.accum_false_pos[:, 1] = [not hit for _, hit in rows]
        whole = judgements
        if a.has_state is not None:
            whole = of_pass(judgements, bool(a.has_state.any()))
        a.mean[...] = ops.mean_precision(whole, a.background_label, a.ap_type)

    return run
