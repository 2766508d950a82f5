"""The logarithm of the gamma function and its derivatives, of one element.

Each is computed from 8 up by its asymptotic series (Abramowitz and Stegun, 6.1.41, 6.3.18 and 6.4.12), below
by the recurrence that leads there, and left of 1/2 by reflection.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

from . import expr as e
from .activation import define_activation
from .expr import Expr
from .samples import sample

_CONSTANT = 0.5 * math.log(2 * math.pi) - 0.5
_FAR = 8.0  # the series is exact to 1e-12 from here on
# B(2k) for k = 1, 2, ...: Bernoulli's numbers.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def _series(z: Expr, coefficients: list[float]) -> Expr:
    """c0 / z + c1 / z^3 + c2 / z^5 and so on."""
    over = 1 / z
    square = over * over
    return reduce(lambda total, c: total * square + c, reversed(coefficients)) * over


def _reflected(x: Expr) -> tuple[Expr, Expr, Expr, Expr, Expr]:
    """Return whether x is left of 1/2, what the function is computed of, and pi x less a multiple of pi.

    Then whether that is below 8, and what its series is computed of.
    """
    left = x < 0.5
    z = e.where(left, 1 - x, x)
    near = z < _FAR
    return left, z, (x - e.rint(x)) * math.pi, near, e.where(near, z + _FAR, z)


def _ahead(z: Expr, term: Callable[[Expr], Expr], join: Callable[[Expr, Expr], Expr]) -> Expr:
    """Join a term of z, z + 1 and so on up to z + 7."""
    return reduce(join, (term(z + float(k)) for k in range(int(_FAR))))


def log_gamma(x: Expr) -> Expr:
    """log |Gamma(x)|; infinite at 0, -1, -2 and so on."""
    left, z, angle, near, far = _reflected(x)
    terms = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1)]
    stirling = (far - 0.5) * (e.log(far) - 1) + _series(far, terms) + _CONSTANT
    product = _ahead(e.where(near, z, 1), lambda y: y, lambda a, b: a * b)
    value = e.where(near, stirling - e.log(product), stirling)
    return e.where(left, math.log(math.pi) - e.log(e.abs_(e.sin(angle))) - value, value)


def digamma(x: Expr) -> Expr:
    """The derivative of log Gamma."""
    left, z, angle, near, far = _reflected(x)
    over = 1 / far
    terms = [b / (2 * k) for k, b in enumerate(_BERNOULLI, 1)]
    series = e.log(far) - 0.5 * over - _series(far, terms) * over
    behind = _ahead(e.where(near, z, 1), lambda y: 1 / y, lambda a, b: a + b)
    value = e.where(near, series - behind, series)
    return e.where(left, value - math.pi / e.tan(angle), value)


def trigamma(x: Expr) -> Expr:
    """The derivative of :func:`digamma`."""
    left, z, angle, near, far = _reflected(x)
    over = 1 / far
    series = over + over * over * 0.5 + _series(far, list(_BERNOULLI)) * over * over
    behind = _ahead(e.where(near, z, 1), lambda y: 1 / (y * y), lambda a, b: a + b)
    value = e.where(near, series + behind, series)
    return e.where(left, e.square(math.pi / e.sin(angle)) - value, value)


_SAMPLES = (sample("X 0.1:12.0 [3 4]"), sample("X -2.9:-2.1 [5]"))
define_activation(
    "lgamma", log_gamma, "X", lambda x, d_out: d_out * digamma(x), attrs={}, samples=_SAMPLES
)
define_activation(
    "digamma", digamma, "X", lambda x, d_out: d_out * trigamma(x), attrs={}, samples=_SAMPLES
)
