"""Ops that choose and order whole sequences; on the host, where lengths and masks are read."""

from __future__ import annotations

from functools import partial

import numpy as np

from ....graph.ops import sequence_choice as ops
from ....graph.ops.operands import Array
from ...device.device import Device
from ..registry import Step, kernel

ON = ("numpy",)


@kernel("lod_rank_table", on=ON)
def lod_rank_table(dev: Device, a: ops.RankTable) -> Step:
    def run() -> None:
        lengths = np.diff(a.x_lod[a.level])
        order = np.argsort(-lengths, kind="stable")
        a.out[:, 0], a.out[:, 1] = order, lengths[order]

    return run


@kernel("max_sequence_len", on=ON)
def max_sequence_len(dev: Device, a: ops.MaxSequenceLen) -> Step:
    def run() -> None:
        a.out[0] = a.rank_table[:, 1].max(initial=0)

    return run


@kernel("reorder_lod_tensor_by_rank", on=ON, low=True)
def reorder_lod_tensor_by_rank(dev: Device, a: ops.ReorderByRank) -> Step:
    def run() -> None:
        a.out[...] = a.x[ops.rows_of(a.x_lod, ops.chosen(ops.RANK, a.rank_table))]

    return run


@kernel("reorder_lod_tensor_by_rank_grad", on=ON, low=True)
def reorder_lod_tensor_by_rank_grad(dev: Device, a: ops.ReorderByRankGrad) -> Step:
    def run() -> None:
        a.out[...] = a.x[ops.rows_of(a.x_lod, ops.chosen(ops.UNRANK, a.rank_table))]

    return run


@kernel("shrink_rnn_memory", on=ON, low=True)
def shrink_rnn_memory(dev: Device, a: ops.ShrinkRnnMemory) -> Step:
    rows = len(a.out)

    def run() -> None:
        a.out[...] = a.x[:rows]

    return run


@kernel("shrink_rnn_memory_grad", on=ON, low=True)
def shrink_rnn_memory_grad(dev: Device, a: ops.ShrinkRnnMemoryGrad) -> Step:
    return partial(_with_zeros_behind, a.d_out, a.d_x)


def _with_zeros_behind(first: Array, out: Array) -> None:
    rows = len(first)
    out[:rows] = first
    out[rows:] = 0


@kernel("split_lod_tensor", on=ON, low=True)
def split_lod_tensor(dev: Device, a: ops.SplitLodTensor) -> Step:
    def run() -> None:
        for out, by in ((a.out_true, ops.TRUE), (a.out_false, ops.FALSE)):
            if out is not None:
                out[...] = a.x[ops.rows_of(a.x_lod[a.level :], ops.chosen(by, a.mask))]

    return run


@kernel("merge_lod_tensor", on=ON, low=True)
def merge_lod_tensor(dev: Device, a: ops.MergeLodTensor) -> Step:
    """Sequences that the mask names, with the others behind them, are put in their places."""

    def run() -> None:
        pairs = zip(a.in_true_lod, a.in_false_lod, strict=True)
        levels = [np.concatenate([yes, no[1:] + yes[-1]]) for yes, no in pairs]
        together = np.concatenate([a.in_true, a.in_false])
        a.out[...] = together[ops.rows_of(levels, ops.chosen(ops.MERGED, a.mask))]

    return run


@kernel("lod_picked", on=ON)
def lod_picked(dev: Device, a: ops.OffsetsPicked) -> Step:
    return partial(_pick, tuple(a.x), a.by, a.y, a.i if a.by == ops.LONGER else None, a.out)


def _pick(levels: ops.Levels, by: str, y: Array, i: Array | None, out: Array) -> None:
    out[...] = ops.picked(levels, by, y, i)
