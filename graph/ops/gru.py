"""GRU over sequences of rows. Legend: N rows, B sequences, D wide.

Gates stand in the order update, reset, candidate. ``Weight`` is [D, 3D] by its size alone: its memory holds
[D, 2D] of update and reset gate, and behind that [D, D] of the candidate. ``Batch`` results have their rows by
time, see ``lstm.py``.
"""

from __future__ import annotations

from .lod import like
from .lstm import know_activations
from .operands import Input, Offsets, Operands, Output
from .registry import Op, define
from .samples import sample
from .shapes import Sized, in_sequences


class Gru(Operands):
    input: Input
    input_lod: Offsets
    h0: Input | None
    weight: Input
    activation: str = "tanh"
    gate_activation: str = "sigmoid"
    is_reverse: bool = False
    origin_mode: bool = False
    bias: Input | None
    batch_gate: Output
    batch_reset_hidden_prev: Output
    batch_hidden: Output
    hidden: Output


class GruGrad(Gru, reads="* batch_gate batch_reset_hidden_prev batch_hidden hidden"):
    d_hidden: Input
    d_input: Output | None
    d_h0: Output | None
    d_weight: Output | None
    d_bias: Output | None


_X = "Input [5 6], Input@LOD [2 0 3], Weight [2 6]"
define(
    "gru",
    Gru,
    Sized(
        "Input floats [N 3*D], Weight [D 3*D], Bias [1 3*D], H0 [sequences(Input) D] "
        "-> BatchGate [N 3*D], BatchResetHiddenPrev [N D], BatchHidden [N D], Hidden [N D]",
        in_sequences("Input"),
        *know_activations("activation", "gate_activation"),
    ),
    lod=like("Input", "Hidden"),
    samples=(
        sample(_X, "Bias [1 6]"),
        sample(_X, "H0 [3 2]", origin_mode=True, is_reverse=True),
        sample(_X, "H0 [3 2]", gate_activation="identity", activation="sigmoid"),
    ),
    slope=Op("gru_grad", GruGrad, shapes_of=("Input",)),
)
