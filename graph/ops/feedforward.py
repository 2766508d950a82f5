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
from .samples import normal, sample
from .shapes import Sized


def _operands(*lead: int, **more: Any) -> dict[str, Any]:
    weights = {"Linear1Weight": normal(3, 5), "Linear2Weight": normal(5, 4)}
    biases = {"Linear1Bias": normal(5), "Linear2Bias": normal(4)}
    return {"X": normal(*lead, 3), **weights, **biases, **more}


_NORM = {"Ln1Scale": normal(3), "Ln1Bias": normal(3)}
_NO_BIAS = {slot: d for slot, d in _operands(6).items() if "Bias" not in slot}


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
        sample(_operands(4)),
        sample(_operands(2, 3), x_num_col_dims=2, approximate=True),
        sample(_NO_BIAS),
        sample(
            _operands(2, 3, **_NORM, Residual=normal(2, 3, 4)),
            x_num_col_dims=2,
            pre_layer_norm=True,
        ),
        sample(_operands(5, Residual=normal(5, 4)), pre_layer_norm=True),
        sample(
            _operands(4),
            dropout1={**NO_DROPOUT, "is_test": True, "dropout_prob": 0.3},
            dropout2={**NO_DROPOUT, "is_test": True, "dropout_prob": 0.2},
        ),
    ),
    slope=Op(
        "fused_feedforward_grad",
        FusedFeedforwardGrad,
        by_place=draws_by_row,
        shapes_of=("Linear2Bias", "Residual"),
    ),
)
