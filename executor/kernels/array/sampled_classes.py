"""Losses that look at few of many classes: see ``graph/ops/sampled_classes.py`` for the legend."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....graph.ops.operands import Array
from ....graph.ops.sampled_classes import CUSTOM, LOG_UNIFORM, UNIFORM, Nce, SampleLogits
from ...device.device import Device
from ...device.philox import Stream
from ..registry import Step, kernel
from .draw import of_samples
from .indexing import check_classes
from .random import drawn_with
from .time_steps import on_host


def log_uniform(numbers: Any, span: int) -> Any:
    """Return classes v with probability log((v + 2) / (v + 1)) / log(span + 1), of numbers in [0, 1)."""
    classes = np.exp(numbers * math.log(span + 1)).astype(np.int64) - 1
    return np.minimum(classes, span - 1)


def _drawn(a: Nce, stream: Stream, rows: int) -> Any:
    """Return classes for each row, drawn one by one."""
    numbers = stream.uniform((rows, a.num_neg_samples), np.dtype(np.float64))
    if a.sampler == UNIFORM:
        return (numbers * a.num_total_classes).astype(np.int64)
    if a.sampler == LOG_UNIFORM:
        return log_uniform(numbers, a.num_total_classes - 1)
    sums = np.cumsum(on_host(a.custom_dist_probs), dtype=np.float64)
    return np.minimum(sums.searchsorted(numbers * sums[-1], "right"), a.num_total_classes - 1)


def _share(xp: Any, a: Nce, labels: Any) -> Any:
    """Return how likely classes are drawn at a time."""
    if a.sampler == CUSTOM and a.custom_dist_probs is not None:
        return a.custom_dist_probs[labels]
    if a.sampler == UNIFORM:
        return 1 / a.num_total_classes
    return xp.log1p(1 / (labels + 1.0)) / math.log(a.num_total_classes)


@kernel("nce")
def nce(dev: Device, a: Nce) -> Step:
    """Noise-contrastive estimation (Gutmann and Hyvärinen, 2010), its noise drawn for each row."""
    xp, rows, classes = dev.xp, len(a.input), a.num_total_classes
    label = a.label.reshape(rows, -1)
    true = label.shape[1]
    stream = of_samples(dev, a.seed)

    def run() -> None:
        check_classes("nce", "label", label, classes)
        fixed = list(a.custom_neg_classes)
        noise = np.tile(fixed, (rows, 1)) if fixed else _drawn(a, stream, rows)
        labels = xp.concatenate([label, xp.asarray(noise)], 1)
        scores = xp.einsum("nd,nkd->nk", a.input, a.weight[labels])
        if a.bias is not None:
            scores += a.bias.reshape(-1)[labels]
        s = xp.tanh(scores * 0.5) * 0.5 + 0.5
        p = _share(xp, a, labels) * a.num_neg_samples
        shares = s / (s + p)
        shares[:, true:] = (p / (s + p))[:, true:]
        cost = -xp.log(shares).sum(1, keepdims=True)
        if a.sample_weight is not None:
            cost *= a.sample_weight.reshape(-1, 1)
        a.cost[...] = cost
        for result, values in ((a.sample_logits, s), (a.sample_labels, labels)):
            if result is not None:
                result[...] = values

    return run


def unlike(stream: Stream, count: int, classes: int) -> tuple[Any, int]:
    """Draw different classes, log-uniform, until there are enough; return them, and how many draws it took."""
    rounds = 4
    while True:
        words = stream.words((count,), draws=rounds).reshape(-1)
        drawn = log_uniform(words * 2.0**-32, classes)
        _, first = np.unique(drawn, return_index=True)
        if len(first) >= count:
            places = np.sort(first)[:count]
            return drawn[places], int(places[-1]) + 1
        if rounds * count > 64 * classes * classes:
            # next to none of the rarest is left out by chance
            rest = np.setdiff1d(np.arange(classes), drawn)
            enough = np.concatenate([drawn[np.sort(first)], rest])[:count]
            return enough, drawn.size
        rounds *= 2


def _expected(labels: Any, count: int, tries: int, classes: int) -> Any:
    """Return how often classes are expected among the samples (Paddle's ``sampled_softmax``)."""
    share = np.log1p(1 / (labels + 1.0)) / math.log(classes + 1)
    return count * share if tries == count else -np.expm1(tries * np.log1p(-share))


@kernel("sample_logits")
def sample_logits(dev: Device, a: SampleLogits) -> Step:
    """Logits less the logarithm of how often their classes are expected; all rows have the same samples."""
    xp, (rows, classes), true = dev.xp, a.logits.shape, a.labels.shape[1]
    stream = drawn_with(dev, a.seed)
    number = xp.arange(rows)[:, None]

    def customized() -> tuple[Array, Array]:
        assert a.customized_samples is not None and a.customized_probabilities is not None
        return a.customized_samples, a.customized_probabilities

    def drawn() -> tuple[Any, Any]:
        noise, tries = unlike(stream, a.num_samples, classes)
        samples = np.concatenate([on_host(a.labels), np.tile(noise, (rows, 1))], 1)
        expected = _expected(samples, a.num_samples, tries, classes)
        return xp.asarray(samples), xp.asarray(expected.astype(a.logits.dtype))

    def run() -> None:
        check_classes("sample_logits", "label", a.labels, classes)
        samples, probabilities = customized() if a.use_customized_samples else drawn()
        check_classes("sample_logits", "sample of CustomizedSamples", samples, classes)
        logits = a.logits[number, samples]
        if a.remove_accidental_hits:
            hits = (samples[:, None, true:] == samples[:, :true, None]).any(1)
            logits[:, true:] -= hits * 1e20
        a.sampled_logits[...] = logits - xp.log(probabilities)
        a.sampled_labels[...] = xp.arange(true)
        for result, values in ((a.samples, samples), (a.probabilities, probabilities)):
            if result is not None:
                result[...] = values

    return run
