"""Layers that draw: integers, orders, choices, windows, and numbers for the samples of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...strategies.errors import InvalidType, InvalidValue, require_type
from ...strategies.types import FLOATS, VarType, to_var_type
from ..program.variable import Variable
from .arguments import Floats
from .helper import constant_layer, layer, layers
from .numbers import numbers_of
from .shape import cast, fill_constant
from .tensors import sizes_of

_INTEGERS = (VarType.INT32, VarType.INT64)


def _batch_size_like(op_type: str, shape: Any, dtype: Any, **fields: Any) -> Variable:
    kind = to_var_type(dtype)
    if kind not in FLOATS:
        raise InvalidType(f"{op_type}: dtype must be float32 or float64, got {kind.name}.")
    return constant_layer(op_type, shape=sizes_of(shape, op_type), dtype=int(kind), **fields)


def uniform_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: Any = "float32",
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Variable:
    """Numbers drawn evenly between ``min`` and ``max``; one size of ``shape`` is that of ``input``."""
    place = {"input_dim_idx": input_dim_idx, "output_dim_idx": output_dim_idx, "seed": seed}
    op_type = "uniform_random_batch_size_like"
    return _batch_size_like(op_type, shape, dtype, input=input, **place, min=min, max=max)


def gaussian_random_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: Any = "float32",
) -> Variable:
    """Numbers of a normal distribution; one size of ``shape`` is that of ``input``."""
    place = {"input_dim_idx": input_dim_idx, "output_dim_idx": output_dim_idx, "seed": seed}
    op_type = "gaussian_random_batch_size_like"
    return _batch_size_like(op_type, shape, dtype, input=input, **place, mean=mean, std=std)


def sampling_id(
    x: Floats, min: float = 0.0, max: float = 1.0, seed: int = 0, dtype: Any = "float32"
) -> Variable:
    """An index for each row of probabilities, as int64 (Paddle's op does not look at ``dtype`` either)."""
    return constant_layer("sampling_id", x=x, min=min, max=max, seed=seed)


def _seed(seed: Any, op: str) -> tuple[Variable, dict[str, int]]:
    """Return the Variable that goes into the slot Seed, and the attribute.

    Raises:
        InvalidValue: ``seed`` is neither an int nor a Variable.
    """
    if isinstance(seed, Variable):
        return seed, {}
    require_type(seed, int | np.integer, f"{op}: seed must be an int or a Variable", InvalidValue)
    return fill_constant([1], "int64", int(seed)), {"startup_seed": int(seed)}


def random_crop(x: Variable, shape: Any, seed: Any = None) -> Variable:
    """A window of each sample, at a place of its own: ``shape`` has the sizes of the last dimensions.

    With a seed windows are the same in each step; without, the program's decides.
    """
    variable, attrs = _seed(0 if seed is None else seed, "random_crop")
    return layer("random_crop", x=x, seed=variable, shape=sizes_of(shape, "random_crop"), **attrs)


def shuffle_batch(x: Variable, seed: Any = None) -> Variable:
    """The rows (all dimensions but the last) in another order; each place shuffles its own."""
    variable, attrs = _seed(0 if seed is None else seed, "shuffle_batch")
    results = ("Out ShuffleIdx SeedOut", "ShuffleIdx SeedOut")
    return layers("shuffle_batch", None, *results, x=x, seed=variable, **attrs)[0]


def randint(
    low: int, high: int, shape: Any, dtype: Any = "int64", seed: int = 0, name: str | None = None
) -> Variable:
    """Integers from ``low`` up to but without ``high``; sizes may be Variables.

    Raises:
        InvalidValue: there are none.
    """
    if low >= high:
        raise InvalidValue(f"randint: there is no integer from {low} up to but without {high}.")
    kind = to_var_type(dtype)
    if kind not in _INTEGERS:
        raise InvalidType(f"randint: dtype must be int32 or int64, got {dtype!r}.")
    fields = numbers_of("randint", "shape", shape)
    fields |= {"low": low, "high": high, "dtype": int(kind), "seed": seed}
    return constant_layer("randint", name, **fields)


def randperm(n: int, dtype: Any = "int64", seed: int = 0, name: str | None = None) -> Variable:
    """The integers below ``n`` in a random order.

    Raises:
        InvalidValue: ``n`` is not above 0.
    """
    if n < 1:
        raise InvalidValue(f"randperm: n must be above 0, got {n}.")
    kind = to_var_type(dtype)
    if kind not in (*_INTEGERS, VarType.FP32, VarType.FP64):
        raise InvalidType(f"randperm: dtype must be int32, int64 or a float, got {dtype!r}.")
    attrs = {"n": n, "dtype": int(kind if kind in _INTEGERS else VarType.INT64), "seed": seed}
    order = constant_layer("randperm", name, **attrs)
    return order if kind in _INTEGERS else cast(order, kind)


def bernoulli(x: Floats, name: str | None = None) -> Variable:
    """Ones with the probabilities in x, zeros otherwise."""
    return constant_layer("bernoulli", name, x=x)


def multinomial(
    x: Floats, num_samples: int = 1, replacement: bool = False, name: str | None = None
) -> Variable:
    """Indices drawn by the weights in x, a vector or rows of them, as int64."""
    attrs = {"num_samples": num_samples, "replacement": replacement}
    return constant_layer("multinomial", name, x=x, **attrs)
