"""``paddle.distribution``: distributions whose parameters are variables, numbers or arrays.

A distribution has a ``batch_shape``, that of its parameters, broadcast; samples are ``shape`` and then it. The
first size of a batch may be unknown, as of what is fed. Draws are functions of numbers that do not depend on
parameters, so gradients pass from ``rsample`` to these: Kingma and Welling, arXiv 1312.6114.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, ClassVar

import numpy as np

from .functions import math as functions
from .functions.creation import full_like
from .functions.search import argmax, where
from .graph.layers import draws, tensors, unary
from .graph.layers import shape as layers
from .graph.program.variable import Variable
from .names import publish_definitions
from .nn.activations import log_softmax
from .strategies.errors import InvalidType, InvalidValue, Unsupported

_EULER = 0.57721566490153286060  # Euler and Mascheroni's constant
_SMALLEST = 1e-7  # of uniform numbers whose logarithm is taken


def _values(value: Any, argument: str, kind: str) -> Variable:
    """Return a parameter as a Variable; numbers, lists and arrays are float32, arrays of float64 stay so."""
    if isinstance(value, Variable):
        return value
    if isinstance(value, (bool, str)) or not isinstance(
        value, (int, float, list, tuple, np.ndarray)
    ):
        raise InvalidType(
            f"{kind}: {argument} must be a number, a list, an array or a Variable, got {value!r}."
        )
    array = np.atleast_1d(np.asarray(value))
    return layers.assign(
        array if array.dtype == np.float64 and value is array else array.astype("f")
    )


def _broadcast(first: tuple[int, ...], second: tuple[int, ...], kind: str) -> tuple[int, ...]:
    """Return the shape of both parameters; a size that is not known is one that is, unless that is 1.

    Raises:
        InvalidValue: they do not fit.
    """
    sizes = []
    for pair in zip_longest(reversed(first), reversed(second), fillvalue=1):
        if pair[0] != pair[1] and not {1, -1} & set(pair):
            raise InvalidValue(
                f"{kind}: parameters of {list(first)} and {list(second)} do not fit."
            )
        sizes.append(min(pair) if max(pair) == 1 else max(pair))
    return tuple(reversed(sizes))


class Distribution:
    """The base of distributions: parameters that broadcast, which ``_names`` lists."""

    _names: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *parameters: Any) -> None:
        kind = type(self).__name__
        values = [_values(p, n, kind) for p, n in zip(parameters, self._names, strict=True)]
        self.batch_shape = tuple(values[0].shape or ())
        for value in values[1:]:
            self.batch_shape = _broadcast(self.batch_shape, tuple(value.shape or ()), kind)
        self.event_shape: tuple[int, ...] = ()
        for name, value in zip(self._names, values, strict=True):
            setattr(self, name, value)
        self._all = values

    @property
    def mean(self) -> Variable:
        """The mean."""
        raise Unsupported(f"{type(self).__name__} has no mean.")

    @property
    def variance(self) -> Variable:
        """The mean of squared distances from the mean."""
        raise Unsupported(f"{type(self).__name__} has no variance.")

    @property
    def stddev(self) -> Variable:
        """The root of the variance."""
        return unary.sqrt(self.variance)

    def _like(self) -> Variable:
        """Return zeros in the shape of a batch."""
        total = self._all[0] * 0.0
        for value in self._all[1:]:
            total = functions.add(total, value * 0.0)
        return total

    def _drawn(self, shape: Any, more: Sequence[int] = (), *, is_normal: bool = False) -> Variable:
        """Draw from [0, 1), or around 0 with deviation 1: ``shape``, the batch, and ``more``.

        Raises:
            InvalidValue: of the batch more than the first size is unknown.
        """
        front = tensors.sizes_of(shape, f"{type(self).__name__}.sample")
        sizes = [*front, *self.batch_shape, *more]
        dtype = self._all[0].dtype
        ends = (0.0, 1.0)  # or mean and deviation
        if -1 not in sizes and is_normal:
            drawn = tensors.gaussian_random(sizes, *ends, dtype=dtype)
        elif -1 not in sizes:
            drawn = tensors.uniform_random(sizes, dtype, *ends)
        elif self.batch_shape[0] == -1 and sizes.count(-1) == 1:
            like = (self._like(), sizes)
            if is_normal:
                drawn = draws.gaussian_random_batch_size_like(
                    *like, 0, len(front), *ends, dtype=dtype
                )
            else:
                drawn = draws.uniform_random_batch_size_like(*like, dtype, 0, len(front), *ends)
        else:
            raise InvalidValue(
                f"{type(self).__name__}.sample: only the first size of a batch may be unknown, got "
                f"{list(self.batch_shape)}."
            )
        drawn.stop_gradient = True
        return drawn

    def _transformed(self, uniform: Variable) -> Variable:
        """Return the numbers below which a part ``uniform`` of all lies."""
        raise Unsupported(f"{type(self).__name__}: drawing is not built.")

    def rsample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape`` followed by the batch; gradients pass to the parameters."""
        return self._transformed(self._drawn(shape))

    def sample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape`` followed by the batch; no gradient passes."""
        drawn = self.rsample(shape)
        drawn.stop_gradient = True
        return drawn

    def log_prob(self, value: Variable) -> Variable:
        """The logarithm of the density, or of the probability, of ``value``."""
        raise Unsupported(f"{type(self).__name__}: log_prob is not built.")

    def prob(self, value: Variable) -> Variable:
        """The density, or the probability, of ``value``."""
        return unary.exp(self.log_prob(value))

    def probs(self, value: Variable) -> Variable:
        """As :meth:`prob`."""
        return self.prob(value)

    def entropy(self) -> Variable:
        """The mean of -log_prob, in nats."""
        raise Unsupported(f"{type(self).__name__}: entropy is not built.")

    def kl_divergence(self, other: Distribution) -> Variable:
        """The mean of log_prob minus the other's."""
        return kl_divergence(self, other)


