"""Functions of the bits of integers; of booleans, they are logic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...strategies.types import INTEGERS, VarType
from . import expr as e
from .elementwise import Elementwise, beside, elementwise_shape
from .operands import Unary
from .registry import Inference, Specs, define
from .samples import Sample, sample


def _shape(op: Inference) -> Mapping[str, Specs]:
    for slot in ("X", "Y"):
        whole = not op.has(slot) or op.spec(slot).dtype in (*INTEGERS, VarType.BOOL)
        op.require(whole, f"{slot} must be of integers or booleans")
    return elementwise_shape(op) if op.has("Y") else {"Out": op.spec("X")}


_MIXED = (sample("X -99:99 [3 4], Y -99:99 [4]"), sample("X bool [3 4], Y bool [3 4]"))
_SHIFTS = (sample("X -99:99 [3 4], Y 0:9 [3 4]"),)

_OF_TWO: dict[str, tuple[Callable[..., Any], tuple[Sample, ...]]] = {
    "bitwise_and": (lambda x, y: e.call("bitwise_and", x, y), _MIXED),
    "bitwise_or": (lambda x, y: e.call("bitwise_or", x, y), _MIXED),
    "bitwise_xor": (lambda x, y: e.call("bitwise_xor", x, y), _MIXED),
    "bitwise_left_shift": (lambda x, y: e.call("left_shift", x, y), _SHIFTS),
    "bitwise_right_shift": (lambda x, y: e.call("right_shift", x, y), _SHIFTS),
}

for _name, (_scalar, _samples) in _OF_TWO.items():
    define(
        _name,
        Elementwise,
        _shape,
        scalar=_scalar,
        aligned=beside,
        samples=_samples,
        refuses=(sample("X [3 4], Y [3 4]"),),
    )

define(
    "bitwise_not",
    Unary,
    _shape,
    scalar=lambda x: e.call("bitwise_not", x),
    samples=(sample("X -99:99 [3 4]"), sample("X bool [3 4]")),
    refuses=(sample("X [3 4]"),),
)
