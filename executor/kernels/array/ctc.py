"""Connectionist temporal classification (Graves et al., 2006), all sequences a step at a time.

Sums over alignments are sums of float64 logarithms. Legend: T steps of the longest sequence, B sequences,
C classes, S places of the labels with a blank before, between and behind them.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ....graph.ops.ctc import WarpCtc, WarpCtcGrad
from ....graph.ops.operands import Array
from ....strategies.errors import SequenceError
from ...device.device import Device
from ..registry import Step, kernel
from .indexing import check_classes
from .time_steps import on_host

# begins and lengths [B] of sequences, and what lies between their rows
Rows = tuple[Any, Any, int]


def _rows(slot: str, array: Array, offsets: list[Array], length: Array | None, time: int) -> Rows:
    """Return where the rows of sequences lie: in LoD order, or in a batch; its dimension ``time`` counts steps.

    Raises:
        SequenceError: the sequences are longer than the array.
    """
    if length is None:
        ends = on_host(offsets[-1])
        if ends[-1] != len(array):
            raise SequenceError(
                f"warpctc: the sequences of {slot} end at row {ends[-1]}, and it has {len(array)} rows"
            )
        return ends[:-1], np.diff(ends), 1
    counts, steps = on_host(length).reshape(-1).astype(np.int64), array.shape[time]
    wrong = counts[(counts < 0) | (counts > steps)]
    if wrong.size:
        raise SequenceError(
            f"warpctc: {slot}Length {wrong[0]} is outside the {steps} steps of {slot}"
        )
    number = np.arange(len(counts))
    return (number, counts, len(counts)) if time == 0 else (number * steps, counts, 1)


def _sum_of_logs(xp: Any, *terms: Any) -> Any:
    """Return log(exp(a) + exp(b) + ...): several times as fast as NumPy's function of two."""
    most = reduce(xp.maximum, terms)
    shift = xp.where(most == -np.inf, 0, most)  # of nothing but zeros the logarithm is that of 0
    return xp.log(reduce(xp.add, [xp.exp(term - shift) for term in terms])) + shift


class Alignments:
    """Labels with blanks between them: which classes their places have, and where a path may jump."""

    def __init__(self, xp: Any, a: WarpCtc, classes: int) -> None:
        self.xp, self.blank = xp, a.blank
        begins, lengths, stride = _rows("Logits", a.logits, a.logits_lod, a.logits_length, 0)
        starts, counts, _ = _rows("Label", a.label, a.label_lod, a.label_length, 1)
        label = on_host(a.label).reshape(-1)
        most, places = lengths.max(initial=0), 2 * counts.max(initial=0) + 1
        classes_at = np.full((len(counts), places), a.blank, np.int64)
        for row, start, count in zip(classes_at, starts, counts, strict=True):
            row[1 : 2 * count : 2] = label[start : start + count]
        check_classes("warpctc", "label", classes_at, classes, "classes of Logits")
        skips = np.zeros(classes_at.shape, bool)
        skips[:, 2:] = (classes_at[:, 2:] != a.blank) & (classes_at[:, 2:] != classes_at[:, :-2])
        step = np.arange(most)[:, None]
        self.inside = xp.asarray(step < lengths)  # [T, B]
        self.rows = xp.asarray(np.where(step < lengths, begins + step * stride, 0))
        self.last = xp.asarray(step == lengths - 1)
        self.classes = xp.asarray(classes_at)  # [B, S]
        self.ends = xp.asarray(np.arange(places) == 2 * counts[:, None])
        self.ends |= xp.asarray(np.arange(places) == 2 * counts[:, None] - 1)
        self.outside = xp.asarray(np.arange(places) > 2 * counts[:, None])
        self.skips = xp.asarray(skips)
        self.empty = xp.asarray((lengths == 0) & (counts == 0))

    def forward(self, log_TBS: Any) -> Any:
        """Return the log of the sum of all beginnings of paths that end at each place, [T, B, S]."""
        sums, skips = self._none(log_TBS), self._where(self.skips)
        for t, log in enumerate(log_TBS):
            if t == 0:
                sums[0, :, 2:4] = log[:, :2]
            else:
                last = sums[t - 1]
                sums[t, :, 2:] = self._sum(last[:, 2:], last[:, 1:-1], last[:, :-2] + skips) + log
        return sums[:, :, 2:]

    def backward(self, log_TBS: Any) -> Any:
        """Return the log of the sum of all ends of paths that begin at each place, [T, B, S]."""
        sums, jumps = self._none(log_TBS), self.xp.zeros_like(self.skips)
        jumps[:, :-2] = self.skips[:, 2:]
        jumps, ends = self._where(jumps), self._where(self.last[:, :, None] & self.ends)
        for t in reversed(range(len(log_TBS))):
            ahead = ends[t]
            if t + 1 < len(log_TBS):
                following = sums[t + 1]
                parts = following[:, :-2], following[:, 1:-1], following[:, 2:] + jumps
                # Of both one at most is that of more than nothing: where a path ends none goes on.
                ahead = self.xp.maximum(ahead, self._sum(*parts))
            sums[t, :, :-2] = ahead + log_TBS[t]
        return sums[:, :, :-2]

    def total(self, before_TBS: Any) -> Any:
        """Return the log of the sum of all whole paths of each sequence, [B], of what :meth:`forward` has."""
        xp = self.xp
        if not len(before_TBS):
            return xp.full(len(self.classes), -np.inf)
        number = xp.arange(len(self.classes))
        final = before_TBS[self.last.argmax(0), number]
        final = xp.where(self.last.any(0)[:, None] & self.ends, final, -np.inf)
        largest = final.max(1)
        shift = xp.where(xp.isfinite(largest), largest, 0)
        return xp.log(xp.exp(final - shift[:, None]).sum(1)) + shift

    def possible(self, log_TBS: Any) -> Any:
        """Return the logarithms, and those of 0 where no path can be: behind steps and labels."""
        there = self.inside[:, :, None] & ~self.outside
        return self.xp.where(there, log_TBS, -np.inf)

    def _none(self, like: Any) -> Any:
        """Return the log of 0 for each place, and for two that stand beside the first or the last."""
        steps, count, places = like.shape
        return self.xp.full((steps, count, places + 2), -np.inf)

    def _where(self, condition: Any) -> Any:
        return self.xp.where(condition, 0.0, -np.inf)

    def _sum(self, *terms: Any) -> Any:
        return _sum_of_logs(self.xp, *terms)


