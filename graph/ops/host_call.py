"""The op that stands for what runs between the plans of a step: a loop, or an op of arrays of tensors.

``function`` names what is computed. Its operands and results are tensors, each with the levels of its
sequences behind it, or arrays of tensors: ``operands`` and ``results`` have, for each, how many levels follow
(-1: it is an array). ``block`` is the program of a loop, as plain data once it is compiled; ``states`` are the
persistables that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...strategies.types import VarType
from .operands import Inputs, Operands, Outputs
from .registry import Inference, Spec, Specs, define

HOST_CALL = "host_call"
ARRAY = -1  # in place of a number of levels


def no_entry(number: int, array: str, count: int) -> str:
    """Return what is wrong with reading an entry that an array of ``count`` entries does not have."""
    if 0 <= number < count:
        return f"entry {number} of the array {array!r} was never written"
    extent = f" (0 to {count - 1})" if count else ""
    return f"the array {array!r} has no entry {number}: it has {count}{extent}"


class HostCall(Operands):
    x: Inputs | None
    states: Inputs | None
    out: Outputs | None
    function: str = ""
    operands: Sequence[int] = []
    results: Sequence[int] = []
    options: Mapping[str, Any] = {}
    specs: Sequence[Any] = []
    block: Any = None


def plain(spec: Spec) -> list[Any]:
    """Return a spec as plain data."""
    return [list(spec.shape), int(spec.dtype)]


def _as_noted(op: Inference) -> Mapping[str, Specs]:
    """What the reader of the program noted: sizes are known when it ran."""
    return {"Out": [Spec(tuple(shape), VarType(dtype)) for shape, dtype in op.attr("specs")]}


define(HOST_CALL, HostCall, _as_noted, by_place=lambda attrs: True)
