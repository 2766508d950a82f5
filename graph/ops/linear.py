"""Matrix products: mul, matmul, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from .operands import Binary, BinaryGrad
from .registry import Inference, Op, Specs, define, differentiable
from .rules import merge_dims, of_shape
from .samples import sample
from .second_order import bilinear
from .shapes import Sized


class Mul(Binary):
    x_num_col_dims: int = 1
    y_num_col_dims: int = 1
    use_mkldnn: bool = False
    scale_x: float = 1.0
    scale_y: Sequence[float] = [1.0]
    scale_out: float = 1.0
    force_fp32_output: bool = False


class MulGrad(Mul, BinaryGrad, reads="*"): ...


mul = define(
    "mul",
    Mul,
    Sized(
        "X, Y as X -> Out [*rows *columns]",
        "0 < x_num_col_dims < len(X); x_num_col_dims must lie inside X's dimensions",
        "0 < y_num_col_dims < len(Y); y_num_col_dims must lie inside Y's dimensions",
        "rows, width = X[:x_num_col_dims], prod(X[x_num_col_dims:])",
        "height, columns = prod(Y[:y_num_col_dims]), Y[y_num_col_dims:]",
        "width == height; inner sizes differ",
    ),
    samples=(
        sample("X [3 4], Y [4 5]"),
        sample("X [2 3 4], Y [4 5]", x_num_col_dims=2),
        sample("X [2 3 4], Y [3 4 2]", y_num_col_dims=2),
    ),
    slope=differentiable(Op("mul_grad", MulGrad), bilinear("X", "Y", "Out")),
)


def matmul_shape(op: Inference) -> Mapping[str, Specs]:
    """Products of matrices after the transposes; one-dimensional operands are a row (X) and a column (Y)."""
    x, y = op.spec("X"), op.spec("Y")
    op.require(x.dtype == y.dtype, "X and Y must have one dtype")
    fused = op.attr("fused_reshape_Out") or op.attr("fused_transpose_Out")
    op.require(
        op.attrs.get("head_number", 1) == 1 and not fused, "head_number and fused_* are not built"
    )
    a, b = list(x.shape), list(y.shape)
    row, column = len(a) == 1, len(b) == 1
    a = [1, *a] if row else a
    b = [*b, 1] if column else b
    if op.attr("transpose_X"):
        a = [*a[:-2], a[-1], a[-2]]
    if op.attr("transpose_Y"):
        b = [*b[:-2], b[-1], b[-2]]
    op.require(merge_dims(a[-1], b[-2]) is not None, f"inner sizes differ: {a[-1]} and {b[-2]}")
    lead = joined_lead(a[:-2], b[:-2])
    op.require(lead is not None, f"leading sizes differ: {a[:-2]} and {b[:-2]}")
    left, right = row and a[-2] == 1, column and b[-1] == 1
    out = list(lead or ()) + ([] if left else [a[-2]]) + ([] if right else [b[-1]])
    return {"Out": of_shape(tuple(out or [1]), x)}


def joined_lead(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...] | None:
    """Return the leading sizes of a product of stacks of matrices, None if they do not go together.

    Stacks of as many matrices are multiplied one by one, in X's grouping; others are broadcast.
    """
    if not a or not b or (-1 not in (*a, *b) and math.prod(a) == math.prod(b)):
        return tuple(a or b)
    rank = max(len(a), len(b))
    pairs = zip(*((*(1,) * (rank - len(lead)), *lead) for lead in (a, b)), strict=True)
    dims = [n if m == 1 else m if n == 1 else merge_dims(m, n) for m, n in pairs]
    if None not in dims:
        return tuple(d for d in dims if d is not None)
    return tuple(a) if -1 in (*a, *b) else None  # they may hold as many


class Matmul(Binary):
    transpose_X: bool = False
    transpose_Y: bool = False
    alpha: float = 1.0
    head_number: int = 1
    use_mkldnn: bool = False
    fused_reshape_Out: Sequence[int] = []
    fused_transpose_Out: Sequence[int] = []
    use_quantizer: bool = False
    Scale_x: float = 1.0
    Scale_y: float = 1.0
    Scale_out: float = 1.0
    force_fp32_output: bool = False


class MatmulGrad(Matmul, BinaryGrad, reads="*"): ...


matmul = define(
    "matmul",
    Matmul,
    matmul_shape,
    samples=(
        sample("X [3 4], Y [4 5]"),
        sample("X [4 3], Y [5 4]", transpose_X=True, transpose_Y=True, alpha=0.5),
        sample("X [2 2 3 4], Y [2 2 5 4]", transpose_Y=True, alpha=0.125),
        sample("X [2 3 4], Y [4 5]"),
        sample("X [4], Y [4]"),
        sample("X [4], Y [2 4 3]"),
        sample("X [2 3 4], Y [4]", alpha=2.0),
        sample("X [3], Y [4]", transpose_X=True, transpose_Y=True),
        sample("X [2 1 3 4], Y [3 5 4]", transpose_Y=True),
        sample("X [2 2 3 4], Y [4 4 5]"),
    ),
    refuses=(sample("X [3 4], Y [5 2]"), sample("X [2 3 4], Y [3 4 5]")),
    slope=differentiable(Op("matmul_grad", MatmulGrad), bilinear("X", "Y", "Out")),
)
