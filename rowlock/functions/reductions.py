"""Reductions and products with Paddle 2.x's signatures that are made of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.layers import binary, unary
from ..graph.layers import shape as layers
from ..graph.layers.arguments import axis_of
from ..graph.ops.rules import product
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidValue, require_type
from .creation import constant, full_like
from .manipulation import gather, transpose
from .math import alike, isnan, norm
from .math import sum as total
from .search import argsort, sort, where

Axis = int | Sequence[int] | None


def _extreme(x: Variable, axis: Axis, keepdim: bool, largest: bool) -> Variable:
    reduce = layers.reduce_max if largest else layers.reduce_min
    there = binary.equal(x, reduce(x, axis, True))
    count = layers.reduce_sum(layers.cast(there, x.dtype), axis, keepdim)
    count.stop_gradient = True
    return binary.elementwise_div(
        layers.reduce_sum(where(there, x, full_like(x, 0)), axis, keepdim), count
    )


def amax(
    x: Variable, axis: Axis = None, keepdim: bool = False, name: str | None = None
) -> Variable:
    """Maximum over ``axis``; equal elements share its gradient."""
    return _extreme(x, axis, keepdim, True)


def amin(
    x: Variable, axis: Axis = None, keepdim: bool = False, name: str | None = None
) -> Variable:
    """Minimum over ``axis``; equal elements share its gradient."""
    return _extreme(x, axis, keepdim, False)


def count_nonzero(
    x: Variable, axis: Axis = None, keepdim: bool = False, name: str | None = None
) -> Variable:
    """The number of elements along ``axis`` that are not zero, int64."""
    marks = binary.not_equal(x, full_like(x, 0))
    return layers.reduce_sum(layers.cast(marks, "int64"), axis, keepdim)


def nansum(
    x: Variable,
    axis: Axis = None,
    dtype: Any = None,
    keepdim: bool = False,
    name: str | None = None,
) -> Variable:
    """Sum over ``axis`` of the elements that are numbers."""
    return total(where(isnan(x), full_like(x, 0), x), axis, dtype, keepdim, name)


def nanmean(
    x: Variable, axis: Axis = None, keepdim: bool = False, name: str | None = None
) -> Variable:
    """Mean over ``axis`` of the elements that are numbers."""
    numbers = layers.reduce_sum(layers.cast(binary.equal(x, x), x.dtype), axis, keepdim)
    return nansum(x, axis, None, keepdim) / numbers


def outer(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Every element of x times every one of y, as a matrix."""
    x, y = alike(x, y)
    return binary.elementwise_mul(layers.reshape(x, [-1, 1]), layers.reshape(y, [1, -1]))


