"""Activations of ``paddle.nn.functional``."""

from __future__ import annotations

import math
from typing import Any

from ..functions.creation import full_like
from ..graph.layers import binary, unary
from ..graph.layers import shape as layers
from ..graph.layers.helper import check_variable
from ..graph.layers.tensors import check_float
from ..graph.program.variable import Variable
from ..strategies.errors import InvalidValue


def leaky_relu(x: Variable, negative_slope: float = 0.01, name: str | None = None) -> Variable:
    """x where positive, else negative_slope x."""
    return unary.leaky_relu(x, negative_slope, name)


def gelu(x: Variable, approximate: bool | str = False, name: str | None = None) -> Variable:
    """x * Phi(x), or its tanh form. Hendrycks and Gimpel, arXiv 1606.08415.

    Raises:
        InvalidValue: ``approximate`` is neither a bool, "tanh" nor "none".
    """
    if approximate not in (True, False, "tanh", "none"):
        raise InvalidValue(f"gelu: approximate must be a bool, 'tanh' or 'none': {approximate!r}.")
    check_float(x, "x", "gelu")
    return unary.gelu(x, approximate in (True, "tanh"))


def softmax(x: Variable, axis: int = -1, dtype: Any = None, name: str | None = None) -> Variable:
    """exp(x) / sum(exp(x)) along ``axis``."""
    check_variable(x, "x", "softmax")
    return unary.softmax(x if dtype is None else layers.cast(x, dtype), name=name, axis=axis)


def log_softmax(
    x: Variable, axis: int = -1, dtype: Any = None, name: str | None = None
) -> Variable:
    """x - log(sum(exp(x))) along ``axis``."""
    check_variable(x, "x", "log_softmax")
    x = x if dtype is None else layers.cast(x, dtype)
    shifted = x - layers.reduce_max(x, axis, True)
    return shifted - unary.log(layers.reduce_sum(unary.exp(shifted), axis, True))


def swish(x: Variable, name: str | None = None) -> Variable:
    """x * sigmoid(x)."""
    return unary.swish(x, 1.0, name)


def relu6(x: Variable, name: str | None = None) -> Variable:
    """min(max(x, 0), 6)."""
    return unary.relu6(x, 6.0, name)


def softplus(
    x: Variable, beta: float = 1, threshold: float = 20, name: str | None = None
) -> Variable:
    """log(1 + exp(beta x)) / beta, and x where beta x is above ``threshold``."""
    check_float(x, "x", "softplus")
    scaled = x if beta == 1 else x * float(beta)
    soft = unary.softplus(scaled) if beta == 1 else unary.softplus(scaled) * (1.0 / beta)
    return layers.where(scaled > float(threshold), x, soft)


def log_sigmoid(x: Variable, name: str | None = None) -> Variable:
    """log(sigmoid(x))."""
    return unary.logsigmoid(x, name)


def hardsigmoid(
    x: Variable, slope: float = 0.1666667, offset: float = 0.5, name: str | None = None
) -> Variable:
    """slope x + offset, cut to [0, 1]."""
    return unary.hard_sigmoid(x, float(slope), float(offset), name)


def hardswish(x: Variable, name: str | None = None) -> Variable:
    """x * min(max(x + 3, 0), 6) / 6."""
    return unary.hard_swish(x, name=name)


def hardtanh(x: Variable, min: float = -1.0, max: float = 1.0, name: str | None = None) -> Variable:
    """x cut to [min, max]."""
    return unary.clip(x, min, max, name)


def hardshrink(x: Variable, threshold: float = 0.5, name: str | None = None) -> Variable:
    """x where |x| is above ``threshold``, else 0."""
    check_float(x, "x", "hardshrink")
    return layers.where(unary.abs(x) > float(threshold), x, layers.zeros_like(x))


def softshrink(x: Variable, threshold: float = 0.5, name: str | None = None) -> Variable:
    """x moved towards 0 by ``threshold``, at most to 0.

    Raises:
        InvalidValue: ``threshold`` is negative.
    """
    check_float(x, "x", "softshrink")
    if threshold < 0:
        raise InvalidValue(f"softshrink: threshold cannot be negative, got {threshold!r}.")
    return unary.relu(x - float(threshold)) - unary.relu(-x - float(threshold))


def tanhshrink(x: Variable, name: str | None = None) -> Variable:
    """x - tanh(x)."""
    check_float(x, "x", "tanhshrink")
    return x - unary.tanh(x)


def thresholded_relu(
    x: Variable, threshold: float = 1.0, value: float = 0.0, name: str | None = None
) -> Variable:
    """x where above ``threshold``, else ``value``."""
    check_float(x, "x", "thresholded_relu")
    return layers.where(x > float(threshold), x, full_like(x, value))


def selu(
    x: Variable,
    scale: float = 1.0507009873554805,
    alpha: float = 1.6732632423543772,
    name: str | None = None,
) -> Variable:
    """scale * x where positive, else scale * alpha * (exp(x) - 1).

    Raises:
        InvalidValue: ``scale`` is at most 1, or ``alpha`` negative.
    """
    check_float(x, "x", "selu")
    if scale <= 1.0 or alpha < 0:
        raise InvalidValue(f"selu: scale must be above 1 and alpha not negative: {scale}, {alpha}.")
    return unary.elu(x, alpha) * float(scale)


def prelu(
    x: Variable, weight: Variable, data_format: str = "NCHW", name: str | None = None
) -> Variable:
    """x where positive, else weight x, with one weight or one a channel."""
    check_float(x, "x", "prelu")
    check_variable(weight, "weight", "prelu")
    negative = x - unary.relu(x)
    count = (weight.shape or (1,))[0]
    if count == 1 or data_format[-1] == "C":
        return unary.relu(x) + negative * weight
    return unary.relu(x) + binary.elementwise_mul(negative, weight, axis=1)


def maxout(x: Variable, groups: int, axis: int = 1, name: str | None = None) -> Variable:
    """The largest of each ``groups`` channels in a row.

    Raises:
        InvalidValue: the channels do not divide by ``groups``.
    """
    check_float(x, "x", "maxout")
    shape = list(x.shape or ())
    axis = axis % len(shape)
    if groups < 1 or shape[axis] % groups:
        raise InvalidValue(f"maxout: {shape[axis]} channels do not divide by {groups}.")
    parts = [0 if size < 0 else size for size in shape[:axis]]
    view = layers.reshape(x, [*parts, shape[axis] // groups, groups, *shape[axis + 1 :]])
    return layers.reduce_max(view, axis + 1)


def relu_(x: Variable, name: str | None = None) -> Variable:
    """As ``relu``: in a static program the result is a variable of its own."""
    return unary.relu(x, name)


def elu_(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """As ``elu``: in a static program the result is a variable of its own."""
    return unary.elu(x, alpha, name)


def softmax_(x: Variable, axis: int = -1, dtype: Any = None, name: str | None = None) -> Variable:
    """As ``softmax``: in a static program the result is a variable of its own."""
    return softmax(x, axis, dtype, name)


SELU_FLOOR = -1.0507009873554805 * 1.6732632423543772  # the limit of selu towards -infinity


def alpha_factors(p: float) -> tuple[float, float]:
    """Return the factor and the offset after which alpha dropout keeps mean and deviation."""
    factor = 1.0 / math.sqrt((1.0 - p) * (1.0 + p * SELU_FLOOR**2))
    return factor, -factor * p * SELU_FLOOR
