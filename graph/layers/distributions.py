"""Distributions built from ops: samples, log probabilities, entropies and divergences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...strategies.errors import InvalidType, require_type
from ..program.variable import Variable
from . import shape as shapes
from . import unary
from .arguments import check_variable
from .binary import elementwise_add, elementwise_mul, less_than
from .tensors import gaussian_random, sizes_of, uniform_random


def _values(value: Any, argument: str, layer: str) -> Variable:
    """Return a Variable of the floats in a number, a list or an array."""
    if isinstance(value, Variable):
        return value
    if isinstance(value, (list, tuple, float, int, np.ndarray)) and not isinstance(value, bool):
        return shapes.assign(np.atleast_1d(np.asarray(value, np.float32)))
    raise InvalidType(
        f"{layer}: {argument} must be a float, a list, an array or a Variable, got {value!r}."
    )


def _moved(sample: Variable, scale: Variable, shift: Variable) -> Variable:
    """Return a sample scaled and shifted by what its last dimensions follow."""
    return elementwise_add(elementwise_mul(sample, scale), shift)


class _Distribution:
    """The base of distributions: a pair of parameters that broadcast."""

    def __init__(self, first: Any, second: Any) -> None:
        self.all_arg_is_float = isinstance(first, float) and isinstance(second, float)
        names = self._names
        self._first = _values(first, names[0], type(self).__name__)
        self._second = _values(second, names[1], type(self).__name__)

    _names = ("loc", "scale")

    def _drawn_shape(self, shape: Any, seed: Any) -> list[Any]:
        """Return ``shape`` followed by the parameters' sizes, some of which only a step may tell."""
        name = type(self).__name__
        require_type(seed, int, f"{name}.sample: seed must be an int")
        sizes = sizes_of(shape, f"{name}.sample")
        both = self._first + self._second
        batch: list[Any] = list(both.shape or ())
        if any(size < 0 for size in batch):
            actual = shapes.shape(both)
            batch = [
                shapes.slice(actual, [0], [k], [k + 1]) if n < 0 else n for k, n in enumerate(batch)
            ]
        return [*sizes, *batch]

    def _reshape(self, sample: Variable, shape: Any) -> Variable:
        return shapes.reshape(sample, list(shape)) if self.all_arg_is_float else sample

    def _check_same_type(self, other: Any) -> None:
        if not isinstance(other, type(self)):
            name = type(self).__name__
            raise InvalidType(f"{name}.kl_divergence takes another {name}, got {other!r}.")


class Uniform(_Distribution):
    """Evenly between ``low`` and ``high``."""

    _names = ("low", "high")

    def __init__(self, low: Any, high: Any) -> None:
        super().__init__(low, high)
        self.low, self.high = self._first, self._second

    def sample(self, shape: Any, seed: int = 0) -> Variable:
        """Draw: ``shape`` followed by the parameters' shape."""
        sizes = self._drawn_shape(shape, seed)
        sample = uniform_random(sizes, min=0.0, max=1.0, seed=seed)
        return self._reshape(_moved(sample, self.high - self.low, self.low), shape)

    def log_prob(self, value: Variable) -> Variable:
        """The logarithm of the density at ``value``."""
        check_variable(value, "value", "Uniform.log_prob")
        above = shapes.cast(less_than(self.low, value), value.dtype)
        below = shapes.cast(less_than(value, self.high), value.dtype)
        return unary.log(above * below) - unary.log(self.high - self.low)

    def entropy(self) -> Variable:
        """log(high - low)."""
        return unary.log(self.high - self.low)


