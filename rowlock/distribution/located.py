"""Distributions of real numbers that follow from one even draw, or from a normal one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..functions import math as functions
from ..graph.layers import shape as layers
from ..graph.layers import unary
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidValue
from .base import Distribution, ExponentialFamily, register_kl
from .parameters import NOT_NEGATIVE, POSITIVE, Parameter, aligned

_EULER = 0.57721566490153286060  # Euler and Mascheroni's constant
SMALLEST = 1e-7  # of uniform numbers whose logarithm is taken


class _Located(Distribution):
    """A distribution of ``loc`` + ``scale`` z."""

    loc = Parameter()
    scale = Parameter(NOT_NEGATIVE)

    def _score(self, value: Variable) -> tuple[Variable, Variable]:
        """Return z, and log(scale) in its rank."""
        value, loc, scale = self._aligned(value)
        return (value - loc) / scale, unary.log(scale)

    def _put(self, score: Variable) -> Variable:
        score, loc, scale = self._aligned(score)
        return score * scale + loc

    def _log_scale(self, part: float) -> Variable:
        """Return log(scale) + a number, in the shape of a batch."""
        return functions.add(unary.log(self.scale) + part, self._like())

    def _square(self, part: float) -> Variable:
        """Return scale^2 by a number, in the shape of a batch."""
        return functions.add(unary.square(self.scale) * part, self._like())


class Normal(_Located):
    """Around ``loc`` with the deviation ``scale``."""

    mean = property(lambda self: self.loc)
    variance = property(lambda self: unary.square(self.scale))
    _is_normal = True
    _from = _Located._put

    def log_prob(self, value: Variable) -> Variable:
        score, log_scale = self._score(value)
        return unary.square(score) * -0.5 - log_scale - 0.5 * math.log(2 * math.pi)

    def entropy(self) -> Variable:
        return self._log_scale(0.5 * (1.0 + math.log(2 * math.pi)))


class LogNormal(Normal):
    """The exponential of a :class:`Normal`."""

    mean = property(lambda self: unary.exp(functions.add(self.loc, unary.square(self.scale) * 0.5)))

    @property
    def variance(self) -> Variable:
        """(exp(scale^2) - 1) mean^2."""
        square = unary.square(self.scale)
        return functions.multiply(unary.exp(square) - 1.0, unary.square(self.mean))

    def _from(self, numbers: Variable, /) -> Variable:
        return unary.exp(self._put(numbers))

    def log_prob(self, value: Variable) -> Variable:
        logs = unary.log(value)
        return super().log_prob(logs) - logs

    def entropy(self) -> Variable:
        return functions.add(super().entropy(), self.loc)


class Laplace(_Located):
    """Falling by e each ``scale`` from ``loc``, on both sides."""

    mean = property(lambda self: functions.add(self.loc, self._like()))
    variance = property(lambda self: self._square(2.0))

    def icdf(self, value: Variable) -> Variable:
        """The number below which a part ``value`` of all lies."""
        side = value - 0.5
        far = functions.clip(1.0 - unary.abs(side) * 2.0, SMALLEST)
        return self._put(unary.sign(side) * unary.log(far) * -1.0)

    _from = icdf

    def cdf(self, value: Variable) -> Variable:
        """The part of all that lies below ``value``."""
        score, _ = self._score(value)
        return 0.5 - unary.sign(score) * (unary.exp(unary.abs(score) * -1.0) - 1.0) * 0.5

    def log_prob(self, value: Variable) -> Variable:
        score, log_scale = self._score(value)
        return unary.abs(score) * -1.0 - log_scale - math.log(2)

    def entropy(self) -> Variable:
        return self._log_scale(1.0 + math.log(2))


class Gumbel(_Located):
    """The largest of many: of density exp(-z - exp(-z)) / scale."""

    mean = property(lambda self: functions.add(self.loc, self.scale * _EULER))
    variance = property(lambda self: self._square(math.pi**2 / 6))

    def _from(self, numbers: Variable, /) -> Variable:
        return self._put(gumbel(numbers))

    def cdf(self, value: Variable) -> Variable:
        """The part of all that lies below ``value``."""
        return unary.exp(unary.exp(self._score(value)[0] * -1.0) * -1.0)

    def log_prob(self, value: Variable) -> Variable:
        score, log_scale = self._score(value)
        return (score + unary.exp(score * -1.0)) * -1.0 - log_scale

    def entropy(self) -> Variable:
        return self._log_scale(1.0 + _EULER)


def gumbel(uniform: Variable) -> Variable:
    """Return draws of density exp(-z - exp(-z))."""
    inner = unary.log(functions.clip(uniform, SMALLEST, 1.0 - SMALLEST))
    return unary.log(inner * -1.0) * -1.0


class Cauchy(_Located):
    """Of density 1 / (pi scale (1 + z^2)); it has no mean."""

    def _from(self, numbers: Variable, /) -> Variable:
        return self._put(unary.tan((numbers - 0.5) * math.pi))

    def cdf(self, value: Variable) -> Variable:
        """The part of all that lies below ``value``."""
        return unary.atan(self._score(value)[0]) * (1 / math.pi) + 0.5

    def log_prob(self, value: Variable) -> Variable:
        score, log_scale = self._score(value)
        return unary.log(unary.square(score) + 1.0) * -1.0 - log_scale - math.log(math.pi)

    def entropy(self) -> Variable:
        return self._log_scale(math.log(4 * math.pi))


class Uniform(Distribution):
    """Evenly between ``low`` and ``high``."""

    low = Parameter()
    high = Parameter()
    mean = property(lambda self: functions.add(self.low, self.high) * 0.5)
    variance = property(lambda self: unary.square(self._width) * (1 / 12))
    _width = property(lambda self: functions.subtract(self.high, self.low))

    def __init__(self, low: Any, high: Any, name: str | None = None) -> None:
        super().__init__(low, high)
        is_known = not isinstance(low, Variable) and not isinstance(high, Variable)
        if is_known and not np.all(np.asarray(low) <= np.asarray(high)):
            raise InvalidValue(f"Uniform: low must not be above high, got {low!r} and {high!r}.")

    def _from(self, numbers: Variable, /) -> Variable:
        numbers, low, high = self._aligned(numbers)
        return numbers * (high - low) + low

    def log_prob(self, value: Variable) -> Variable:
        value, low, high = self._aligned(value)
        inside = (value > low) & (value < high)
        return unary.log(layers.cast(inside, value.dtype)) - unary.log(high - low)

    def entropy(self) -> Variable:
        return unary.log(self._width)


class Exponential(ExponentialFamily):
    """The time to an event that comes ``rate`` times a unit."""

    rate = Parameter(POSITIVE)
    mean = property(lambda self: unary.reciprocal(self.rate))
    variance = property(lambda self: unary.square(self.mean))

    def cdf(self, value: Variable) -> Variable:
        """The part of all that lies below ``value``."""
        return 1.0 - unary.exp(functions.multiply(value, self.rate) * -1.0)

    def icdf(self, value: Variable) -> Variable:
        """The number below which a part ``value`` of all lies."""
        return functions.divide(unary.log(1.0 - value) * -1.0, self.rate)

    _from = icdf

    def log_prob(self, value: Variable) -> Variable:
        value, rate = self._aligned(value)
        return unary.log(rate) - rate * value

    def entropy(self) -> Variable:
        return 1.0 - unary.log(self.rate)


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Variable:
    loc, scale, other_loc, other = aligned(p.loc, p.scale, q.loc, q.scale)
    ratio, apart = unary.square(scale / other), unary.square((loc - other_loc) / other)
    return (ratio + apart - 1.0 - unary.log(ratio)) * 0.5


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Variable:
    loc, scale, other_loc, other = aligned(p.loc, p.scale, q.loc, q.scale)
    ratio, apart = scale / other, unary.abs(loc - other_loc)
    return ratio * unary.exp(apart / scale * -1.0) + apart / other - unary.log(ratio) - 1.0


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Variable:
    loc, scale, other_loc, other = aligned(p.loc, p.scale, q.loc, q.scale)
    squares = unary.square(scale + other) + unary.square(loc - other_loc)
    return unary.log(squares / (scale * other * 4.0))


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Variable:
    return unary.log(functions.divide(q._width, p._width))


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Variable:
    ratio = functions.divide(q.rate, p.rate)
    return ratio - 1.0 - unary.log(ratio)


publish_definitions(__name__, withhold=(gumbel,))
