"""Distributions of real numbers that follow from one even draw, or from a normal one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..functions import math as functions
from ..graph.layers import shape as layers
from ..graph.layers import unary
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidValue
from .base import Distribution, ExponentialFamily, register_kl
from .parameters import ANY, NOT_NEGATIVE, POSITIVE, Limit, aligned

_EULER = 0.57721566490153286060  # Euler and Mascheroni's constant
SMALLEST = 1e-7  # of uniform numbers whose logarithm is taken


class Continuous(Distribution):
    """A distribution whose draws are a function of an even one."""

    def icdf(self, value: Variable) -> Variable:
        """The number below which a part ``value`` of all lies."""
        raise NotImplementedError

    def rsample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape`` followed by the batch; gradients pass to the parameters."""
        return self.icdf(self._drawn(shape))


class _Located(Continuous):
    """A distribution of ``loc`` + ``scale`` z."""

    _limits: Mapping[str, Limit] = {"loc": ANY, "scale": NOT_NEGATIVE}
    loc: Variable
    scale: Variable

    def __init__(self, loc: Any, scale: Any, name: str | None = None) -> None:
        super().__init__(loc, scale)

    @property
    def mean(self) -> Variable:
        """``loc``."""
        return functions.add(self.loc, self._like())

    def _score(self, value: Variable) -> tuple[Variable, Variable]:
        """Return z, and log(scale) in its rank."""
        value, loc, scale = self._aligned(value)
        return (value - loc) / scale, unary.log(scale)

    def _put(self, score: Variable) -> Variable:
        score, loc, scale = self._aligned(score)
        return score * scale + loc

    def _spread(self, part: float) -> Variable:
        """Return log(scale) + a number, in the shape of a batch."""
        return functions.add(unary.log(self.scale) + part, self._like())


class Normal(_Located):
    """Around ``loc`` with the deviation ``scale``."""

    @property
    def mean(self) -> Variable:
        """``loc``."""
        return self.loc

    @property
    def variance(self) -> Variable:
        """scale^2."""
        return unary.square(self.scale)

    def rsample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape`` followed by the batch; gradients pass to the parameters."""
        return self._put(self._drawn(shape, is_normal=True))

    def log_prob(self, value: Variable) -> Variable:
        """-z^2 / 2 - log(scale) - log(2 pi) / 2."""
        score, log_scale = self._score(value)
        return unary.square(score) * -0.5 - log_scale - 0.5 * math.log(2 * math.pi)

    def entropy(self) -> Variable:
        """1/2 + log(2 pi) / 2 + log(scale)."""
        return self._spread(0.5 * (1.0 + math.log(2 * math.pi)))


class LogNormal(Normal):
    """The exponential of a :class:`Normal`."""

    def __init__(self, loc: Any, scale: Any) -> None:
        super().__init__(loc, scale)

    @property
    def mean(self) -> Variable:
        """exp(loc + scale^2 / 2)."""
        return unary.exp(functions.add(self.loc, unary.square(self.scale) * 0.5))

    @property
    def variance(self) -> Variable:
        """(exp(scale^2) - 1) exp(2 loc + scale^2)."""
        return functions.multiply(
            unary.exp(unary.square(self.scale)) - 1.0, unary.square(self.mean)
        )

    def rsample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape`` followed by the batch; gradients pass to the parameters."""
        return unary.exp(super().rsample(shape))

    def log_prob(self, value: Variable) -> Variable:
        """The normal's at log(value), less log(value)."""
        logs = unary.log(value)
        return super().log_prob(logs) - logs

    def entropy(self) -> Variable:
        """The normal's entropy + loc."""
        return functions.add(super().entropy(), self.loc)


class Laplace(_Located):
    """Falling by e each ``scale`` from ``loc``, on both sides."""

    def __init__(self, loc: Any, scale: Any) -> None:
        super().__init__(loc, scale)

    @property
    def variance(self) -> Variable:
        """2 scale^2."""
        return functions.add(unary.square(self.scale) * 2.0, self._like())

    def icdf(self, value: Variable) -> Variable:
        """The number below which a part ``value`` of all lies."""
        side = value - 0.5
        far = functions.clip(1.0 - unary.abs(side) * 2.0, SMALLEST)
        return self._put(unary.sign(side) * unary.log(far) * -1.0)

    def cdf(self, value: Variable) -> Variable:
        """The part of all that lies below ``value``."""
        score, _ = self._score(value)
        return 0.5 - unary.sign(score) * (unary.exp(unary.abs(score) * -1.0) - 1.0) * 0.5

    def log_prob(self, value: Variable) -> Variable:
        """-|z| - log(2 scale)."""
        score, log_scale = self._score(value)
        return unary.abs(score) * -1.0 - log_scale - math.log(2)

    def entropy(self) -> Variable:
        """1 + log(2 scale)."""
        return self._spread(1.0 + math.log(2))


