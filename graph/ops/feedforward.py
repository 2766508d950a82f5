"""Two linear layers with an activation in between as one op, which does not keep the hidden layer.

[layer_norm ->] linear -> relu or gelu [-> dropout] -> linear [-> dropout] [-> + Residual]. Rows are computed
some at a time. The backward pass computes the normalised rows, the hidden layer before and after the activation
and both dropout masks again: one more product, against some hidden layers of memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from .attention import NO_DROPOUT, draws_by_row
from .operands import Input, Operands, Output
from .registry import Op, define
from .samples import sample
from .shapes import Sized

_LINEAR = "Linear1Weight [3 5], Linear2Weight [5 4]"
_BIASED = f"{_LINEAR}, Linear1Bias [5], Linear2Bias [4]"
_TESTED = {**NO_DROPOUT, "is_test": True}


# ``dropout1`` and ``dropout2`` hold a dropout's attributes and, as ``name``, the variable it wrote (see
# ``attention.py``); ``approximate`` is gelu's. X is flattened to rows after ``x_num_col_dims`` dimensions.
class FusedFeedforward(Operands):
    x: Input
    linear1_weight: Input
    linear1_bias: Input | None
    linear2_weight: Input
    linear2_bias: Input | None
    ln1_scale: Input | None
    ln1_bias: Input | None
    residual: Input | None
    x_num_col_dims: int = 1
    pre_layer_norm: bool = False
    ln1_epsilon: float = 1e-5
    act_method: Literal["relu", "gelu"] = "gelu"
    approximate: bool = False
    dropout1: Mapping[str, Any] = {}
    dropout2: Mapping[str, Any] = {}
    out: Output
    ln1_mean: Output | None
    ln1_variance: Output | None


class FusedFeedforwardGrad(FusedFeedforward, reads="* ln1_mean ln1_variance"):
    d_out: Input
    d_x: Output | None
    d_linear1_weight: Output | None
    d_linear1_bias: Output | None
    d_linear2_weight: Output | None
    d_linear2_bias: Output | None
    d_ln1_scale: Output | None
    d_ln1_bias: Output | None
    d_residual: Output | None


define(
    "fused_feedforward",
    FusedFeedforward,
    Sized(
        "X, Linear1Weight [W H], Linear1Bias [H], Linear2Weight [H D], Linear2Bias [D], Residual "
        "-> Out [*lead D], Ln1Mean*pre_layer_norm statistic [rows], "
        "Ln1Variance*pre_layer_norm statistic [rows]",
        "0 < x_num_col_dims < len(X); x_num_col_dims must lie inside X's dimensions",
        "lead, W = X[:x_num_col_dims], prod(X[x_num_col_dims:])",
        "rows = prod(lead)",
        "len(Residual) == len(lead) + 1; Residual must be like Out",
    ),
    by_place=draws_by_row,
    samples=(
        sample("X [4 3]", _BIASED),
        sample("X [2 3 3]", _BIASED, x_num_col_dims=2, approximate=True),
        sample("X [6 3]", _LINEAR),
        sample(
            "X [2 3 3]",
            _BIASED,
            "Ln1Scale [3], Ln1Bias [3], Residual [2 3 4]",
            x_num_col_dims=2,
            pre_layer_norm=True,
        ),
        sample("X [5 3]", _BIASED, "Residual [5 4]", pre_layer_norm=True),
        sample(
            "X [4 3]",
            _BIASED,
            dropout1={**_TESTED, "dropout_prob": 0.3},
            dropout2={**_TESTED, "dropout_prob": 0.2},
        ),
    ),
    slope=Op(
        "fused_feedforward_grad",
        FusedFeedforwardGrad,
        by_place=draws_by_row,
        shapes_of=("Linear2Bias", "Residual"),
    ),
)