class _Placed(Distribution):
    """A distribution of ``loc`` + ``scale`` z."""

    _names = ("loc", "scale")
    loc: Variable
    scale: Variable

    def __init__(self, loc: Any, scale: Any, name: str | None = None) -> None:
        super().__init__(loc, scale)

    def _score(self, value: Variable) -> Variable:
        return functions.divide(functions.subtract(value, self.loc), self.scale)

    def _put(self, score: Variable) -> Variable:
        return functions.add(functions.multiply(score, self.scale), self.loc)


class Normal(_Placed):
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
        """The logarithm of the density at ``value``."""
        half = unary.square(self._score(value)) * -0.5
        return functions.subtract(half, unary.log(self.scale)) - 0.5 * math.log(2 * math.pi)

    def entropy(self) -> Variable:
        """1/2 + log(2 pi) / 2 + log(scale)."""
        logs = unary.log(self.scale) + 0.5 * (1.0 + math.log(2 * math.pi))
        return functions.add(logs, self._like())


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
        square = unary.square(self.scale)
        return (unary.exp(square) - 1.0) * unary.exp(functions.add(self.loc * 2.0, square))

    def rsample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape`` followed by the batch; gradients pass to the parameters."""
        return unary.exp(super().rsample(shape))

    def log_prob(self, value: Variable) -> Variable:
        """The logarithm of the density at ``value``."""
        logs = unary.log(value)
        return super().log_prob(logs) - logs

    def entropy(self) -> Variable:
        """The normal's entropy + loc."""
        return functions.add(super().entropy(), self.loc)


class Laplace(_Placed):
    """Falling by e each ``scale`` from ``loc``, on both sides."""

    def __init__(self, loc: Any, scale: Any) -> None:
        super().__init__(loc, scale)

    @property
    def mean(self) -> Variable:
        """``loc``."""
        return functions.add(self.loc, self._like())

    @property
    def variance(self) -> Variable:
        """2 scale^2."""
        return functions.add(unary.square(self.scale) * 2.0, self._like())

    def _transformed(self, uniform: Variable) -> Variable:
        side = uniform - 0.5
        far = functions.clip(1.0 - unary.abs(side) * 2.0, _SMALLEST)
        return self._put(unary.sign(side) * unary.log(far) * -1.0)

    def icdf(self, value: Variable) -> Variable:
        """The number below which a part ``value`` of all lies."""
        return self._transformed(value)

    def cdf(self, value: Variable) -> Variable:
        """The part of all that lies below ``value``."""
        score = self._score(value)
        return 0.5 - unary.sign(score) * (unary.exp(unary.abs(score) * -1.0) - 1.0) * 0.5

    def log_prob(self, value: Variable) -> Variable:
        """The logarithm of the density at ``value``."""
        return unary.abs(self._score(value)) * -1.0 - unary.log(self.scale * 2.0)

    def entropy(self) -> Variable:
        """1 + log(2 scale)."""
        return functions.add(unary.log(self.scale * 2.0) + 1.0, self._like())


