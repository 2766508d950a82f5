"""Activations that have attributes, and those that have weights."""

from __future__ import annotations

from typing import Any

from ...strategies.errors import InvalidType, InvalidValue, require_type
from ..program.variable import Variable
from .arguments import Floats, known_sizes
from .helper import LayerHelper, layer
from .initializer import ConstantInitializer


def _applied(op_type: str, x: Variable, name: str | None, **settings: Any) -> Variable:
    """Append an op of one tensor; a setting that is None keeps Paddle's default."""
    attrs = {key.removesuffix("_"): value for key, value in settings.items()}
    return layer(op_type, name, x=x, **attrs)


def brelu(x: Floats, t_min: float = 0.0, t_max: float = 24.0, name: str | None = None) -> Variable:
    """x cut to [t_min, t_max]."""
    return _applied("brelu", x, name, t_min=t_min, t_max=t_max)


def soft_relu(x: Floats, threshold: float = 40.0, name: str | None = None) -> Variable:
    """log(1 + exp(x)), where x is cut to [-threshold, threshold] first."""
    return _applied("soft_relu", x, name, threshold=threshold)


def thresholded_relu(x: Floats, threshold: float | None = None) -> Variable:
    """x where above ``threshold`` (1), else 0."""
    return _applied("thresholded_relu", x, None, threshold=threshold)


def hard_shrink(x: Floats, threshold: float | None = None) -> Variable:
    """x where |x| is above ``threshold`` (0.5), else 0."""
    return _applied("hard_shrink", x, None, threshold=threshold)


def softshrink(x: Floats, alpha: float | None = None) -> Variable:
    """x moved towards 0 by ``alpha`` (0.5), at most to 0."""
    return _applied("softshrink", x, None, lambda_=alpha)


def tanh_shrink(x: Floats, name: str | None = None) -> Variable:
    """x - tanh(x)."""
    return _applied("tanh_shrink", x, name)


def stanh(
    x: Floats, scale_a: float = 0.67, scale_b: float = 1.7159, name: str | None = None
) -> Variable:
    """scale_b * tanh(scale_a * x)."""
    return _applied("stanh", x, name, scale_a=scale_a, scale_b=scale_b)


def selu(
    x: Floats, scale: float | None = None, alpha: float | None = None, name: str | None = None
) -> Variable:
    """scale * x where positive, else scale * alpha * (exp(x) - 1)."""
    return _applied("selu", x, name, scale=scale, alpha=alpha)


def mish(x: Floats, threshold: float = 20, name: str | None = None) -> Variable:
    """x * tanh(log(1 + exp(x))); the logarithm is x above ``threshold``, exp(x) below its negative.

    Raises:
        InvalidValue: ``threshold`` is not positive.
    """
    if threshold <= 0:
        raise InvalidValue(f"mish: threshold must be above 0, got {threshold!r}.")
    return _applied("mish", x, name, threshold=threshold)


def celu(x: Floats, alpha: float = 1.0, name: str | None = None) -> Variable:
    """x where positive, else alpha (exp(x / alpha) - 1). Barron, arXiv 1704.07483.

    Raises:
        InvalidValue: ``alpha`` is 0.
    """
    if alpha == 0:
        raise InvalidValue("celu: alpha cannot be 0: x is divided by it.")
    return _applied("celu", x, name, alpha=alpha)


def silu(x: Floats, name: str | None = None) -> Variable:
    """x * sigmoid(x)."""
    return _applied("silu", x, name)


def maxout(x: Floats, groups: int, name: str | None = None, axis: int = 1) -> Variable:
    """The largest of each ``groups`` channels in a row, of an image with channels at ``axis`` (1, 3 or -1).

    Raises:
        InvalidValue: ``axis`` is another.
    """
    if axis not in (1, -1, 3):
        raise InvalidValue(f"maxout: axis is 1 (NCHW), or 3 or -1 (NHWC), got {axis!r}.")
    return layer("maxout", name, x=x, groups=groups, axis=3 if axis == -1 else axis)


def weighted_relu(x: Variable, alpha: Variable, mode: str, name: str | None = None) -> Variable:
    """x where positive, else alpha x: one weight for all, one a channel, or one an element of a row."""
    return layer("prelu", name, x=x, alpha=alpha, mode=mode)


def prelu(x: Floats, mode: str, param_attr: Any = None, name: str | None = None) -> Variable:
    """x where positive, else alpha x, where alpha is trained and begins at 0.25.

    Args:
        x: [N, C, ...], floats.
        mode: "all" (alpha has one element), "channel" (C) or "element" (as many as a row of x).
        param_attr: of alpha; False leaves none.

    Raises:
        InvalidType: ``mode`` is no string, or ``param_attr`` False.
        InvalidValue: ``mode`` is another, or x has too few dimensions or unknown sizes.
    """
    require_type(mode, str, "prelu: mode must be a string")
    if mode not in ("all", "channel", "element"):
        raise InvalidValue(f"prelu: mode is 'all', 'channel' or 'element', got {mode!r}.")
    sizes = list(x.shape or ())
    if mode == "channel" and len(sizes) < 2:
        raise InvalidValue(f"prelu: mode 'channel' needs 2 dimensions or more, got {sizes}.")
    # Of a channel's weight Paddle keeps this shape, whatever the rank of x.
    shape = {"all": [1], "channel": [1, *sizes[1:2], 1, 1], "element": [1, *sizes[1:]]}[mode]
    dims = {"all": slice(0), "channel": slice(1, 2), "element": slice(1, None)}[mode]
    known_sizes("prelu", x, dims, "the sizes behind the first")
    helper = LayerHelper("prelu", name)
    alpha = helper.create_parameter(
        param_attr, shape, x.dtype, default_initializer=ConstantInitializer(0.25)
    )
    if alpha is None:
        raise InvalidType("prelu: param_attr cannot be False: there is nothing without alpha.")
    return helper.layer("prelu", x=x, alpha=alpha, mode=mode)
