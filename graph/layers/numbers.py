"""Numbers of a layer that may be Variables: one for all, or some in a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...strategies.errors import InvalidType
from ...strategies.types import INTEGERS, VarType
from ..ops.registry import OPS
from ..program.variable import Variable
from .arguments import integer
from .helper import LayerHelper


def numbers_of(
    op_type: str,
    attr: str,
    value: Any,
    layer: str = "",
    argument: str = "",
    owner: LayerHelper | None = None,
) -> dict[str, Any]:
    """Return the fields by which an op has numbers: an attribute, or the slots that it declares for it.

    ``value`` is a number, or a Variable that holds it; where the op takes several, a list of whole numbers and
    Variables, or one Variable with all of them. In the attribute -1 stands where the list has a Variable.
    Numbers beside Variables are named after ``owner``. Errors name ``layer`` and ``argument``: unless they are
    passed, the op and the attribute.

    Raises:
        InvalidType: ``value`` is none of these, or holds something else.
    """
    op = OPS[op_type]
    layer, argument = layer or op_type, argument or attr
    slots = [slot for slot in op.input_slots if op.numbers.get(slot.name) == attr]
    each = next((slot.name for slot in slots if slot.duplicable), "")
    is_real = op.record.declared().kinds[attr] == "float"
    if isinstance(value, Variable):
        whole = next(slot.name for slot in slots if not slot.duplicable)
        return {whole: value if is_real else _integral(value, argument, layer)}
    if not each:
        return {attr: (_real if is_real else integer)(value, argument, layer)}
    if not isinstance(value, (list, tuple, np.ndarray)):
        raise InvalidType(
            f"{layer}: {argument} must be a list, a tuple or a Variable, "
            f"got {value!r} ({type(value).__name__})."
        )
    items = [
        _integral(v, argument, layer) if isinstance(v, Variable) else integer(v, argument, layer)
        for v in value
    ]
    plain = [-1 if isinstance(v, Variable) else v for v in items]
    if not any(isinstance(v, Variable) for v in items):
        return {attr: plain}
    return {each: as_variables(items, owner), attr: plain}


def _real(value: Any, argument: str, layer: str) -> float:
    if isinstance(value, (str, bytes)) or not hasattr(value, "__float__") or np.ndim(value) > 0:
        raise InvalidType(
            f"{layer}: {argument} must be a number or a Variable, "
            f"got {value!r} ({type(value).__name__})."
        )
    return float(value)


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
