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
from typing import Any

from .operands import Binary, Input, Operands, Output, named
from .registry import Grad, Inference, Specs, define
from .rules import grads_like, merge_dims, of_shape, product
from .samples import normal, sample

GEMM = "fused_gemm_epilogue"
ACTIVATIONS = ("none", "relu", "gelu")


def leading(rank: int, x_num_col_dims: int) -> int:
    """Return how many dimensions of X are rows of the matrix."""
    return rank - 1 if x_num_col_dims == -1 else x_num_col_dims


def gemm_shape(op: Inference) -> Mapping[str, Specs]:
    """X's rows by Y's columns."""
    x, y, bias = op.spec("X"), op.spec("Y"), op.spec("Bias")
    act, rows = op.attr("activation"), leading(len(x.shape), op.attr("x_num_col_dims"))
    op.require(act in ACTIVATIONS, f"activation={act!r} must be one of {', '.join(ACTIVATIONS)}")
    op.require(0 < rows < len(x.shape), f"x_num_col_dims must lie inside {len(x.shape)} dimensions")
    op.require(len(y.shape) == 2, "Y must be a matrix")
    op.require(not op.attr("trans_x") or len(x.shape) == 2, "trans_x takes a matrix X")
    height, width = reversed(y.shape) if op.attr("trans_y") else y.shape
    inner = x.shape[0] if op.attr("trans_x") else product(x.shape[rows:])
    lead = x.shape[1:] if op.attr("trans_x") else x.shape[:rows]
    op.require(merge_dims(inner, height) is not None, f"inner sizes differ: {inner} and {height}")
    op.require(bias.shape == (width,), f"Bias must have one element for each of {width} columns")
    op.require(x.dtype == y.dtype == bias.dtype, "X, Y and Bias must have one dtype")
    out = of_shape((*lead, width), x)
    return {"Out": out, "ReserveSpace": out if act == "gelu" else None}


def gemm_grad_shape(op: Inference) -> Mapping[str, Specs]:
    """Each gradient is like its operand."""
    like = grads_like("X", "Y")(op)
    y = op.spec("Y")
    width = y.shape[0 if op.attr("trans_y") else 1]
    below = op.attr("activation_below")
    op.require(
        below in ("none", "gelu_grad"), f"activation_below={below!r} must be none or gelu_grad"
    )
    op.require(below == "none" or not op.attr("trans_x"), "activation_below takes no trans_x")
    return {"DX": like["X@GRAD"], "DY": like["Y@GRAD"], "DBias": of_shape((width,), y)}


def backward_attrs(forward: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of the gradient op."""
    act = forward["activation"]
    attrs = {k: forward[k] for k in ("trans_x", "trans_y", "approximate", "x_num_col_dims")}
    name = "none" if act == "none" else f"{act}_grad"
    return {**attrs, "activation_grad": name, "activation_below": "none"}


_ROW = {"X": normal(3, 4), "Y": normal(4, 5), "Bias": normal(5)}


class FusedGemmEpilogue(Binary):
    bias: Input
    reserve_space: Output | None
    trans_x: bool = False
    trans_y: bool = False
    approximate: bool = False
    x_num_col_dims: int = -1
    activation: str = "none"


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
    activation_below: str = "none"


define(
    GEMM,
    FusedGemmEpilogue,
    gemm_shape,
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
        sample(
            {"X": normal(4, 3), "Y": normal(5, 4), "Bias": normal(5)},
            trans_x=True,
            trans_y=True,
            activation="relu",
        ),
        sample({"X": normal(2, 3, 4), "Y": normal(4, 5), "Bias": normal(5)}),
        sample(
            {"X": normal(2, 3, 4), "Y": normal(12, 5), "Bias": normal(5)},
            x_num_col_dims=1,
            activation="gelu",
        ),
    ),
    refuses=(
        sample({**_ROW, "Bias": normal(4)}),
        sample({**_ROW, "Y": normal(5, 5)}),
        sample(_ROW, activation="tanh"),
    ),
)
define(f"{GEMM}_grad", FusedGemmEpilogueGrad, gemm_grad_shape)
