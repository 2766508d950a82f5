"""GRU over sequences: see ``graph/ops/gru.py`` for the legend.

What steps compute lies by time (``time_steps.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....graph.ops.gates import (
    GRU_STEPS,
    GruCells,
    gru_gates,
    gru_gates_back,
    gru_step,
    gru_step_back,
)
from ....graph.ops.gru import Gru, GruGrad
from ....graph.ops.operands import Array
from ...device.device import Device
from ..registry import Step, kernel
from .gates import CellSteps, Layout
from .time_steps import Factor, Means, TimeSteps, by_offsets, gather

LAYOUT = Layout(
    gates="update reset candidate",
    d_gates="d_update d_reset d_candidate",
    products="product_update product_reset",
)


def _weights(weight: Array) -> tuple[Any, Any]:
    """View [D, 2D] of update and reset gate, and [D, D] of the candidate (of a copy, if memory has gaps)."""
    width, flat = weight.shape[0], weight.reshape(-1)
    cut = 2 * width * width
    return flat[:cut].reshape(width, 2 * width), flat[cut:].reshape(width, width)


def _factors(
    dev: Device, a: Gru, rows: int, means: Means, turned: bool = False
) -> tuple[Factor, Factor]:
    """Return both weights, or their transposes, to multiply by."""
    both, width = a.weight, a.weight.shape[0]

    def factor(which: int, columns: int) -> Factor:
        sizes = width, columns
        return means.factor(dev, lambda: _weights(both)[which], sizes, rows, both.dtype, turned)

    return factor(0, 2 * width), factor(1, width)


def _cells(dev: Device, a: Gru, rows: int, means: Means) -> tuple[GruCells, Callable[..., None]]:
    kind = GruCells(a.gate_activation, a.activation, a.origin_mode)
    steps = [(step, kind) for step in GRU_STEPS]
    return kind, means.cells(dev, LAYOUT, a.weight.shape[0], rows, a, steps)


def _forward(dev: Device, a: Gru, means: Means) -> Step:
    xp, rows, width = dev.xp, len(a.input), a.weight.shape[0]
    count = a.input_lod[-1].shape[0] - 1
    steps_of = by_offsets(dev, "gru", "Input", a.input_lod[-1], rows, a.is_reverse)
    # First: where they lie, rows make no difference.
    pair, last = _factors(dev, a, count, means)
    kind, cells = _cells(dev, a, count, means)
    zeros, gates, after_reset, hidden = dev.scratch_in_one(
        a.input.dtype,
        (0 if a.h0 is not None else count, 2 * width),
        (0 if a.batch_gate is not None else rows, 3 * width),
        (0 if a.batch_reset_hidden_prev is not None else rows, width),
        (0 if a.batch_hidden is not None else rows, width),
    )
    gates = gates if a.batch_gate is None else a.batch_gate
    after_reset = after_reset if a.batch_reset_hidden_prev is None else a.batch_reset_hidden_prev
    hidden = hidden if a.batch_hidden is None else a.batch_hidden
    none = zeros.reshape(-1, width)

    def run() -> None:
        steps = steps_of()
        pair.renew()
        last.renew()
        zeros.fill(0)
        gather(xp, a.input, steps.rows, gates)
        if a.bias is not None:
            xp.add(gates, a.bias, gates)
        before = None if a.h0 is None else a.h0[steps.order]
        for begin, end in steps.spans:
            n, span = end - begin, slice(begin, end)
            now = none[:n] if before is None else before[:n]
            reset, result = after_reset[span], hidden[span]
            own = {"gates": gates[span], "before": now}
            products = zeros[:n] if before is None else pair(now)
            cells(gru_gates, kind, products=products, after_reset=reset, **own)
            product = none[:n] if before is None else last(reset)
            cells(gru_step, kind, product=product, hidden=result, **own)
            before = result
        if a.hidden is not None:
            a.hidden[steps.rows] = hidden

    return run


def _backward(dev: Device, a: GruGrad, means: Means) -> Step:
    xp, rows, width = dev.xp, len(a.input), a.weight.shape[0]
    count = a.input_lod[-1].shape[0] - 1
    steps_of = by_offsets(dev, "gru", "Input", a.input_lod[-1], rows, a.is_reverse)
    pair, last = _factors(dev, a, count, means, turned=True)
    kind, cells = _cells(dev, a, count, means)
    shapes = (count, width), (count, width), (rows, width), (rows, 3 * width)
    d_state, zeros, d_hidden, d_gates = dev.scratch_in_one(a.input.dtype, *shapes)

    def run() -> None:
        steps = steps_of()
        pair.renew()
        last.renew()
        gather(xp, a.d_hidden, steps.rows, d_hidden)
        h0 = zeros if a.h0 is None else a.h0[steps.order]
        zeros.fill(0)
        d_state.fill(0)
        for step in reversed(range(len(steps.spans))):
            begin, end = steps.spans[step]
            n, span = end - begin, slice(begin, end)
            before = a.batch_hidden[steps.spans[step - 1][0] :][:n] if step else h0[:n]
            d, d_now = d_state[:n], d_gates[span]
            own = {"gates": a.batch_gate[span], "before": before, "d_state": d, "d_gates": d_now}
            cells(gru_step_back, kind, d_hidden=d_hidden[span], **own)
            if not step and a.h0 is None:
                d_now[:, width : 2 * width] = 0
                continue
            d_after_reset = last(d_now[:, 2 * width :])
            cells(gru_gates_back, kind, d_after_reset=d_after_reset, **own)
            xp.add(d, pair(d_now[:, : 2 * width]), d)
        if a.d_input is not None:
            a.d_input[steps.rows] = d_gates
        if a.d_h0 is not None:
            a.d_h0[steps.order] = d_state
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


def register(on: Callable[[str], Callable[[Any], Any]], means: Means) -> None:
    """Register the kernels that are made of a library's products and steps."""

    @on("gru")
    def gru(dev: Device, a: Gru) -> Step:
        return _forward(dev, a, means)

    @on("gru_grad")
    def gru_grad(dev: Device, a: GruGrad) -> Step:
        return _backward(dev, a, means)


register(kernel, Means(Factor, CellSteps))
