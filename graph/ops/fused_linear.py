"""A matrix product with a bias row and an activation: Paddle 2.x's fused_gemm_epilogue.

X is a matrix after ``x_num_col_dims`` dimensions (-1: all but the last; not in Paddle), Y is a matrix.
``ReserveSpace`` is what the activation was applied to, kept where its slope is a function of that (gelu);
that of relu is a function of the result, which the gradient op reads as ``Out``. ``approximate`` (not in
Paddle) chooses gelu's tanh form. The gradient op takes the gradient through the activation first. Where X is
gelu's tanh form of something, it may take DX through that, too (``activation_below``); ``Below`` is what gelu
was applied to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from .operands import Binary, Input, Operands, Output, named
from .registry import Grad, define
from .samples import sample
from .shapes import Sized

GEMM = "fused_gemm_epilogue"


def leading(rank: int, x_num_col_dims: int) -> int:
    """Return how many dimensions of X are rows of the matrix."""
    return rank - 1 if x_num_col_dims == -1 else x_num_col_dims


def backward_attrs(forward: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of the gradient op."""
    act = forward["activation"]
    attrs = {k: forward[k] for k in ("trans_x", "trans_y", "approximate", "x_num_col_dims")}
    name = "none" if act == "none" else f"{act}_grad"
    return {**attrs, "activation_grad": name, "activation_below": "none"}


_ROW = "X [3 4], Y [4 5], Bias [5]"


class FusedGemmEpilogue(Binary):
    bias: Input
    reserve_space: Output | None
    trans_x: bool = False
    trans_y: bool = False
    approximate: bool = False
    x_num_col_dims: int = -1
    activation: Literal["none", "relu", "gelu"] = "none"


class FusedGemmEpilogueGrad(Operands):
    d_out: Input = named("DOut")
    x: Input
    y: Input
    out: Input | None
    reserve_space: Input | None
    below: Input | None
    dx: Output | None = named("DX")
    dy: Output | None = named("DY")
    d_bias: Output | None = named("DBias")
    trans_x: bool = False
    trans_y: bool = False
    approximate: bool = False
    x_num_col_dims: int = -1
    activation_grad: str = "none"
    activation_below: Literal["none", "gelu_grad"] = "none"


define(
    GEMM,
    FusedGemmEpilogue,
    Sized(
        "X, Y as X [A B], Bias as X [width] -> Out [*lead width], ReserveSpace*reserved [*lead width]",
        "columns = len(X) - 1 if x_num_col_dims == -1 else x_num_col_dims",
        "0 < columns < len(X); x_num_col_dims must lie inside X's dimensions",
        "not trans_x or len(X) == 2; trans_x takes a matrix X",
        "len(Y) == 2; Y must be a matrix",
        "height, width = Y[::-1] if trans_y else Y",
        "lead, inner = (X[1:], X[0]) if trans_x else (X[:columns], prod(X[columns:]))",
        "inner == height; inner sizes differ",
        "reserved = activation == 'gelu'",
    ),
    grad=Grad(
        f"{GEMM}_grad",
        {"DOut": "Out@GRAD", "X": "X", "Y": "Y", "Out": "Out", "ReserveSpace": "ReserveSpace"},
        {"DX": "X@GRAD", "DY": "Y@GRAD", "DBias": "Bias@GRAD"},
        attrs=backward_attrs,
    ),
    samples=(
        sample(_ROW),
        sample(_ROW, activation="relu"),
        sample(_ROW, activation="gelu"),
        sample(_ROW, activation="gelu", approximate=True),
        sample("X [4 3], Y [5 4], Bias [5]", trans_x=True, trans_y=True, activation="relu"),
        sample("X [2 3 4], Y [4 5], Bias [5]"),
        sample("X [2 3 4], Y [12 5], Bias [5]", x_num_col_dims=1, activation="gelu"),
    ),
)
define(
    f"{GEMM}_grad",
    FusedGemmEpilogueGrad,
    Sized(
        "X, Y -> DX as X, DY as Y, DBias as Y [width]",
        "width = Y[0 if trans_y else 1]",
        "activation_below == 'none' or not trans_x; activation_below takes no trans_x",
    ),
)
