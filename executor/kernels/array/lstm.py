"""LSTM over sequences, with and without projection; see ``graph/ops/lstm.py`` for the legend.

Results of steps are ordered by time (``time_steps.py``). A step is one product of the previous step's results
for the sequences that go on, and passes over the gates. Gradients go back in time; those of weights are one
product over all rows at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ....graph.ops.gates import Cells, lstm_step, lstm_step_back
from ....graph.ops.lstm import Lstm, LstmGrad, LstmOperands, Lstmp, LstmpGrad
from ....graph.ops.operands import Array
from ...device.device import Device
from ...host.numbered import Fields
from ..registry import Step, kernel
from .gates import CellSteps, Layout, activate, times_slope
from .time_steps import Factor, Means, TimeSteps, by_offsets, gather

LAYOUT = Layout(
    row="bias",
    gates="candidate put keep out",
    d_gates="d_candidate d_put d_keep d_out",
    bias="b_candidate b_put b_keep b_out w_put w_keep w_out",
)


_Steps = tuple[Cells, Cells, Callable[..., None]]


def _cells(dev: Device, a: LstmOperands, means: Means) -> _Steps:
    """Return the kinds of cells that follow others, and of the first ones, and what computes their steps."""
    width, clip = a.bias.shape[1] // (7 if a.use_peepholes else 4), vars(a).get("cell_clip", 0.0)
    names = (a.gate_activation, a.cell_activation, a.candidate_activation)
    later, first = (Cells(*names, a.use_peepholes, before, float(clip)) for before in (True, False))
    steps = [(step, kind) for step in (lstm_step, lstm_step_back) for kind in (later, first)]
    rows = a.input_lod[-1].shape[0] - 1
    return later, first, means.cells(dev, LAYOUT, width, rows, a, steps)


def _factors(
    dev: Device, a: Lstm | Lstmp, means: Means, turned: bool = False
) -> tuple[Factor, ...]:
    """Return what steps multiply by: the weights, and those of a projection; or their transposes.

    Memory taken first lies where no number of rows moves it.
    """
    count = a.input_lod[-1].shape[0] - 1

    def factor(matrix: Array) -> Factor:
        return means.factor(dev, lambda: matrix, matrix.shape, count, matrix.dtype, turned)

    matrices = (a.weight, a.proj_weight) if isinstance(a, Lstmp) else (a.weight,)
    return tuple(factor(matrix) for matrix in matrices)


class _Projection(Fields):
    """Projects what goes out of a step, for the next one to read."""

    def __init__(self, dev: Device, a: Lstmp, factor: Factor) -> None:
        self._xp, self._factor = dev.xp, factor
        self._activation, self._clip = a.proj_activation, a.proj_clip

    def __call__(self, hidden: Array, projected: Array) -> None:
        xp, clip = self._xp, self._clip
        xp.copyto(projected, self._factor(hidden))
        activate(xp, self._activation, projected)
        if clip > 0:
            xp.clip(projected, -clip, clip, out=projected)


class _ProjectionGrad(Fields):
    """Takes gradients back through a projection, whose activation and clip are undone from its result."""

    def __init__(self, dev: Device, a: LstmpGrad, factor: Factor) -> None:
        self._xp, self._factor = dev.xp, factor
        self._activation, self._clip = a.proj_activation, a.proj_clip
        self._hidden, self._d_weight = a.batch_hidden, a.d_proj_weight
        rows, projected = a.projection.shape
        self._products = dev.scratch((rows, projected), a.input.dtype)
        self._work = dev.scratch((a.input_lod[-1].shape[0] - 1, projected), a.input.dtype)

    def __call__(self, d: Array, projected: Array, span: slice) -> Array:
        """Return the gradient of what goes out of a step; ``span`` are the rows of the step."""
        xp, d_product = self._xp, self._products[span]
        xp.copyto(d_product, d)
        if self._clip > 0:
            xp.multiply(d_product, xp.abs(projected) < self._clip, d_product)
        times_slope(xp, self._activation, projected, d_product, self._work[: len(d)])
        return self._factor(d_product)

    def finish(self) -> None:
        """Write the gradient of the weights, after all steps."""
        if self._d_weight is not None:
            self._xp.matmul(self._hidden.T, self._products, out=self._d_weight)


def _forward(dev: Device, op: str, a: Lstm | Lstmp, means: Means) -> Step:
    """Run all steps; ``fed_back`` is what a step reads of the one before."""
    xp, rows, width = dev.xp, len(a.input), a.weight.shape[1] // 4
    memory = partial(dev.array_or_scratch, dtype=a.input.dtype)
    factors, (later, first, step_of) = _factors(dev, a, means), _cells(dev, a, means)
    project = None
    if isinstance(a, Lstmp):
        hidden = memory(a.batch_hidden, (rows, width))
        fed_back, result = memory(None, (rows, a.weight.shape[0])), a.projection
        project = _Projection(dev, a, factors[1])
    else:
        fed_back = hidden = memory(None, (rows, width))
        result = a.hidden
    steps_of = by_offsets(dev, op, "Input", a.input_lod[-1], rows, a.is_reverse)
    gates = memory(a.batch_gate, (rows, 4 * width))
    active = memory(a.batch_cell_pre_act, (rows, width))
    cell = memory(None, (rows, width))

    def run() -> None:
        steps = steps_of()
        for factor in factors:
            factor.renew()
        bias = a.bias[0, : 4 * width]
        last = None if a.h0 is None else a.h0[steps.order]
        before = None if a.c0 is None else a.c0[steps.order]
        for begin, end in steps.spans:
            n, span = end - begin, slice(begin, end)
            now_gates = gates[span]
            gather(xp, a.input, steps.rows[span], now_gates)
            xp.add(now_gates, bias, now_gates)
            if last is not None:
                xp.add(now_gates, factors[0](last[:n]), now_gates)
            now = {} if before is None else {"before": before[:n]}
            step_of(
                lstm_step,
                later if now else first,
                gates=now_gates,
                cell=cell[span],
                active=active[span],
                hidden=hidden[span],
                bias=a.bias[0],
                **now,
            )
            if project is not None:
                project(hidden[span], fed_back[span])
            last, before = fed_back[span], cell[span]
        for target, by_time in ((a.cell, cell), (result, fed_back)):
            if target is not None:
                target[steps.rows] = by_time

    return run


def _backward(dev: Device, op: str, a: LstmGrad | LstmpGrad, means: Means) -> Step:
    """Go back through all steps; ``d_result`` is the gradient of what the op returns and a step reads."""
    xp, rows, width = dev.xp, len(a.input), a.cell.shape[1]
    factors = _factors(dev, a, means, turned=True)
    later, first, step_of = _cells(dev, a, means)
    through = None
    if isinstance(a, LstmpGrad):
        fed_back, d_result = a.projection, a.d_projection
        through = _ProjectionGrad(dev, a, factors[1])
    else:
        fed_back, d_result = a.hidden, a.d_hidden
    steps_of = by_offsets(dev, op, "Input", a.input_lod[-1], rows, a.is_reverse)
    count, like_cell, like_result = a.input_lod[-1].shape[0] - 1, (rows, width), fed_back.shape
    d_gates, cell, d_last, d_cell, by_time, into, d_cells = dev.scratch_in_one(
        a.input.dtype,
        *((rows, 4 * width), like_cell, (count, like_result[1]), (count, width), like_result),
        like_result if d_result is not None else (0,),
        like_cell if a.d_cell is not None else (0,),
    )

    def run() -> None:
        steps = steps_of()
        for factor in factors:
            factor.renew()
        gather(xp, a.cell, steps.rows, cell)
        gather(xp, fed_back, steps.rows, by_time)
        for source, target in ((d_result, into), (a.d_cell, d_cells)):
            if source is not None:
                gather(xp, source, steps.rows, target)
        c0 = None if a.c0 is None else a.c0[steps.order]
        d_last.fill(0)
        d_cell.fill(0)
        for step in reversed(range(len(steps.spans))):
            begin, end = steps.spans[step]
            n, span = end - begin, slice(begin, end)
            if d_result is not None:
                xp.add(d_last[:n], into[span], d_last[:n])
            if a.d_cell is not None:
                xp.add(d_cell[:n], d_cells[span], d_cell[:n])
            before = c0 if step == 0 else cell[steps.spans[step - 1][0] :]
            now = {} if before is None else {"before": before[:n]}
            d_now, d = d_gates[span], d_last[:n]
            if not now:
                d_now[:, 2 * width : 3 * width] = 0
            step_of(
                lstm_step_back,
                later if now else first,
                gates=a.batch_gate[span],
                cell=cell[span],
                active=a.batch_cell_pre_act[span],
                d_hidden=d if through is None else through(d, by_time[span], span),
                d_cell=d_cell[:n],
                d_gates=d_now,
                bias=a.bias[0],
                **now,
            )
            xp.copyto(d, factors[0](d_now))
        for result, d_state in ((a.d_h0, d_last), (a.d_c0, d_cell)):
            if result is not None:
                result[steps.order] = d_state
        _write_slopes(xp, a, steps, by_time, cell, d_gates)
        if through is not None:
            through.finish()

    return run


def _write_slopes(
    xp: Any, a: LstmGrad | LstmpGrad, steps: TimeSteps, fed_back: Array, cell: Array, d_gates: Array
) -> None:
    """Write the gradients of what all steps have in common, from those of the gates."""
    if a.d_input is not None:
        a.d_input[steps.rows] = d_gates
    if a.d_weight is not None:
        _weights(xp, a, steps, fed_back, d_gates)
    if a.d_bias is not None:
        _bias(xp, a, steps, cell, d_gates)


def _weights(
    xp: Any, a: LstmGrad | LstmpGrad, steps: TimeSteps, fed_back: Array, d_gates: Array
) -> None:
    """Multiply what each step read of the one before by the gradients of its gates."""
    first = len(steps.filled)
    xp.matmul(fed_back[steps.before].T, d_gates[first:], out=a.d_weight)
    if a.h0 is not None:
        xp.add(a.d_weight, a.h0[steps.filled].T @ d_gates[:first], a.d_weight)


def _bias(xp: Any, a: LstmGrad | LstmpGrad, steps: TimeSteps, cell: Array, d_gates: Array) -> None:
    """Add up the gradients of the gates, and, for the peepholes, their products with the cells."""
    width, first = cell.shape[1], len(steps.filled)
    d_bias: Any = a.d_bias
    xp.sum(d_gates, 0, out=d_bias[0, : 4 * width])
    if not a.use_peepholes:
        return
    d_put, d_keep, d_out = (d_gates[:, k * width : (k + 1) * width] for k in (1, 2, 3))
    before = cell[steps.before]
    for k, d_gate in enumerate((d_put, d_keep)):
        total = xp.einsum("nd,nd->d", before, d_gate[first:])
        if a.c0 is not None:
            total += xp.einsum("nd,nd->d", a.c0[steps.filled], d_gate[:first])
        d_bias[0, (4 + k) * width : (5 + k) * width] = total
    d_bias[0, 6 * width :] = xp.einsum("nd,nd->d", cell, d_out)


def register(on: Callable[[str], Callable[[Any], Any]], means: Means) -> None:
    """Register the kernels that are made of a library's products and steps."""

    @on("lstm")
    def lstm(dev: Device, a: Lstm) -> Step:
        return _forward(dev, "lstm", a, means)

    @on("lstm_grad")
    def lstm_grad(dev: Device, a: LstmGrad) -> Step:
        return _backward(dev, "lstm", a, means)

    @on("lstmp")
    def lstmp(dev: Device, a: Lstmp) -> Step:
        return _forward(dev, "lstmp", a, means)

    @on("lstmp_grad")
    def lstmp_grad(dev: Device, a: LstmpGrad) -> Step:
        return _backward(dev, "lstmp", a, means)


register(kernel, Means(Factor, CellSteps))
