"""Comparisons, orders and choices with Paddle 2.x's signatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, overload

import numpy as np

from ..graph.layers import binary, matrices, tensors, unary
from ..graph.layers import shape as layers
from ..graph.layers.arguments import axis_of, integer, of_family
from ..graph.layers.helper import LayerHelper, constant_layer, layer
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidType, InvalidValue
from ..strategies.types import FLOATS, VarType, to_var_type
from . import math as functions
from .creation import constant, full_like
from .signatures import reordered


def _compared(op_type: str, x: Variable, y: Any, name: str | None = None) -> Variable:
    """``{name}``, element by element."""
    if not isinstance(y, Variable):
        if not isinstance(y, (bool, int, float, np.number)):
            raise InvalidType(f"{op_type}: y must be a Variable or a number, got {y!r}.")
        y = constant(y, x.dtype)
    compare: Callable[..., Variable] = getattr(binary, op_type)
    return compare(*functions.alike(x, y))


less_than = of_family(_compared, "less_than")
less_equal = of_family(_compared, "less_equal")
greater_than = of_family(_compared, "greater_than")
greater_equal = of_family(_compared, "greater_equal")
equal = of_family(_compared, "equal")
not_equal = of_family(_compared, "not_equal")


def _logical(
    op_type: str, x: Variable, y: Variable, name: str | None = None, *, out: Variable | None = None
) -> Variable:
    """``{name}``; what is not zero counts as true."""
    left, right = functions.truth(x), functions.truth(y)
    if left.shape != right.shape:  # the ops of logic do not broadcast
        return layer(op_type.replace("logical", "bitwise"), x=left, y=right, out=out)
    logical: Callable[..., Variable] = getattr(binary, op_type)
    return logical(left, right, out, name)


logical_and = of_family(_logical, "logical_and")
logical_or = of_family(_logical, "logical_or")
logical_xor = of_family(_logical, "logical_xor")


def logical_not(x: Variable, name: str | None = None, *, out: Variable | None = None) -> Variable:
    """The opposite; what is not zero counts as true."""
    return binary.logical_not(functions.truth(x), out, name)


def equal_all(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """Whether all elements are equal; tensors of different shapes are not."""
    left, right = x.shape or (), y.shape or ()
    fits = len(left) == len(right) and not any(
        a != b and min(a, b) >= 0 for a, b in zip(left, right, strict=True)
    )
    return tensors.reduce_all(binary.equal(x, y)) if fits else constant(False, "bool")


def is_empty(x: Variable, name: str | None = None) -> Variable:
    """Whether there are no elements."""
    return matrices.is_empty(x)


def isclose(
    x: Variable,
    y: Variable,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
    name: str | None = None,
) -> Variable:
    """Whether |x - y| is at most atol + rtol |y|, element by element."""
    near = unary.abs(x - y) <= unary.abs(y) * float(rtol) + float(atol)
    near = binary.logical_or(near, binary.equal(x, y))
    if not equal_nan:
        return near
    neither = binary.logical_and(binary.not_equal(x, x), binary.not_equal(y, y))
    return binary.logical_or(near, neither)


def nonzero(x: Variable, as_tuple: bool = False) -> Any:
    """Return where elements are not zero, int64 [count, dimensions]; or [count, 1] by dimension."""
    return matrices.nonzero(x, as_tuple)


def unique(
    x: Variable,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    dtype: Any = "int64",
    sorted: bool = True,
    name: str | None = None,
) -> Any:
    """Return the elements that differ (along an axis: the slices), sorted or in the order they come first.

    Args:
        return_index: also return where each comes first.
        return_inverse: also return, for each element, which it is.
        return_counts: also return how often each comes.
    """
    helper = LayerHelper("unique", name)
    attrs = {
        "dtype": to_var_type(dtype),
        "return_index": return_index,
        "return_inverse": return_inverse,
        "return_counts": return_counts,
        "axis": [] if axis is None else [axis],
        "is_sorted": sorted,
    }
    if axis is None and x.ndim != 1:
        x = layers.reshape(x, [-1])
    slots = "Out Indices Index Counts"
    elements, *others = helper.constant_layers("unique", slots, x=x, **attrs)
    options = zip(others, (return_index, return_inverse, return_counts), strict=True)
    results = [elements, *(result for result, is_wanted in options if is_wanted)]
    return results[0] if len(results) == 1 else tuple(results)


allclose = reordered(matrices.allclose, "x=input y=other rtol atol equal_nan name")


def _extreme(
    op_type: str,
    x: Variable,
    axis: int | None = None,
    keepdim: bool = False,
    dtype: Any = "int64",
    name: str | None = None,
) -> Variable:
    """Index of the largest, or smallest, element along ``axis`` (None: of all, in a row)."""
    kind = to_var_type(dtype)
    if kind not in (VarType.INT32, VarType.INT64):
        raise InvalidType(f"{op_type}: dtype must be 'int32' or 'int64', got {dtype!r}.")
    operand = layers.reshape(x, [-1]) if axis is None else x
    attrs = {"axis": 0 if axis is None else axis, "keepdims": keepdim and axis is not None}
    out = constant_layer(op_type, name, x=operand, **attrs)
    if axis is None and keepdim:
        out = layers.reshape(out, [1] * x.ndim)
    return out if kind == VarType.INT64 else layers.cast(out, kind)


argmax = of_family(_extreme, "arg_max", "argmax")
argmin = of_family(_extreme, "arg_min", "argmin")


def _in_order(
    result: int,
    x: Variable,
    axis: int = -1,
    descending: bool = False,
    stable: bool = False,
    name: str | None = None,
) -> Variable:
    """The elements of x in order along ``axis`` (``sort``), or where they stand (``argsort``).

    Equal ones stay as they stand.
    """
    return tensors.in_order(x, axis, descending, name)[result]


argsort = of_family(_in_order, 1, "argsort")
sort = of_family(_in_order, 0, "sort")


def topk(
    x: Variable,
    k: Any,
    axis: int | None = None,
    largest: bool = True,
    sorted: bool = True,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """The ``k`` largest (or smallest) along ``axis``, in order, and where they are."""
    rank = x.ndim
    axis = rank - 1 if axis is None else axis_of(x, axis, "topk")
    if largest and axis == rank - 1:
        values, indices = layers.topk(x, k, name)
        values.stop_gradient = False
        return values, indices
    size = (x.shape or ())[axis]
    if integer(k, "k", "topk") < 1 or 0 <= size < k:
        raise InvalidValue(f"topk: k={k} does not fit dimension {axis} with {size} elements.")
    values, indices = tensors.in_order(x, axis, largest, name)
    return layers.slice(values, [axis], [0], [k]), layers.slice(indices, [axis], [0], [k])


@overload
def where(condition: Variable, x: None = None, y: None = None) -> tuple[Variable, ...]: ...


@overload
def where(condition: Variable, x: Any, y: Any, name: str | None = None) -> Variable: ...


def where(condition: Variable, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    """x where the condition holds, else y; they broadcast, and may be numbers. Without them :func:`nonzero`.

    Raises:
        InvalidValue: only one of them is given.
    """
    if (x is None) != (y is None):
        raise InvalidValue("where: give both x and y, or none of them.")
    if x is None:
        return nonzero(condition, as_tuple=True)
    like = x if isinstance(x, Variable) else y if isinstance(y, Variable) else None
    if like is None:
        mask = layers.cast(condition, "float32")
        x, y = full_like(mask, float(x)), full_like(mask, float(y))
        return layers.where(condition, x, y)
    sides = []
    for operand in (x, y):
        if not isinstance(operand, (Variable, int, float)):
            raise InvalidType(f"where: x and y are Variables or numbers, got {operand!r}.")
        sides.append(operand if isinstance(operand, Variable) else constant(operand, like.dtype))
    sides = list(functions.alike(*sides))
    if all(side.shape == condition.shape for side in sides):
        return layers.where(condition, *sides)
    # Zeros of the shape that all three broadcast to.
    flags = layers.cast(condition, sides[0].dtype)
    zeros = functions.add(layers.zeros_like(flags), layers.zeros_like(sides[0]))
    zeros = functions.add(zeros, layers.zeros_like(sides[1]))
    selection = functions.add(zeros, flags) > 0.5
    return layers.where(selection, *(functions.add(zeros, side) for side in sides))


def median(
    x: Variable,
    axis: int | None = None,
    keepdim: bool = False,
    mode: Literal["avg", "min"] = "avg",
    name: str | None = None,
) -> Any:
    """The middle of the elements in order; of an even number the mean of two ("avg"), or the lower ("min").

    Integers become float32 for a mean. With "min" and an axis the result is (values, indices).

    Raises:
        InvalidValue: the size along ``axis`` is not known.
    """
    operand = layers.reshape(x, [-1]) if axis is None else x
    operand = operand if mode == "min" else functions.floats(operand)
    place = 0 if axis is None else axis_of(x, axis, "median")
    size = (operand.shape or ())[place]
    if size < 1:
        raise InvalidValue(f"median: how many elements {x.name!r} has along axis must be known.")
    ordered, indices = tensors.in_order(operand, place)
    start = (size - 1) // 2
    end = start + (2 if mode == "avg" and size % 2 == 0 else 1)
    out = layers.reduce_mean(layers.slice(ordered, [place], [start], [end]), place, keepdim)
    if operand.dtype in FLOATS:  # numbers that are none stand last in order
        out = out + layers.reduce_sum(operand, place, keepdim) * 0.0
    if axis is None:
        return layers.reshape(out, [1] * x.ndim) if keepdim else out
    if mode == "avg":
        return out
    index = layers.slice(indices, [place], [start], [end])
    return out, index if keepdim else layers.squeeze(index, [place])


publish_definitions(__name__)
