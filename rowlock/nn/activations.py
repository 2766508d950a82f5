"""Activations of ``paddle.nn.functional``."""

from __future__ import annotations

import math
from typing import Any

from ..functions.creation import full_like
from ..functions.random import drawn
from ..graph.layers import activations, unary
from ..graph.layers import shape as layers
from ..graph.layers.arguments import Floats
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidValue


def leaky_relu(x: Variable, negative_slope: float = 0.01, name: str | None = None) -> Variable:
    """x where positive, else negative_slope x."""
    return unary.leaky_relu(x, negative_slope, name)


def gelu(x: Floats, approximate: bool | str = False, name: str | None = None) -> Variable:
    """x * Phi(x), or its tanh form. Hendrycks and Gimpel, arXiv 1606.08415.

    Raises:
        InvalidValue: ``approximate`` is neither a bool, "tanh" nor "none".
    """
    if approximate not in (True, False, "tanh", "none"):
        raise InvalidValue(f"gelu: approximate must be a bool, 'tanh' or 'none': {approximate!r}.")
    return unary.gelu(x, approximate in (True, "tanh"))


def softmax(x: Variable, axis: int = -1, dtype: Any = None, name: str | None = None) -> Variable:
    """exp(x) / sum(exp(x)) along ``axis``."""
    return unary.softmax(x if dtype is None else layers.cast(x, dtype), name=name, axis=axis)


def log_softmax(
    x: Variable, axis: int = -1, dtype: Any = None, name: str | None = None
) -> Variable:
    """x - log(sum(exp(x))) along ``axis``."""
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
    x: Floats, beta: float = 1, threshold: float = 20, name: str | None = None
) -> Variable:
    """log(1 + exp(beta x)) / beta, and x where beta x is above ``threshold``."""
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


def hardtanh(x: Floats, min: float = -1.0, max: float = 1.0, name: str | None = None) -> Variable:
    """x cut to [min, max]."""
    return activations.brelu(x, min, max, name)


def hardshrink(x: Floats, threshold: float = 0.5, name: str | None = None) -> Variable:
    """x where |x| is above ``threshold``, else 0."""
    return activations.hard_shrink(x, threshold)


def softshrink(x: Floats, threshold: float = 0.5, name: str | None = None) -> Variable:
    """x moved towards 0 by ``threshold``, at most to 0.

    Raises:
        InvalidValue: ``threshold`` is negative.
    """
    if threshold < 0:
        raise InvalidValue(f"softshrink: threshold cannot be negative, got {threshold!r}.")
    return activations.softshrink(x, threshold)


def tanhshrink(x: Floats, name: str | None = None) -> Variable:
    """x - tanh(x)."""
    return activations.tanh_shrink(x, name)


def thresholded_relu(
    x: Floats, threshold: float = 1.0, value: float = 0.0, name: str | None = None
) -> Variable:
    """x where above ``threshold``, else ``value``."""
    zeroed = activations.thresholded_relu(x, threshold)
    return zeroed if value == 0 else layers.where(x > float(threshold), x, full_like(x, value))


def selu(
    x: Floats,
    scale: float = 1.0507009873554805,
    alpha: float = 1.6732632423543772,
    name: str | None = None,
) -> Variable:
    """scale * x where positive, else scale * alpha * (exp(x) - 1).

    Raises:
        InvalidValue: ``scale`` is at most 1, or ``alpha`` negative.
    """
    if scale <= 1.0 or alpha < 0:
        raise InvalidValue(f"selu: scale must be above 1 and alpha not negative: {scale}, {alpha}.")
    return activations.selu(x, scale, alpha, name)


def prelu(
    x: Floats, weight: Variable, data_format: str = "NCHW", name: str | None = None
) -> Variable:
    """x where positive, else weight x, with one weight or one a channel.

    Raises:
        InvalidValue: ``weight`` has neither one element nor one for each channel.
    """
    count = (weight.shape or (1,))[0]
    if count == 1 or data_format[-1] != "C" or x.ndim < 3:
        return activations.weighted_relu(x, weight, "all" if count == 1 else "channel", name)
    positive = unary.relu(x)
    return positive + (x - positive) * weight


def maxout(x: Floats, groups: int, axis: int = 1, name: str | None = None) -> Variable:
    """The largest of each ``groups`` channels in a row."""
    return activations.maxout(x, groups, name, axis)


