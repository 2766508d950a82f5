"""LSTM over sequences of rows. Legend: N rows, B sequences, D cells, P projected to.

Gates stand in the order candidate, input, forget, output. ``Bias`` ends with the peepholes of input, forget and
output gate, if there are any. ``Batch`` results have their rows by time: those of all first steps, longest
sequence first, then those of all second steps, and so on.

The gradient of ``Cell`` counts; Paddle's gradient op has no slot for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...strategies.types import FLOATS
from .lod import like
from .operands import Input, Offsets, Operands, Output
from .registry import Inference, Op, Spec, Specs, define
from .rules import merge_dims, of_shape, one_level
from .samples import normal, offsets, sample

ACTIVATIONS = ("sigmoid", "tanh", "relu", "identity")


def check_activations(op: Inference, *attributes: str) -> None:
    """Refuse attributes that name no activation of recurrent ops."""
    for name in attributes:
        kind = op.attr(name)
        op.require(
            kind in ACTIVATIONS, f"{name} must be one of {', '.join(ACTIVATIONS)}, got {kind!r}"
        )


def check_state(op: Inference, slot: str, width: int, x: str = "Input") -> None:
    """Refuse an initial state that is not [sequences of ``x``, width]."""
    if not op.has(slot):
        return
    shape, count = op.shape(slot), op.sequences(x)
    fits = len(shape) == 2 and shape[1] in (width, -1) and merge_dims(shape[0], count) is not None
    rows = "sequences" if count < 0 else str(count)
    op.require(fits, f"{slot} must be [{rows}, {width}]: a row for each sequence")


def check_sequences(op: Inference, slot: str, gates: int, width: int) -> Spec:
    """Refuse an input that is not [rows, gates * width] of floats with one level of sequences; return it."""
    x = op.spec(slot)
    op.require(x.dtype in FLOATS, f"{slot} must hold floats")
    op.sequences(slot)
    one_level(op, slot)
    op.require(
        len(x.shape) == 2 and x.shape[1] in (gates * width, -1),
        f"{slot} must be [N, {gates * width}]: {gates} times the width, {width}",
    )
    return x


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


def _check(op: Inference, width: int, fed_back: int) -> Spec:
    """Check what lstm and lstmp share; ``fed_back`` is the width of what a step reads of the one before."""
    x = check_sequences(op, "Input", 4, width)
    op.require(
        op.shape("Weight") == (fed_back, 4 * width),
        f"Weight must be [{fed_back}, {4 * width}], got {list(op.shape('Weight'))}",
    )
    peepholes = op.attr("use_peepholes")
    size = (7 if peepholes else 4) * width
    why = "4 gates and 3 peepholes" if peepholes else "4 gates (use_peepholes is False)"
    op.require(op.shape("Bias") == (1, size), f"Bias must be [1, {size}]: {why}")
    check_state(op, "H0", fed_back)
    check_state(op, "C0", width)
    return of_shape((x.shape[0], width), x)


def lstm_shape(op: Inference) -> Mapping[str, Specs]:
    """[N, D] of Input [N, 4D] and Weight [D, 4D]."""
    width = op.shape("Weight")[0]
    check_activations(op, "gate_activation", "cell_activation", "candidate_activation")
    cell = _check(op, width, width)
    gates = of_shape((cell.shape[0], 4 * width), cell)
    return {"Hidden": cell, "Cell": cell, "BatchGate": gates, "BatchCellPreAct": cell}


_X = {"Input": normal(5, 8), "Input@LOD": [offsets(2, 0, 3)], "Weight": normal(2, 8)}
_STATES = {"H0": normal(3, 2), "C0": normal(3, 2)}
define(
    "lstm",
    Lstm,
    lstm_shape,
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
        sample({**_X, "Bias": normal(1, 14), "Input": normal(5, 6)}),
        sample({**_X, "Bias": normal(1, 14), "H0": normal(2, 2), "C0": normal(2, 2)}),
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


def lstmp_shape(op: Inference) -> Mapping[str, Specs]:
    """Projection [N, P] of Input [N, 4D], Weight [P, 4D] and ProjWeight [D, P]."""
    projection = op.shape("ProjWeight")
    op.require(len(projection) == 2, "ProjWeight must be a matrix")
    width, fed_back = projection
    kinds = ("gate", "cell", "candidate", "proj")
    check_activations(op, *(f"{kind}_activation" for kind in kinds))
    for name in ("cell_clip", "proj_clip"):
        op.require(op.attr(name) >= 0, f"{name} must not be negative, got {op.attr(name)}")
    cell = _check(op, width, fed_back)
    rows = cell.shape[0]
    return {
        "Projection": of_shape((rows, fed_back), cell),
        "Cell": cell,
        "BatchGate": of_shape((rows, 4 * width), cell),
        "BatchCellPreAct": cell,
        "BatchHidden": cell,
    }


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
    lstmp_shape,
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
    refuses=(
        sample({**_XP, "ProjWeight": normal(3, 3)}),
        sample({**_XP, "Weight": normal(2, 8)}),
        sample({**_XP, "H0": normal(3, 2)}),
        sample(_XP, cell_clip=-1.0),
    ),
    slope=Op("lstmp_grad", LstmpGrad),
)
