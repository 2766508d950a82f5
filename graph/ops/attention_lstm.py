"""An LSTM whose steps attend to all rows of their sequence. Legend: N rows of width M, B sequences, D cells.

It has no gradient in Paddle, nor here. Gates stand in the order forget, input, output, candidate.
"""

from __future__ import annotations

from .lod import like
from .lstm import know_activations
from .operands import Input, Offsets, Operands, Output, named
from .registry import define
from .samples import sample
from .shapes import Sized, in_sequences, one_element


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


_X = "X [5 3], X@LOD [2 0 3], C0 [3 2], AttentionWeight [5 1], LSTMWeight [5 8], LSTMBias [1 8]"
_ALL = "H0 [3 2], AttentionBias [1 1], AttentionScalar [1 1], AttentionScalarBias [1 1]"
define(
    "attention_lstm",
    AttentionLstm,
    # AttentionedX is what X adds to the scores; AttentionFCOut has the attention in each sequence's last step.
    # Of the last step of all, LSTMX is what the cells get, and LSTMOUT the gates.
    Sized(
        "X [N M], C0 [sequences(X) D], H0 [sequences(X) D], "
        "AttentionWeight [M+D 1], LSTMWeight [D+M 4*D], LSTMBias [1 4*D] "
        "-> Hidden [N D], Cell [N D], AttentionedX [N 1], AttentionFCOut [N 1], LSTMX [1 M], LSTMOUT [1 4*D]",
        in_sequences("X"),
        "known(M) and known(D) and min(M, D) > 0; the widths of X and C0 must be known",
        one_element("AttentionBias", "AttentionScalar", "AttentionScalarBias"),
        *know_activations("gate_activation", "cell_activation", "candidate_activation"),
    ),
    lod=like("X", "Hidden", "Cell"),
    samples=(
        sample(_X),
        sample(_X, _ALL),
        sample(
            _X,
            _ALL,
            gate_activation="tanh",
            cell_activation="relu",
            candidate_activation="identity",
        ),
    ),
    refuses=(sample(_X, "AttentionBias [5 1]"),),
)
