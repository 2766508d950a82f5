"""Distributions of classes and counts, and of a share between them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..functions import math as functions
from ..functions.creation import arange, full_like
from ..functions.random import binomial, drawn, poisson
from ..functions.search import argmax, where
from ..graph.layers import shape as layers
from ..graph.layers import tensors, unary
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..nn.activations import log_softmax
from ..strategies.errors import InvalidValue, Unsupported
from .base import Distribution, ExponentialFamily, register_kl
from .located import SMALLEST, Continuous, gumbel
from .parameters import ANY, CHANCE, COUNT, LIKELY, NOT_NEGATIVE, Limit, aligned

_EPSILON = float(np.finfo(np.float32).eps)


def _logs(chance: Variable) -> tuple[Variable, Variable]:
    """Return log p and log(1 - p), finite at 0 and 1."""
    chance = functions.clip(chance, _EPSILON, 1.0 - _EPSILON)
    return unary.log(chance), unary.log1p(chance * -1.0)


class _Chance(Distribution):
    """A distribution of one probability."""

    _limits: Mapping[str, Limit] = {"probs": CHANCE}

    def __init__(self, probs: Any, name: str | None = None) -> None:
        super().__init__(probs)

    @property
    def _chance(self) -> Variable:
        return self._all[0]

    def _doubt(self) -> Variable:
        """Return -p log p - (1 - p) log(1 - p)."""
        yes, no = _logs(self._chance)
        return (self._chance * yes + (1.0 - self._chance) * no) * -1.0


class Bernoulli(_Chance, ExponentialFamily):
    """1 with a probability ``probs``, else 0."""

    @property
    def mean(self) -> Variable:
        """``probs``."""
        return self._chance

    @property
    def variance(self) -> Variable:
        """probs (1 - probs)."""
        return self._chance * (1.0 - self._chance)

    def sample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape`` followed by the batch."""
        return layers.cast(self._drawn(shape) < self._chance, self._chance.dtype)

    def rsample(self, shape: Any = (), temperature: float = 1.0) -> Variable:
        """Draw what a sigmoid makes of logits, softer the higher the ``temperature`` (arXiv 1611.00712).

        As in Paddle these are the numbers before the sigmoid.
        """
        uniform = functions.clip(self._drawn(shape), SMALLEST, 1.0 - SMALLEST)
        noise = unary.log(uniform) - unary.log1p(uniform * -1.0)
        yes, no = _logs(self._chance)
        return functions.add(noise, yes - no) / float(temperature)

    def cdf(self, value: Variable) -> Variable:
        """The probability of ``value`` or less."""
        below = functions.multiply(layers.ones_like(value), 1.0 - self._chance)
        result = where(value < 1.0, below, full_like(below, 1.0))
        return where(value < 0.0, full_like(result, 0.0), result)

    def log_prob(self, value: Variable) -> Variable:
        """value log p + (1 - value) log(1 - p)."""
        value, chance = self._aligned(value)
        yes, no = _logs(chance)
        return value * yes + (1.0 - value) * no

    def entropy(self) -> Variable:
        """-p log p - (1 - p) log(1 - p)."""
        return self._doubt()


