"""Norms of vectors, distances between them, and vectors of length 1."""

from __future__ import annotations

import math
import sys
from typing import Any, cast

from . import expr as e
from . import formula as f
from .lod import no_sequences
from .operands import (
    Array,
    Binary,
    BinaryGrad,
    Gradient,
    Input,
    Operands,
    Output,
    SlopeOfX,
    Unary,
    named,
)
from .reduction import Reduce, ReduceGradOfOut, reduce_shape
from .registry import Op, define, slope
from .samples import sample
from .shapes import Sized


class Norm(Operands):
    x: Input
    norm: Output
    out: Output
    axis: int = 0
    epsilon: float = 1e-10


def norm(a: Norm) -> f.Results:
    """Out = X / Norm, Norm = sqrt(sum of X^2 along the axis + epsilon)."""
    size = f.sqrt((a.x * a.x).sum(a.axis, keepdims=True) + a.epsilon)
    return {"out": a.x / size, "norm": size}


define(
    "norm",
    Norm,
    Sized("X -> Out, Norm [*rows]", "at = front(axis, X)", "rows = X[:at] + (1,) + X[at + 1 :]"),
    lod=no_sequences,
    formula=norm,
    samples=(sample("X [3 4]", axis=1), sample("X [2 3 2]", axis=-2, epsilon=0.1)),
    refuses=(sample("X [3 4]", axis=2),),
    slope=slope("x norm d_out", "d_x"),
)


_ONE_OR_EACH = (
    "len(X) > 1; X must have 2 dimensions or more",
    "M in (1, N); Y must have as many rows as X, or one",
)


class CosSim(Binary):
    x_norm: Output = named("XNorm")
    y_norm: Output = named("YNorm")


_LEAST = 1e-8  # a smaller sum of squares counts as this, in Paddle, so that zeros have a cosine


def rows_of(x: Array) -> Array:
    """Return an array as a matrix of its rows."""
    return x.reshape(x.shape[0], -1)


def cos_sim(a: CosSim) -> f.Results:
    """Out = X.Y / (|X| |Y|), by rows."""
    x, y = rows_of(a.x), rows_of(a.y)
    x_norm = f.sqrt(f.maximum((x * x).sum(1, keepdims=True), _LEAST))
    y_norm = f.sqrt(f.maximum((y * y).sum(1, keepdims=True), _LEAST))
    out = (x * y).sum(1, keepdims=True) / x_norm / y_norm
    return {"out": out, "x_norm": x_norm, "y_norm": y_norm}


define(
    "cos_sim",
    CosSim,
    Sized("X [N ...], Y as X [M ...] -> Out [N 1], XNorm [N 1], YNorm [M 1]", *_ONE_OR_EACH),
    formula=cos_sim,
    samples=(sample("X [3 4], Y [3 4]"), sample("X [3 2 2], Y [1 2 2]")),
    slope=slope("x y x_norm y_norm out d_out", "d_x d_y"),
)


def size_of(x: Array, p: float, axis: Any = None) -> Array:
    """Return the p-norm along axes, which keep size 1: (sum |x|^p)^(1/p).

    p may be infinite (the largest, or the least), or 0 (how many are not 0).
    """
    size = f.absolute(x)
    if p == 0:
        return e.where(e.not_equal(x, 0), f.full(x.shape, 1, x.dtype), 0).sum(axis, keepdims=True)
    if math.isinf(p):
        return size.max(axis, keepdims=True) if p > 0 else size.min(axis, keepdims=True)
    if p == 1:
        return size.sum(axis, keepdims=True)
    if p == 2:
        return f.sqrt((x * x).sum(axis, keepdims=True))
    return (size**p).sum(axis, keepdims=True) ** (1 / p)


def slope_of_size(x: Array, p: float, size: Array, d: Array) -> Array:
    """Return the gradient of x from that of its p-norm: d sign(x) (|x| / size)^(p - 1), 0 where x is."""
    if p == 0:
        return f.full(x.shape, 0, x.dtype)
    if p == 1:
        return d * f.sign(x)
    if math.isinf(p):
        return e.where(e.equal(f.absolute(x), size), d * f.sign(x), 0)
    if p == 2:
        return x * e.where(size > 0, d / size, 0)
    share = e.where(e.not_equal(x, 0), f.absolute(x) / size, 1)
    return d * f.sign(x) * share ** (p - 1)


class PNorm(Unary):
    porder: float = 2.0
    axis: int = -1
    epsilon: float = 1e-12
    keepdim: bool = False


class PNormGrad(PNorm, Gradient, reads="x out"): ...


def p_norm(a: PNorm) -> f.Results:
    """Out = (sum |X|^porder)^(1 / porder)."""
    return {"out": size_of(a.x, a.porder, a.axis).reshape(a.out.shape)}


