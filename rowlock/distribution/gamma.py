"""Gamma distributions, and what is drawn by them: Beta, Dirichlet, Chi2, StudentT."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..functions import math as functions
from ..functions.creation import full_like
from ..functions.random import standard_gamma
from ..functions.search import where
from ..graph.layers import shape as layers
from ..graph.layers import tensors, unary
from ..graph.program.variable import Variable
from ..names import publish_definitions
from .base import Distribution, ExponentialFamily, register_kl
from .located import SMALLEST
from .parameters import ANY, NOT_NEGATIVE, POSITIVE, Limit, aligned

_digamma, _lgamma, _log = unary.digamma, unary.lgamma, unary.log


class Gamma(ExponentialFamily):
    """The time to event number ``concentration``, of events that come ``rate`` times a unit."""

    _limits: Mapping[str, Limit] = {"concentration": POSITIVE, "rate": POSITIVE}
    concentration: Variable
    rate: Variable

    def __init__(self, concentration: Any, rate: Any) -> None:
        super().__init__(concentration, rate)

    @property
    def mean(self) -> Variable:
        """concentration / rate."""
        return functions.divide(self.concentration, self.rate)

    @property
    def variance(self) -> Variable:
        """concentration / rate^2."""
        return functions.divide(self.mean, self.rate)

    def rsample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape`` followed by the batch; gradients pass to the rate, and as in Paddle to it alone."""
        uniform, concentration, rate = self._aligned(self._drawn(shape))
        return standard_gamma(uniform * 0.0 + concentration) / rate

    def log_prob(self, value: Variable) -> Variable:
        """a log b + (a - 1) log(value) - b value - log Gamma(a)."""
        value, a, b = self._aligned(value)
        return a * _log(b) + (a - 1.0) * _log(value) - b * value - _lgamma(a)

    def entropy(self) -> Variable:
        """a - log b + log Gamma(a) + (1 - a) digamma(a)."""
        a, b = self._aligned()
        return a - _log(b) + _lgamma(a) + (1.0 - a) * _digamma(a)


class Chi2(Gamma):
    """The sum of ``df`` squares of normal numbers."""

    _limits: Mapping[str, Limit] = {"df": POSITIVE}
    df: Variable

    def __init__(self, df: Any) -> None:
        super(Gamma, self).__init__(df)
        self.concentration, self.rate = self.df * 0.5, full_like(self.df, 0.5)
        self._all = [self.concentration, self.rate]


class Dirichlet(ExponentialFamily):
    """Shares of a whole, in the last dimension of ``concentration``."""

    _limits: Mapping[str, Limit] = {"concentration": POSITIVE}
    concentration: Variable

    def __init__(self, concentration: Any) -> None:
        super().__init__(concentration)
        self.batch_shape, self.event_shape = self.batch_shape[:-1], self.batch_shape[-1:]

    @property
    def _total(self) -> Variable:
        return layers.reduce_sum(self.concentration, -1, True)

    @property
    def mean(self) -> Variable:
        """Each concentration's share of all."""
        return self.concentration / self._total

    @property
    def variance(self) -> Variable:
        """mean (1 - mean) / (1 + all)."""
        return self.mean * (1.0 - self.mean) / (self._total + 1.0)

    def sample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape``, the batch, and the shares; no gradient passes."""
        uniform, concentration = self._aligned(self._drawn(shape))
        draw = functions.clip(standard_gamma(uniform * 0.0 + concentration), SMALLEST**5)
        draw = draw / layers.reduce_sum(draw, -1, True)
        draw.stop_gradient = True
        return draw

    def _log_beta(self) -> Variable:
        """Return the logarithm of the integral of the density without its factor."""
        a = self.concentration
        return layers.reduce_sum(_lgamma(a), -1) - _lgamma(layers.reduce_sum(a, -1))

    def log_prob(self, value: Variable) -> Variable:
        """The sum of (a - 1) log(value), less its norm."""
        value, a = self._aligned(value)
        logs = layers.reduce_sum(_log(value) * (a - 1.0), -1)
        return functions.subtract(logs, self._log_beta())

    def entropy(self) -> Variable:
        """The norm + (all - classes) digamma(all) - the sum of (a - 1) digamma(a)."""
        a, total = self.concentration, layers.reduce_sum(self.concentration, -1)
        own = layers.reduce_sum((a - 1.0) * _digamma(a), -1)
        return self._log_beta() + (total - float(self.event_shape[0])) * _digamma(total) - own


class Beta(ExponentialFamily):
    """The share of one of two: a :class:`Dirichlet` of ``alpha`` and ``beta``."""

    _limits: Mapping[str, Limit] = {"alpha": POSITIVE, "beta": POSITIVE}
    _is_broadcast = True
    alpha: Variable
    beta: Variable

    def __init__(self, alpha: Any, beta: Any) -> None:
        super().__init__(alpha, beta)
        self._pair = Dirichlet(layers.stack([self.alpha, self.beta], -1))

    @property
    def mean(self) -> Variable:
        """alpha / (alpha + beta)."""
        return self.alpha / (self.alpha + self.beta)

    @property
    def variance(self) -> Variable:
        """mean (1 - mean) / (1 + alpha + beta)."""
        return self.mean * (1.0 - self.mean) / (self.alpha + self.beta + 1.0)

    def sample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape`` followed by the batch; no gradient passes."""
        return tensors.unstack(self._pair.sample(shape), -1)[0]

    def log_prob(self, value: Variable) -> Variable:
        """That of the pair of ``value`` and the rest."""
        return self._pair.log_prob(layers.stack([value, 1.0 - value], -1))

    def entropy(self) -> Variable:
        """The pair's."""
        return self._pair.entropy()


