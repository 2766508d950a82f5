"""Parameters of distributions: their limits, shapes and ranks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from ..graph.layers import shape as layers
from ..graph.program.variable import Variable
from ..strategies.errors import InvalidType, InvalidValue


class Limit(NamedTuple):
    """What the numbers of a parameter are, in words and as a test of an array."""

    text: str
    holds: Callable[[np.ndarray], Any]


ANY = Limit("numbers", lambda numbers: True)
POSITIVE = Limit("above 0", lambda numbers: numbers > 0)
NOT_NEGATIVE = Limit("0 or above", lambda numbers: numbers >= 0)
CHANCE = Limit("between 0 and 1", lambda numbers: (numbers >= 0) & (numbers <= 1))
LIKELY = Limit("above 0 and at most 1", lambda numbers: (numbers > 0) & (numbers <= 1))
COUNT = Limit("whole numbers from 0", lambda numbers: (numbers >= 0) & (numbers % 1 == 0))


class Parameter:
    """A parameter of a distribution, beside the limit of its numbers: a Variable of each object."""

    def __init__(self, limit: Limit = ANY) -> None:
        self.limit = limit

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Variable:
        values: dict[str, Variable] = instance._values
        return values[self._name]


def values_of(value: Any, argument: str, kind: str, limit: Limit = ANY) -> Variable:
    """Return a parameter as a Variable; numbers, lists and arrays are float32, arrays of float64 stay so.

    Raises:
        InvalidType: it is none of these.
        InvalidValue: a number is beyond the limit. What a step computes is not looked at.
    """
    if isinstance(value, Variable):
        return value
    if isinstance(value, (bool, str)) or not isinstance(
        value, (int, float, list, tuple, np.ndarray, np.number)
    ):
        raise InvalidType(
            f"{kind}: {argument} must be a number, a list, an array or a Variable, got {value!r}."
        )
    array = np.atleast_1d(np.asarray(value))
    if not np.all(limit.holds(array)):
        raise InvalidValue(f"{kind}: {argument} must be {limit.text}, got {value!r}.")
    is_double = array.dtype == np.float64 and value is array
    return layers.assign(array if is_double else array.astype("f"))


def broadcast(first: tuple[int, ...], second: tuple[int, ...], kind: str) -> tuple[int, ...]:
    """Return the shape of both parameters; an unknown size becomes the other's, unless that is 1.

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


def aligned(*values: Variable) -> list[Variable]:
    """Return tensors of one rank, with sizes 1 in front: operators then broadcast the last dimensions."""
    rank = max(value.ndim for value in values)
    return [
        value if value.ndim == rank else layers.unsqueeze(value, list(range(rank - value.ndim)))
        for value in values
    ]


def sum_last(value: Variable, count: int) -> Variable:
    """Return the sums over the last ``count`` dimensions."""
    return layers.reduce_sum(value, list(range(-count, 0))) if count else value
