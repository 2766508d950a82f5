"""Kernels of the metrics."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...device.device import Device
from ..registry import Step, kernel


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
    in_wrongs: list[Any],
    in_corrects: list[Any],
    in_mean_iou: list[Any],
    out_mean_iou: Any,
    out_wrong: Any,
    out_correct: Any,
    *,
    num_classes: int,
) -> Step:
    """Of each class: right answers over all that are labelled or answered so; the mean of those that occur.

    Counts and means of steps before are added.
    """
    xp = dev.xp

    def count() -> None:
        said, meant = predictions.reshape(-1), labels.reshape(-1)
        if xp is np:
            low, high = _bounds(said, meant)
            if low < 0 or high >= num_classes:
                raise ValueError(f"classes lie from {low} to {high}, num_classes is {num_classes}")
        right = (said == meant).astype(np.float64)
        hits = xp.bincount(meant, weights=right, minlength=num_classes)[:num_classes]
        misses = sum(
            xp.bincount(one, weights=1 - right, minlength=num_classes)[:num_classes]
            for one in (said, meant)
        )
        hits, misses = sum(in_corrects, hits), sum(in_wrongs, misses)
        there = hits + misses > 0
        shares = xp.where(there, hits / xp.maximum(hits + misses, 1), 0)
        out_mean_iou[...] = shares.sum() / xp.maximum(there.sum(), 1) + sum(in_mean_iou)
        out_wrong[...] = misses
        out_correct[...] = hits

    return count


@kernel("precision_recall", on=("numpy",))
def precision_recall(
    dev: Device,
    indices: Any,
    labels: Any,
    weights: Any,
    states_info: Any,
    batch_metrics: Any,
    accum_metrics: Any,
    accum_states_info: Any,
    *,
    class_number: int,
) -> Step:
    """Count true and false positives and negatives by class (weighted), and measure batch and total."""

    def count() -> None:
        said, meant = indices.reshape(-1), labels.reshape(-1)
        low, high = _bounds(said, meant)
        if low < 0 or high >= class_number:
            raise ValueError(f"classes lie from {low} to {high}, class_number is {class_number}")
        shares = np.ones(said.size) if weights is None else weights.reshape(-1).astype(np.float64)
        right = shares * (said == meant)
        hits, answered, labelled = (
            np.bincount(classes, weights=by, minlength=class_number)
            for classes, by in ((said, right), (said, shares), (meant, shares))
        )
        wrong, missed = answered - hits, labelled - hits
        states = np.stack([hits, wrong, shares.sum() - hits - wrong - missed, missed], 1)
        for metrics, before in ((batch_metrics, None), (accum_metrics, states_info)):
            total = states if before is None else states + before
            if metrics is not None:
                metrics[...] = _measures(total)
        if accum_states_info is not None:
            accum_states_info[...] = total

    return count


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


@kernel("positive_negative_pair", on=("numpy",))
def positive_negative_pair(
    dev: Device,
    score: Any,
    label: Any,
    query_id: Any,
    accumulate_positive_pair: Any,
    accumulate_negative_pair: Any,
    accumulate_neutral_pair: Any,
    weight: Any,
    positive_pair: Any,
    negative_pair: Any,
    neutral_pair: Any,
    *,
    column: int,
) -> Step:
    """Sum the weights of the pairs of a query whose labels differ: scores in that order, in another, equal.

    A pair weighs the mean of its rows. Pairs of equal scores count as negative, too, as in Paddle.
    """
    before = (accumulate_positive_pair, accumulate_negative_pair, accumulate_neutral_pair)
    outputs = (positive_pair, negative_pair, neutral_pair)

    def count() -> None:
        sums = np.zeros(3) if before[0] is None else np.array([float(one[0]) for one in before])
        scores, labels, queries = score[:, column], label[:, 0], query_id[:, 0]
        weights = np.ones(len(scores)) if weight is None else weight[:, 0].astype(np.float64)
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

    return count
