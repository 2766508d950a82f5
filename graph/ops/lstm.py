"""LSTM over sequences of rows. Legend: N rows, B sequences, D cells, P projected to.

Gates stand in the order candidate, input, forget, output. ``Bias`` ends with the peepholes of input, forget and
output gate, if there are any. ``Batch`` results have their rows by time: those of all first steps, longest
sequence first, then those of all second steps, and so on.

The gradient of ``Cell`` counts; Paddle's gradient op has no slot for it.
"""

from __future__ import annotations

from .lod import like
from .operands import Input, Offsets, Operands, Output
from .registry import Op, define
from .samples import sample
from .shapes import Check, Sized, in_sequences

ACTIVATIONS = ("sigmoid", "tanh", "relu", "identity")


def know_activations(*attributes: str) -> list[str]:
    """Return the conditions that attributes name activations of recurrent ops."""
    names = tuple(ACTIVATIONS)
    return [f"{name} in {names}; {name} must be one of {', '.join(names)}" for name in attributes]


_CHECKS: tuple[str | Check, ...] = (
    in_sequences("Input"),
    *know_activations("gate_activation", "cell_activation", "candidate_activation"),
    "gates_and_peepholes = 7 if use_peepholes else 4",
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


_X = "Input [5 8], Input@LOD [2 0 3], Weight [2 8]"
_STATES = "H0 [3 2], C0 [3 2]"
define(
    "lstm",
    Lstm,
    Sized(
        "Input floats [N 4*D], Weight [D 4*D], Bias [1 gates_and_peepholes*D], "
        "H0 [sequences(Input) D], C0 [sequences(Input) D] "
        "-> Hidden [N D], Cell [N D], BatchGate [N 4*D], BatchCellPreAct [N D]",
        *_CHECKS,
    ),
    lod=like("Input", "Hidden", "Cell"),
    samples=(
        sample(_X, "Bias [1 14]"),
        sample(_X, _STATES, "Bias [1 14]", is_reverse=True),
        sample(
            _X,
            _STATES,
            "Bias [1 8]",
            use_peepholes=False,
            gate_activation="identity",
            cell_activation="sigmoid",
            candidate_activation="sigmoid",
        ),
    ),
    refuses=(sample(_X, "Bias [1 14], Input@LOD [1 2] [2 0 3]"),),
    slope=Op("lstm_grad", LstmGrad, shapes_of=("Input",)),
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


class LstmpGrad(Lstmp, reads="* projection cell batch_gate batch_cell_pre_act batch_hidden"):
    d_projection: Input | None
    d_cell: Input | None
    d_input: Output | None
    d_h0: Output | None
    d_c0: Output | None
    d_weight: Output | None
    d_proj_weight: Output | None
    d_bias: Output | None


_XP = "Input [5 8], Input@LOD [2 0 3], Weight [3 8], ProjWeight [2 3], Bias [1 14]"
define(
    "lstmp",
    Lstmp,
    Sized(
        "Input floats [N 4*D], Weight [P 4*D], ProjWeight [D P], Bias [1 gates_and_peepholes*D], "
        "H0 [sequences(Input) P], C0 [sequences(Input) D] "
        "-> Projection [N P], Cell [N D], BatchGate [N 4*D], BatchCellPreAct [N D], BatchHidden [N D]",
        *_CHECKS,
        *know_activations("proj_activation"),
        "cell_clip >= 0",
        "proj_clip >= 0",
    ),
    lod=like("Input", "Projection", "Cell"),
    samples=(
        sample(_XP),
        sample(
            _XP,
            "H0 [3 3], C0 [3 2]",
            is_reverse=True,
            cell_clip=0.4,
            proj_clip=0.3,
            proj_activation="identity",
        ),
    ),
    slope=Op("lstmp_grad", LstmpGrad, shapes_of=("Input",)),
)
