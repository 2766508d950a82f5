"""Elementwise functions with Paddle 2.x's signatures that are made of others."""

from __future__ import annotations

import math
from functools import reduce
from operator import add
from typing import Any

from ..graph.layers import binary, unary
from ..graph.layers import shape as layers
from ..graph.layers.arguments import Floats, number
from ..graph.layers.operators import detach
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidValue
from ..strategies.types import FLOATS, INTEGERS, LOW
from .creation import full_like
from .math import alike, floats, isnan, maximum, minimum, most
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


# M. J. Wichura, algorithm AS 241 (1988): quotients of polynomials, highest powers first
_MIDDLE = (
    (2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
     13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    (5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
     5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0),
)  # fmt: skip
_SIDES = (
    (7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
     3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
     0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0),
)  # fmt: skip
_ENDS = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
     0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772),
    (2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
     0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0),
)  # fmt: skip


def _quotient(x: Variable, polynomials: tuple[tuple[float, ...], ...]) -> Variable:
    above, below = (reduce(lambda total, term: total * x + term, p, x * 0.0) for p in polynomials)
    return above / below


def erfinv(x: Floats, name: str | None = None) -> Variable:
    """The number whose error function is x; infinite at 1 and -1 and, as in Paddle, beyond them."""
    if x.dtype in LOW:
        return layers.cast(erfinv(layers.cast(x, "float32")), x.dtype)
    size = unary.abs(x)
    middle, least = minimum(size, full_like(x, 0.85)), full_like(x, 1e-30)
    root = unary.sqrt(unary.log(maximum((1.0 - size) * 0.5, least)) * -1.0)
    bend = full_like(x, 5.0)
    side = _quotient(minimum(maximum(root, full_like(x, 1.6)), bend) - 1.6, _SIDES)
    tail = where(root <= 5.0, side, _quotient(maximum(root, bend) - 5.0, _ENDS))
    near = middle * _quotient(0.180625 - unary.square(middle) * 0.25, _MIDDLE) * 0.5
    result = where(size <= 0.85, near, tail) * math.sqrt(0.5)
    result = detach(where(size < 1.0, result, full_like(x, math.inf)) * unary.sign(x))
    # The difference is 0; through it passes the gradient sqrt(pi) / 2 exp(result^2).
    capped = minimum(unary.square(result), full_like(x, 80.0))
    return result + (x - detach(x)) * unary.exp(capped) * (math.sqrt(math.pi) / 2)


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
