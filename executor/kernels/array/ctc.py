"""Connectionist temporal classification (Graves et al., 2006), all sequences a step at a time.

Sums over alignments are sums of float64 logarithms. Legend: T steps of the longest sequence, B sequences,
C classes, S places of the labels with a blank before, between and behind them.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ....graph.ops.ctc import WarpCtc, WarpCtcGrad
from ....graph.ops.formula import outside
from ....graph.ops.operands import Array
from ....strategies.errors import InvalidValue, SequenceError
from ...device.device import Device
from ..registry import Step, kernel
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
    return xp.log(sum(xp.exp(term - shift) for term in terms)) + shift


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
        wrong = classes_at[(classes_at < 0) | (classes_at >= classes)]
        if wrong.size:
            sentence = outside("warpctc", classes, "label", "classes of Logits")
            raise InvalidValue(sentence.format(wrong[0]))
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
        xp = self.xp
        sums = xp.full(log_TBS.shape, -np.inf)
        for t, log in enumerate(log_TBS):
            if t == 0:
                sums[0, :, :2] = log[:, :2]
            else:
                sums[t] = self._step(sums[t - 1], self.skips, 1) + log
            sums[t][self.outside] = -np.inf
        return sums

    def backward(self, log_TBS: Any) -> Any:
        """Return the log of the sum of all ends of paths that begin at each place, [T, B, S]."""
        xp = self.xp
        sums = xp.full(log_TBS.shape, -np.inf)
        jumps = xp.zeros_like(self.skips)
        jumps[:, :-2] = self.skips[:, 2:]
        for t in reversed(range(len(log_TBS))):
            ahead = xp.where(self.last[t][:, None] & self.ends, 0.0, -np.inf)
            if t + 1 < len(log_TBS):
                ahead = _sum_of_logs(xp, ahead, self._step(sums[t + 1], jumps, -1))
            sums[t] = xp.where(self.inside[t][:, None], ahead + log_TBS[t], -np.inf)
            sums[t][self.outside] = -np.inf
        return sums

    def _step(self, before: Any, skips: Any, way: int) -> Any:
        """Stay, go on by one place, or by two where that is allowed."""
        xp = self.xp
        by_one, by_two = (xp.full(before.shape, -np.inf) for _ in range(2))
        if way > 0:
            by_one[:, 1:], by_two[:, 2:] = before[:, :-1], before[:, :-2]
        else:
            by_one[:, :-1], by_two[:, :-2] = before[:, 1:], before[:, 2:]
        return _sum_of_logs(xp, before, by_one, xp.where(skips, by_two, -np.inf))


@kernel("warpctc")
def warpctc(dev: Device, a: WarpCtc) -> Step:
    """The loss, and its gradient: softmax less how often paths are at a class.

    Where no path is possible both are 0.
    """
    xp, classes = dev.xp, a.logits.shape[-1]

    def run() -> None:
        paths = Alignments(xp, a, classes)
        x = a.logits.reshape(-1, classes)[paths.rows].astype(np.float64)
        shifted = x - x.max(-1, keepdims=True)
        log_TBC = shifted - xp.log(xp.exp(shifted).sum(-1, keepdims=True))
        number = xp.arange(len(paths.classes))[:, None]
        log_TBS = log_TBC[:, number, paths.classes]
        before = paths.forward(log_TBS)
        final = xp.where(paths.last[:, :, None] & paths.ends, before, -np.inf)
        total = xp.full(len(paths.classes), -np.inf)
        if len(final):
            largest = final.max((0, 2))
            possible = xp.isfinite(largest)
            shift = xp.where(possible, largest, 0)
            total = xp.log(xp.exp(final - shift[:, None]).sum((0, 2))) + shift
        possible = xp.isfinite(total)
        a.loss[...] = xp.where(possible, -total, 0)[:, None]
        if a.warp_ctc_grad is None:
            return
        log = before + paths.backward(log_TBS) - log_TBS
        often = xp.exp(log - xp.where(possible, total, np.inf)[:, None])
        slope = xp.exp(log_TBC)
        for place in range(log.shape[2]):
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
        d_logits.fill(0)
        slope = a.warp_ctc_grad.reshape(-1, classes)[rows]
        d_logits.reshape(-1, classes)[rows] = slope * d[number][:, None]

    return run
