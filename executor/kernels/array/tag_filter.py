"""Sequences that have one of some tags; on the host, where tags are read."""

from __future__ import annotations

import numpy as np

from ....graph.ops.sequence_choice import within
from ....graph.ops.tag_filter import FilterByInstag, FilterByInstagGrad, OffsetsTagged, tagged
from ...device.device import Device
from ..registry import Step, each_step, kernel

ON = ("numpy",)


@each_step("filter_by_instag", on=ON, low=True)
def filter_by_instag(a: FilterByInstag) -> None:
    """IndexMap: where a sequence stands in Out, where in Ins, and how many rows it has."""
    rows = len(a.ins)
    numbers = tagged(a.ins_tag, a.ins_tag_lod[-1] if a.ins_tag_lod else None, a.filter_tag)
    if not numbers.size:
        a.out[...] = a.out_val_if_empty
        a.loss_weight[...] = 0
        a.index_map[...] = (0, 1, 1)
        return
    ends = a.ins_lod[-1] if a.is_lod else np.arange(rows + 1)
    begins, rows_left = within(ends, numbers)
    a.out[...] = a.ins[rows_left]
    a.loss_weight[...] = 1
    a.index_map[...] = np.stack([begins[:-1], ends[numbers], np.diff(begins)], 1)


@kernel("filter_by_instag_grad", on=ON, low=True)
def filter_by_instag_grad(dev: Device, a: FilterByInstagGrad) -> Step:
    """What was left out has no gradient."""
    assert a.d_ins is not None
    d_ins = a.d_ins

    def run() -> None:
        d_ins[...] = 0
        if a.loss_weight[0, 0]:
            begins, sources, counts = a.index_map.T
            shifts = np.repeat(sources - begins, counts)
            d_ins[np.arange(len(shifts)) + shifts] = a.d_out

    return run


@each_step("lod_tagged", on=ON)
def lod_tagged(a: OffsetsTagged) -> None:
    numbers = tagged(a.y, a.y_lod, a.tags)
    if a.of_rows and a.x is not None and numbers.size:
        a.out[...] = within(a.x, numbers)[0]
    else:
        a.out[...] = np.arange(a.out.size)
