"""Comparisons and logic: the results are booleans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...strategies.types import VarType
from . import expr as e
from .elementwise import beside, compare_shape
from .operands import Binary, Unary
from .registry import Inference, Spec, Specs, define
from .rules import same_shape
from .samples import booleans, normal, sample

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
        samples=(
            sample({"X": normal(3, 4), "Y": normal(3, 4)}),
            sample({"X": normal(3, 4), "Y": normal(4)}),
        ),
        refuses=(sample({"X": normal(3, 4), "Y": normal(3)}),),
    )


def logical_shape(op: Inference) -> Mapping[str, Specs]:
    """Booleans of one shape."""
    op.require(op.spec("X").dtype == VarType.BOOL, "X must be bool")
    if op.has("Y"):
        op.require(op.spec("Y").dtype == VarType.BOOL, "Y must be bool")
        return {"Out": Spec(same_shape(op, "X", "Y"), VarType.BOOL)}
    return {"Out": op.spec("X")}


_LOGIC: dict[str, Callable[..., Any]] = {
    "logical_and": lambda x, y: x & y,
    "logical_or": lambda x, y: x | y,
    "logical_xor": lambda x, y: e.logical_xor(x, y),
}

for _name, _scalar in _LOGIC.items():
    define(
        _name,
        Binary,
        logical_shape,
        scalar=_scalar,
        samples=(sample({"X": booleans(3, 4), "Y": booleans(3, 4)}),),
        refuses=(sample({"X": normal(3, 4), "Y": booleans(3, 4)}),),
    )

define(
    "logical_not",
    Unary,
    logical_shape,
    scalar=lambda x: e.logical_not(x),
    samples=(sample({"X": booleans(3, 4)}),),
)
