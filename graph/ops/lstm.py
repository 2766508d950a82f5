"""LSTM over sequences of rows. Legend: N rows, B sequences, D cells, P projected to.

Gates stand in the order candidate, input, forget, output. ``Bias`` ends with the peepholes of input, forget and
output gate, if there are any. ``Batch`` results have their rows by time: those of all first steps, longest
sequence first, then those of all second steps, and so on.

The gradient of ``Cell`` counts; Paddle's gradient op has no slot for it.
"""

from __future__ import annotations

from .lod import like
from .operands import Input, Offsets, Operands, Output
from .registry import Inference, Op, define
from .samples import normal, offsets, sample
from .shapes import Check, Sized, in_sequences

ACTIVATIONS = ("sigmoid", "tanh", "relu", "identity")


def know_activations(*attributes: str) -> Check:
    """Return the check that attributes name activations of recurrent ops."""

    def check(op: Inference) -> None:
        for name in attributes:
            kind, known = op.attr(name), ", ".join(ACTIVATIONS)
            op.require(kind in ACTIVATIONS, f"{name} must be one of {known}, got {kind!r}")

    return check


def _check_bias(op: Inference) -> None:
    """Refuse a bias that does not end with as many peepholes as there are."""
    gates, peepholes = op.shape("Weight")[1], op.attr("use_peepholes")
    size = gates // 4 * 7 if peepholes else gates
    why = "4 gates and 3 peepholes" if peepholes else "4 gates (use_peepholes is False)"
    op.require(gates < 0 or op.shape("Bias") == (1, size), f"Bias must be [1, {size}]: {why}")


_CHECKS = (
    in_sequences("Input"),
    know_activations("gate_activation", "cell_activation", "candidate_activation"),
    _check_bias,
)


class LstmOperands(Operands):
    input: Input
    input_lod: Offsets
    h0: Input | None
    c0: Input | None
    weight: Input
    bias: Input
    use_peepholes: bool = True
    is_reverse: bool = False
    gate_activation: str = "sigmoid"
    cell_activation: str = "tanh"
    candidate_activation: str = "tanh"


class Lstm(LstmOperands):
    hidden: Output
    cell: Output
    batch_gate: Output
    batch_cell_pre_act: Output


class LstmGrad(Lstm, reads="* hidden cell batch_gate batch_cell_pre_act"):
    d_hidden: Input | None
    d_cell: Input | None
    d_input: Output | None
    d_h0: Output | None
    d_c0: Output | None
    d_weight: Output | None
    d_bias: Output | None


_X = {"Input": normal(5, 8), "Input@LOD": [offsets(2, 0, 3)], "Weight": normal(2, 8)}
_STATES = {"H0": normal(3, 2), "C0": normal(3, 2)}
define(
    "lstm",
    Lstm,
    Sized(
        "Input floats [N 4*D], Weight [D 4*D], Bias, H0 [sequences(Input) D], C0 [sequences(Input) D] "
        "-> Hidden [N D], Cell [N D], BatchGate [N 4*D], BatchCellPreAct [N D]",
        *_CHECKS,
    ),
    lod=like("Input", "Hidden", "Cell"),
    samples=(
        sample({**_X, "Bias": normal(1, 14)}),
        sample({**_X, **_STATES, "Bias": normal(1, 14)}, is_reverse=True),
        sample(
            {**_X, **_STATES, "Bias": normal(1, 8)},
            use_peepholes=False,
            gate_activation="identity",
            cell_activation="sigmoid",
            candidate_activation="sigmoid",
        ),
    ),
    refuses=(
        sample({**_X, "Bias": normal(1, 8)}),
        sample({**_X, "Bias": normal(1, 14)}, gate_activation="elu"),
        sample({**_X, "Bias": normal(1, 14), "Input@LOD": [offsets(1, 2), offsets(2, 0, 3)]}),
    ),
    slope=Op("lstm_grad", LstmGrad),
)


class Lstmp(LstmOperands):
    weight: Input
    proj_weight: Input
    bias: Input
    cell_clip: float = 0.0
    proj_clip: float = 0.0
    proj_activation: str = "tanh"
    projection: Output
    cell: Output
    batch_gate: Output
    batch_cell_pre_act: Output
    batch_hidden: Output


class LstmpGrad(
    Lstmp,
    reads="* projection cell batch_gate batch_cell_pre_act batch_hidden",
):
    d_projection: Input | None
    d_cell: Input | None
    d_input: Output | None
    d_h0: Output | None
    d_c0: Output | None
    d_weight: Output | None
    d_proj_weight: Output | None
    d_bias: Output | None


def _check_clips(op: Inference) -> None:
    for name in ("cell_clip", "proj_clip"):
        op.require(op.attr(name) >= 0, f"{name} must not be negative, got {op.attr(name)}")


_XP = {
    "Input": normal(5, 8),
    "Input@LOD": [offsets(2, 0, 3)],
    "Weight": normal(3, 8),
    "ProjWeight": normal(2, 3),
    "Bias": normal(1, 14),
}
define(
    "lstmp",
    Lstmp,
    Sized(
        "Input floats [N 4*D], Weight [P 4*D], ProjWeight [D P], Bias, "
        "H0 [sequences(Input) P], C0 [sequences(Input) D] "
        "-> Projection [N P], Cell [N D], BatchGate [N 4*D], BatchCellPreAct [N D], BatchHidden [N D]",
        *_CHECKS,
        know_activations("proj_activation"),
        _check_clips,
    ),
    lod=like("Input", "Projection", "Cell"),
    samples=(
        sample(_XP),
        sample(
            {**_XP, "H0": normal(3, 3), "C0": normal(3, 2)},
            is_reverse=True,
            cell_clip=0.4,
            proj_clip=0.3,
            proj_activation="identity",
        ),
    ),
    refuses=(sample(_XP, cell_clip=-1.0),),
    slope=Op("lstmp_grad", LstmpGrad),
)
