"""Products of vectors and matrices beside mul and matmul."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import formula as f
from .operands import Array, Binary, BinaryGrad, Input, Operands, Output, record_of
from .registry import Op, define, slope
from .samples import sample
from .shapes import Sized

define(
    "dot",
    Binary,
    Sized(
        "X [... N], Y as X [... N] -> Out [... 1]",
        "len(X) in (1, 2); X must have 1 or 2 dimensions",
    ),
    formula=lambda a: {"out": (a.x * a.y).sum(-1, keepdims=True)},
    samples=(sample("X [4], Y [4]"), sample("X [3 4], Y [3 4]")),
    slope=Op("dot_grad", BinaryGrad),
)


define(
    "bmm",
    Binary,
    Sized("X [B M K], Y as X [B K N] -> Out [B M N]"),
    formula=lambda a: {"out": a.x @ a.y},
    samples=(sample("X [2 3 4], Y [2 4 5]"),),
    slope=Op("bmm_grad", BinaryGrad),
)


define(
    "addmm",
    record_of("input x y", "out", Alpha=1.0, Beta=1.0, use_mkldnn=False),
    Sized(
        "X [M K], Y as X [K N], Input as X [A B] -> Out [M N]",
        "A in (1, M) and B in (1, N); Input must broadcast to the product",
    ),
    formula=lambda a: {"out": a.input * a.Beta + (a.x @ a.y) * a.Alpha},
    samples=(
        sample("Input [3 5], X [3 4], Y [4 5]"),
        sample("Input [1 5], X [3 4], Y [4 5]", Alpha=0.5, Beta=-2.0),
    ),
    slope=slope("(input) x y d_out", "d_input d_x d_y"),
)


def _same_rank(*shapes: tuple[int, ...]) -> list[tuple[int, ...]]:
    rank = max(map(len, shapes))
    return [(1,) * (rank - len(shape)) + shape for shape in shapes]


def kron(a: Any) -> f.Results:
    """Out[i Y + k, ...] = X[i, ...] Y[k, ...], along each dimension."""
    x_shape, y_shape = _same_rank(a.x.shape, a.y.shape)
    x = a.x.reshape([size for n in x_shape for size in (n, 1)])
    y = a.y.reshape([size for n in y_shape for size in (1, n)])
    shape = [n * m for n, m in zip(x_shape, y_shape, strict=True)]
    return {"out": (x * y).reshape(shape)}


define(
    "kron",
    Binary,
    Sized(
        "X, Y as X -> Out [*sizes]",
        "x, y = (1,) * (len(Y) - len(X)) + X, (1,) * (len(X) - len(Y)) + Y",
        "sizes = [n * m for n, m in zip(x, y)]",
    ),
    formula=kron,
    samples=(sample("X [2 3], Y [4 2]"), sample("X [3], Y [2 2 2]"), sample("X [2 2 2], Y [2]")),
    slope=Op("kron_grad", BinaryGrad),
)


FIRST_OF_THREE = 9  # Paddle's word for the first dimension of 3 elements


def vector_product(x: Array, y: Array, dim: int) -> Array:
    """Return x cross y along a dimension of 3 elements."""
    axis = x.shape.index(3) if dim == FIRST_OF_THREE else dim % x.ndim
    front = (slice(None),) * axis

    def part(i: int) -> Array:
        j, k = (i + 1) % 3, (i + 2) % 3
        first, second = (*front, slice(j, j + 1)), (*front, slice(k, k + 1))
        return x[first] * y[second] - x[second] * y[first]

    return f.concatenate([part(i) for i in range(3)], axis)


define(
    "cross",
    record_of("x y", "out", dim=FIRST_OF_THREE),
    Sized(
        "X [...], Y as X [...] -> Out [...]",
        f"3 in X if dim == {FIRST_OF_THREE} else X[front(dim, X)] == 3; "
        "the dimension of the vectors must have 3 elements",
    ),
    formula=lambda a: {"out": vector_product(a.x, a.y, a.dim)},
    samples=(sample("X [3 4], Y [3 4]"), sample("X [3 2 3], Y [3 2 3]", dim=-1)),
    refuses=(sample("X [2 4], Y [2 4]"),),
    slope=slope(
        "x y d_out",
        "d_x d_y",
        formula=lambda a: {
            "d_x": vector_product(a.y, a.d_out, a.dim),
            "d_y": vector_product(a.d_out, a.x, a.dim),
        },
    ),
)


class Bilinear(Operands):
    x: Input
    y: Input
    weight: Input
    bias: Input | None
    out: Output


def bilinear_tensor_product(a: Bilinear) -> f.Results:
    """Out[n, k] = X[n] Weight[k] Y[n] + Bias[k]."""
    k, width, other = a.weight.shape
    weight = a.weight.transpose(1, 0, 2).reshape(width, k * other)
    products = (a.x @ weight).reshape(-1, k, other)
    out = (products * a.y.reshape(-1, 1, other)).sum(-1)
    return {"out": out if a.bias is None else out + a.bias}


define(
    "bilinear_tensor_product",
    Bilinear,
    Sized("X [N A], Y as X [N B], Weight as X [K A B], Bias [1 K] -> Out [N K]"),
    formula=bilinear_tensor_product,
    samples=(
        sample("X [3 4], Y [3 5], Weight [2 4 5]"),
        sample("X [2 3], Y [2 2], Weight [4 3 2], Bias [1 4]"),
    ),
    slope=slope(
        "x y weight d_out",
        "d_x d_y d_weight d_bias",
        shape=Sized(
            "X, Y, Weight [K A B] "
            "-> X@GRAD as X, Y@GRAD as Y, Weight@GRAD as Weight, Bias@GRAD as Weight [1 K]"
        ),
    ),
)


def conv_shift(a: Any) -> f.Results:
    """Out[n, i] = sum of X[n, (i + k - K // 2) mod M] Y[n, k]: Graves et al., arXiv 1410.5401, equation 8."""
    m, k = a.x.shape[1], a.y.shape[1]
    index = (np.arange(m)[:, None] + np.arange(k) - k // 2) % m
    return {"out": (f.take(a.x, index, 1) * a.y.reshape(-1, 1, k)).sum(-1)}


define(
    "conv_shift",
    Binary,
    Sized(
        "X [N M], Y as X [N K] -> Out as X",
        "K % 2 == 1; Y's rows must be of odd size",
        "K <= M; Y's rows must not exceed X's",
    ),
    formula=conv_shift,
    samples=(sample("X [2 5], Y [2 3]"),),
    slope=Op("conv_shift_grad", BinaryGrad),
)


def fsp(a: Any) -> f.Results:
    """Out = X Y^T / (H W) of the pixels: Yim et al., A Gift from Knowledge Distillation, CVPR 2017."""
    n, c, height, width = a.x.shape
    x = a.x.reshape(n, c, height * width)
    y = a.y.reshape(n, a.y.shape[1], height * width)
    return {"out": (x @ y.transpose(0, 2, 1)) * (1 / max(height * width, 1))}


define(
    "fsp",
    Binary,
    Sized("X [N C H W], Y as X [N K H W] -> Out [N C K]"),
    formula=fsp,
    samples=(sample("X [2 3 2 4], Y [2 2 2 4]"),),
    slope=Op("fsp_grad", BinaryGrad),
)
