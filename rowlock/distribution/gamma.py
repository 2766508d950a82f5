"""Gamma distributions, and what is drawn by them: Beta, Dirichlet, Chi2, StudentT."""

from __future__ import annotations

import math
from typing import Any

from ..functions import math as functions
from ..functions.creation import full_like
from ..functions.random import standard_gamma
from ..functions.search import where
from ..graph.layers import shape as layers
from ..graph.layers import tensors
from ..graph.layers.unary import digamma, lgamma, log, log1p, rsqrt, square
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidValue
from .base import Distribution, ExponentialFamily, register_kl
from .located import SMALLEST
from .parameters import NOT_NEGATIVE, POSITIVE, Parameter, aligned


class Gamma(ExponentialFamily):
    """The time to event number ``concentration``, of events that come ``rate`` times a unit.

    As in Paddle gradients pass from ``rsample`` to the rate alone.
    """

    concentration = Parameter(POSITIVE)
    rate = Parameter(POSITIVE)
    mean = property(lambda self: functions.divide(self.concentration, self.rate))
    variance = property(lambda self: functions.divide(self.mean, self.rate))

    def _from(self, numbers: Variable, /) -> Variable:
        numbers, concentration, rate = self._aligned(numbers)
        return standard_gamma(numbers * 0.0 + concentration) / rate

    def log_prob(self, value: Variable) -> Variable:
        value, a, b = self._aligned(value)
        return a * log(b) + (a - 1.0) * log(value) - b * value - lgamma(a)

    def entropy(self) -> Variable:
        a, b = self._aligned()
        return a - log(b) + lgamma(a) + (1.0 - a) * digamma(a)


class Chi2(Gamma):
    """The sum of ``df`` squares of normal numbers."""

    df = Parameter(POSITIVE)

    def __init__(self, df: Any) -> None:
        super().__init__(df)
        degrees = vars(self)["df"] = self.df
        self._values = {"concentration": degrees * 0.5, "rate": full_like(degrees, 0.5)}


class Dirichlet(ExponentialFamily):
    """Shares of a whole, in the last dimension of ``concentration``."""

    concentration = Parameter(POSITIVE)
    mean = property(lambda self: self.concentration / self._total)
    variance = property(lambda self: self.mean * (1.0 - self.mean) / (self._total + 1.0))
    _total = property(lambda self: layers.reduce_sum(self.concentration, -1, True))
    _has_slopes = False

    def __init__(self, concentration: Any) -> None:
        if isinstance(concentration, int | float):
            raise InvalidValue(
                f"Dirichlet: concentration must have a number for each share, got {concentration}."
            )
        super().__init__(concentration)
        self.batch_shape, self.event_shape = self.batch_shape[:-1], self.batch_shape[-1:]

    def _from(self, numbers: Variable, /) -> Variable:
        numbers, concentration = self._aligned(numbers)
        draw = functions.clip(standard_gamma(numbers * 0.0 + concentration), SMALLEST**5)
        return draw / layers.reduce_sum(draw, -1, True)

    def _log_beta(self) -> Variable:
        """Return the logarithm of the integral of the density without its factor."""
        a = self.concentration
        return layers.reduce_sum(lgamma(a), -1) - lgamma(layers.reduce_sum(a, -1))

    def log_prob(self, value: Variable) -> Variable:
        value, a = self._aligned(value)
        return functions.subtract(layers.reduce_sum(log(value) * (a - 1.0), -1), self._log_beta())

    def entropy(self) -> Variable:
        a, total = self.concentration, layers.reduce_sum(self.concentration, -1)
        own = layers.reduce_sum((a - 1.0) * digamma(a), -1)
        return self._log_beta() + (total - float(self.event_shape[0])) * digamma(total) - own


class Beta(ExponentialFamily):
    """The share of one of two: a :class:`Dirichlet` of ``alpha`` and ``beta``."""

    alpha = Parameter(POSITIVE)
    beta = Parameter(POSITIVE)
    mean = property(lambda self: self.alpha / self._sum)
    variance = property(lambda self: self.mean * (1.0 - self.mean) / (self._sum + 1.0))
    _sum = property(lambda self: self.alpha + self.beta)
    _pair = property(lambda self: Dirichlet(layers.stack([self.alpha, self.beta], -1)))
    _is_broadcast, _has_slopes = True, False

    def sample(self, shape: Any = ()) -> Variable:
        return tensors.unstack(self._pair.sample(shape), -1)[0]

    def log_prob(self, value: Variable) -> Variable:
        pair: Dirichlet = self._pair
        return pair.log_prob(layers.stack([value, 1.0 - value], -1))

    def entropy(self) -> Variable:
        pair: Dirichlet = self._pair
        return pair.entropy()


class StudentT(Distribution):
    """``loc`` + ``scale`` z, of z normal by the root of a :class:`Chi2` over its ``df``.

    The mean is NaN up to ``df`` 1, the variance too, and infinite up to 2.
    """

    df = Parameter(POSITIVE)
    loc = Parameter()
    scale = Parameter(NOT_NEGATIVE)
    mean = property(lambda self: where(self.df > 1.0, self.loc, full_like(self.loc, math.nan)))
    _is_broadcast, _is_normal, _has_slopes = True, True, False

    @property
    def variance(self) -> Variable:
        """scale^2 df / (df - 2)."""
        finite = square(self.scale) * self.df / (self.df - 2.0)
        result = where(self.df > 2.0, finite, full_like(finite, math.inf))
        return where(self.df > 1.0, result, full_like(finite, math.nan))

    def _from(self, numbers: Variable, /) -> Variable:
        numbers, df, loc, scale = self._aligned(numbers)
        chi2 = standard_gamma(numbers * 0.0 + df * 0.5) * 2.0
        return loc + numbers * rsqrt(chi2 / df) * scale

    def log_prob(self, value: Variable) -> Variable:
        value, df, loc, scale = self._aligned(value)
        half = (df + 1.0) * 0.5
        norm = log(scale) + log(df * math.pi) * 0.5 + lgamma(df * 0.5) - lgamma(half)
        return half * log1p(square((value - loc) / scale) / df) * -1.0 - norm

    def entropy(self) -> Variable:
        whole, half = (self.df + 1.0) * 0.5, self.df * 0.5
        beta = lgamma(half) + math.lgamma(0.5) - lgamma(whole)
        return (
            log(self.scale) + whole * (digamma(whole) - digamma(half)) + log(self.df) * 0.5 + beta
        )


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Variable:
    a, b, c, d = aligned(p.concentration, p.rate, q.concentration, q.rate)
    return lgamma(c) - lgamma(a) + c * log(b / d) + (a - c) * digamma(a) + (d - b) * (a / b)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Variable:
    a, b = aligned(p.concentration, q.concentration)
    slope = digamma(a) - digamma(layers.reduce_sum(a, -1, True))
    own = layers.reduce_sum((a - b) * slope, -1)
    return functions.add(functions.subtract(q._log_beta(), p._log_beta()), own)


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Variable:
    return _dirichlet(p._pair, q._pair)


publish_definitions(__name__)
