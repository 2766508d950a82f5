"""Random tensors with Paddle 2.x's signatures: drawn anew in each step."""

from __future__ import annotations

from typing import Any

from ..graph.layers import draws, tensors
from ..graph.layers import shape as layers
from ..graph.layers.arguments import Floats
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidType
from ..strategies.types import VarType, to_var_type
from .creation import full_like, shape_numbers
from .framework import dtype_or_default
from .places import known_sizes


def uniform(
    shape: Any,
    dtype: Any = None,
    min: float = 0,
    max: float = 1.0,
    seed: int = 0,
    name: str | None = None,
) -> Variable:
    """Evenly between ``min`` and ``max``."""
    sizes = shape_numbers(shape, "uniform")
    return tensors.uniform_random(sizes, dtype_or_default(dtype), float(min), float(max), seed)


def rand(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Evenly between 0 and 1."""
    return uniform(shape, dtype, 0.0, 1.0, name=name)


def randn(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """From the standard normal distribution."""
    return tensors.gaussian_random(shape_numbers(shape, "randn"), dtype=dtype_or_default(dtype))


def normal(mean: Any = 0.0, std: Any = 1.0, shape: Any = None, name: str | None = None) -> Variable:
    """Samples of a normal distribution; of ``mean`` and ``std`` that are Variables the shape is taken."""
    variables = [parameter for parameter in (mean, std) if isinstance(parameter, Variable)]
    if not variables:
        for parameter in (mean, std):
            if isinstance(parameter, bool) or not isinstance(parameter, (int, float)):
                raise InvalidType(
                    f"normal: mean and std are numbers or Variables, got {parameter!r}."
                )
        sizes = shape_numbers([1] if shape is None else shape, "normal")
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
    """Integers from ``low`` up to but without ``high``; one number is the end, from 0.

    Raises:
        InvalidValue: there are none.
    """
    low, high = (0, low) if high is None else (low, high)
    sizes = [shape] if isinstance(shape, int) else shape
    return draws.randint(low, high, sizes, "int64" if dtype is None else dtype, name=name)


def randint_like(
    x: Variable, low: int = 0, high: int | None = None, dtype: Any = None, name: str | None = None
) -> Variable:
    """Integers from ``low`` up to but without ``high`` in the shape and, by default, the type of x.

    Raises:
        InvalidValue: there are none, or the sizes of x are not known.
    """
    low, high = (0, low) if high is None else (low, high)
    kind = x.dtype if dtype is None else to_var_type(dtype)
    numbers = draws.randint(low, high, known_sizes(x, "randint_like"), "int64", name=name)
    return numbers if kind == VarType.INT64 else layers.cast(numbers, kind)


def randperm(n: int, dtype: Any = "int64", name: str | None = None) -> Variable:
    """The integers below ``n`` in a random order."""
    return draws.randperm(n, dtype, name=name)


def bernoulli(x: Floats, p: float | None = None, name: str | None = None) -> Variable:
    """Ones with the probability in x (or ``p``), zeros otherwise."""
    return draws.bernoulli(x if p is None else full_like(x, float(p)), name)


def multinomial(
    x: Floats, num_samples: int = 1, replacement: bool = False, name: str | None = None
) -> Variable:
    """Indices drawn by the weights in x, a vector or rows of them."""
    return draws.multinomial(x, num_samples, replacement, name)


standard_normal = randn


publish_definitions(__name__)
