"""Layers of diagonals, triangles, and numbers in a row; tensors compared as wholes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...strategies.errors import InvalidValue, require_type
from ...strategies.types import VarType, to_var_type
from ..program.variable import Variable
from .arguments import check_variable, integer
from .helper import LayerHelper, constant_layer, constant_layers, layer
from .shape import assign, cast, fill_constant, stack, where

_NUMBERS = (VarType.FP32, VarType.FP64, VarType.INT32, VarType.INT64)


def eye(
    num_rows: int, num_columns: int | None = None, batch_shape: Any = None, dtype: Any = "float32"
) -> Variable:
    """Ones on the diagonal, zeros beside it; ``batch_shape`` (a list) repeats the matrix."""
    sizes = [num_rows, num_rows if num_columns is None else num_columns]
    for argument, size in zip(("num_rows", "num_columns"), sizes, strict=True):
        if size < 1:
            raise InvalidValue(f"eye: {argument} must be above 0, got {size}.")
    require_type(batch_shape, list | tuple | None, "eye: batch_shape must be a list")
    attrs = {"num_rows": sizes[0], "num_columns": sizes[1], "dtype": int(to_var_type(dtype))}
    out = constant_layer("eye", **attrs)
    for size in reversed(batch_shape or ()):
        if integer(size, "batch_shape", "eye") < 1:
            raise InvalidValue(f"eye: batch_shape must be above 0, got {batch_shape}.")
        out = stack([out] * size)
    return out


def diag(diagonal: Any) -> Variable:
    """A matrix with the vector, a Variable or an array, on its diagonal; it passes no gradient on."""
    vector = assign(diagonal) if isinstance(diagonal, np.ndarray) else diagonal
    check_variable(vector, "diagonal", "diag")
    return constant_layer("diag", diagonal=vector)


def diag_embed(input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Variable:
    """The last dimension on a diagonal of dimensions ``dim1`` and ``dim2``, zeros beside it."""
    source = assign(input) if isinstance(input, np.ndarray) else input
    check_variable(source, "input", "diag_embed")
    return layer("diag_embed", input=source, offset=offset, dim1=dim1, dim2=dim2)


def diagonal(
    x: Variable, offset: int = 0, axis1: int = 0, axis2: int = 1, name: str | None = None
) -> Variable:
    """The diagonal of two dimensions, as the last one."""
    return layer("diagonal", name, input=x, offset=offset, axis1=axis1, axis2=axis2)


def trace(
    input: Variable,
    offset: int = 0,
    dim1: int = 0,
    dim2: int = 1,
    out: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """The sum of the diagonal of two dimensions; ``out`` is the variable to write."""
    return layer("trace", name, input=input, offset=offset, dim1=dim1, dim2=dim2, out=out)


def _triangle(op: str, x: Variable, diagonal: int, name: str | None) -> Variable:
    return LayerHelper(op, name).layer("tril_triu", x=x, diagonal=diagonal, lower=op == "tril")


def tril(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """The matrices with zeros above a diagonal."""
    return _triangle("tril", input, diagonal, name)


def triu(input: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """The matrices with zeros below a diagonal."""
    return _triangle("triu", input, diagonal, name)


def _number(value: Any, kind: VarType, argument: str, op: str) -> Variable:
    """Return a number as a Variable of one element and this type."""
    if isinstance(value, Variable):
        return value if value.dtype == kind else cast(value, kind)
    require_type(value, int | float | np.number, f"{op}: {argument} must be a number or a Variable")
    return fill_constant([1], kind, value.item() if isinstance(value, np.number) else value)


def linspace(start: Any, stop: Any, num: Any, dtype: Any) -> Variable:
    """``num`` numbers from ``start`` to ``stop``, evenly apart; all three may be Variables.

    Raises:
        InvalidValue: ``dtype`` is not float32 or float64, or what ``num`` holds is known only in a run.
    """
    kind = to_var_type(dtype)
    if kind not in (VarType.FP32, VarType.FP64):
        raise InvalidValue(f"linspace: dtype must be float32 or float64, got {dtype!r}.")
    inputs = {
        "Start": _number(start, kind, "start", "linspace"),
        "Stop": _number(stop, kind, "stop", "linspace"),
        "Num": _number(num, VarType.INT32, "num", "linspace"),
    }
    return layer("linspace", **inputs)


def range(start: Any, end: Any, step: Any, dtype: Any) -> Variable:
    """start, start + step, ... up to but without ``end``; all three may be Variables.

    Raises:
        InvalidValue: ``dtype`` is no number's, or what a Variable holds is known only in a run.
    """
    kind = to_var_type(dtype)
    if kind not in _NUMBERS:
        raise InvalidValue(f"range: dtype must be float or int of 32 or 64 bits, got {dtype!r}.")
    numbers = (("Start", start), ("End", end), ("Step", step))
    inputs = {slot: _number(value, kind, slot.lower(), "range") for slot, value in numbers}
    return constant_layer("range", **inputs)


def meshgrid(input: Sequence[Variable], name: str | None = None) -> list[Variable]:
    """Vectors repeated to grids: result i varies along dimension i."""
    for vector in input:
        check_variable(vector, "input", "meshgrid")
    helper = LayerHelper("meshgrid", name)
    grids = [helper.new(vector.dtype) for vector in input]
    helper.layers("meshgrid", "", x=list(input), out=grids)
    return grids


def size(input: Variable) -> Variable:
    """The number of elements, as an int64 of one element."""
    return constant_layer("size", input=input)


def is_empty(x: Variable, cond: Variable | None = None) -> Variable:
    """Whether there are no elements; ``cond`` is the boolean variable to write."""
    return constant_layer("is_empty", x=x, out=cond)


def allclose(
    input: Variable,
    other: Variable,
    rtol: float = 1e-05,
    atol: float = 1e-08,
    equal_nan: bool = False,
    name: str | None = None,
) -> Variable:
    """Whether every |input - other| is at most atol + rtol |other|."""
    attrs = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan}
    return constant_layer("allclose", name, input=input, other=other, **attrs)


def unique(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable]:
    """Return the distinct elements of a list, in order of first appearance, and each element's index in them.

    Their number comes out of the data: the step is cut in two here.
    """
    number = to_var_type(dtype)
    out, index = constant_layers("unique", None, "Out Index", x=x, dtype=int(number))
    return (out, index)


def unique_with_counts(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable, Variable]:
    """Return what :func:`unique` does, and how often each element comes."""
    results = "Out Index Count"
    attrs = {"dtype": to_var_type(dtype)}
    out, index, count = constant_layers("unique_with_counts", None, results, x=x, **attrs)
    return out, index, count


def nonzero(input: Variable, as_tuple: bool = False) -> Any:
    """Return the places of elements that are not zero, int64 [count, dimensions]; or [count, 1] by dimension.

    Their number comes out of the data: the step is cut in two here.
    """
    places = where(input)
    if not as_tuple:
        return places
    return tuple(places[:, k : k + 1] for k, _ in enumerate(input.shape or ()))
