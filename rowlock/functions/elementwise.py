"""Elementwise functions with Paddle 2.x's signatures that are made of others."""

from __future__ import annotations

import math
from functools import reduce
from operator import add
from typing import Any

from ..graph.layers import binary, unary
from ..graph.layers import shape as layers
from ..graph.layers.arguments import Floats, number
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidValue
from ..strategies.types import FLOATS, INTEGERS
from .creation import full_like
from .math import alike, floats, isnan, most
from .search import where


def neg(x: Variable, name: str | None = None) -> Variable:
    """-x."""
    return unary.scale(x, -1.0, name=name)


negative = neg


def positive(x: Variable, name: str | None = None) -> Variable:
    """x itself."""
    return x


def lerp(x: Variable, y: Variable, weight: Any, name: str | None = None) -> Variable:
    """x + weight (y - x); ``weight`` is a number or a Variable."""
    return x + (y - x) * (
        weight if isinstance(weight, Variable) else number(weight, "weight", "lerp")
    )


def multigammaln(x: Floats, p: int, name: str | None = None) -> Variable:
    """The logarithm of the gamma function of ``p`` dimensions.

    Raises:
        InvalidValue: ``p`` is below 1.
    """
    if p < 1:
        raise InvalidValue(f"multigammaln: p must be above 0, got {p}.")
    terms = [unary.lgamma(x - 0.5 * i) for i in range(p)]
    return reduce(add, terms) + 0.25 * p * (p - 1) * math.log(math.pi)


