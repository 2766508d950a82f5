"""Numbers of a layer that may be Variables: one for all, or some in a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...strategies.errors import InvalidType
from ...strategies.types import INTEGERS, VarType
from ..program.variable import Variable
from .arguments import integer
from .helper import LayerHelper

Slots = dict[str, Any]


def one_number(value: Any, slot: str, attr: str, argument: str, layer: str) -> tuple[Slots, Slots]:
    """Return (inputs, attributes) for a whole number or a Variable that holds it."""
    if isinstance(value, Variable):
        return {slot: _integral(value, argument, layer)}, {}
    return {}, {attr: integer(value, argument, layer)}


def real_number(value: Any, slot: str, attr: str, argument: str, layer: str) -> tuple[Slots, Slots]:
    """Return (inputs, attributes) for a number or a Variable that holds it."""
    if isinstance(value, Variable):
        return {slot: value}, {}
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise InvalidType(
            f"{layer}: {argument} must be a number or a Variable, "
            f"got {value!r} ({type(value).__name__})."
        )
    return {}, {attr: float(value)}


def several_numbers(
    values: Any,
    slot: str,
    list_slot: str,
    attr: str,
    argument: str,
    layer: str,
    helper: LayerHelper | None = None,
) -> tuple[Slots, Slots]:
    """Return (inputs, attributes) for a list of whole numbers and Variables, or one Variable with all of them.

    In the attribute -1 stands where the list has a Variable. Numbers beside Variables are named after
    ``helper``.

    Raises:
        InvalidType: ``values`` is neither, or holds something else.
    """
    if isinstance(values, Variable):
        return {slot: _integral(values, argument, layer)}, {}
    if not isinstance(values, (list, tuple, np.ndarray)):
        raise InvalidType(
            f"{layer}: {argument} must be a list, a tuple or a Variable, "
            f"got {values!r} ({type(values).__name__})."
        )
    items = [
        _integral(v, argument, layer) if isinstance(v, Variable) else integer(v, argument, layer)
        for v in values
    ]
    plain = [-1 if isinstance(v, Variable) else v for v in items]
    if not any(isinstance(v, Variable) for v in items):
        return {}, {attr: plain}
    return {list_slot: as_variables(items, helper)}, {attr: plain}


def as_variables(items: Sequence[Any], owner: LayerHelper | None = None) -> list[Variable]:
    """Return whole numbers and Variables as Variables of one element; new ones are named after ``owner``."""
    variables = []
    for value in items:
        if not isinstance(value, Variable):
            attrs = {"shape": [1], "dtype": VarType.INT32, "value": float(value), "force_cpu": True}
            helper = LayerHelper("fill_constant")
            value = (owner or helper).new("int32", stop_gradient=True)
            helper.layers("fill_constant", "", out=value, **attrs)
        variables.append(value)
    return variables


def _integral(value: Variable, argument: str, layer: str) -> Variable:
    if value.dtype not in INTEGERS:
        raise InvalidType(
            f"{layer}: {argument} must hold integers, and {value.name!r} holds "
            f"{value.dtype.name if value.dtype is not None else 'nothing yet'}."
        )
    return value