class Geometric(_Chance):
    """How many times in a row what has a probability ``probs`` does not come: 0, 1, ..."""

    _limits: Mapping[str, Limit] = {"probs": LIKELY}

    def __init__(self, probs: Any) -> None:
        super().__init__(probs)

    @property
    def mean(self) -> Variable:
        """1 / probs - 1."""
        return unary.reciprocal(self._chance) - 1.0

    @property
    def variance(self) -> Variable:
        """(1 / probs - 1) / probs."""
        return self.mean / self._chance

    def rsample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape`` followed by the batch."""
        tries = unary.log(functions.clip(self._drawn(shape), SMALLEST))
        return unary.floor(functions.divide(tries, _logs(self._chance)[1]))

    def pmf(self, k: Variable) -> Variable:
        """The probability of k."""
        return self.prob(k)

    def log_pmf(self, k: Variable) -> Variable:
        """The logarithm of the probability of k."""
        return self.log_prob(k)

    def cdf(self, k: Variable) -> Variable:
        """The probability of k or less."""
        return 1.0 - functions.pow(1.0 - self._chance, k + 1.0)

    def log_prob(self, value: Variable) -> Variable:
        """value log(1 - p) + log p."""
        value, chance = self._aligned(value)
        yes, no = _logs(chance)
        return value * no + yes

    def entropy(self) -> Variable:
        """-(p log p + (1 - p) log(1 - p)) / p."""
        return self._doubt() / self._chance


class ContinuousBernoulli(_Chance, Continuous):
    """Of density C p^x (1 - p)^(1 - x) between 0 and 1. Loaiza-Ganem and Cunningham, arXiv 1907.06845.

    Between ``lims`` it is taken for even, and C is Taylor's series around p = 1/2. Of mean and variance, which
    are differences of large numbers there, the series counts between 0.45 and 0.55.
    """

    def __init__(self, probs: Any, lims: tuple[float, float] = (0.499, 0.501)) -> None:
        super().__init__(probs)
        chance = functions.clip(self._chance, _EPSILON, 1.0 - _EPSILON)
        self._all, self.probs = [chance], chance  # type: ignore[assignment]  # Paddle's name
        self._is_far = (chance <= lims[0]) | (chance > lims[1])
        self._off = chance - 0.5
        twice = where(self._is_far, self._off * 2.0, full_like(chance, 2 * lims[0] - 1.0))
        self._twice, self._odds = twice, unary.log1p(twice) - unary.log1p(twice * -1.0)

    def _log_norm(self) -> Variable:
        square = unary.square(self._off)
        near = square * (square * (104 / 45) + 4 / 3) + math.log(2)
        return where(self._is_far, unary.log(self._odds / self._twice), near)

    @property
    def mean(self) -> Variable:
        """p / (2 p - 1) - 1 / log(p / (1 - p))."""
        exact = (unary.reciprocal(self._twice) + 1.0) * 0.5 - unary.reciprocal(self._odds)
        near = (unary.square(self._off) * (16 / 45) + 1 / 3) * self._off + 0.5
        return where(unary.abs(self._off) > 0.05, exact, near)

    @property
    def variance(self) -> Variable:
        """p (p - 1) / (1 - 2 p)^2 + 1 / log(p / (1 - p))^2."""
        odds, twice = unary.reciprocal(self._odds), unary.reciprocal(self._twice)
        exact = unary.square(odds) + (1.0 - unary.square(twice)) * 0.25
        square = unary.square(self._off)
        near = 1 / 12 - (1 / 15 - square * (128 / 945)) * square
        return where(unary.abs(self._off) > 0.05, exact, near)

    def log_prob(self, value: Variable) -> Variable:
        """log C + value log p + (1 - value) log(1 - p)."""
        value, norm, chance = self._aligned(value, self._log_norm())
        yes, no = _logs(chance)
        return norm + value * yes + (1.0 - value) * no

    def entropy(self) -> Variable:
        """-log C - mean log p - (1 - mean) log(1 - p)."""
        yes, no = _logs(self._chance)
        return self.mean * (no - yes) - no - self._log_norm()

    def cdf(self, value: Variable) -> Variable:
        """The part of all that lies below ``value``."""
        value, twice, odds, chance = self._aligned(value, self._twice, self._odds)
        exact = functions.expm1(value * odds) * (1.0 - chance) / twice
        part = where(_like(self._is_far, value), exact, value)
        return where(value >= 1.0, full_like(part, 1.0), functions.clip(part, 0.0, 1.0))

    def icdf(self, value: Variable) -> Variable:
        """The number below which a part ``value`` of all lies."""
        value, twice, odds, chance = self._aligned(value, self._twice, self._odds)
        exact = unary.log1p(value * twice / (1.0 - chance)) / odds
        return where(_like(self._is_far, value), exact, value)


def _like(condition: Variable, value: Variable) -> Variable:
    """Return a condition in the shape of ``value``, which has the batch behind."""
    return aligned(value, condition)[1] & (value == value)


class Categorical(Distribution):
    """One of n classes, whose weights stand in the last dimension of ``logits``.

    As in Paddle, draws, entropies and divergences take logits for logarithms of weights, and :meth:`probs` and
    :meth:`log_prob` for the weights themselves.
    """

    _limits: Mapping[str, Limit] = {"logits": ANY}
    logits: Variable

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
        return unary.log(self.probs(value))

    def entropy(self) -> Variable:
        """The mean of -log p, of p by softmax."""
        logs = log_softmax(self.logits)
        return layers.reduce_sum(unary.exp(logs) * logs, -1) * -1.0


class _Counted(Distribution):
    """A distribution of counts, whose entropy is summed up over those that are likely."""

    def _likely(self) -> Variable:
        """Return the counts [N] that matter."""
        raise NotImplementedError

    def _expected(self, value_of: Any) -> Variable:
        """Return the mean of what a function makes of log p and of the counts [N, 1, ...]."""
        counts = self._likely()
        counts = layers.unsqueeze(counts, [1 + i for i in range(len(self.batch_shape))])
        logs = self.log_prob(counts)
        return layers.reduce_sum(unary.exp(logs) * value_of(logs, counts), 0)

    def entropy(self) -> Variable:
        """The sum of -p log p."""
        return self._expected(lambda logs, _: logs) * -1.0


class Binomial(_Counted):
    """How many of ``total_count`` come true, each with a probability ``probs``."""

    _limits: Mapping[str, Limit] = {"total_count": COUNT, "probs": CHANCE}
    _is_broadcast = True
    total_count: Variable

    def __init__(self, total_count: Any, probs: Any) -> None:
        if isinstance(total_count, Variable):
            total_count = layers.cast(total_count, getattr(probs, "dtype", None) or "float32")
        super().__init__(total_count, probs)

    @property
    def mean(self) -> Variable:
        """total_count probs."""
        return self.total_count * self._all[1]

    @property
    def variance(self) -> Variable:
        """total_count probs (1 - probs)."""
        return self.mean * (1.0 - self._all[1])

    def sample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape`` followed by the batch."""
        uniform, count, chance = self._aligned(self._drawn(shape))
        draw = layers.cast(binomial(uniform * 0.0 + count, uniform * 0.0 + chance), count.dtype)
        draw.stop_gradient = True
        return draw

    def log_prob(self, value: Variable) -> Variable:
        """log of (total_count over value) + value log p + (total_count - value) log(1 - p)."""
        value, count, chance = self._aligned(value)
        yes, no = _logs(chance)
        rest = count - value
        ways = unary.lgamma(count + 1.0) - unary.lgamma(rest + 1.0) - unary.lgamma(value + 1.0)
        return ways + value * yes + rest * no

    def _likely(self) -> Variable:
        return arange(0, functions.max(self.total_count) + 1.0, 1, self.total_count.dtype)