class Gumbel(_Located):
    """The largest of many: of density exp(-z - exp(-z)) / scale."""

    def __init__(self, loc: Any, scale: Any) -> None:
        super().__init__(loc, scale)

    @property
    def mean(self) -> Variable:
        """loc + 0.577... scale, by Euler and Mascheroni's constant."""
        return functions.add(self.loc, self.scale * _EULER)

    @property
    def variance(self) -> Variable:
        """pi^2 / 6 scale^2."""
        return functions.add(unary.square(self.scale) * (math.pi**2 / 6), self._like())

    def rsample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape`` followed by the batch; gradients pass to the parameters."""
        return self._put(gumbel(self._drawn(shape)))

    def cdf(self, value: Variable) -> Variable:
        """The part of all that lies below ``value``."""
        return unary.exp(unary.exp(self._score(value)[0] * -1.0) * -1.0)

    def log_prob(self, value: Variable) -> Variable:
        """-z - exp(-z) - log(scale)."""
        score, log_scale = self._score(value)
        return (score + unary.exp(score * -1.0)) * -1.0 - log_scale

    def entropy(self) -> Variable:
        """log(scale) + 1 + 0.577..."""
        return self._spread(1.0 + _EULER)


def gumbel(uniform: Variable) -> Variable:
    """Return draws of density exp(-z - exp(-z))."""
    inner = unary.log(functions.clip(uniform, SMALLEST, 1.0 - SMALLEST))
    return unary.log(inner * -1.0) * -1.0


class Cauchy(_Located):
    """Of density 1 / (pi scale (1 + z^2)); it has no mean."""

    mean = Distribution.mean

    def rsample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape`` followed by the batch; gradients pass to the parameters."""
        return self._put(unary.tan((self._drawn(shape) - 0.5) * math.pi))

    def cdf(self, value: Variable) -> Variable:
        """The part of all that lies below ``value``."""
        return unary.atan(self._score(value)[0]) * (1 / math.pi) + 0.5

    def log_prob(self, value: Variable) -> Variable:
        """-log(1 + z^2) - log(pi scale)."""
        score, log_scale = self._score(value)
        return unary.log(unary.square(score) + 1.0) * -1.0 - log_scale - math.log(math.pi)

    def entropy(self) -> Variable:
        """log(4 pi scale)."""
        return self._spread(math.log(4 * math.pi))


class Uniform(Continuous):
    """Evenly between ``low`` and ``high``."""

    _limits: Mapping[str, Limit] = {"low": ANY, "high": ANY}
    low: Variable
    high: Variable

    def __init__(self, low: Any, high: Any, name: str | None = None) -> None:
        is_known = not isinstance(low, Variable) and not isinstance(high, Variable)
        super().__init__(low, high)
        if is_known and not np.all(np.asarray(low) <= np.asarray(high)):
            raise InvalidValue(f"Uniform: low must not be above high, got {low!r} and {high!r}.")

    @property
    def mean(self) -> Variable:
        """The middle."""
        return functions.add(self.low, self.high) * 0.5

    @property
    def variance(self) -> Variable:
        """(high - low)^2 / 12."""
        return unary.square(functions.subtract(self.high, self.low)) * (1 / 12)

    def rsample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape`` followed by the batch; gradients pass to the parameters."""
        uniform, low, high = self._aligned(self._drawn(shape))
        return uniform * (high - low) + low

    def log_prob(self, value: Variable) -> Variable:
        """-log(high - low), and -inf outside."""
        value, low, high = self._aligned(value)
        inside = (value > low) & (value < high)
        return unary.log(layers.cast(inside, value.dtype)) - unary.log(high - low)

    def entropy(self) -> Variable:
        """log(high - low)."""
        return unary.log(functions.subtract(self.high, self.low))


class Exponential(Continuous, ExponentialFamily):
    """The time to an event that comes ``rate`` times a unit."""

    _limits: Mapping[str, Limit] = {"rate": POSITIVE}
    rate: Variable

    def __init__(self, rate: Any) -> None:
        super().__init__(rate)

    @property
    def mean(self) -> Variable:
        """1 / rate."""
        return unary.reciprocal(self.rate)

    @property
    def variance(self) -> Variable:
        """1 / rate^2."""
        return unary.square(self.mean)

    def cdf(self, value: Variable) -> Variable:
        """The part of all that lies below ``value``."""
        return 1.0 - unary.exp(functions.multiply(value, self.rate) * -1.0)

    def icdf(self, value: Variable) -> Variable:
        """The number below which a part ``value`` of all lies."""
        return functions.divide(unary.log(1.0 - value) * -1.0, self.rate)

    def log_prob(self, value: Variable) -> Variable:
        """log(rate) - rate value."""
        value, rate = self._aligned(value)
        return unary.log(rate) - rate * value

    def entropy(self) -> Variable:
        """1 - log(rate)."""
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
    low, high, other_low, other_high = aligned(p.low, p.high, q.low, q.high)
    return unary.log((other_high - other_low) / (high - low))


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Variable:
    ratio = functions.divide(q.rate, p.rate)
    return ratio - 1.0 - unary.log(ratio)


publish_definitions(__name__, withhold=(Continuous, gumbel))
