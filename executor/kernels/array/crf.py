"""Chains of tags, all sequences a step at a time: see ``graph/ops/crf.py`` for the legend.

Sums over all chains are of powers that are scaled to 1 in each row (Rabiner, 1989).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....graph.ops.crf import CrfDecoding, LinearChainCrf, LinearChainCrfGrad
from ....graph.ops.operands import Array
from ....strategies.errors import SequenceError
from ...device.device import Device
from ..registry import Step, kernel
from .indexing import check_classes
from .time_steps import TimeSteps, by_offsets, on_host


def steps_of(dev: Device, op: str, a: LinearChainCrf | CrfDecoding) -> Callable[[], TimeSteps]:
    """Return the order of rows by time, of LoD sequences or of a padded batch."""
    x, length = a.emission, a.length
    if length is None:
        return by_offsets(dev, op, "Emission", a.emission_lod[-1], len(x))

    def padded() -> TimeSteps:
        counts, steps = on_host(length).reshape(-1), x.shape[1]
        wrong = counts[(counts < 0) | (counts > steps)]
        if wrong.size:
            raise SequenceError(f"{op}: Length {wrong[0]} is outside the {steps} steps of Emission")
        begins = np.arange(len(counts)) * steps
        return TimeSteps(dev.xp, begins, counts.astype(np.int64), 1, False)

    return padded


def tags_of(label: Array, rows: Array, count: int) -> Any:
    """Return the labels of rows.

    Raises:
        InvalidValue: one is no tag.
    """
    tags = label.reshape(-1)[rows]
    check_classes("linear_chain_crf", "label", tags, count, "tags of Emission")
    return tags


@kernel("linear_chain_crf")
def linear_chain_crf(dev: Device, a: LinearChainCrf) -> Step:
    xp, count = dev.xp, a.emission.shape[-1]
    steps_now = steps_of(dev, "linear_chain_crf", a)
    x_NC = a.emission.reshape(-1, count)

    def run() -> None:
        steps = steps_now()
        rows = steps.rows
        largest = x_NC.max(1, keepdims=True) if len(x_NC) else x_NC[:, :1]
        all_powers = xp.exp(x_NC - largest)
        x, largest, powers = x_NC[rows], largest[rows], all_powers[rows]
        transition = xp.exp(a.transition)
        alpha, scale = xp.empty_like(x), xp.empty_like(largest)
        before = None
        for begin, end in steps.spans:
            prior = transition[:1] if before is None else before[: end - begin] @ transition[2:]
            before = prior * powers[begin:end]
            scale[begin:end] = before.sum(1, keepdims=True)
            before = before / scale[begin:end]
            alpha[begin:end] = before
        order, final = steps.filled, steps.final
        loss = xp.zeros(a.log_likelihood.shape[0], x.dtype)
        xp.add.at(loss, steps.sequence, (xp.log(scale) + largest)[:, 0])
        loss[order] += xp.log(alpha[final] @ transition[1])
        tags = tags_of(a.label, rows, count)
        xp.add.at(loss, steps.sequence, -x[xp.arange(len(x)), tags])
        first = len(order)
        loss[order] -= a.transition[0, tags[:first]] + a.transition[1, tags[final]]
        moves = a.transition[tags[steps.before] + 2, tags[first:]]
        xp.add.at(loss, steps.sequence[first:], -moves)
        a.log_likelihood[...] = loss[:, None]
        if a.alpha is not None:
            a.alpha.fill(0)
            a.alpha.reshape(-1, count)[rows] = alpha
        if a.emission_exps is not None:
            a.emission_exps[...] = all_powers.reshape(a.emission_exps.shape)
        if a.transition_exps is not None:
            a.transition_exps[...] = transition

    return run


@kernel("linear_chain_crf_grad")
def linear_chain_crf_grad(dev: Device, a: LinearChainCrfGrad) -> Step:
    """How likely each tag and pair of tags is, less those of the labels."""
    xp, count = dev.xp, a.emission.shape[-1]
    steps_now = steps_of(dev, "linear_chain_crf", a)

    def run() -> None:
        steps = steps_now()
        rows, first = steps.rows, len(steps.filled)
        alpha, powers = (v.reshape(-1, count)[rows] for v in (a.alpha, a.emission_exps))
        transition = a.transition_exps
        beta = xp.empty_like(alpha)
        beta[steps.final] = transition[1]
        for step in reversed(range(len(steps.spans) - 1)):
            begin = steps.spans[step][0]
            after, end = steps.spans[step + 1]
            coming = beta[after:end] * powers[after:end]
            coming /= coming.sum(1, keepdims=True)
            beta[begin : begin + end - after] = coming @ transition[2:].T
        d = a.d_log_likelihood.reshape(-1)[steps.sequence][:, None]
        tags = tags_of(a.label, rows, count)
        d_x = alpha * beta
        d_x *= d / d_x.sum(1, keepdims=True)
        d_x[xp.arange(len(rows)), tags] -= d[:, 0]
        if a.d_emission is not None:
            a.d_emission.fill(0)
            a.d_emission.reshape(-1, count)[rows] = d_x
        if a.d_transition is None:
            return
        a.d_transition[0] = d_x[:first].sum(0)
        a.d_transition[1] = d_x[steps.final].sum(0)
        earlier, later = alpha[steps.before], (powers * beta)[first:]
        later *= d[first:] / ((earlier @ transition[2:]) * later).sum(1, keepdims=True)
        pairs = (earlier.T @ later) * transition[2:]
        xp.add.at(pairs, (tags[steps.before], tags[first:]), -d[first:, 0])
        a.d_transition[2:] = pairs

    return run


@kernel("crf_decoding")
def crf_decoding(dev: Device, a: CrfDecoding) -> Step:
    """The chain with the largest score (Viterbi, 1967); with Label, where it is the same: 1, else 0."""
    xp, count = dev.xp, a.emission.shape[-1]
    steps_now = steps_of(dev, "crf_decoding", a)
    x_NC = a.emission.reshape(-1, count)

    def run() -> None:
        steps = steps_now()
        x = x_NC[steps.rows]
        score, before = xp.empty_like(x), 0
        for step, (begin, end) in enumerate(steps.spans):
            earlier = a.transition[0]
            if step:
                ways = score[before : before + end - begin, :, None] + a.transition[2:]
                earlier = ways.max(1)
            score[begin:end], before = earlier + x[begin:end], begin
        path, follows = xp.empty(len(x), np.int64), xp.ascontiguousarray(a.transition[2:].T)
        tag = path[:0]  # of the step behind, of sequences that go on so far
        for begin, end in reversed(steps.spans):
            ways = score[begin:end] + a.transition[1]
            ways[: len(tag)] = score[begin : begin + len(tag)] + follows[tag]
            tag = path[begin:end] = ways.argmax(1)
        if a.label is not None:
            path = path == a.label.reshape(-1)[steps.rows]
        a.viterbi_path.fill(0)
        a.viterbi_path.reshape(-1)[steps.rows] = path

    return run