class Gumbel(_Placed):
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

    def _transformed(self, uniform: Variable) -> Variable:
        return self._put(_gumbel(uniform))

    def cdf(self, value: Variable) -> Variable:
        """The part of all that lies below ``value``."""
        return unary.exp(unary.exp(self._score(value) * -1.0) * -1.0)

    def log_prob(self, value: Variable) -> Variable:
        """The logarithm of the density at ``value``."""
        score = self._score(value)
        return (score + unary.exp(score * -1.0)) * -1.0 - unary.log(self.scale)

    def entropy(self) -> Variable:
        """log(scale) + 1 + 0.577..."""
        return functions.add(unary.log(self.scale) + (1.0 + _EULER), self._like())


def _gumbel(uniform: Variable) -> Variable:
    """Return draws of density exp(-z - exp(-z))."""
    inner = unary.log(functions.clip(uniform, _SMALLEST, 1.0 - _SMALLEST))
    return unary.log(inner * -1.0) * -1.0


class Cauchy(_Placed):
    """Of density 1 / (pi scale (1 + z^2)); it has no mean."""

    def _transformed(self, uniform: Variable) -> Variable:
        return self._put(unary.tan((uniform - 0.5) * math.pi))

    def cdf(self, value: Variable) -> Variable:
        """The part of all that lies below ``value``."""
        return unary.atan(self._score(value)) * (1 / math.pi) + 0.5

    def log_prob(self, value: Variable) -> Variable:
        """The logarithm of the density at ``value``."""
        square = unary.log(unary.square(self._score(value)) + 1.0)
        return square * -1.0 - unary.log(self.scale * math.pi)

    def entropy(self) -> Variable:
        """log(4 pi scale)."""
        return functions.add(unary.log(self.scale * (4 * math.pi)), self._like())


class Uniform(Distribution):
    """Evenly between ``low`` and ``high``."""

    _names = ("low", "high")
    low: Variable
    high: Variable

    def __init__(self, low: Any, high: Any, name: str | None = None) -> None:
        super().__init__(low, high)

    @property
    def mean(self) -> Variable:
        """The middle."""
        return functions.add(self.low, self.high) * 0.5

    @property
    def variance(self) -> Variable:
        """(high - low)^2 / 12."""
        return unary.square(functions.subtract(self.high, self.low)) * (1 / 12)

    def _transformed(self, uniform: Variable) -> Variable:
        width = functions.subtract(self.high, self.low)
        return functions.add(functions.multiply(uniform, width), self.low)

    def log_prob(self, value: Variable) -> Variable:
        """The logarithm of the density at ``value``, -inf outside."""
        inside = (value > self.low) & (value < self.high)
        width = functions.subtract(self.high, self.low)
        return functions.subtract(unary.log(layers.cast(inside, value.dtype)), unary.log(width))

    def entropy(self) -> Variable:
        """log(high - low)."""
        return unary.log(functions.subtract(self.high, self.low))


class Exponential(Distribution):
    """The time to an event that comes ``rate`` times a unit."""

    _names = ("rate",)
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

    def _transformed(self, uniform: Variable) -> Variable:
        return functions.divide(unary.log(1.0 - uniform) * -1.0, self.rate)

    def cdf(self, value: Variable) -> Variable:
        """The part of all that lies below ``value``."""
        return 1.0 - unary.exp(functions.multiply(value, self.rate) * -1.0)

    def icdf(self, value: Variable) -> Variable:
        """The number below which a part ``value`` of all lies."""
        return self._transformed(value)

    def log_prob(self, value: Variable) -> Variable:
        """The logarithm of the density at ``value``."""
        return functions.subtract(unary.log(self.rate), functions.multiply(self.rate, value))

    def entropy(self) -> Variable:
        """1 - log(rate)."""
        return 1.0 - unary.log(self.rate)


