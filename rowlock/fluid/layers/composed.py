"""Functions of ``fluid.layers`` that have ops of their own in Paddle, and are built from others here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...functions import creation
from ...functions import math as functions
from ...graph.layers import binary, draws, tensors, unary
from ...graph.layers import shape as layers
from ...graph.layers.helper import check_variable
from ...graph.program.variable import Variable
from ...nn import activations, losses
from ...strategies.errors import InvalidValue

bmm = functions.bmm
dice_loss = losses.dice_loss
npair_loss = losses.npair_loss


def arange(
    start: Any, end: Any, step: Any = 1, dtype: Any = None, name: str | None = None
) -> Variable:
    """start, start + step, ... up to but without ``end``, float32 by default."""
    return creation.arange(start, end, step, "float32" if dtype is None else dtype)


def _into(value: Variable, out: Variable | None, stop_gradient: bool) -> Variable:
    """Copy a result to ``out``, if there is one, and say whether gradients end there."""
    result = value if out is None else layers.assign(value, out)
    result.stop_gradient = stop_gradient
    return result


def randint(
    low: int,
    high: int | None = None,
    shape: Any = None,
    out: Variable | None = None,
    dtype: Any = None,
    device: Any = None,
    stop_gradient: bool = False,
    seed: int = 0,
    name: str | None = None,
) -> Variable:
    """Integers from ``low`` up to but without ``high``; one number is the end, from 0."""
    low, high = (0, low) if high is None else (low, high)
    kind = "int64" if dtype is None else dtype
    numbers = draws.randint(low, high, [1] if shape is None else shape, kind, seed, name)
    return _into(numbers, out, stop_gradient)


def randn(
    shape: Any,
    out: Variable | None = None,
    dtype: Any = None,
    device: Any = None,
    stop_gradient: bool = True,
    name: str | None = None,
) -> Variable:
    """Numbers of the standard normal distribution."""
    kind = "float32" if dtype is None else dtype
    return _into(tensors.gaussian_random(shape, dtype=kind), out, stop_gradient)


def randperm(
    n: int,
    out: Variable | None = None,
    dtype: Any = "int64",
    device: Any = None,
    stop_gradient: bool = True,
    seed: int = 0,
) -> Variable:
    """The integers below ``n`` in a random order."""
    return _into(draws.randperm(n, dtype, seed), out, stop_gradient)


def log_softmax(
    input: Variable, axis: int | None = None, dtype: Any = None, name: str | None = None
) -> Variable:
    """x - log(sum(exp(x))) along ``axis`` (the last)."""
    return activations.log_softmax(input, -1 if axis is None else axis, dtype)


def l2_normalize(
    x: Variable, axis: int, epsilon: float = 1e-12, name: str | None = None
) -> Variable:
    """x by the square root of epsilon and the sum of its squares along ``axis``."""
    tensors.check_float(x, "x", "l2_normalize")
    squares = layers.reduce_sum(unary.square(x), axis if x.ndim > 1 else 0, True)
    return x / unary.sqrt(squares + float(epsilon))


def cos_sim(X: Variable, Y: Variable) -> Variable:
    """The cosine of the angle between rows; Y may be one row."""
    check_variable(X, "X", "cos_sim")
    check_variable(Y, "Y", "cos_sim")
    dims = list(_range(1, X.ndim))
    product = layers.reduce_sum(X * Y, dims, True)
    sizes = [unary.sqrt(layers.reduce_sum(unary.square(operand), dims, True)) for operand in (X, Y)]
    return product / sizes[0] / sizes[1]


def fsp_matrix(x: Variable, y: Variable) -> Variable:
    """Products of the channels of two images, averaged over the pixels."""
    check_variable(x, "x", "fsp_matrix")
    check_variable(y, "y", "fsp_matrix")
    (_, first, height, width), second = x.shape or (0, 0, 0, 0), (y.shape or (0, 0))[1]
    if height < 0 or width < 0:
        raise InvalidValue(f"fsp_matrix: the sizes of {x.name!r} must be known.")
    left = layers.reshape(x, [-1, first, height * width])
    right = layers.reshape(y, [-1, second, height * width])
    return binary.matmul(left, right, transpose_y=True, alpha=1.0 / (height * width))


def _range(start: int, end: int) -> Sequence[int]:
    numbers = []
    while start < end:
        numbers.append(start)
        start += 1
    return numbers