def p_norm_grad(a: PNormGrad) -> f.Results:
    """See :func:`slope_of_size`; what it divides by, Out^(porder - 1), has epsilon added, as in Paddle."""
    axis = a.axis % a.x.ndim
    rows = (*a.x.shape[:axis], 1, *a.x.shape[axis + 1 :])
    size, d = a.out.reshape(rows), a.d_out.reshape(rows)
    if a.epsilon:
        d = d / (1 + a.epsilon * size ** (1 - a.porder))
    return {"d_x": slope_of_size(a.x, a.porder, size, d)}


define(
    "p_norm",
    PNorm,
    Sized(
        "X -> Out [*left]",
        f"0 < porder <= {sys.float_info.max}; porder must be above 0 and finite",
        "at = front(axis, X)",
        "left = X[:at] + (1,) * keepdim + X[at + 1 :] or (1,)",
    ),
    formula=p_norm,
    samples=(
        sample("X [3 4]"),
        sample("X [2 3 2]", porder=3.0, axis=1, keepdim=True),
        sample("X [5]", porder=1.0, axis=0),
    ),
    refuses=(sample("X [3 4]", axis=2),),
    slope=Op("p_norm_grad", PNormGrad, formula=p_norm_grad),
)


def frobenius_norm(a: Reduce) -> f.Results:
    """Out = sqrt(sum X^2)."""
    return {"out": size_of(a.x, 2, _axes(a)).reshape(a.out.shape)}


def frobenius_norm_grad(a: ReduceGradOfOut) -> f.Results:
    """dX = X dOut / Out."""
    axes = _axes(a)
    rows = tuple(1 if axes is None or i in axes else n for i, n in enumerate(a.x.shape))
    return {"d_x": slope_of_size(a.x, 2, a.out.reshape(rows), a.d_out.reshape(rows))}


def _axes(a: Any) -> list[int] | None:
    """Return the dimensions that are summed, None for all."""
    return None if a.reduce_all or not a.dim else [axis % a.x.ndim for axis in a.dim]


define(
    "frobenius_norm",
    Reduce,
    reduce_shape,
    formula=frobenius_norm,
    samples=(
        sample("X [3 4]", dim=[0, 1], reduce_all=True),
        sample("X [2 3 2]", dim=[-1, 0], keep_dim=True),
    ),
    refuses=(sample("X [3 4]", dim=[2]),),
    slope=Op("frobenius_norm_grad", ReduceGradOfOut, formula=frobenius_norm_grad),
)


define(
    "l1_norm",
    Unary,
    Sized("X -> Out [1]"),
    formula=lambda a: {"out": f.absolute(a.x).sum().reshape(1)},
    samples=(sample("X [3 4]"), sample("X [5]")),
    slope=Op("l1_norm_grad", SlopeOfX),
)


class Dist(Binary):
    p: float = 2.0


class DistGrad(Dist, BinaryGrad, reads="* out"):
    d_out: Input


def dist(a: Dist) -> f.Results:
    """Out = the p-norm of X - Y."""
    return {"out": size_of(a.x - a.y, a.p).reshape(1)}


def dist_grad(a: DistGrad) -> f.Results:
    """See :func:`slope_of_size`."""
    z = a.x - a.y
    # Out may be rounded: no difference would be equal to it.
    size = size_of(z, a.p) if math.isinf(a.p) else _spread(a.out, z)
    d = slope_of_size(z, a.p, size, _spread(a.d_out, z))
    return {
        "d_x": f.fitted(cast(f.Term, d), a.x.shape),
        "d_y": f.fitted(cast(f.Term, -d), a.y.shape),
    }


def _spread(x: Array, like: Array) -> Array:
    return x.reshape((1,) * like.ndim)


define(
    "dist",
    Dist,
    Sized(
        "X, Y as X -> Out [1]",
        "every(1 in (n, m) or n == m for n, m in zip(X[::-1], Y[::-1])); "
        "X and Y must have sizes that broadcast",
    ),
    formula=dist,
    samples=(
        sample("X [3 4], Y [3 4]"),
        sample("X [2 3 4], Y [3 1]", p=3.0),
        sample("X [3 1], Y [4]", p=math.inf),
    ),
    slope=Op("dist_grad", DistGrad, formula=dist_grad),
)


class SquaredL2Distance(Binary):
    sub_result: Output = named("sub_result")


def squared_l2_distance(a: SquaredL2Distance) -> f.Results:
    """Out = the sum of (X - Y)^2, by rows."""
    difference = rows_of(a.x) - rows_of(a.y)
    return {"out": (difference * difference).sum(1, keepdims=True), "sub_result": difference}


define(
    "squared_l2_distance",
    SquaredL2Distance,
    Sized(
        "X [N ...], Y [M ...] -> Out [N 1], sub_result [N width]",
        *_ONE_OR_EACH,
        "width = prod(X[1:])",
    ),
    formula=squared_l2_distance,
    samples=(sample("X [3 4], Y [3 4]"), sample("X [3 2 2], Y [1 2 2]")),
    slope=slope("(x) (y) sub_result d_out", "d_x d_y"),
)
