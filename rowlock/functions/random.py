"""Random tensors with Paddle 2.x's signatures: drawn anew in each step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

from ..graph.layers import binary, draws, tensors, unary
from ..graph.layers import shape as layers
from ..graph.layers.arguments import Floats, check_float, number
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidValue
from ..strategies.types import VarType, to_var_type
from .creation import full_like, sizes_or_variables, zeros_like
from .framework import dtype_or_default
from .math import add, alike, cumsum, maximum, minimum, tan
from .places import known_sizes
from .search import where


def uniform(
    shape: Any,
    dtype: Any = None,
    min: float = 0,
    max: float = 1.0,
    seed: int = 0,
    name: str | None = None,
) -> Variable:
    """Evenly between ``min`` and ``max``."""
    sizes = sizes_or_variables(shape, "uniform")
    return tensors.uniform_random(sizes, dtype_or_default(dtype), float(min), float(max), seed)


def rand(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Evenly between 0 and 1."""
    return uniform(shape, dtype, 0.0, 1.0, name=name)


def randn(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """From the standard normal distribution."""
    return tensors.gaussian_random(
        sizes_or_variables(shape, "randn"), dtype=dtype_or_default(dtype)
    )


def normal(mean: Any = 0.0, std: Any = 1.0, shape: Any = None, name: str | None = None) -> Variable:
    """Samples of a normal distribution; of ``mean`` and ``std`` that are Variables the shape is taken.

    Raises:
        InvalidType: they hold no floats, or are no numbers.
    """
    return _normal("normal", mean, std, shape)


def _normal(layer: str, mean: Any, std: Any, shape: Any) -> Variable:
    moments = {"mean": mean, "std": std}
    variables = {name: x for name, x in moments.items() if isinstance(x, Variable)}
    if not variables:
        mean, std = (number(x, name, layer) for name, x in moments.items())
        sizes = sizes_or_variables([1] if shape is None else shape, layer)
        return tensors.gaussian_random(sizes, mean, std, dtype=dtype_or_default(None))
    for name, x in variables.items():
        check_float(x, name, layer)
    sample = drawn(reduce(add, variables.values()), [], layer, is_normal=True)
    scaled: Variable = sample * std + mean
    return scaled


def log_normal(
    mean: Any = 1.0, std: Any = 2.0, shape: Any = None, name: str | None = None
) -> Variable:
    """exp of :func:`normal`."""
    return unary.exp(_normal("log_normal", mean, std, shape))


def normal_(x: Floats, mean: float = 0.0, std: float = 1.0, name: str | None = None) -> Variable:
    """Samples of a normal distribution in the shape of x, as a variable of their own."""
    return drawn(x, [], "normal_", is_normal=True) * float(std) + float(mean)


def log_normal_(
    x: Floats, mean: float = 1.0, std: float = 2.0, name: str | None = None
) -> Variable:
    """exp of :func:`normal_`."""
    return unary.exp(normal_(x, mean, std))


def cauchy_(x: Floats, loc: float = 0, scale: float = 1, name: str | None = None) -> Variable:
    """Samples of a Cauchy distribution in the shape of x, as a variable of their own."""
    return tan((drawn(x, [], "cauchy_") - 0.5) * math.pi) * float(scale) + float(loc)


def geometric_(x: Floats, probs: Any, name: str | None = None) -> Variable:
    """log(u) / log(1 - probs) with u from (0, 1], in the shape of x, as a variable of its own.

    As Paddle's, samples of a geometric distribution that are not rounded up.
    """
    chance = probs if isinstance(probs, Variable) else full_like(x, float(probs))
    return unary.log(1.0 - drawn(x, [], "geometric_")) / unary.log1p(chance * -1.0)


def bernoulli_(x: Floats, p: Any = 0.5, name: str | None = None) -> Variable:
    """Ones with the probability ``p``, zeros otherwise, in the shape of x, as a variable of their own."""
    return draws.bernoulli(p if isinstance(p, Variable) else full_like(x, float(p)), name)


def rand_like(input: Variable, name: str | None = None, *, dtype: Any = None) -> Variable:
    """Evenly between 0 and 1, in the shape and, by default, the type of ``input``."""
    return drawn(input if dtype is None else layers.cast(input, dtype), [], "rand_like")


def randn_like(x: Variable, dtype: Any = None, name: str | None = None) -> Variable:
    """From the standard normal distribution, in the shape and, by default, the type of x."""
    like = x if dtype is None else layers.cast(x, dtype)
    return drawn(like, [], "randn_like", is_normal=True)


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


def drawn(
    like: Variable, front: Sequence[int], function: str, *, is_normal: bool = False
) -> Variable:
    """Return numbers from [0, 1), or around 0 with deviation 1: sizes ``front``, then those of ``like``.

    Raises:
        InvalidValue: of ``like`` more than one size is unknown.
    """
    shape, ends = list(like.shape or ()), (0.0, 1.0)  # or mean and deviation
    sizes = [*front, *shape]
    if -1 not in shape and is_normal:
        numbers = tensors.gaussian_random(sizes, *ends, dtype=like.dtype)
    elif -1 not in shape:
        numbers = tensors.uniform_random(sizes, like.dtype, *ends)
    elif shape.count(-1) > 1:
        raise InvalidValue(f"{function}: only one size of a batch may be unknown, got {shape}.")
    else:
        unknown = (shape.index(-1), len(front) + shape.index(-1))
        if is_normal:
            numbers = draws.gaussian_random_batch_size_like(
                like, sizes, *unknown, *ends, dtype=like.dtype
            )
        else:
            numbers = draws.uniform_random_batch_size_like(like, sizes, like.dtype, *unknown, *ends)
    numbers.stop_gradient = True
    return numbers


# Each try is taken with a probability above 0.7: one in 2e8 draws is the ``default``.
_TRIES = 16


def _first(is_taken: Variable, values: Variable, default: Variable) -> Variable:
    """Return, of values [tries, ...], the first one that is taken."""
    taken = layers.cast(is_taken, values.dtype)
    taken = taken * layers.cast(cumsum(taken, 0) == 1.0, values.dtype)
    value = layers.reduce_sum(where(taken > 0.0, values, zeros_like(values)), 0)
    result = where(layers.reduce_sum(taken, 0) > 0.0, value, default)
    result.stop_gradient = True
    return result


def standard_gamma(x: Floats, name: str | None = None) -> Variable:
    """Samples of gamma distributions of rate 1, whose concentrations are in x; no gradient passes.

    Marsaglia and Tsang, ACM Transactions on Mathematical Software 26 (2000), with several tries at once.
    """
    high = where(x < 1.0, x + 1.0, x) - 1.0 / 3.0
    d = layers.unsqueeze(high, [0])
    normals = drawn(x, [_TRIES], "standard_gamma", is_normal=True)
    cube = (normals / unary.sqrt(d * 9.0) + 1.0) ** 3.0
    safe = where(cube > 0.0, cube, full_like(cube, 1.0))
    bound = unary.square(normals) * 0.5 + (1.0 - safe + unary.log(safe)) * d
    is_below = unary.log(drawn(x, [_TRIES], "standard_gamma")) < bound
    sample = _first((cube > 0.0) & is_below, safe * d, high)
    power = unary.log(1.0 - drawn(x, (), "standard_gamma")) / x
    result = where(x < 1.0, sample * unary.exp(power), sample)
    result.stop_gradient = True
    return result


def _hat(like: Variable, a: Variable, b: Variable, function: str) -> tuple[Variable, Variable]:
    """Return numbers [tries, ...] around 0 by transformed rejection, and log(V / (a / u^2 + b)) of each."""
    side = drawn(like, [_TRIES], function) - 0.5
    near = 0.5 - unary.abs(side)
    level = unary.log(1.0 - drawn(like, [_TRIES], function))
    return (a * 2.0 / near + b) * side, level - unary.log(a / unary.square(near) + b)


_FEW = 10.0  # below this mean, events are counted
_ARRIVALS = 48  # events that are counted at most; for more there is a chance of 1e-15


def _counted(waits: Variable, until: Variable) -> Variable:
    """Return how many events come before ``until``, of waits [events, ...] for each."""
    return layers.reduce_sum(layers.cast(cumsum(waits, 0) <= until, waits.dtype), 0)


def poisson(x: Floats, name: str | None = None) -> Variable:
    """Samples of Poisson distributions, whose rates are in x; no gradient passes.

    Few events are counted as they come; of many, W. Hoermann, Insurance: Mathematics and Economics 12 (1993).
    """
    rate = layers.unsqueeze(x, [0])
    few = _counted(unary.log(1.0 - drawn(x, [_ARRIVALS], "poisson")) * -1.0, rate)
    mean = maximum(rate, full_like(rate, _FEW))
    b = unary.sqrt(mean) * 2.53 + 0.931
    numbers, level = _hat(x, b * 0.02483 - 0.059, b, "poisson")
    events = unary.floor(numbers + mean + 0.43)
    safe = unary.relu(events)
    bound = safe * unary.log(mean) - mean - unary.lgamma(safe + 1.0)
    is_taken = (events >= 0.0) & (level + unary.log(1.1328 / (b - 3.4) + 1.1239) <= bound)
    return where(x < _FEW, few, _first(is_taken, safe, unary.floor(x)))


def binomial(count: Variable, prob: Variable, name: str | None = None) -> Variable:
    """How many of ``count`` come true, each with the probability ``prob``: int64 in their shape.

    Few are counted as they come; of many, W. Hoermann, Journal of Statistical Computation and Simulation 46
    (1993).
    """
    n, p = alike(layers.cast(count, prob.dtype), prob)
    like = binary.elementwise_add(n * 0.0, p)
    n, p = binary.elementwise_add(like * 0.0, n), like
    rare = minimum(p, 1.0 - p)
    total, q = layers.unsqueeze(n, [0]), layers.unsqueeze(rare, [0])
    tries = unary.log(1.0 - drawn(like, [_ARRIVALS], "binomial")) / unary.log1p(q * -1.0)
    few = _counted(unary.floor(tries) + 1.0, total)
    is_many = n * rare >= _FEW
    usual = layers.unsqueeze(is_many, [0])
    total = where(usual, total, full_like(total, 100.0))
    q = where(usual, q, full_like(q, 0.25))
    root = unary.sqrt(total * q * (1.0 - q))
    b = root * 2.53 + 1.15
    numbers, level = _hat(like, b * 0.0248 + q * 0.01 - 0.0873, b, "binomial")
    events = unary.floor(numbers + total * q + 0.5)
    inside = (events >= 0.0) & (events <= total)
    safe, mode = where(inside, events, zeros_like(events)), unary.floor((total + 1.0) * q)

    def ways(k: Variable) -> Variable:
        return unary.lgamma(k + 1.0) + unary.lgamma(total - k + 1.0)

    bound = ways(mode) - ways(safe) + (safe - mode) * unary.log(q / (1.0 - q))
    is_taken = inside & (level + unary.log((5.1 / b + 2.83) * root) <= bound)
    events = where(is_many, _first(is_taken, safe, unary.floor(n * rare)), few)
    return layers.cast(where(p > 0.5, n - events, events), "int64")


standard_normal = randn


publish_definitions(__name__, withhold=(drawn,))
