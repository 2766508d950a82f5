"""An LSTM whose steps attend to all rows of their sequence. Legend: N rows of width M, B sequences, D cells.

It has no gradient in Paddle, nor here. Gates stand in the order forget, input, output, candidate.
"""

from __future__ import annotations

from collections.abc import Mapping

from .lod import like
from .lstm import check_activations, check_state
from .operands import Input, Offsets, Operands, Output, named
from .registry import Inference, Specs, define
from .rules import match, of_shape, one_level, product
from .samples import normal, offsets, sample


class AttentionLstm(Operands):
    x: Input
    x_lod: Offsets
    c0: Input
    h0: Input | None
    attention_weight: Input
    attention_bias: Input | None
    attention_scalar: Input | None
    attention_scalar_bias: Input | None
    lstm_weight: Input = named("LSTMWeight")
    lstm_bias: Input = named("LSTMBias")
    hidden: Output
    cell: Output
    attentioned_x: Output | None = named("AttentionedX")
    attention_fc_out: Output | None = named("AttentionFCOut")
    lstm_x: Output | None = named("LSTMX")
    lstm_out: Output | None = named("LSTMOUT")
    gate_activation: str = "sigmoid"
    cell_activation: str = "tanh"
    candidate_activation: str = "tanh"


def attention_lstm_shape(op: Inference) -> Mapping[str, Specs]:
    """Hidden and Cell [N, D] of X [N, M] and C0 [B, D].

    AttentionedX [N, 1] is what X adds to the scores; AttentionFCOut [N, 1] has the attention in each sequence's
    last step. Of the last step of all, LSTMX [1, M] is what the cells get, and LSTMOUT [1, 4D] the gates.
    """
    x = op.spec("X")
    sizes = match(op, X="N M", C0="B D")
    rows, width, cells = x.shape[0], sizes["M"], sizes["D"]
    op.require(width > 0 and cells > 0, "the widths of X and C0 must be known")
    op.sequences("X")
    one_level(op, "X")
    check_activations(op, "gate_activation", "cell_activation", "candidate_activation")
    for slot in ("C0", "H0"):
        check_state(op, slot, cells, "X")
    gates = (cells + width, 4 * cells)
    match(op, AttentionWeight=(width + cells, 1), LSTMWeight=gates, LSTMBias=(1, 4 * cells))
    for slot in ("AttentionBias", "AttentionScalar", "AttentionScalarBias"):
        fits = not op.has(slot) or product(op.shape(slot)) == 1
        op.require(fits, f"{slot} must have one element")
    results = {
        "Hidden": (rows, cells),
        "Cell": (rows, cells),
        "AttentionedX": (rows, 1),
        "AttentionFCOut": (rows, 1),
        "LSTMX": (1, width),
        "LSTMOUT": (1, 4 * cells),
    }
    return {slot: of_shape(shape, x) for slot, shape in results.items()}


_X = {
    "X": normal(5, 3),
    "X@LOD": [offsets(2, 0, 3)],
    "C0": normal(3, 2),
    "AttentionWeight": normal(5, 1),
    "LSTMWeight": normal(5, 8),
    "LSTMBias": normal(1, 8),
}
_ALL = {
    "H0": normal(3, 2),
    "AttentionBias": normal(1, 1),
    "AttentionScalar": normal(1, 1),
    "AttentionScalarBias": normal(1, 1),
}
define(
    "attention_lstm",
    AttentionLstm,
    attention_lstm_shape,
    lod=like("X", "Hidden", "Cell"),
    samples=(
        sample(_X),
        sample({**_X, **_ALL}),
        sample(
            {**_X, **_ALL},
            gate_activation="tanh",
            cell_activation="relu",
            candidate_activation="identity",
        ),
    ),
    refuses=(
        sample({**_X, "C0": normal(2, 2)}),
        sample({**_X, "H0": normal(3, 3)}),
        sample({**_X, "LSTMWeight": normal(4, 8)}),
        sample({**_X, "AttentionBias": normal(5, 1)}),
        sample(_X, gate_activation="elu"),
    ),
)
