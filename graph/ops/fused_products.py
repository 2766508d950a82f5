"""Products fused with what follows, as Paddle's passes over inference programs write them: no gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from . import formula as f
from .operands import Array, Input, Inputs, Operands, Output, Outputs, named
from .registry import Inference, Spec, Specs, define
from .rules import merge_dims, of_shape, product
from .samples import sample
from .shapes import Sized


def _rows(op: Inference, x: Spec, w: Spec, columns: int, bias: Spec | None) -> Spec:
    """Return the spec of x @ w + bias; x is a matrix whose rows the first ``columns`` dimensions count."""
    op.require(0 < columns < len(x.shape), f"{columns} dimensions of rows do not fit {x}")
    width = product(x.shape[columns:])
    fits = len(w.shape) == 2 and merge_dims(width, w.shape[0]) is not None
    op.require(fits, f"W must be [{width}, columns]")
    fits = bias is None or (math.prod(bias.shape) == w.shape[1] and len(bias.shape) <= 2)
    op.require(fits, f"Bias must have {w.shape[1]} numbers")
    return of_shape((*x.shape[:columns], w.shape[1]), x)


class Fc(Operands):
    input: Input
    w: Input
    bias: Input | None
    out: Output
    in_num_col_dims: int = 1
    activation_type: Literal["", "relu"] = ""
    use_mkldnn: bool = False
    padding_weights: bool = False
    use_quantizer: bool = False
    Scale_in: float = 1.0
    Scale_weights: Sequence[float] = [1.0]
    Scale_out: float = 1.0
    force_fp32_output: bool = False


def _product(x: Array, w: Array, bias: Array | None) -> Array:
    out = x.reshape(-1, w.shape[0]) @ w
    return out if bias is None else out + bias.reshape(-1)


def fc(a: Fc) -> f.Results:
    """Input W + Bias, and what is above 0 of it for "relu"."""
    out = _product(a.input, a.w, a.bias)
    out = f.maximum(out, 0) if a.activation_type else out
    return {"out": out.reshape(a.out.shape)}


_LAYER = "Input [2 3 4], W [4 5], Bias [5]"
define(
    "fc",
    Fc,
    Sized(
        "Input, W [inner width], Bias -> Out [*lead width]",
        "not use_quantizer and not padding_weights; "
        "use_quantizer and padding_weights are not built",
        "0 < in_num_col_dims < len(Input); in_num_col_dims must lie inside Input's dimensions",
        "lead, inner = Input[:in_num_col_dims], prod(Input[in_num_col_dims:])",
        "len(Bias) <= 2 and prod(Bias) == W[-1]; Bias must have a number for each column of W",
    ),
    formula=fc,
    samples=(
        sample(_LAYER, in_num_col_dims=2, activation_type="relu"),
        sample("Input [2 3 4], W [12 5]"),
    ),
)


class FusionRepeatedFcRelu(Operands):
    x: Input
    w: Inputs
    bias: Inputs
    relu_out: Outputs
    out: Output


def repeated_shape(op: Inference) -> Mapping[str, Specs]:
    """Each product's rows; all but the last are ReluOut."""
    x, ws, biases = op.spec("X"), op.specs("W"), op.specs("Bias")
    op.require(len(ws) == len(biases) > 1, "W and Bias must be as many, and more than one")
    specs = []
    for w, bias in zip(ws, biases, strict=True):
        x = _rows(op, x, w, 1, bias)
        specs.append(x)
    return {"ReluOut": specs[:-1], "Out": specs[-1]}


def fusion_repeated_fc_relu(a: FusionRepeatedFcRelu) -> f.Results:
    """max(X W + Bias, 0), again and again."""
    outs = [a.x]
    for w, bias in zip(a.w, a.bias, strict=True):
        outs.append(f.maximum(_product(outs[-1], w, bias), 0))
    return {"relu_out": outs[1:-1], "out": outs[-1]}


_LAYERS = "X [3 4], W* [4 5] [5 2], Bias* [5] [2]"
define(
    "fusion_repeated_fc_relu",
    FusionRepeatedFcRelu,
    repeated_shape,
    formula=fusion_repeated_fc_relu,
    samples=(sample(_LAYERS),),
    refuses=(sample(_LAYERS, "Bias* [5]"), sample(_LAYERS, "W* [4 5] [4 2]")),
)


class FusionSquaredMatSub(Operands):
    x: Input
    y: Input
    squared_x: Output
    squared_y: Output
    squared_xy: Output = named("SquaredXY")
    out: Output
    scalar: float = 1.0


def fusion_squared_mat_sub(a: FusionSquaredMatSub) -> f.Results:
    """((X Y)^2 - X^2 Y^2) scalar: what pairs of features add in a factorization machine."""
    x, y, both = a.x * a.x, a.y * a.y, a.x @ a.y
    squared = both * both
    out = (squared - x @ y) * a.scalar
    return {"squared_x": x, "squared_y": y, "squared_xy": squared, "out": out}


define(
    "fusion_squared_mat_sub",
    FusionSquaredMatSub,
    Sized("X [M K], Y [K N] -> SquaredX as X, SquaredY as Y, SquaredXY [M N], Out [M N]"),
    formula=fusion_squared_mat_sub,
    samples=(sample("X [3 4], Y [4 2]", scalar=0.5),),
)
