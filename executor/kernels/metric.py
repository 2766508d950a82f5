"""Kernels of the metrics."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..device import Device
from .registry import Step, kernel


@kernel("accuracy")
def accuracy(
    dev: Device, indices: Any, label: Any, accuracy: Any, correct: Any, total: Any
) -> Step:
    """The share of samples whose label is among their guesses."""

    def count() -> None:
        hits = (indices == label).any(axis=1).sum()
        correct[...] = hits
        total[...] = len(label)
        accuracy[...] = hits / max(len(label), 1)

    return count


@kernel("auc")
def auc(
    dev: Device,
    predict: Any,
    label: Any,
    stat_pos: Any,
    stat_neg: Any,
    auc: Any,
    stat_pos_out: Any,
    stat_neg_out: Any,
    *,
    num_thresholds: int,
    slide_steps: int,
) -> Step:
    """The area under the curve of true over false positives, from counts by threshold.

    With ``slide_steps`` the counts are those of so many last steps: one bucket of counts for each, one for
    their sum, and the number of steps so far.
    """
    xp, length = dev.xp, num_thresholds + 1
    kinds = ((stat_pos, stat_pos_out), (stat_neg, stat_neg_out))

    def count() -> None:
        scores = predict[:, -1]
        if xp is np and not (scores >= 0).all() & (scores <= 1).all():
            raise ValueError("Predict must hold probabilities: numbers from 0 to 1")
        bins = xp.clip(scores * num_thresholds, 0, num_thresholds).astype(np.int64)
        positive = label.reshape(-1) != 0
        totals = []
        for (given, held), counted in zip(kinds, (positive, ~positive), strict=True):
            new = xp.bincount(bins, weights=counted.astype(np.float64), minlength=length)
            new = new.astype(np.int64)
            if held is not given:
                held[...] = given
            totals.append(_slide(held.reshape(-1), new, length, slide_steps))
        trues, falses = (xp.cumsum(total[::-1]) for total in totals)
        area = (xp.diff(falses, prepend=0) * (2 * trues - xp.diff(trues, prepend=0))).sum() / 2
        both = trues[-1] * falses[-1] > 0
        most = xp.where(both, trues[-1], 1), xp.where(both, falses[-1], 1)
        auc[...] = area / most[0] / most[1]

    return count


def _slide(held: Any, new: Any, length: int, steps: int) -> Any:
    """Take a step's counts in, in place of the oldest; return the sums."""
    if not steps:
        held += new
        return held
    oldest = int(held[-1]) % steps
    bucket = held[oldest * length : (oldest + 1) * length]
    total = held[steps * length : (steps + 1) * length]
    total += new - bucket
    bucket[...] = new
    held[-1] += 1
    return total


@kernel("mean_iou")
def mean_iou(
    dev: Device,
    predictions: Any,
    labels: Any,
    out_mean_iou: Any,
    out_wrong: Any,
    out_correct: Any,
    *,
    num_classes: int,
) -> Step:
    """Of each class: right answers over all that are labelled or answered so; the mean of those that occur."""
    xp = dev.xp

    def count() -> None:
        said, meant = predictions.reshape(-1), labels.reshape(-1)
        if xp is np and said.size:
            low, high = min(said.min(), meant.min()), max(said.max(), meant.max())
            if low < 0 or high >= num_classes:
                raise ValueError(f"classes lie from {low} to {high}, num_classes is {num_classes}")
        right = (said == meant).astype(np.float64)
        hits = xp.bincount(meant, weights=right, minlength=num_classes)[:num_classes]
        misses = sum(
            xp.bincount(one, weights=1 - right, minlength=num_classes)[:num_classes]
            for one in (said, meant)
        )
        there = hits + misses > 0
        shares = xp.where(there, hits / xp.maximum(hits + misses, 1), 0)
        out_mean_iou[...] = shares.sum() / xp.maximum(there.sum(), 1)
        out_wrong[...] = misses
        out_correct[...] = hits

    return count
