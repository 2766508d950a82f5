"""Distributions of classes and counts, and of a share between them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ..functions import math as functions
from ..functions.creation import arange, full_like
from ..functions.random import binomial, drawn, poisson
from ..functions.search import argmax, where
from ..graph.layers import shape as layers
from ..graph.layers import tensors, unary
from ..graph.layers.unary import exp, lgamma, log, log1p, reciprocal, square
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..nn.activations import log_softmax
from ..strategies.errors import InvalidValue, Unsupported
from .base import Distribution, ExponentialFamily, register_kl
from .located import SMALLEST, gumbel
from .parameters import CHANCE, COUNT, LIKELY, NOT_NEGATIVE, Parameter, aligned

_EPSILON = float(np.finfo(np.float32).eps)


def _logs(chance: Variable) -> tuple[Variable, Variable]:
    """Return log p and log(1 - p), finite at 0 and 1."""
    chance = functions.clip(chance, _EPSILON, 1.0 - _EPSILON)
    return log(chance), log1p(chance * -1.0)


def _doubt(chance: Variable) -> Variable:
    """Return -p log p - (1 - p) log(1 - p)."""
    yes, no = _logs(chance)
    return (chance * yes + (1.0 - chance) * no) * -1.0


class Bernoulli(ExponentialFamily):
    """1 with a probability ``probs``, else 0."""

    probs = Parameter(CHANCE)  # type: ignore[assignment]  # Paddle's name
    mean = property(lambda self: self.probs)
    variance = property(lambda self: self.probs * (1.0 - self.probs))

    def _from(self, numbers: Variable, /) -> Variable:
        return layers.cast(numbers < self.probs, self.probs.dtype)

    def rsample(self, shape: Any = (), temperature: float = 1.0) -> Variable:
        """Draw what a sigmoid makes of logits, softer the higher the ``temperature`` (arXiv 1611.00712).

        As in Paddle these are the numbers before the sigmoid.
        """
        uniform = functions.clip(self._drawn(shape), SMALLEST, 1.0 - SMALLEST)
        yes, no = _logs(self.probs)
        noise = log(uniform) - log1p(uniform * -1.0)
        return functions.add(noise, yes - no) / float(temperature)

    def cdf(self, value: Variable) -> Variable:
        """The probability of ``value`` or less."""
        below = functions.multiply(layers.ones_like(value), 1.0 - self.probs)
        result = where(value < 1.0, below, full_like(below, 1.0))
        return where(value < 0.0, full_like(result, 0.0), result)

    def log_prob(self, value: Variable) -> Variable:
        value, chance = self._aligned(value)
        yes, no = _logs(chance)
        return value * yes + (1.0 - value) * no

    def entropy(self) -> Variable:
        return _doubt(self.probs)


class Geometric(Distribution):
    """How many times in a row what has a probability ``probs`` does not come: 0, 1, ..."""

    probs = Parameter(LIKELY)  # type: ignore[assignment]  # Paddle's name
    mean = property(lambda self: reciprocal(self.probs) - 1.0)
    variance = property(lambda self: self.mean / self.probs)

    def _from(self, numbers: Variable, /) -> Variable:
        tries = log(functions.clip(numbers, SMALLEST))
        return unary.floor(functions.divide(tries, _logs(self.probs)[1]))

    def pmf(self, k: Variable) -> Variable:
        """The probability of k."""
        return self.prob(k)

    def log_pmf(self, k: Variable) -> Variable:
        """The logarithm of the probability of k."""
        return self.log_prob(k)

    def cdf(self, k: Variable) -> Variable:
        """The probability of k or less."""
        return 1.0 - functions.pow(1.0 - self.probs, k + 1.0)

    def log_prob(self, value: Variable) -> Variable:
        value, chance = self._aligned(value)
        yes, no = _logs(chance)
        return value * no + yes

    def entropy(self) -> Variable:
        return _doubt(self.probs) / self.probs


class ContinuousBernoulli(Distribution):
    """Of density C p^x (1 - p)^(1 - x) between 0 and 1. Loaiza-Ganem and Cunningham, arXiv 1907.06845.

    Between ``lims`` it is taken for even, and C is Taylor's series around p = 1/2. Of mean and variance, which
    are differences of large numbers there, the series counts between 0.45 and 0.55.
    """

    probs = Parameter(CHANCE)  # type: ignore[assignment]  # Paddle's name

    def __init__(self, probs: Any, lims: tuple[float, float] = (0.499, 0.501)) -> None:
        super().__init__(probs)
        chance = functions.clip(self.probs, _EPSILON, 1.0 - _EPSILON)
        self._values, self._off = {"probs": chance}, chance - 0.5
        self._is_far = (chance <= lims[0]) | (chance > lims[1])
        twice = where(self._is_far, self._off * 2.0, full_like(chance, 2 * lims[0] - 1.0))
        self._twice, self._odds = twice, log1p(twice) - log1p(twice * -1.0)

    def _log_norm(self) -> Variable:
        near = square(self._off) * (square(self._off) * (104 / 45) + 4 / 3) + math.log(2)
        return where(self._is_far, log(self._odds / self._twice), near)

    @property
    def mean(self) -> Variable:
        """p / (2 p - 1) - 1 / log(p / (1 - p))."""
        exact = (reciprocal(self._twice) + 1.0) * 0.5 - reciprocal(self._odds)
        near = (square(self._off) * (16 / 45) + 1 / 3) * self._off + 0.5
        return where(unary.abs(self._off) > 0.05, exact, near)

    @property
    def variance(self) -> Variable:
        """p (p - 1) / (1 - 2 p)^2 + 1 / log(p / (1 - p))^2."""
        odds, twice = square(reciprocal(self._odds)), square(reciprocal(self._twice))
        near = 1 / 12 - (1 / 15 - square(self._off) * (128 / 945)) * square(self._off)
        return where(unary.abs(self._off) > 0.05, odds + (1.0 - twice) * 0.25, near)

    def log_prob(self, value: Variable) -> Variable:
        value, norm, chance = self._aligned(value, self._log_norm())
        yes, no = _logs(chance)
        return norm + value * yes + (1.0 - value) * no

    def entropy(self) -> Variable:
        yes, no = _logs(self.probs)
        return self.mean * (no - yes) - no - self._log_norm()

    def _inside(self, value: Variable, exact: Variable) -> Variable:
        (condition, _) = aligned(self._is_far, value)
        return where(condition & (value == value), exact, value)

    def cdf(self, value: Variable) -> Variable:
        """The part of all that lies below ``value``."""
        value, twice, odds, chance = self._aligned(value, self._twice, self._odds)
        part = self._inside(value, functions.expm1(value * odds) * (1.0 - chance) / twice)
        return where(value >= 1.0, full_like(part, 1.0), functions.clip(part, 0.0, 1.0))

    def icdf(self, value: Variable) -> Variable:
        """The number below which a part ``value`` of all lies."""
        value, twice, odds, chance = self._aligned(value, self._twice, self._odds)
        return self._inside(value, log1p(value * twice / (1.0 - chance)) / odds)

    _from = icdf


class Categorical(Distribution):
    """One of n classes, whose weights stand in the last dimension of ``logits``.

    As in Paddle, draws, entropies and divergences take logits for logarithms of weights, and :meth:`probs` and
    :meth:`log_prob` for the weights themselves.
    """

    logits = Parameter()

    def __init__(self, logits: Any, name: str | None = None) -> None:
        super().__init__(logits)
        *batch, self._classes = self.batch_shape
        self.batch_shape = tuple(batch)

    def sample(self, shape: Any = ()) -> Variable:
        """Draw numbers of classes, int64: ``shape`` and then the batch. Jang et al., arXiv 1611.01144."""
        front = tensors.sizes_of(shape, "Categorical.sample")
        noise = gumbel(drawn(self.logits, front, "Categorical.sample"))
        return argmax(functions.add(noise, log_softmax(self.logits)), -1)

    def rsample(self, shape: Any = ()) -> Variable:
        """Refuse: a number of a class has no gradient.

        Raises:
            Unsupported: always.
        """
        raise Unsupported(
            "Categorical: no gradient passes through a class. Use gumbel_softmax, or sample."
        )

    def probs(self, value: Variable) -> Variable:
        """The shares of all weights that classes have: of ``value`` [K], in all rows, or [*batch, K]."""
        shares = self.logits / layers.reduce_sum(self.logits, -1, True)
        chosen = layers.one_hot_v2(layers.cast(value, "int64"), self._classes)
        shares = layers.unsqueeze(shares, [shares.ndim - 1])
        return layers.reduce_sum(functions.multiply(chosen, shares), -1)

    def prob(self, value: Variable) -> Variable:
        """As :meth:`probs`."""
        return self.probs(value)

    def log_prob(self, value: Variable) -> Variable:
        """The logarithm of :meth:`probs`."""
        return log(self.probs(value))

    def entropy(self) -> Variable:
        logs = log_softmax(self.logits)
        return layers.reduce_sum(exp(logs) * logs, -1) * -1.0


class _Counted(Distribution, ABC):
    """A distribution of counts, whose entropy is summed up over those that are likely."""

    _has_slopes = False

    @abstractmethod
    def _likely(self) -> Variable:
        """Return the counts [N] that matter."""

    def _expected(self, value_of: Any) -> Variable:
        """Return the mean of what a function makes of log p and of the counts [N, 1, ...]."""
        counts = self._likely()
        counts = layers.unsqueeze(counts, [1 + i for i in range(len(self.batch_shape))])
        logs = self.log_prob(counts)
        return layers.reduce_sum(exp(logs) * value_of(logs, counts), 0)

    def entropy(self) -> Variable:
        return self._expected(lambda logs, _: logs) * -1.0


class Binomial(_Counted):
    """How many of ``total_count`` come true, each with a probability ``probs``."""

    total_count = Parameter(COUNT)
    probs = Parameter(CHANCE)  # type: ignore[assignment]  # Paddle's name
    mean = property(lambda self: self.total_count * self.probs)
    variance = property(lambda self: self.mean * (1.0 - self.probs))
    _is_broadcast = True

    def __init__(self, total_count: Any, probs: Any) -> None:
        if isinstance(total_count, Variable):
            total_count = layers.cast(total_count, getattr(probs, "dtype", None) or "float32")
        super().__init__(total_count, probs)

    def _from(self, numbers: Variable, /) -> Variable:
        numbers, count, chance = self._aligned(numbers)
        return layers.cast(binomial(numbers * 0.0 + count, numbers * 0.0 + chance), count.dtype)

    def log_prob(self, value: Variable) -> Variable:
        value, count, chance = self._aligned(value)
        (yes, no), rest = _logs(chance), count - value
        ways = lgamma(count + 1.0) - lgamma(rest + 1.0) - lgamma(value + 1.0)
        return ways + value * yes + rest * no

    def _likely(self) -> Variable:
        return arange(0, functions.max(self.total_count) + 1.0, 1, self.total_count.dtype)


class Poisson(_Counted):
    """How many events come in a unit, of those that come ``rate`` times on average."""

    rate = Parameter(NOT_NEGATIVE)
    mean = property(lambda self: self.rate)
    variance = property(lambda self: self.rate)

    def _from(self, numbers: Variable, /) -> Variable:
        numbers, rate = self._aligned(numbers)
        return poisson(numbers * 0.0 + rate)

    def log_prob(self, value: Variable) -> Variable:
        value, rate = self._aligned(value)
        return value * log(functions.clip(rate, SMALLEST**5)) - rate - lgamma(value + 1.0)

    def _likely(self) -> Variable:
        most = functions.clip(functions.max(self.rate), 1.0)  # counts up to 30 deviations above
        return arange(0, unary.floor(most + unary.sqrt(most) * 30.0), 1, self.rate.dtype)


class Multinomial(Distribution):
    """How often each class comes among ``total_count``; weights are in the last dimension of ``probs``."""

    probs = Parameter(NOT_NEGATIVE)  # type: ignore[assignment]  # Paddle's name
    mean = property(lambda self: self.probs * float(self.total_count))
    variance = property(lambda self: self.mean * (1.0 - self.probs))
    _has_slopes = False

    def __init__(self, total_count: int, probs: Any) -> None:
        if total_count < 1:
            raise InvalidValue(
                f"Multinomial: total_count must be a whole number above 0, got {total_count!r}."
            )
        super().__init__(probs)
        self.batch_shape, self.event_shape = self.batch_shape[:-1], self.batch_shape[-1:]
        shares = self.probs / layers.reduce_sum(self.probs, -1, True)
        self.total_count, self._values = total_count, {"probs": shares}
        self._logits = log(functions.clip(shares, SMALLEST**5))

    def sample(self, shape: Any = ()) -> Variable:
        sizes = tensors.sizes_of(shape, "Multinomial.sample")
        classes = Categorical(self._logits).sample([self.total_count, *sizes])
        draw = layers.reduce_sum(layers.one_hot_v2(classes, self.event_shape[0]), 0)
        return layers.cast(draw, self.probs.dtype)

    def log_prob(self, value: Variable) -> Variable:
        value, logs = aligned(layers.cast(value, self._logits.dtype), self._logits)
        terms = layers.reduce_sum(value * logs - lgamma(value + 1.0), -1)
        return lgamma(layers.reduce_sum(value, -1) + 1.0) + terms

    def entropy(self) -> Variable:
        """n times the classes' entropy - log(n!) + the mean of the sum of log(count!)."""
        count = float(self.total_count)
        each = Binomial(count, self.probs)._expected(lambda _, counts: lgamma(counts + 1.0))
        own = Categorical(self._logits).entropy() * count
        return own - math.lgamma(count + 1.0) + layers.reduce_sum(each, -1)


@register_kl(Geometric, Geometric)  # as in Paddle
@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Variable:
    chance, other = aligned(p.probs, q.probs)
    (yes, no), (other_yes, other_no) = _logs(chance), _logs(other)
    return chance * (yes - other_yes) + (1.0 - chance) * (no - other_no)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Variable:
    mean, chance, norm = aligned(p.mean, q.probs, q._log_norm())
    yes, no = _logs(chance)
    return functions.add(p.entropy(), norm + mean * (yes - no) + no) * -1.0


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Variable:
    return p._expected(lambda logs, counts: logs - q.log_prob(counts))


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Variable:
    rate, other = aligned(p.rate, q.rate)
    return rate * log(rate / other) - rate + other


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Variable:
    logs, other = log_softmax(p.logits), log_softmax(q.logits)
    return layers.reduce_sum(exp(logs) * functions.subtract(logs, other), -1, True)


publish_definitions(__name__)
