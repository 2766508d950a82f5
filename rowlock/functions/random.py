"""Random tensors with Paddle 2.x's signatures: drawn anew in each step."""

from __future__ import annotations

from typing import Any

from ..graph.layers import shape as layers
from ..graph.layers import tensors, unary
from ..graph.layers.helper import check_variable
from ..graph.program.variable import Variable
from ..strategies.errors import InvalidType, InvalidValue
from .creation import constant, known_sizes
from .framework import dtype_or_default


def uniform(
    shape: Any,
    dtype: Any = None,
    min: float = 0,
    max: float = 1.0,
    seed: int = 0,
    name: str | None = None,
) -> Variable:
    """Evenly between ``min`` and ``max``."""
    sizes = known_sizes(shape, "uniform")
    return tensors.uniform_random(sizes, dtype_or_default(dtype), float(min), float(max), seed)


def rand(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Evenly between 0 and 1."""
    return uniform(shape, dtype, 0.0, 1.0, name=name)


def randn(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """From the standard normal distribution."""
    return tensors.gaussian_random(known_sizes(shape, "randn"), dtype=dtype_or_default(dtype))


def normal(mean: Any = 0.0, std: Any = 1.0, shape: Any = None, name: str | None = None) -> Variable:
    """Samples of a normal distribution; of ``mean`` and ``std`` that are Variables the shape is taken."""
    variables = [parameter for parameter in (mean, std) if isinstance(parameter, Variable)]
    if not variables:
        for parameter in (mean, std):
            if isinstance(parameter, bool) or not isinstance(parameter, (int, float)):
                raise InvalidType(
                    f"normal: mean and std are numbers or Variables, got {parameter!r}."
                )
        sizes = known_sizes([1] if shape is None else shape, "normal")
        return tensors.gaussian_random(sizes, float(mean), float(std), dtype=dtype_or_default(None))
    sample = tensors.gaussian_random(list(variables[0].shape or ()), dtype=variables[0].dtype)
    scaled: Variable = sample * std + mean
    return scaled


def randint(
    low: int = 0,
    high: int | None = None,
    shape: Any = (1,),
    dtype: Any = None,
    name: str | None = None,
) -> Variable:
    """Integers from ``low`` up to but without ``high``.

    Raises:
        InvalidValue: there are none, or more than float32 tells apart.
    """
    low, high = (0, low) if high is None else (low, high)
    if not 0 < high - low <= 1 << 24:
        raise InvalidValue(f"randint: from {low} to {high} there must be 1 to {1 << 24} integers.")
    uniform = tensors.uniform_random(known_sizes(shape, "randint"), "float32", 0.0, 1.0)
    steps = unary.floor(uniform * float(high - low))
    integers = layers.cast(steps, "int64") + low
    return integers if dtype in (None, "int64") else layers.cast(integers, dtype)


def randperm(n: int, dtype: Any = "int64", name: str | None = None) -> Variable:
    """The integers below ``n`` in a random order."""
    if isinstance(n, bool) or not isinstance(n, int):
        raise InvalidType(f"randperm takes an int, got {n!r}.")
    if n < 1:
        raise InvalidValue(f"randperm: n must be positive, got {n}.")
    order = tensors.argsort(tensors.uniform_random([n], "float64", 0.0, 1.0))[1]
    return order if dtype == "int64" else layers.cast(order, dtype)


def bernoulli(x: Variable, p: float | None = None, name: str | None = None) -> Variable:
    """Ones with the probability in x (or ``p``), zeros otherwise."""
    check_variable(x, "x", "bernoulli")
    shape = list(x.shape or ())
    if any(size < 0 for size in shape):
        raise InvalidValue(f"bernoulli: the sizes {shape} of {x.name!r} must be known.")
    chance = x if p is None else constant(float(p), x.dtype)
    return layers.cast(tensors.uniform_random(shape, x.dtype, 0.0, 1.0) < chance, x.dtype)
