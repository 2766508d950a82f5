"""Steps of recurrent nets as single ops."""

from __future__ import annotations

from typing import Literal

from . import formula as f
from .gates import ACTIVATIONS
from .lod import no_sequences
from .operands import Input, Operands, Output, named
from .registry import Op, define, slope
from .samples import sample
from .shapes import Sized

_sigmoid = ACTIVATIONS["sigmoid"]


class LstmUnit(Operands):
    x: Input
    c_prev: Input = named("C_prev")
    c: Output
    h: Output
    forget_bias: float = 0.0


def lstm_unit(a: LstmUnit) -> f.Results:
    """Zaremba, Sutskever and Vinyals' cell (arXiv 1409.2329); gates: input, forget, output, candidate."""
    width = a.c_prev.shape[1]
    i, forget, o, g = (a.x[:, k * width : (k + 1) * width] for k in range(4))
    c = _sigmoid(forget + a.forget_bias) * a.c_prev + _sigmoid(i) * f.tanh(g)
    return {"c": c, "h": _sigmoid(o) * f.tanh(c)}


define(
    "lstm_unit",
    LstmUnit,
    Sized("X [N 4*D], C_prev [N D] -> C as C_prev, H as C_prev"),
    lod=no_sequences,
    formula=lstm_unit,
    samples=(sample("X [3 8], C_prev [3 2]"), sample("X [2 4], C_prev [2 1]", forget_bias=1.0)),
    slope=slope("x c_prev c d_c d_h", "d_x d_c_prev"),
)

# by number
_ACTIVATIONS = [ACTIVATIONS[kind] for kind in ("identity", "sigmoid", "tanh", "relu")]


class GruUnit(Operands):
    input: Input
    hidden_prev: Input
    weight: Input
    bias: Input | None
    activation: Literal[0, 1, 2, 3] = 2  # see ``_ACTIVATIONS``
    gate_activation: Literal[0, 1, 2, 3] = 1
    origin_mode: bool = False
    gate: Output
    reset_hidden_prev: Output
    hidden: Output


class GruUnitGrad(GruUnit, reads="* gate reset_hidden_prev"):
    d_hidden: Input
    d_input: Output | None
    d_hidden_prev: Output | None
    d_weight: Output | None
    d_bias: Output | None


def gru_unit(a: GruUnit) -> f.Results:
    """Cho et al.'s cell (arXiv 1406.1078); gates: update, reset, candidate.

    Weight holds [D, 2 D] for update and reset, and behind it [D, D] for the candidate, of reset * HiddenPrev.
    """
    h, width = a.hidden_prev, a.hidden_prev.shape[1]
    act, gate_act = _ACTIVATIONS[a.activation], _ACTIVATIONS[a.gate_activation]
    weights, split = a.weight.reshape(-1), 2 * width * width
    sums = a.input if a.bias is None else a.input + a.bias
    gates = gate_act(sums[:, : 2 * width] + h @ weights[:split].reshape(width, 2 * width))
    update, reset = gates[:, :width], gates[:, width:]
    reset_hidden = reset * h
    candidate = act(sums[:, 2 * width :] + reset_hidden @ weights[split:].reshape(width, width))
    change = update * (h - candidate) if a.origin_mode else update * (candidate - h)
    return {
        "gate": f.concatenate([gates, candidate], 1),
        "reset_hidden_prev": reset_hidden,
        "hidden": change + (candidate if a.origin_mode else h),
    }


# By number: the gradient before an activation, from that behind it and what it returned.
_SLOPES = (
    lambda d, y: d,
    lambda d, y: d * y * (1 - y),
    lambda d, y: d * (1 - y * y),
    lambda d, y: f.where(y > 0, d, 0),
)


def gru_unit_grad(a: GruUnitGrad) -> f.Results:
    """From the gates that the op returned, whose products are not computed again."""
    h, width, d = a.hidden_prev, a.hidden_prev.shape[1], a.d_hidden
    gates, candidate = a.gate[:, : 2 * width], a.gate[:, 2 * width :]
    update, reset = gates[:, :width], gates[:, width:]
    weights, split = a.weight.reshape(-1), 2 * width * width
    old, new = (update, 1 - update) if a.origin_mode else (1 - update, update)
    d_update = d * (h - candidate if a.origin_mode else candidate - h)
    d_candidate = _SLOPES[a.activation](d * new, candidate)
    d_reset_hidden = d_candidate @ weights[split:].reshape(width, width).T
    d_gates = f.concatenate([d_update, d_reset_hidden * h], 1)
    d_gates = _SLOPES[a.gate_activation](d_gates, gates)
    d_hidden = d_gates @ weights[:split].reshape(width, 2 * width).T
    d_input = f.concatenate([d_gates, d_candidate], 1)
    d_weights = [(h.T @ d_gates).reshape(-1), (a.reset_hidden_prev.T @ d_candidate).reshape(-1)]
    return {
        "d_input": d_input,
        "d_hidden_prev": d * old + d_reset_hidden * reset + d_hidden,
        "d_weight": f.concatenate(d_weights).reshape(a.weight.shape),
        "d_bias": None if a.bias is None else d_input.sum(0, keepdims=True).reshape(a.bias.shape),
    }


_GRU = "Input [3 6], HiddenPrev [3 2], Weight [2 6]"

define(
    "gru_unit",
    GruUnit,
    Sized(
        "Input [N 3*D], HiddenPrev [N D], Weight [D 3*D], Bias [1 3*D] "
        "-> Gate as Input, ResetHiddenPrev as HiddenPrev, Hidden as HiddenPrev"
    ),
    lod=no_sequences,
    formula=gru_unit,
    samples=(
        sample(_GRU, "Bias [1 6]"),
        sample(_GRU, activation=3, gate_activation=1, origin_mode=True),
    ),
    slope=Op("gru_unit_grad", GruUnitGrad, formula=gru_unit_grad, shapes_of=("Input", "Bias")),
)