class Normal(_Distribution):
    """Around ``loc`` with the deviation ``scale``."""

    def __init__(self, loc: Any, scale: Any) -> None:
        super().__init__(loc, scale)
        self.loc, self.scale = self._first, self._second

    def sample(self, shape: Any, seed: int = 0) -> Variable:
        """Draw: ``shape`` followed by the parameters' shape."""
        sample = gaussian_random(self._drawn_shape(shape, seed), seed=seed)
        return self._reshape(_moved(sample, self.scale, self.loc), shape)

    def log_prob(self, value: Variable) -> Variable:
        """The logarithm of the density at ``value``."""
        check_variable(value, "value", "Normal.log_prob")
        variance = self.scale * self.scale
        distance = value - self.loc
        exponent = -1.0 * (distance * distance) / (2.0 * variance)
        return exponent - unary.log(self.scale) - math.log(math.sqrt(2.0 * math.pi))

    def entropy(self) -> Variable:
        """0.5 + log(2 pi) / 2 + log(scale), in the shape of both parameters."""
        broadcast = (self.loc + self.scale) * 0.0
        return broadcast + unary.log(self.scale) + (0.5 + 0.5 * math.log(2.0 * math.pi))

    def kl_divergence(self, other: Normal) -> Variable:
        """Return the Kullback-Leibler divergence from ``other``."""
        self._check_same_type(other)
        ratio = self.scale / other.scale
        ratio = ratio * ratio
        distance = (self.loc - other.loc) / other.scale
        return 0.5 * (ratio + distance * distance - 1.0 - unary.log(ratio))


class Categorical:
    """One of n classes, with the logarithms of their weights in the last dimension."""

    def __init__(self, logits: Any) -> None:
        self.logits = _values(logits, "logits", "Categorical")

    def _normalised(self) -> tuple[Variable, Variable, Variable]:
        """Return shifted logits, the sum of their exponentials, and probabilities."""
        shifted = self.logits - shapes.reduce_max(self.logits, -1, True)
        weights = unary.exp(shifted)
        total = shapes.reduce_sum(weights, -1, True)
        return shifted, total, weights / total

    def entropy(self) -> Variable:
        """The entropy, with a last dimension of one element."""
        shifted, total, chance = self._normalised()
        return -1.0 * shapes.reduce_sum(chance * (shifted - unary.log(total)), -1, True)

    def kl_divergence(self, other: Categorical) -> Variable:
        """Return the Kullback-Leibler divergence from ``other``, with a last dimension of one element."""
        require_type(other, Categorical, "Categorical.kl_divergence takes another Categorical")
        shifted, total, chance = self._normalised()
        other_shifted, other_total, _ = other._normalised()
        logs = shifted - unary.log(total) - (other_shifted - unary.log(other_total))
        return shapes.reduce_sum(chance * logs, -1, True)


class MultivariateNormalDiag(_Distribution):
    """Around a vector ``loc`` with the covariance ``scale``, a diagonal matrix."""

    def __init__(self, loc: Any, scale: Any) -> None:
        super().__init__(loc, scale)
        self.loc, self.scale = self._first, self._second

    def _diagonal(self) -> Variable:
        """Return the covariance's diagonal; everything beside it is zero."""
        return shapes.reduce_sum(self.scale, [0])

    def entropy(self) -> Variable:
        """Half of k (1 + log 2 pi) + log det(scale)."""
        width = (self.scale.shape or (1,))[0]
        log_determinant = unary.log(shapes.reduce_prod(self._diagonal()))
        return 0.5 * (width * (1.0 + math.log(2.0 * math.pi)) + log_determinant)

    def kl_divergence(self, other: MultivariateNormalDiag) -> Variable:
        """Return the Kullback-Leibler divergence from ``other``."""
        self._check_same_type(other)
        diagonal, other_diagonal = self._diagonal(), other._diagonal()
        distance = other.loc - self.loc
        trace = shapes.reduce_sum(diagonal / other_diagonal)
        distances = shapes.reduce_sum(distance * distance / other_diagonal)
        log_ratio = unary.log(shapes.reduce_prod(other_diagonal)) - unary.log(
            shapes.reduce_prod(diagonal)
        )
        width = (self.scale.shape or (1,))[0]
        return 0.5 * (trace + distances - float(width) + log_ratio)