class _Chance(Distribution):
    """A distribution of one probability."""

    _names = ("chance",)
    chance: Variable

    def __init__(self, probs: Any, name: str | None = None) -> None:
        super().__init__(probs)
        self.probs = self.chance  # type: ignore[assignment]  # Paddle's name of the parameter


def _logs(chance: Variable) -> tuple[Variable, Variable]:
    """Return log p and log(1 - p), finite at 0 and 1."""
    end = float(np.finfo(np.float32).eps)
    chance = functions.clip(chance, end, 1.0 - end)
    return unary.log(chance), unary.log1p(chance * -1.0)


class Bernoulli(_Chance):
    """1 with a probability ``probs``, else 0."""

    @property
    def mean(self) -> Variable:
        """``probs``."""
        return self.chance

    @property
    def variance(self) -> Variable:
        """probs (1 - probs)."""
        return self.chance * (1.0 - self.chance)

    def sample(self, shape: Any = ()) -> Variable:
        """Draw: ``shape`` followed by the batch."""
        drawn = self._drawn(shape) < self.chance
        return layers.cast(drawn, self.chance.dtype)

    def rsample(self, shape: Any = (), temperature: float = 1.0) -> Variable:
        """Draw what a sigmoid makes of logits, softer the higher the ``temperature`` (arXiv 1611.00712).

        As in Paddle these are the numbers before the sigmoid.
        """
        uniform = functions.clip(self._drawn(shape), _SMALLEST, 1.0 - _SMALLEST)
        noise = unary.log(uniform) - unary.log1p(uniform * -1.0)
        yes, no = _logs(self.chance)
        return functions.add(noise, yes - no) / float(temperature)

    def cdf(self, value: Variable) -> Variable:
        """The probability of ``value`` or less."""
        below = functions.multiply(layers.ones_like(value), 1.0 - self.chance)
        result = where(value < 1.0, below, full_like(below, 1.0))
        return where(value < 0.0, full_like(result, 0.0), result)

    def log_prob(self, value: Variable) -> Variable:
        """The logarithm of the probability of ``value``."""
        yes, no = _logs(self.chance)
        return functions.add(functions.multiply(value, yes), functions.multiply(1.0 - value, no))

    def entropy(self) -> Variable:
        """-p log p - (1 - p) log(1 - p)."""
        yes, no = _logs(self.chance)
        return (self.chance * yes + (1.0 - self.chance) * no) * -1.0


class Geometric(_Chance):
    """How many times in a row what has a probability ``probs`` does not come: 0, 1, ..."""

    def __init__(self, probs: Any) -> None:
        super().__init__(probs)

    @property
    def mean(self) -> Variable:
        """1 / probs - 1."""
        return unary.reciprocal(self.chance) - 1.0

    @property
    def variance(self) -> Variable:
        """(1 / probs - 1) / probs."""
        return self.mean / self.chance

    def _transformed(self, uniform: Variable) -> Variable:
        tries = unary.log(functions.clip(uniform, _SMALLEST))
        return unary.floor(functions.divide(tries, _logs(self.chance)[1]))

    def pmf(self, k: Variable) -> Variable:
        """The probability of k."""
        return self.prob(k)

    def log_pmf(self, k: Variable) -> Variable:
        """The logarithm of the probability of k."""
        return self.log_prob(k)

    def cdf(self, k: Variable) -> Variable:
        """The probability of k or less."""
        return 1.0 - functions.pow(1.0 - self.chance, k + 1.0)

    def log_prob(self, value: Variable) -> Variable:
        """The logarithm of the probability of ``value``."""
        yes, no = _logs(self.chance)
        return functions.add(functions.multiply(value, no), yes)

    def entropy(self) -> Variable:
        """-(p log p + (1 - p) log(1 - p)) / p."""
        yes, no = _logs(self.chance)
        return (self.chance * yes + (1.0 - self.chance) * no) / self.chance * -1.0


