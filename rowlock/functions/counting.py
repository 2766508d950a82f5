"""Counts by value, products so far, and angles, with Paddle 2.x's signatures."""

from __future__ import annotations

import math
from typing import Any

from ..graph.layers import binary, picks, unary
from ..graph.layers import shape as layers
from ..graph.layers.helper import constant_layer, layer
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidValue
from .creation import full_like
from .math import alike, floats
from .search import where


def histogram(
    input: Variable,
    bins: int = 100,
    min: float = 0.0,
    max: float = 0.0,
    weight: Variable | None = None,
    density: bool = False,
    name: str | None = None,
) -> Variable:
    """The number of elements in each of ``bins`` equal parts of [min, max]: int64 [bins].

    With ``min`` and ``max`` alike the range is that of the data. ``weight`` (like ``input``) is summed in place
    of ones; with ``density`` the integral is 1: both make float32.

    Raises:
        InvalidValue: ``bins`` is no number above 0, or ``min`` is above ``max``.
    """
    if bins < 1 or min > max:
        raise InvalidValue(
            f"histogram: bins must be above 0 and min <= max, got {bins}, {min}, {max}."
        )
    attrs = {"bins": bins, "min": float(min), "max": float(max), "density": bool(density)}
    return constant_layer("histogram", name, x=input, weight=weight, **attrs)


def bincount(
    x: Variable, weights: Variable | None = None, minlength: int = 0, name: str | None = None
) -> Variable:
    """How often each number from 0 to the largest comes in x (integers [N]), or the sum of its ``weights``.

    There are at least ``minlength`` results: int64, or the weights' type.

    Raises:
        InvalidValue: ``minlength`` is below 0, or ``weights`` have another shape.
    """
    if minlength < 0:
        raise InvalidValue(f"bincount: minlength must not be below 0, got {minlength}.")
    if weights is not None and (weights.shape or ()) != (x.shape or ()):
        raise InvalidValue(
            f"bincount: weights {list(weights.shape or ())} must be as many as x {list(x.shape or ())}."
        )
    rows = layers.cast(x, "int64")
    size = layers.reshape(layers.reduce_max(rows), [1]) + 1
    size = binary.elementwise_max(size, full_like(size, minlength))
    start = layers.fill_constant([size], "int64" if weights is None else weights.dtype, 0)
    ones = layers.ones_like(rows) if weights is None else weights
    return picks.scatter_nd_add(start, layers.unsqueeze(rows, [1]), ones)


def cumprod(
    x: Variable, dim: int | None = None, dtype: Any = None, name: str | None = None
) -> Variable:
    """Products of the elements so far along ``dim`` (None: of all, in a row)."""
    x = x if dtype is None else layers.cast(x, dtype)
    x = layers.reshape(x, [-1]) if dim is None else x
    return layer("cumprod", name, x=x, dim=0 if dim is None else dim)


def atan2(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """The angle of the point (y, x), from -pi to pi. Integers become float32."""
    x, y = alike(floats(x), floats(y))
    steep = unary.abs(x) > unary.abs(y)
    under = where(steep, x, y)
    under = where(under == 0.0, full_like(under, 1.0), under)
    angle = unary.atan(where(steep, y, x) / under)
    half = where(x < 0.0, full_like(x, -math.pi), full_like(x, math.pi))
    flat = angle + where(y < 0.0, half, full_like(half, 0.0))
    return where(steep, half * 0.5 - angle, flat)


publish_definitions(__name__)
