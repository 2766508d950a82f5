"""Comparisons and logic: the results are booleans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import expr as e
from .elementwise import beside, compare_shape
from .operands import Binary, Unary
from .registry import define
from .samples import sample
from .shapes import Sized

_COMPARISONS: dict[str, Callable[..., Any]] = {
    "less_than": lambda x, y: x < y,
    "less_equal": lambda x, y: x <= y,
    "greater_than": lambda x, y: x > y,
    "greater_equal": lambda x, y: x >= y,
    "equal": lambda x, y: e.equal(x, y),
    "not_equal": lambda x, y: e.not_equal(x, y),
}


class Compare(Binary):
    axis: int = -1
    force_cpu: bool = False


for _name, _scalar in _COMPARISONS.items():
    define(
        _name,
        Compare,
        compare_shape,
        scalar=_scalar,
        aligned=beside,
        samples=(sample("X [3 4], Y [3 4]"), sample("X [3 4], Y [4]")),
        refuses=(sample("X [3 4], Y [3]"),),
    )


_LOGIC: dict[str, Callable[..., Any]] = {
    "logical_and": lambda x, y: x & y,
    "logical_or": lambda x, y: x | y,
    "logical_xor": lambda x, y: e.logical_xor(x, y),
}

for _name, _scalar in _LOGIC.items():
    define(
        _name,
        Binary,
        Sized("X bool [...], Y bool [...] -> Out [...]"),
        scalar=_scalar,
        samples=(sample("X bool [3 4], Y bool [3 4]"),),
    )

define(
    "logical_not",
    Unary,
    Sized("X bool -> Out"),
    scalar=lambda x: e.logical_not(x),
    samples=(sample("X bool [3 4]"),),
)