def mish(x: Floats, name: str | None = None) -> Variable:
    """x * tanh(log(1 + exp(x))). Misra, arXiv 1908.08681."""
    return activations.mish(x, 20.0, name)


def silu(x: Floats, inplace: bool = False, name: str | None = None) -> Variable:
    """x * sigmoid(x); in a static program the result is a variable of its own."""
    return activations.silu(x, name)


def glu(x: Floats, axis: int = -1, name: str | None = None) -> Variable:
    """a * sigmoid(b), where a and b are the halves of x along ``axis``. Dauphin et al., arXiv 1612.08083.

    Raises:
        InvalidValue: ``axis`` is outside x, or its size is odd.
    """
    if not -x.ndim <= axis < x.ndim:
        raise InvalidValue(f"glu: axis {axis} is outside the {x.ndim} dimensions.")
    if (x.shape or ())[axis] % 2:
        raise InvalidValue(f"glu: {list(x.shape or ())} has no halves along axis {axis}.")
    first, second = layers.split(x, 2, axis)
    return first * unary.sigmoid(second)


def rrelu(
    x: Floats,
    lower: float = 1.0 / 8.0,
    upper: float = 1.0 / 3.0,
    training: bool = True,
    name: str | None = None,
) -> Variable:
    """x where positive, else a slope times x: drawn for each element, the middle one when testing.

    Xu et al., arXiv 1505.00853.

    Raises:
        InvalidValue: not 0 <= ``lower`` <= ``upper`` <= 1.
    """
    if not 0.0 <= lower <= upper <= 1.0:
        raise InvalidValue(f"rrelu: 0 <= lower <= upper <= 1 must hold, got {lower} and {upper}.")
    if not training:
        return unary.leaky_relu(x, (lower + upper) / 2.0, name)
    positive = unary.relu(x)
    return positive + (x - positive) * (drawn(x, (), "rrelu") * (upper - lower) + lower)


def gumbel_softmax(
    x: Floats, temperature: float = 1.0, hard: bool = False, axis: int = -1, name: str | None = None
) -> Variable:
    """softmax((x + noise) / temperature) with Gumbel noise; ``hard`` gives 1 to the largest, 0 to others.

    The gradient is that of the softmax. Jang, Gu and Poole, arXiv 1611.01144.

    Raises:
        InvalidValue: ``temperature`` is not above 0.
    """
    if temperature <= 0:
        raise InvalidValue(f"gumbel_softmax: temperature must be above 0, got {temperature!r}.")
    tiny = 1e-20
    noise = -unary.log(-unary.log(drawn(x, (), "gumbel_softmax") + tiny) + tiny)
    soft = unary.softmax((x + noise) / float(temperature), axis=axis, name=name)
    if not hard:
        return soft
    largest = layers.cast(soft == layers.reduce_max(soft, axis, True), x.dtype)
    offset = largest - soft
    offset.stop_gradient = True
    return soft + offset


def relu_(x: Variable, name: str | None = None) -> Variable:
    """As ``relu``: in a static program the result is a variable of its own."""
    return unary.relu(x, name)


def elu_(x: Variable, alpha: float = 1.0, name: str | None = None) -> Variable:
    """As ``elu``: in a static program the result is a variable of its own."""
    return unary.elu(x, alpha, name)


def tanh_(x: Variable, name: str | None = None) -> Variable:
    """As ``tanh``: in a static program the result is a variable of its own."""
    return unary.tanh(x, name)


softmax_ = softmax  # as ``relu_``
hardtanh_ = hardtanh
leaky_relu_ = leaky_relu
thresholded_relu_ = thresholded_relu


SELU_FLOOR = -1.0507009873554805 * 1.6732632423543772  # the limit of selu towards -infinity


def alpha_factors(p: float) -> tuple[float, float]:
    """Return the factor and the offset after which alpha dropout keeps mean and deviation."""
    factor = 1.0 / math.sqrt((1.0 - p) * (1.0 + p * SELU_FLOOR**2))
    return factor, -factor * p * SELU_FLOOR


def swiglu(x: Floats, y: Variable | None = None, name: str | None = None) -> Variable:
    """silu(x) * y; without y they are the halves of x along the last dimension. Shazeer, arXiv 2002.05202."""
    if y is None:
        x, y = layers.split(x, 2, -1)
    return silu(x) * y


logsigmoid = log_sigmoid

publish_definitions(__name__, withhold=(alpha_factors,))