class Poisson(_Counted):
    """How many events come in a unit, of those that come ``rate`` times on average."""

    _limits: Mapping[str, Limit] = {"rate": NOT_NEGATIVE}
    rate: Variable

    def __init__(self, rate: Any) -> None:
        super().__init__(rate)

    @property
    def mean(self) -> Variable:
        """``rate``."""
        return self.rate

    @property
    def variance(self) -> Variable:
        """``rate``."""
        return self.rate

    def sample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape`` followed by the batch."""
        uniform, rate = self._aligned(self._drawn(shape))
        draw = poisson(uniform * 0.0 + rate)
        draw.stop_gradient = True
        return draw

    def log_prob(self, value: Variable) -> Variable:
        """value log(rate) - rate - log(value!)."""
        value, rate = self._aligned(value)
        logs = unary.log(functions.clip(rate, SMALLEST**5))
        return value * logs - rate - unary.lgamma(value + 1.0)

    def _likely(self) -> Variable:
        most = functions.clip(functions.max(self.rate), 1.0)  # counts up to 30 deviations above
        return arange(0, unary.floor(most + unary.sqrt(most) * 30.0), 1, self.rate.dtype)


class Multinomial(Distribution):
    """How often each class comes among ``total_count``; weights are in the last dimension of ``probs``."""

    _limits: Mapping[str, Limit] = {"probs": NOT_NEGATIVE}

    def __init__(self, total_count: int, probs: Any) -> None:
        if isinstance(total_count, bool) or not isinstance(total_count, int) or total_count < 1:
            raise InvalidValue(
                f"Multinomial: total_count must be a whole number above 0, got {total_count!r}."
            )
        super().__init__(probs)
        self.total_count = total_count
        self.batch_shape, self.event_shape = self.batch_shape[:-1], self.batch_shape[-1:]
        self._shares = self._all[0] / layers.reduce_sum(self._all[0], -1, True)
        self.probs = self._shares  # type: ignore[assignment]  # Paddle's name
        self._logits = unary.log(functions.clip(self._shares, SMALLEST**5))

    @property
    def mean(self) -> Variable:
        """total_count probs."""
        return self._shares * float(self.total_count)

    @property
    def variance(self) -> Variable:
        """total_count probs (1 - probs)."""
        return self.mean * (1.0 - self._shares)

    def sample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape``, the batch, and a count for each class."""
        sizes = tensors.sizes_of(shape, "Multinomial.sample")
        classes = Categorical(self._logits).sample([self.total_count, *sizes])
        draw = layers.reduce_sum(layers.one_hot_v2(classes, self.event_shape[0]), 0)
        return layers.cast(draw, self._shares.dtype)

    def log_prob(self, value: Variable) -> Variable:
        """log(total_count!) + the sum of value log p - log(value!)."""
        value, logs = aligned(layers.cast(value, self._logits.dtype), self._logits)
        terms = layers.reduce_sum(value * logs - unary.lgamma(value + 1.0), -1)
        return unary.lgamma(layers.reduce_sum(value, -1) + 1.0) + terms

    def entropy(self) -> Variable:
        """n times the classes' entropy - log(n!) + the mean of the sum of log(count!)."""
        count = float(self.total_count)
        each = Binomial(count, self._shares)
        factorials = each._expected(lambda _, counts: unary.lgamma(counts + 1.0))
        own = Categorical(self._logits).entropy() * count
        return own - math.lgamma(count + 1.0) + layers.reduce_sum(factorials, -1)


@register_kl(Geometric, Geometric)  # as in Paddle
@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: _Chance, q: _Chance) -> Variable:
    chance, other = aligned(p._chance, q._chance)
    (yes, no), (other_yes, other_no) = _logs(chance), _logs(other)
    return chance * (yes - other_yes) + (1.0 - chance) * (no - other_no)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Variable:
    mean, chance, norm = aligned(p.mean, q._chance, q._log_norm())
    yes, no = _logs(chance)
    return functions.add(p.entropy(), norm + mean * (yes - no) + no) * -1.0


@register_kl(Binomial, Binomial)
def _binomial(p: Binomial, q: Binomial) -> Variable:
    return p._expected(lambda logs, counts: logs - q.log_prob(counts))


@register_kl(Poisson, Poisson)
def _poisson(p: Poisson, q: Poisson) -> Variable:
    rate, other = aligned(p.rate, q.rate)
    return rate * unary.log(rate / other) - rate + other


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Variable:
    logs, other = log_softmax(p.logits), log_softmax(q.logits)
    return layers.reduce_sum(unary.exp(logs) * functions.subtract(logs, other), -1, True)


publish_definitions(__name__)