def inner(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Sums of products along the last dimension of both."""
    return tensordot(x, y, [[-1], [-1]])


def tensordot(x: Variable, y: Variable, axes: Any = 2, name: str | None = None) -> Variable:
    """Sums of products along dimensions of x and of y: as many of its last and its first, or two lists.

    Raises:
        InvalidType: ``axes`` is no int and no list.
        InvalidValue: the dimensions differ in number or in size.
    """
    pairs = _summed(x, y, axes)
    if len(pairs[0]) != len(pairs[1]):
        raise InvalidValue(f"tensordot: axes are as many of x as of y, got {axes!r}.")
    sizes = [list(operand.shape or ()) for operand in (x, y)]
    rest = [[i for i in range(v.ndim) if i not in p] for v, p in zip((x, y), pairs, strict=True)]
    for i, j in zip(*pairs, strict=True):
        if sizes[0][i] != sizes[1][j]:
            raise InvalidValue(f"tensordot: sizes {sizes[0][i]} and {sizes[1][j]} differ.")
    inside = product(tuple(sizes[0][i] for i in pairs[0]))
    if inside < 0:
        raise InvalidValue(
            f"tensordot: the sizes {sizes[0]} of {x.name!r} along axes must be known."
        )
    left = layers.reshape(transpose(x, rest[0] + pairs[0]), [-1, inside])
    right = layers.reshape(transpose(y, pairs[1] + rest[1]), [inside, -1])
    shape = [sizes[0][i] for i in rest[0]] + [sizes[1][i] for i in rest[1]]
    if shape.count(-1) > 1:
        raise InvalidValue(f"tensordot: only one size of the result may be unknown, got {shape}.")
    return layers.reshape(binary.matmul(left, right), shape or [1])


def _summed(x: Variable, y: Variable, axes: Any) -> list[list[int]]:
    if isinstance(axes, int) and not isinstance(axes, bool):
        return [list(range(x.ndim - axes, x.ndim)), list(range(axes))]
    require_type(axes, list | tuple, "tensordot: axes must be an int or lists of ints")
    both = list(axes) if axes and isinstance(axes[0], (list, tuple)) else [axes]
    both = both * 2 if len(both) == 1 else both[:2]
    return [
        [axis_of(v, axis, "tensordot") for axis in a] for v, a in zip((x, y), both, strict=True)
    ]


def vecdot(x: Variable, y: Variable, axis: int = -1, name: str | None = None) -> Variable:
    """Sums of products along ``axis``; x and y broadcast."""
    return layers.reduce_sum(binary.elementwise_mul(*alike(x, y)), axis, name=name)


def cdist(
    x: Variable,
    y: Variable,
    p: float = 2.0,
    compute_mode: str = "use_mm_for_euclid_dist_if_necessary",
    name: str | None = None,
) -> Variable:
    """The p-norms of each row of x minus each row of y, [..., P, R] for [..., P, M] and [..., R, M]."""
    apart = layers.unsqueeze(x, [x.ndim - 1]) - layers.unsqueeze(y, [y.ndim - 2])
    return norm(apart, float(p), -1, False, name)


def pdist(x: Variable, p: float = 2.0, name: str | None = None) -> Variable:
    """The p-norms of each row of a matrix minus each later one: of (0, 1), (0, 2), ..., (1, 2), ...

    Raises:
        InvalidValue: x is no matrix with a known number of rows.
    """
    if x.ndim != 2 or (x.shape or ())[0] < 1:
        raise InvalidValue(f"pdist takes a matrix whose rows are known, got {list(x.shape or ())}.")
    first, second = (constant(rows, "int64") for rows in np.triu_indices((x.shape or ())[0], 1))
    return norm(gather(x, first) - gather(x, second), float(p), -1, False, name)


def reduce_as(x: Variable, target: Variable, name: str | None = None) -> Variable:
    """The sum of x over the dimensions along which ``target`` was broadcast to its shape.

    Raises:
        InvalidValue: ``target`` does not broadcast to x.
    """
    extra = x.ndim - target.ndim
    sizes = [1] * extra + list(target.shape or ())
    pairs = [*zip(x.shape or (), sizes, strict=False)]
    if extra < 0 or any(b not in (1, a) and -1 not in (a, b) for a, b in pairs):
        raise InvalidValue(
            f"reduce_as: {target.name!r} of shape {list(target.shape or ())} does not broadcast to "
            f"{list(x.shape or ())}."
        )
    dims = [i for i, (a, b) in enumerate(pairs) if b == 1 and (i < extra or a != 1)]
    out = layers.reduce_sum(x, dims, True) if dims else x
    return layers.squeeze(out, list(range(extra))) if extra else layers.assign(out)


def renorm(x: Variable, p: float, axis: int, max_norm: float) -> Variable:
    """x with the slices along ``axis`` scaled down to a p-norm of at most ``max_norm``."""
    axis = axis_of(x, axis, "renorm")
    others = [i for i in range(x.ndim) if i != axis]
    powers = layers.reduce_sum(unary.pow(unary.abs(x), float(p)), others, True)
    length = unary.pow(powers, 1.0 / p)
    factor = float(max_norm) / (length + 1e-7)
    return x * where(length > float(max_norm), factor, full_like(factor, 1.0))


def baddbmm(
    input: Variable,
    x: Variable,
    y: Variable,
    beta: float = 1.0,
    alpha: float = 1.0,
    name: str | None = None,
) -> Variable:
    """beta input + alpha x @ y, of lists of matrices."""
    for argument, operand in (("input", input), ("x", x), ("y", y)):
        if operand.ndim != 3:
            raise InvalidValue(f"baddbmm: {argument} must have 3 dimensions, got {operand.ndim}.")
    return binary.elementwise_add(
        unary.scale(binary.matmul(x, y), float(alpha)), unary.scale(input, float(beta))
    )


def msort(input: Variable) -> Variable:
    """The elements in rising order along the first dimension."""
    return sort(input, 0)


def kthvalue(
    x: Variable, k: int, axis: int | None = None, keepdim: bool = False, name: str | None = None
) -> tuple[Variable, Variable]:
    """The k-th smallest elements along ``axis`` (the last), counted from 1, and their indices."""
    axis = axis_of(x, -1 if axis is None else axis, "kthvalue")
    size = (x.shape or ())[axis]
    if k < 1 or 0 <= size < k:
        raise InvalidValue(f"kthvalue: k is from 1 to {size}, got {k}.")
    picked = [
        layers.slice(operand, [axis], [k - 1], [k]) for operand in (sort(x, axis), argsort(x, axis))
    ]
    value, index = picked if keepdim else [layers.squeeze(operand, [axis]) for operand in picked]
    return value, index


publish_definitions(__name__)
