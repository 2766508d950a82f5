"""Ops that choose and order whole sequences, on CPUs.

There sorting is faster than comparing each with each, and each batch of new lengths binds them: calls of NumPy
for any sizes take a tenth of the time that formulas of these sizes do.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ....graph.ops import sequence_choice as ops
from ....graph.ops.operands import Array
from ...device.device import Device
from ..registry import Step, each_step, kernel

ON = ("numpy",)


@each_step("lod_rank_table", on=ON)
def lod_rank_table(a: ops.RankTable) -> None:
    lengths = np.diff(a.x_lod[a.level])
    order = np.argsort(-lengths, kind="stable")
    a.out[:, 0], a.out[:, 1] = order, lengths[order]


@each_step("reorder_lod_tensor_by_rank", on=ON, low=True)
def reorder_lod_tensor_by_rank(a: ops.ReorderByRank) -> None:
    a.out[...] = a.x[ops.rows_of(a.x_lod, ops.chosen(ops.RANK, a.rank_table))]


@each_step("reorder_lod_tensor_by_rank_grad", on=ON, low=True)
def reorder_lod_tensor_by_rank_grad(a: ops.ReorderByRankGrad) -> None:
    a.out[...] = a.x[ops.rows_of(a.x_lod, ops.chosen(ops.UNRANK, a.rank_table))]


@kernel("shrink_rnn_memory_grad", on=ON, low=True)
def shrink_rnn_memory_grad(dev: Device, a: ops.ShrinkRnnMemoryGrad) -> list[Step]:
    rows, (count, *width) = len(a.d_out), a.d_x.shape
    # Where a slice without rows begins does not follow from their number.
    behind = np.ndarray((count - rows, *width), a.d_x.dtype, a.d_x, rows * a.d_x.strides[0])
    return [partial(np.copyto, a.d_x[:rows], a.d_out), partial(behind.fill, 0)]


@each_step("split_lod_tensor", on=ON, low=True)
def split_lod_tensor(a: ops.SplitLodTensor) -> None:
    for out, by in ((a.out_true, ops.TRUE), (a.out_false, ops.FALSE)):
        if out is not None:
            out[...] = a.x[ops.rows_of(a.x_lod[a.level :], ops.chosen(by, a.mask))]


@each_step("merge_lod_tensor", on=ON, low=True)
def merge_lod_tensor(a: ops.MergeLodTensor) -> None:
    """Sequences that the mask names, with the others behind them, are put in their places."""
    pairs = zip(a.in_true_lod, a.in_false_lod, strict=True)
    levels = [np.concatenate([yes, no[1:] + yes[-1]]) for yes, no in pairs]
    together = np.concatenate([a.in_true, a.in_false])
    a.out[...] = together[ops.rows_of(levels, ops.chosen(ops.MERGED, a.mask))]


@kernel("lod_picked", on=ON)
def lod_picked(dev: Device, a: ops.OffsetsPicked) -> Step:
    return partial(_pick, tuple(a.x), a.by, a.y, a.i if a.by == ops.LONGER else None, a.out)


def _pick(levels: ops.Levels, by: str, y: Array, i: Array | None, out: Array) -> None:
    *outer, last = levels
    if i is not None:
        out[...] = last[: ops.first_rows(outer, ops.longer(y, i)) + 1]
    else:
        out[...] = ops.within(last, ops.rows_of(outer, ops.chosen(by, y)))[0]