def logaddexp(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """log(exp(x) + exp(y)), without overflow."""
    x, y = alike(floats(x), floats(y))
    behind = unary.scale(unary.abs(binary.elementwise_sub(x, y)), -1.0)
    return unary.log1p(unary.exp(behind)) + binary.elementwise_max(x, y)


def copysign(x: Variable, y: Any, name: str | None = None) -> Variable:
    """|x| with the sign of y (a number or a Variable; they broadcast)."""
    y = y if isinstance(y, Variable) else full_like(x, float(y))
    x, y = alike(floats(x), floats(y))
    signs = where(signbit(y), full_like(y, -1), full_like(y, 1))
    return binary.elementwise_mul(unary.abs(x), signs)


def hypot(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """sqrt(x^2 + y^2)."""
    x, y = alike(floats(x), floats(y))
    return unary.sqrt(binary.elementwise_add(unary.square(x), unary.square(y)), name)


def ldexp(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """x times 2 to the power y."""
    x, y = alike(floats(x), floats(y))
    return binary.elementwise_mul(x, binary.elementwise_pow(full_like(y, 2.0), y))


def logit(x: Variable, eps: float | None = None, name: str | None = None) -> Variable:
    """log(x / (1 - x)), where x is cut to [eps, 1 - eps] first if there is an ``eps``."""
    x = floats(x)
    x = unary.clip(x, float(eps), 1.0 - float(eps)) if eps else x
    return unary.log(x / (1.0 - x), name)


def heaviside(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """0 where x is negative, 1 where it is positive, and y where it is 0."""
    return where(binary.equal(x, full_like(x, 0)), y, layers.cast(x > 0, y.dtype))


def fmax(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """The larger of x and y; a number rather than none."""
    x, y = alike(x, y)
    return where(isnan(y), x, where(binary.greater_equal(x, y), x, y))


def fmin(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """The smaller of x and y; a number rather than none."""
    x, y = alike(x, y)
    return where(isnan(y), x, where(binary.less_equal(x, y), x, y))


def nan_to_num(
    x: Floats,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
    name: str | None = None,
) -> Variable:
    """x with numbers for what is none and for infinities: by default 0 and the largest ones."""
    largest = most(x)
    x = where(isnan(x), full_like(x, nan), x)
    x = where(isposinf(x), full_like(x, largest if posinf is None else posinf), x)
    return where(isneginf(x), full_like(x, -largest if neginf is None else neginf), x)


def isposinf(x: Variable, name: str | None = None) -> Variable:
    """Tell which elements are infinite and positive: bool, like x."""
    return binary.not_equal(x, x) if x.dtype in INTEGERS else x > most(x)


def isneginf(x: Variable, name: str | None = None) -> Variable:
    """Tell which elements are infinite and negative: bool, like x."""
    return binary.not_equal(x, x) if x.dtype in INTEGERS else x < -most(x)


def isreal(x: Variable, name: str | None = None) -> Variable:
    """Return True for each element: there are no complex numbers."""
    return full_like(x, True, "bool")


def conj(x: Variable, name: str | None = None) -> Variable:
    """The conjugates: of real numbers, the numbers."""
    return x


def sgn(x: Floats, name: str | None = None) -> Variable:
    """-1, 0 or 1."""
    return unary.sign(x)


def signbit(x: Variable, name: str | None = None) -> Variable:
    """Tell which elements have a sign, -0.0 among them: bool, like x."""
    if x.dtype in INTEGERS:
        return x < 0
    zero = binary.equal(x, full_like(x, 0))
    return where(zero, binary.elementwise_div(full_like(x, 1), x), x) < 0


def sinc(x: Floats, name: str | None = None) -> Variable:
    """sin(pi x) / (pi x), and 1 at 0."""
    angle = unary.scale(where(binary.equal(x, full_like(x, 0)), full_like(x, 1e-20), x), math.pi)
    return unary.sin(angle) / angle


def is_floating_point(x: Variable) -> bool:
    """Tell whether the elements are floats."""
    return x.dtype in FLOATS


def is_integer(x: Variable) -> bool:
    """Tell whether the elements are integers."""
    return x.dtype in INTEGERS


def is_complex(x: Variable) -> bool:
    """Tell whether the elements are complex numbers: there are none."""
    return False


def clone(x: Variable, name: str | None = None) -> Variable:
    """A copy, through which gradients flow."""
    return layers.assign(x)


def isin(
    x: Variable,
    test_x: Variable,
    assume_unique: bool = False,
    invert: bool = False,
    name: str | None = None,
) -> Variable:
    """Tell which elements of x are among those of ``test_x`` (with ``invert``: are not): bool, like x."""
    row = layers.reshape(test_x, [1] * x.ndim + [-1])
    row = row if row.dtype == x.dtype else layers.cast(row, x.dtype)
    same = binary.equal(layers.unsqueeze(x, [x.ndim]), row)
    among = layers.reduce_max(layers.cast(same, "int32"), [x.ndim]) > 0
    return binary.logical_not(among) if invert else among


def searchsorted(
    sorted_sequence: Variable,
    values: Variable,
    out_int32: bool = False,
    right: bool = False,
    name: str | None = None,
) -> Variable:
    """The number of elements of rising rows below each of ``values`` (``right``: or equal to it)."""
    wide = layers.unsqueeze(values, [values.ndim])
    if sorted_sequence.ndim == 1:
        rows = layers.reshape(sorted_sequence, [1] * values.ndim + [-1])
    else:
        rows = layers.unsqueeze(sorted_sequence, [sorted_sequence.ndim - 1])
    rows = rows if rows.dtype == wide.dtype else layers.cast(rows, wide.dtype)
    below = (binary.greater_equal if right else binary.greater_than)(wide, rows)
    count = layers.reduce_sum(layers.cast(below, "int32" if out_int32 else "int64"), [values.ndim])
    count.stop_gradient = True
    return count


def bucketize(
    x: Variable,
    sorted_sequence: Variable,
    out_int32: bool = False,
    right: bool = False,
    name: str | None = None,
) -> Variable:
    """The number of boundaries of a rising vector below each element (``right``: or equal to it)."""
    return searchsorted(sorted_sequence, x, out_int32, right)


publish_definitions(__name__)