class Categorical(Distribution):
    """One of n classes, whose weights stand in the last dimension of ``logits``.

    As in Paddle, draws, entropies and divergences take logits for logarithms of weights, and :meth:`probs` and
    :meth:`log_prob` for the weights themselves.
    """

    _names = ("logits",)
    logits: Variable

    def __init__(self, logits: Any, name: str | None = None) -> None:
        super().__init__(logits)
        *batch, self._classes = self.batch_shape
        self.batch_shape = tuple(batch)

    def sample(self, shape: Any = ()) -> Variable:
        """Draw numbers of classes, int64: ``shape`` and then the batch. Jang et al., arXiv 1611.01144."""
        noise = _gumbel(self._drawn(shape, [self._classes]))
        return argmax(functions.add(noise, log_softmax(self.logits)), -1)

    def rsample(self, shape: Any = ()) -> Variable:
        """Refuse: a number of a class has no gradient.

        Raises:
            Unsupported: always.
        """
        raise Unsupported(
            "Categorical: no gradient passes through a class. Use gumbel_softmax, or sample."
        )

    def _like(self) -> Variable:
        return self.logits

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


_KL: dict[tuple[type, type], Callable[[Any, Any], Variable]] = {}


def register_kl(cls_p: type, cls_q: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Have :func:`kl_divergence` call the decorated function for distributions of two classes.

    Raises:
        InvalidType: these are no distributions.
    """
    for kind in (cls_p, cls_q):
        if not (isinstance(kind, type) and issubclass(kind, Distribution)):
            raise InvalidType(f"register_kl takes classes of distributions, got {kind!r}.")

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _KL[cls_p, cls_q] = function
        return function

    return register


def kl_divergence(p: Distribution, q: Distribution) -> Variable:
    """The mean over p of log p - log q: Kullback and Leibler's divergence.

    Raises:
        Unsupported: none is known for these classes.
    """
    for first in type(p).__mro__:
        for second in type(q).__mro__:
            if (first, second) in _KL:
                return _KL[first, second](p, q)
    raise Unsupported(
        f"kl_divergence of {type(p).__name__} from {type(q).__name__} is not built: register_kl adds one."
    )


@register_kl(Normal, Normal)
def _normal(p: Normal, q: Normal) -> Variable:
    ratio = unary.square(functions.divide(p.scale, q.scale))
    apart = unary.square(functions.divide(functions.subtract(p.loc, q.loc), q.scale))
    return (functions.add(ratio, apart) - 1.0 - unary.log(ratio)) * 0.5


@register_kl(Laplace, Laplace)
def _laplace(p: Laplace, q: Laplace) -> Variable:
    ratio, apart = functions.divide(p.scale, q.scale), unary.abs(functions.subtract(p.loc, q.loc))
    near = unary.exp(functions.divide(apart, p.scale) * -1.0)
    return (
        functions.multiply(ratio, near) + functions.divide(apart, q.scale) - unary.log(ratio) - 1.0
    )


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Cauchy, q: Cauchy) -> Variable:
    squares = unary.square(functions.add(p.scale, q.scale))
    squares = functions.add(squares, unary.square(functions.subtract(p.loc, q.loc)))
    return unary.log(functions.divide(squares, functions.multiply(p.scale, q.scale) * 4.0))


@register_kl(Uniform, Uniform)
def _uniform(p: Uniform, q: Uniform) -> Variable:
    width = functions.subtract(p.high, p.low)
    return unary.log(functions.divide(functions.subtract(q.high, q.low), width))


@register_kl(Exponential, Exponential)
def _exponential(p: Exponential, q: Exponential) -> Variable:
    ratio = functions.divide(q.rate, p.rate)
    return ratio - 1.0 - unary.log(ratio)


@register_kl(Geometric, Geometric)  # as in Paddle
@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: _Chance, q: _Chance) -> Variable:
    (yes, no), (other_yes, other_no) = _logs(p.chance), _logs(q.chance)
    share = functions.multiply(p.chance, functions.subtract(yes, other_yes))
    return functions.add(
        share, functions.multiply(1.0 - p.chance, functions.subtract(no, other_no))
    )


@register_kl(Categorical, Categorical)
def _categorical(p: Categorical, q: Categorical) -> Variable:
    logs, other = log_softmax(p.logits), log_softmax(q.logits)
    return layers.reduce_sum(unary.exp(logs) * functions.subtract(logs, other), -1, True)


publish_definitions(__name__)
