"""Kernels of the metrics."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.ops.metric import Accuracy, Auc, MeanIou, PositiveNegativePair, PrecisionRecall
from ...device.device import Device
from ..registry import Step, each_step, kernel


@each_step("accuracy")
def accuracy(a: Accuracy) -> None:
    """The share of samples whose label is among their guesses."""
    hits = (a.indices == a.label).any(axis=1).sum()
    a.correct[...] = hits
    a.total[...] = len(a.label)
    a.accuracy[...] = hits / max(len(a.label), 1)


@kernel("auc")
def auc(dev: Device, a: Auc) -> Step:
    """The area under the curve of true over false positives, from counts by threshold.

    With ``slide_steps`` the counts are those of so many last steps: one bucket of counts for each, one for
    their sum, and the number of steps so far.
    """
    xp, length = dev.xp, a.num_thresholds + 1
    kinds = ((a.stat_pos, a.stat_pos_out), (a.stat_neg, a.stat_neg_out))

    def count() -> None:
        scores = a.predict[:, -1]
        if xp is np and not (scores >= 0).all() & (scores <= 1).all():
            raise ValueError("Predict must hold probabilities: numbers from 0 to 1")
        bins = xp.clip(scores * a.num_thresholds, 0, a.num_thresholds).astype(np.int64)
        positive = a.label.reshape(-1) != 0
        totals = []
        for (source, target), counted in zip(kinds, (positive, ~positive), strict=True):
            new = xp.bincount(bins, weights=counted.astype(np.float64), minlength=length)
            new = new.astype(np.int64)
            if target is not source:
                target[...] = source
            totals.append(_slide(target.reshape(-1), new, length, a.slide_steps))
        trues, falses = (xp.cumsum(total[::-1]) for total in totals)
        area = (xp.diff(falses, prepend=0) * (2 * trues - xp.diff(trues, prepend=0))).sum() / 2
        both = trues[-1] * falses[-1] > 0
        most = xp.where(both, trues[-1], 1), xp.where(both, falses[-1], 1)
        a.auc[...] = area / most[0] / most[1]

    return count


def _slide(counts: Any, new: Any, length: int, steps: int) -> Any:
    """Take a step's counts in, in place of the oldest; return the sums."""
    if not steps:
        counts[:length] += new
        return counts[:length]
    oldest = int(counts[-1]) % steps
    bucket = counts[oldest * length : (oldest + 1) * length]
    total = counts[steps * length : (steps + 1) * length]
    total += new - bucket
    bucket[...] = new
    counts[-1] += 1
    return total


@kernel("mean_iou")
def mean_iou(dev: Device, a: MeanIou) -> Step:
    """Of each class: right answers over all that are labelled or answered so; the mean of those that occur.

    Counts and means of steps before are added.
    """
    xp = dev.xp

    def count() -> None:
        said, meant = a.predictions.reshape(-1), a.labels.reshape(-1)
        if xp is np:
            low, high = _bounds(said, meant)
            if low < 0 or high >= a.num_classes:
                raise ValueError(
                    f"classes lie from {low} to {high}, num_classes is {a.num_classes}"
                )
        right = (said == meant).astype(np.float64)
        hits = xp.bincount(meant, weights=right, minlength=a.num_classes)[: a.num_classes]
        misses = sum(
            xp.bincount(labels, weights=1 - right, minlength=a.num_classes)[: a.num_classes]
            for labels in (said, meant)
        )
        hits, misses = sum(a.in_corrects or [], hits), sum(a.in_wrongs or [], misses)
        there = hits + misses > 0
        shares = xp.where(there, hits / xp.maximum(hits + misses, 1), 0)
        a.out_mean_iou[...] = shares.sum() / xp.maximum(there.sum(), 1) + sum(a.in_mean_iou or [])
        a.out_wrong[...] = misses
        a.out_correct[...] = hits

    return count


@each_step("precision_recall", on=("numpy",))
def precision_recall(a: PrecisionRecall) -> None:
    """Count true and false positives and negatives by class (weighted), and measure batch and total."""
    said, meant = a.indices.reshape(-1), a.labels.reshape(-1)
    low, high = _bounds(said, meant)
    if low < 0 or high >= a.class_number:
        raise ValueError(f"classes lie from {low} to {high}, class_number is {a.class_number}")
    shares = np.ones(said.size) if a.weights is None else a.weights.reshape(-1).astype(np.float64)
    right = shares * (said == meant)
    hits, answered, labelled = (
        np.bincount(classes, weights=by, minlength=a.class_number)
        for classes, by in ((said, right), (said, shares), (meant, shares))
    )
    wrong, missed = answered - hits, labelled - hits
    states = np.stack([hits, wrong, shares.sum() - hits - wrong - missed, missed], 1)
    for metrics, before in ((a.batch_metrics, None), (a.accum_metrics, a.states_info)):
        total = states if before is None else states + before
        if metrics is not None:
            metrics[...] = _measures(total)
    if a.accum_states_info is not None:
        a.accum_states_info[...] = total


def _bounds(*arrays: Any) -> tuple[int, int]:
    filled = [array for array in arrays if array.size]
    return (
        min((int(array.min()) for array in filled), default=0),
        max((int(array.max()) for array in filled), default=0),
    )


def _measures(states: Any) -> list[float]:
    """Return precision, recall and F1, as means over classes and of all classes' counts together.

    Without a positive that was said (meant), the precision (recall) is 1.
    """
    measures: list[float] = []
    for counts in (states, states.sum(0, keepdims=True)):
        hits, wrong, _, missed = counts.T
        precision, recall = (
            float(np.where(hits + others > 0, hits / np.maximum(hits + others, 1e-300), 1).mean())
            for others in (wrong, missed)
        )
        both = precision + recall
        measures += [precision, recall, 2 * precision * recall / both if both > 0 else 0.0]
    return measures


@each_step("positive_negative_pair", on=("numpy",))
def positive_negative_pair(a: PositiveNegativePair) -> None:
    """Sum the weights of the pairs of a query whose labels differ: scores in that order, in another, equal.

    A pair weighs the mean of its rows. Pairs of equal scores count as negative, too, as in Paddle.
    """
    before = (a.accumulate_positive_pair, a.accumulate_negative_pair, a.accumulate_neutral_pair)
    outputs = (a.positive_pair, a.negative_pair, a.neutral_pair)
    sums = np.array([0.0 if state is None else float(state[0]) for state in before])
    scores, labels, queries = a.score[:, a.column], a.label[:, 0], a.query_id[:, 0]
    weights = np.ones(len(scores)) if a.weight is None else a.weight[:, 0].astype(np.float64)
    for query in np.unique(queries):
        rows = np.flatnonzero(queries == query)
        first, second = (rows[k] for k in np.triu_indices(len(rows), 1))
        d_score, d_label = (v[first] - v[second] for v in (scores, labels))
        by = (weights[first] + weights[second]) / 2 * (d_label != 0)
        agree = d_score * d_label > 0
        sums += [by[agree].sum(), by[~agree].sum(), by[d_score == 0].sum()]
    for out, total in zip(outputs, sums, strict=True):
        if out is not None:
            out[...] = total
