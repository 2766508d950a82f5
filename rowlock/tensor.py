"""Tensor functions with Paddle 2.x's signatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .graph.layers import binary, shape
from .graph.layers.helper import check_variable
from .graph.layers.numbers import whole
from .graph.layers.unary import (
    abs,
    ceil,
    clip,
    cos,
    exp,
    floor,
    log,
    pow,
    reciprocal,
    round,
    rsqrt,
    scale,
    sign,
    sin,
    sqrt,
    square,
    tanh,
)
from .graph.ops.rules import product
from .graph.variable import Variable
from .strategies.errors import InvalidValue

concat = shape.concat
stack = shape.stack
where = shape.where
cast = shape.cast


def add(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """x + y, broadcast from the last dimension."""
    return binary.elementwise_add(x, y, name=name)


def subtract(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """x - y."""
    return binary.elementwise_sub(x, y, name=name)


def multiply(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """x * y."""
    return binary.elementwise_mul(x, y, name=name)


def divide(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """x / y."""
    return binary.elementwise_div(x, y, name=name)


def maximum(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """The larger of x and y."""
    return binary.elementwise_max(x, y, name=name)


def minimum(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """The smaller of x and y."""
    return binary.elementwise_min(x, y, name=name)


def matmul(
    x: Variable,
    y: Variable,
    transpose_x: bool = False,
    transpose_y: bool = False,
    name: str | None = None,
) -> Variable:
    """x @ y after the transposes."""
    return binary.matmul(x, y, transpose_x, transpose_y, name=name)


def mean(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Mean over ``axis`` (None: all, shape [1])."""
    return shape.reduce_mean(x, axis, keepdim, name)


def sum(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Sum over ``axis``."""
    return shape.reduce_sum(x, axis, keepdim, name)


def max(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Maximum over ``axis``."""
    return shape.reduce_max(x, axis, keepdim, name)


def min(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Minimum over ``axis``."""
    return shape.reduce_min(x, axis, keepdim, name)


def prod(x: Variable, axis: Any = None, keepdim: bool = False, name: str | None = None) -> Variable:
    """Product over ``axis``."""
    return shape.reduce_prod(x, axis, keepdim, name)


def argmax(x: Variable, axis: int = -1) -> Variable:
    """Index of the largest element along ``axis``."""
    return shape.argmax(x, axis)


def argmin(x: Variable, axis: int = -1) -> Variable:
    """Index of the smallest element along ``axis``."""
    return shape.argmin(x, axis)


def topk(x: Variable, k: int, name: str | None = None) -> tuple[Variable, Variable]:
    """The ``k`` largest of the last dimension, and where they are."""
    return shape.topk(x, k, name)


def reshape(x: Variable, shape: Sequence[int], name: str | None = None) -> Variable:
    """The same elements in another shape."""
    from .graph.layers.shape import reshape as reshaped

    return reshaped(x, shape, name=name)


def transpose(x: Variable, perm: Sequence[int], name: str | None = None) -> Variable:
    """Dimension i of the result is dimension ``perm[i]`` of x."""
    return shape.transpose(x, perm, name)


def split(
    x: Variable, num_or_sections: Any, axis: int = 0, name: str | None = None
) -> list[Variable]:
    """Cut x along ``axis``."""
    return shape.split(x, num_or_sections, axis, name)


def squeeze(x: Variable, axis: Any = None, name: str | None = None) -> Variable:
    """Drop dimensions of size 1."""
    axes = [] if axis is None else [axis] if isinstance(axis, int) else list(axis)
    return shape.squeeze(x, axes, name)


def unsqueeze(x: Variable, axis: Any, name: str | None = None) -> Variable:
    """Insert dimensions of size 1."""
    return shape.unsqueeze(x, axis, name)


def flatten(
    x: Variable, start_axis: int = 0, stop_axis: int = -1, name: str | None = None
) -> Variable:
    """Join dimensions ``start_axis`` to ``stop_axis`` into one."""
    check_variable(x, "x", "flatten")
    assert x.shape is not None
    rank = len(x.shape)
    for axis in (start_axis, stop_axis):
        if not -rank <= whole(axis, "an axis", "flatten") < rank:
            raise InvalidValue(f"flatten: axis {axis} is outside the {rank} dimensions.")
    start, stop = start_axis % rank, stop_axis % rank
    if start > stop:
        raise InvalidValue(f"flatten: start_axis={start_axis} lies behind stop_axis={stop_axis}.")
    joined = product(x.shape[start : stop + 1])
    return reshape(x, [0] * start + [joined] + list(x.shape[stop + 1 :]), name)


def full(shape: Sequence[int], fill_value: float, dtype: Any = "float32") -> Variable:
    """A tensor of one value."""
    from .graph.layers.shape import fill_constant

    return fill_constant(shape, dtype, fill_value)


def ones(shape: Sequence[int], dtype: Any = "float32") -> Variable:
    """A tensor of ones."""
    return full(shape, 1.0, dtype)


def zeros(shape: Sequence[int], dtype: Any = "float32") -> Variable:
    """A tensor of zeros."""
    return full(shape, 0.0, dtype)


__all__ = [
    "abs", "add", "argmax", "argmin", "cast", "ceil", "clip", "concat", "cos", "divide", "exp", "flatten",
    "floor", "full", "log", "matmul", "max", "maximum", "mean", "min", "minimum", "multiply", "ones", "pow",
    "prod", "reciprocal", "reshape", "round", "rsqrt", "scale", "sign", "sin", "split", "sqrt", "square",
    "squeeze", "stack", "subtract", "sum", "tanh", "topk", "transpose", "unsqueeze", "where",
    "zeros",
]  # fmt: skip
