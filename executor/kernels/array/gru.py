"""GRU over sequences: see ``graph/ops/gru.py`` for the legend.

What steps compute lies by time (``time_steps.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ....graph.ops.gru import Gru, GruGrad
from ....graph.ops.operands import Array
from ...device.device import Device
from ..registry import Step, kernel
from .gates import activate, times_slope
from .time_steps import Factor, Factors, TimeSteps, by_offsets, gather


def _weights(weight: Array) -> tuple[Any, Any]:
    """View [D, 2D] of update and reset gate, and [D, D] of the candidate (of a copy, if memory has gaps)."""
    width, flat = weight.shape[0], weight.reshape(-1)
    cut = 2 * width * width
    return flat[:cut].reshape(width, 2 * width), flat[cut:].reshape(width, width)


def _factors(
    dev: Device, a: Gru, rows: int, factors: Factors, turned: bool = False
) -> tuple[Factor, Factor]:
    """Return both weights, or their transposes, to multiply by."""

    both = a.weight

    def one(which: int, sizes: tuple[int, int]) -> Factor:
        def source() -> Any:
            weight = _weights(both)[which]
            return weight.T if turned else weight

        return factors(dev, source, sizes[::-1] if turned else sizes, rows, both.dtype)

    width = both.shape[0]
    return one(0, (width, 2 * width)), one(1, (width, width))


def _forward(dev: Device, a: Gru, factors: Factors) -> Step:
    """With update u, reset r and candidate c: (1 - u) h + u c, or u h + (1 - u) c in ``origin_mode``."""
    xp, rows, width = dev.xp, len(a.input), a.weight.shape[0]
    count = a.input_lod[-1].shape[0] - 1
    steps_of = by_offsets(dev, "gru", "Input", a.input_lod[-1], rows, a.is_reverse)
    like = partial(dev.scratch, dtype=a.input.dtype)
    pair, last = _factors(dev, a, count, factors)  # first: where they lie, rows make no difference
    gates = like((rows, 3 * width)) if a.batch_gate is None else a.batch_gate
    after_reset = a.batch_reset_hidden_prev
    after_reset = like((rows, width)) if after_reset is None else after_reset
    hidden = like((rows, width)) if a.batch_hidden is None else a.batch_hidden

    def run() -> None:
        steps = steps_of()
        pair.renew()
        last.renew()
        gather(xp, a.input, steps.rows, gates)
        if a.bias is not None:
            xp.add(gates, a.bias, gates)
        before = None if a.h0 is None else a.h0[steps.order]
        for begin, end in steps.spans:
            n, now, result = end - begin, gates[begin:end], hidden[begin:end]
            both, candidate = now[:, : 2 * width], now[:, 2 * width :]
            update, reset = both[:, :width], both[:, width:]
            if before is not None:
                xp.add(both, pair(before[:n]), both)
            activate(xp, a.gate_activation, both)
            if before is None:
                after_reset[begin:end] = 0
            else:
                xp.multiply(reset, before[:n], after_reset[begin:end])
                xp.add(candidate, last(after_reset[begin:end]), candidate)
            activate(xp, a.activation, candidate)
            old: Any = 0 if before is None else before[:n]
            first, second = (old, candidate) if a.origin_mode else (candidate, old)
            xp.subtract(first, second, result)
            xp.multiply(result, update, result)
            xp.add(result, second, result)
            before = result
        if a.hidden is not None:
            a.hidden[steps.rows] = hidden

    return run


def _backward(dev: Device, a: GruGrad, factors: Factors) -> Step:
    xp, rows, width = dev.xp, len(a.input), a.weight.shape[0]
    count = a.input_lod[-1].shape[0] - 1
    steps_of = by_offsets(dev, "gru", "Input", a.input_lod[-1], rows, a.is_reverse)
    pair, last = _factors(dev, a, count, factors, turned=True)
    shapes = (count, width), (count, width), (rows, width), (rows, 3 * width)
    carried, work, into, d_gates = dev.scratch_in_one(a.input.dtype, *shapes)

    def run() -> None:
        steps = steps_of()
        pair.renew()
        last.renew()
        gather(xp, a.d_hidden, steps.rows, into)
        h0 = None if a.h0 is None else a.h0[steps.order]
        carried.fill(0)
        for step in reversed(range(len(steps.spans))):
            begin, end = steps.spans[step]
            n, span = end - begin, slice(begin, end)
            d, some = carried[:n], work[:n]
            before = h0 if step == 0 else a.batch_hidden[steps.spans[step - 1][0] :]
            old: Any = 0 if before is None else before[:n]
            gate, d_gate = a.batch_gate[span], d_gates[span]
            update, reset, candidate = (gate[:, k * width : (k + 1) * width] for k in range(3))
            d_update, d_reset, d_candidate = (
                d_gate[:, k * width : (k + 1) * width] for k in range(3)
            )
            xp.add(d, into[span], d)
            first, second = (old, candidate) if a.origin_mode else (candidate, old)
            xp.subtract(first, second, d_update)
            xp.multiply(d_update, d, d_update)
            times_slope(xp, a.gate_activation, update, d_update, some)
            xp.multiply(d, update, d_candidate)  # of ``first``
            xp.subtract(d, d_candidate, d)  # of ``second``
            if a.origin_mode:
                xp.copyto(some, d_candidate)
                xp.copyto(d_candidate, d)
                xp.copyto(d, some)
            times_slope(xp, a.activation, candidate, d_candidate, some)
            if before is None:
                d_reset[...] = 0
            else:
                d_kept = last(d_candidate)
                xp.multiply(d_kept, old, d_reset)
                times_slope(xp, a.gate_activation, reset, d_reset, some)
                xp.multiply(d_kept, reset, some)
                xp.add(d, some, d)
                xp.add(d, pair(d_gate[:, : 2 * width]), d)
        if a.d_input is not None:
            a.d_input[steps.rows] = d_gates
        if a.d_h0 is not None:
            a.d_h0[steps.order] = carried
        if a.d_bias is not None:
            xp.sum(d_gates, 0, out=a.d_bias[0])
        if a.d_weight is not None:
            _slope_of_weight(xp, a, a.d_weight, steps, d_gates)

    return run


def _slope_of_weight(xp: Any, a: GruGrad, d_weight: Array, steps: TimeSteps, d_gates: Any) -> None:
    """Write the sum over all rows of what each gate read times its gradient."""
    width, first_rows = a.weight.shape[0], len(steps.filled)
    both = d_gates[:, : 2 * width]
    d_pair = a.batch_hidden[steps.before].T @ both[first_rows:]
    if a.h0 is not None:
        d_pair += a.h0[steps.filled].T @ both[:first_rows]
    d_last = a.batch_reset_hidden_prev.T @ d_gates[:, 2 * width :]
    parts = xp.concatenate([d_pair.reshape(-1), d_last.reshape(-1)])
    d_weight[...] = parts.reshape(d_weight.shape)


def register(on: Callable[[str], Callable[[Any], Any]], factors: Factors) -> None:
    """Register the kernels that are made of a library's products."""

    @on("gru")
    def gru(dev: Device, a: Gru) -> Step:
        return _forward(dev, a, factors)

    @on("gru_grad")
    def gru_grad(dev: Device, a: GruGrad) -> Step:
        return _backward(dev, a, factors)


register(kernel, Factor)