@kernel("warpctc")
def warpctc(dev: Device, a: WarpCtc) -> Step:
    """The loss, and its gradient: softmax less how often paths are at a class.

    Where no path is possible both are 0.
    """
    xp, classes = dev.xp, a.logits.shape[-1]

    def run() -> None:
        paths = Alignments(xp, a, classes)
        log_TBC = a.logits.reshape(-1, classes)[paths.rows].astype(np.float64)
        log_TBC -= log_TBC.max(-1, keepdims=True)
        powers = xp.exp(log_TBC)
        log_TBC -= xp.log(powers.sum(-1, keepdims=True))
        number = xp.arange(len(paths.classes))[:, None]
        log_TBS = log_TBC[:, number, paths.classes]
        on_paths = paths.possible(log_TBS)
        before = paths.forward(on_paths)
        total = paths.total(before)
        possible = xp.isfinite(total)
        a.loss[...] = xp.where(possible, -total, 0)[:, None]
        if a.warp_ctc_grad is None:
            return
        often = before + paths.backward(on_paths)
        often -= log_TBS
        often -= xp.where(possible, total, np.inf)[:, None]
        xp.exp(often, out=often)
        slope = xp.exp(log_TBC, out=powers)
        for place in range(often.shape[2]):
            slope[:, number[:, 0], paths.classes[:, place]] -= often[:, :, place]
        counted = paths.inside & possible
        a.warp_ctc_grad.fill(0)
        a.warp_ctc_grad.reshape(-1, classes)[paths.rows[counted]] = slope[counted]

    return run


@kernel("warpctc_grad")
def warpctc_grad(dev: Device, a: WarpCtcGrad) -> Step:
    xp, d_logits, classes = dev.xp, a.d_logits, a.d_logits.shape[-1]

    def run() -> None:
        begins, lengths, stride = _rows("Logits", a.logits, a.logits_lod, a.logits_length, 0)
        d = a.d_loss.reshape(-1)
        if a.norm_by_times:
            d = d / xp.asarray(np.maximum(lengths, 1).astype(d.dtype))
        step = np.arange(lengths.max(initial=0))[:, None]
        inside = step < lengths
        rows = xp.asarray((begins + step * stride)[inside])
        number = xp.asarray(np.broadcast_to(np.arange(len(lengths)), inside.shape)[inside])
        slopes = a.warp_ctc_grad.reshape(-1, classes)
        each = xp.zeros((len(slopes), 1), d.dtype)  # what belongs to no sequence has none
        each[rows, 0] = d[number]
        xp.multiply(slopes, each, out=d_logits.reshape(-1, classes))

    return run
