"""Values that a program computes from attributes alone: the same array in every step."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from ...strategies.types import to_numpy
from ..ir.graph import Value
from .match import GraphRewriter

_MOST = 1 << 26  # elements: no mask is as large


def constant(edit: GraphRewriter, value: Value | None) -> np.ndarray | None:
    """Return the elements of a value that is the same in every step, made by the ops that write masks.

    None: the value depends on feeds, persistables or random numbers, or another op made it.
    """
    node = edit.writer(value)
    if node is None or value is None or node.op not in _COMPUTES:
        return None
    shape = value.spec.shape
    if min(shape, default=1) < 1 or np.prod(shape, dtype=np.int64) > _MOST:
        return None
    operands = [constant(edit, operand) for operand in node.reads()]
    if any(array is None for array in operands):
        return None
    array = _COMPUTES[node.op](node.attrs, *operands)
    if array is None or array.size not in (1, np.prod(shape, dtype=np.int64)):
        return None
    kind = to_numpy(value.spec.dtype)
    with np.errstate(over="ignore"):  # a mask of -1e9 in float16 is one of -inf
        array = array.astype(kind)
    return np.broadcast_to(array, shape) if array.size == 1 else array.reshape(shape)


def _values(attrs: Any) -> np.ndarray:
    kinds = ("fp32", "int64", "int32", "bool")
    return np.array(next((attrs[f"{k}_values"] for k in kinds if attrs[f"{k}_values"]), []))


def _filled(attrs: Any, *operands: np.ndarray) -> np.ndarray | None:
    return None if operands else np.array(float(attrs["str_value"] or attrs["value"]))


def _scaled(attrs: Any, *operands: np.ndarray) -> np.ndarray | None:
    if len(operands) > 1:  # the factor is a tensor
        return None
    (x,), scale, bias = operands, attrs["scale"], attrs["bias"]
    return x * scale + bias if attrs["bias_after_scale"] else (x + bias) * scale


def _triangle(attrs: Any, x: np.ndarray) -> np.ndarray:
    return (np.tril if attrs["lower"] else np.triu)(x, attrs["diagonal"])


def _alike(of: Callable[..., Any]) -> Callable[..., np.ndarray | None]:
    """Return a function of two operands of one shape, or of an array and a number."""

    def pair(attrs: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray | None:
        return of(x, y) if x.shape == y.shape or y.size == 1 else None

    return pair


def _same(attrs: Any, x: np.ndarray) -> np.ndarray:
    return x


_COMPUTES: dict[str, Callable[..., np.ndarray | None]] = {
    "assign_value": _values,
    "fill_constant": _filled,
    "fill_any_like": lambda attrs, x: np.array(attrs["value"]),
    "fill_zeros_like": lambda attrs, x: np.array(0.0),
    "tril_triu": _triangle,
    "scale": _scaled,
    "elementwise_add": _alike(operator.add),
    "elementwise_sub": _alike(operator.sub),
    "elementwise_mul": _alike(operator.mul),
    **dict.fromkeys(("assign", "cast", "reshape2", "unsqueeze2", "squeeze2"), _same),
}