class StudentT(Distribution):
    """``loc`` + ``scale`` z, of z normal by the root of a :class:`Chi2` over its ``df``."""

    _limits: Mapping[str, Limit] = {"df": POSITIVE, "loc": ANY, "scale": NOT_NEGATIVE}
    _is_broadcast = True
    df: Variable
    loc: Variable
    scale: Variable

    def __init__(self, df: Any, loc: Any, scale: Any, name: str | None = None) -> None:
        super().__init__(df, loc, scale)

    @property
    def mean(self) -> Variable:
        """``loc``; NaN up to ``df`` 1."""
        return where(self.df > 1.0, self.loc, full_like(self.loc, math.nan))

    @property
    def variance(self) -> Variable:
        """scale^2 df / (df - 2); infinite up to ``df`` 2, NaN up to 1."""
        finite = unary.square(self.scale) * self.df / (self.df - 2.0)
        result = where(self.df > 2.0, finite, full_like(finite, math.inf))
        return where(self.df > 1.0, result, full_like(finite, math.nan))

    def sample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape`` followed by the batch; no gradient passes."""
        normal, df, loc, scale = self._aligned(self._drawn(shape, is_normal=True))
        square = standard_gamma(normal * 0.0 + df * 0.5) * 2.0
        draw = loc + normal * unary.rsqrt(square / df) * scale
        draw.stop_gradient = True
        return draw

    def log_prob(self, value: Variable) -> Variable:
        """-(df + 1) / 2 log(1 + z^2 / df), less its norm."""
        value, df, loc, scale = self._aligned(value)
        square = unary.square((value - loc) / scale)
        half = (df + 1.0) * 0.5
        norm = _log(scale) + _log(df * math.pi) * 0.5 + _lgamma(df * 0.5) - _lgamma(half)
        return half * unary.log1p(square / df) * -1.0 - norm

    def entropy(self) -> Variable:
        """(df + 1) / 2 (digamma((df + 1) / 2) - digamma(df / 2)) + log(scale sqrt(df) B(df / 2, 1 / 2))."""
        whole, half = (self.df + 1.0) * 0.5, self.df * 0.5
        beta = _lgamma(half) + math.lgamma(0.5) - _lgamma(whole)
        slope = whole * (_digamma(whole) - _digamma(half))
        return _log(self.scale) + slope + _log(self.df) * 0.5 + beta


@register_kl(Gamma, Gamma)
def _gamma(p: Gamma, q: Gamma) -> Variable:
    a, b, c, d = aligned(p.concentration, p.rate, q.concentration, q.rate)
    norms = _lgamma(c) - _lgamma(a) + c * _log(b / d)
    result: Variable = norms + (a - c) * _digamma(a) + (d - b) * (a / b)
    return result


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Dirichlet, q: Dirichlet) -> Variable:
    a, b = aligned(p.concentration, q.concentration)
    slope = _digamma(a) - _digamma(layers.reduce_sum(a, -1, True))
    return functions.add(
        functions.subtract(q._log_beta(), p._log_beta()), layers.reduce_sum((a - b) * slope, -1)
    )


@register_kl(Beta, Beta)
def _beta(p: Beta, q: Beta) -> Variable:
    return _dirichlet(p._pair, q._pair)


publish_definitions(__name__)
