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
stanh = functions.stanh
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


def brelu(
    x: Variable, t_min: float = 0.0, t_max: float = 24.0, name: str | None = None
) -> Variable:
    """x cut to [t_min, t_max]."""
    tensors.check_float(x, "x", "brelu")
    return unary.clip(x, t_min, t_max, name)


def soft_relu(x: Variable, threshold: float = 40.0, name: str | None = None) -> Variable:
    """log(1 + exp(x)), where x is cut to [-threshold, threshold] first."""
    tensors.check_float(x, "x", "soft_relu")
    return unary.softplus(unary.clip(x, -threshold, threshold))


def thresholded_relu(x: Variable, threshold: float | None = None) -> Variable:
    """x where above ``threshold`` (1), else 0."""
    return activations.thresholded_relu(x, 1.0 if threshold is None else threshold)


def hard_shrink(x: Variable, threshold: float | None = None) -> Variable:
    """x where |x| is above ``threshold`` (0.5), else 0."""
    return activations.hardshrink(x, 0.5 if threshold is None else threshold)


def softshrink(x: Variable, alpha: float | None = None) -> Variable:
    """x moved towards 0 by ``alpha`` (0.5), at most to 0."""
    return activations.softshrink(x, 0.5 if alpha is None else alpha)


def tanh_shrink(x: Variable, name: str | None = None) -> Variable:
    """x - tanh(x)."""
    return activations.tanhshrink(x)


def selu(
    x: Variable, scale: float | None = None, alpha: float | None = None, name: str | None = None
) -> Variable:
    """scale * x where positive, else scale * alpha * (exp(x) - 1)."""
    settings: dict[str, Any] = {"scale": scale, "alpha": alpha}
    return activations.selu(x, **{k: v for k, v in settings.items() if v is not None})


def maxout(x: Variable, groups: int, name: str | None = None, axis: int = 1) -> Variable:
    """The largest of each ``groups`` channels in a row."""
    return activations.maxout(x, groups, axis)


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


def label_smooth(
    label: Variable,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    dtype: Any = "float32",
    name: str | None = None,
) -> Variable:
    """(1 - epsilon) label + epsilon / classes, or + epsilon * prior_dist."""
    return losses.label_smooth(label, prior_dist, epsilon)


def rank_loss(
    label: Variable, left: Variable, right: Variable, name: str | None = None
) -> Variable:
    """log(1 + exp(left - right)) - label (left - right)."""
    for argument, operand in (("label", label), ("left", left), ("right", right)):
        check_variable(operand, argument, "rank_loss")
    distance = left - right
    return unary.softplus(distance) - label * distance


def margin_rank_loss(
    label: Variable, left: Variable, right: Variable, margin: float = 0.1, name: str | None = None
) -> Variable:
    """max(0, margin - label (left - right))."""
    for argument, operand in (("label", label), ("left", left), ("right", right)):
        check_variable(operand, argument, "margin_rank_loss")
    return unary.relu(label * (right - left) + float(margin))


def cos_sim(X: Variable, Y: Variable) -> Variable:
    """The cosine of the angle between rows; Y may be one row."""
    check_variable(X, "X", "cos_sim")
    check_variable(Y, "Y", "cos_sim")
    dims = list(_range(1, X.ndim))
    product = layers.reduce_sum(X * Y, dims, True)
    sizes = [unary.sqrt(layers.reduce_sum(unary.square(operand), dims, True)) for operand in (X, Y)]
    return product / sizes[0] / sizes[1]


def smooth_l1(
    x: Variable,
    y: Variable,
    inside_weight: Variable | None = None,
    outside_weight: Variable | None = None,
    sigma: float | None = None,
) -> Variable:
    """Of each row the sum of distances, squared near zero and linear beyond 1 / sigma^2."""
    check_variable(x, "x", "smooth_l1")
    check_variable(y, "y", "smooth_l1")
    square = (1.0 if sigma is None else float(sigma)) ** 2
    distance = x - y if inside_weight is None else (x - y) * inside_weight
    size = unary.abs(distance)
    near = unary.square(distance) * (0.5 * square)
    loss = layers.where(size < 1.0 / square, near, size - 0.5 / square)
    loss = loss if outside_weight is None else loss * outside_weight
    rows = layers.reduce_sum(loss, list(_range(1, x.ndim)), True)
    return layers.reshape(rows, [-1, 1])


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
