"""Tensors of numbers: constants, ranges, diagonals, triangles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.layers import shape as layers
from ..graph.layers.helper import LayerHelper, check_variable
from ..graph.layers.tensors import sizes_of
from ..graph.program.variable import Variable
from ..strategies.errors import InvalidType, InvalidValue, Unsupported
from ..strategies.types import VarType, to_numpy, to_var_type
from .framework import dtype_or_default


def constant(array: Any, dtype: Any) -> Variable:
    """Return an array as a constant of the program, whatever its element type."""
    kind = to_var_type(dtype)
    array = np.asarray(array)
    if array.ndim == 0:
        array = array.reshape(1)
    if kind == VarType.FP64:
        return _double(array.astype(np.float64))
    element_type = {VarType.FP16: np.float32, VarType.BF16: np.float32, VarType.UINT8: np.int32,
            VarType.INT8: np.int32, VarType.INT16: np.int32}.get(kind, to_numpy(kind))  # fmt: skip
    variable = layers.assign(array.astype(element_type))
    variable.stop_gradient = True
    return variable if variable.dtype == kind else layers.cast(variable, kind)


def _double(array: np.ndarray) -> Variable:
    """Return float64 as a sum of float32, each of which holds the rounding error of those before."""
    total = layers.cast(layers.assign(array.astype(np.float32)), VarType.FP64)
    remainder = array - array.astype(np.float32)
    for _ in range(2):  # 24 bits each, of 53
        if not remainder.any() or not np.isfinite(remainder).all():
            break
        part = remainder.astype(np.float32)
        total = total + layers.cast(layers.assign(part), VarType.FP64)
        remainder = remainder - part
    total.stop_gradient = True
    return total


def full(shape: Any, fill_value: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """A tensor of one value; without a dtype the default one, or bool."""
    if dtype is None and isinstance(fill_value, bool):
        dtype = "bool"
    if isinstance(fill_value, str):
        fill_value = float(fill_value)
    sizes: Any = [shape] if isinstance(shape, int) else shape
    return layers.fill_constant(sizes, dtype_or_default(dtype), fill_value)


def ones(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """A tensor of ones."""
    return full(shape, 1.0, dtype_or_default(dtype))


def zeros(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """A tensor of zeros."""
    return full(shape, 0.0, dtype_or_default(dtype))


def empty(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """A tensor of unspecified elements, which are zeros."""
    return zeros(shape, dtype)


def full_like(x: Variable, fill_value: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """A tensor of one value in the shape of ``x``."""
    check_variable(x, "x", "full_like")
    if isinstance(fill_value, str):
        fill_value = float(fill_value)
    helper = LayerHelper("full_like", name)
    attrs: dict[str, Any] = {"value": float(fill_value)}
    if dtype is not None:
        attrs["dtype"] = int(to_var_type(dtype))
    kind = x.dtype if dtype is None else dtype
    return helper.apply("fill_any_like", {"X": x}, attrs, dtype=kind, stop_gradient=True)


def ones_like(x: Variable, dtype: Any = None, name: str | None = None) -> Variable:
    """Ones in the shape of ``x``."""
    return full_like(x, 1.0, dtype, name)


def zeros_like(x: Variable, dtype: Any = None, name: str | None = None) -> Variable:
    """Zeros in the shape of ``x``."""
    return full_like(x, 0.0, dtype, name)


def empty_like(x: Variable, dtype: Any = None, name: str | None = None) -> Variable:
    """A tensor of unspecified elements, which are zeros, in the shape of ``x``."""
    return zeros_like(x, dtype, name)


def _numbers(layer: str, *values: Any) -> None:
    for value in values:
        if isinstance(value, Variable):
            raise Unsupported(
                f"{layer}: the number of elements would depend on {value.name!r}, and sizes that depend on "
                "values are not built. Pass numbers."
            )
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
            raise InvalidType(f"{layer} takes numbers, got {value!r}.")


def arange(
    start: Any = 0, end: Any = None, step: Any = 1, dtype: Any = None, name: str | None = None
) -> Variable:
    """start, start + step, ... up to but without ``end``; integers where all three are."""
    if end is None:
        start, end = 0, start
    _numbers("arange", start, end, step)
    if step == 0:
        raise InvalidValue("arange: the step cannot be 0.")
    if dtype is None:
        integers = all(isinstance(number, (int, np.integer)) for number in (start, end, step))
        dtype = "int64" if integers else dtype_or_default(None)
    count = max(0, math.ceil((end - start) / step))
    if count == 0:
        raise InvalidValue(f"arange: there is nothing between {start} and {end} by {step}.")
    numbers = np.arange(count, dtype=np.int64 if float(step).is_integer() else np.float64)
    return constant(start + step * numbers, dtype)


def linspace(
    start: Any, stop: Any, num: Any, dtype: Any = None, name: str | None = None
) -> Variable:
    """``num`` numbers from ``start`` to ``stop``, evenly apart."""
    _numbers("linspace", start, stop, num)
    if int(num) < 1:
        raise InvalidValue(f"linspace: num must be 1 or more, got {num}.")
    return constant(np.linspace(start, stop, int(num)), dtype_or_default(dtype))


def eye(
    num_rows: int, num_columns: int | None = None, dtype: Any = None, name: str | None = None
) -> Variable:
    """Ones on the diagonal, zeros beside it."""
    columns = num_rows if num_columns is None else num_columns
    sizes = sizes_of([num_rows, columns], "eye")
    if min(sizes) < 1:
        raise InvalidValue(f"eye: sizes must be positive, got {sizes}.")
    return constant(np.eye(sizes[0], sizes[1]), dtype_or_default(dtype))


def _known_matrix_sizes(x: Variable, layer: str) -> tuple[int, int]:
    """Return the last two sizes, which must be known."""
    check_variable(x, "x", layer)
    sizes = (x.shape or ())[-2:]
    if len(sizes) < 2 or min(sizes) < 0:
        raise InvalidValue(
            f"{layer}: x must have two dimensions or more, the last two of known sizes; "
            f"{x.name!r} has {list(x.shape or ())}."
        )
    return sizes[0], sizes[1]


def _masked(x: Variable, mask: np.ndarray) -> Variable:
    assert x.shape is not None and x.dtype is not None
    return x * constant(mask, x.dtype)


def tril(x: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """The matrices with zeros above a diagonal."""
    return _masked(x, np.tri(*_known_matrix_sizes(x, "tril"), k=diagonal))


def triu(x: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """The matrices with zeros below a diagonal."""
    return _masked(x, 1 - np.tri(*_known_matrix_sizes(x, "triu"), k=diagonal - 1))


def diag(
    x: Variable, offset: int = 0, padding_value: float = 0, name: str | None = None
) -> Variable:
    """A matrix with the vector on its diagonal, or the diagonal of a matrix."""
    check_variable(x, "x", "diag")
    assert x.shape is not None and x.dtype is not None
    if len(x.shape) == 1 and x.shape[0] > 0:
        count = x.shape[0]
        size = count + abs(offset)
        on_it = np.eye(size, k=offset)
        index = np.clip(np.arange(size) - max(-offset, 0), 0, count - 1)
        column = layers.unsqueeze(layers.gather(x, constant(index, "int64")), [1])
        placed = column * constant(on_it, x.dtype)
        return placed + constant((1 - on_it) * padding_value, x.dtype) if padding_value else placed
    rows_, columns = _known_matrix_sizes(x, "diag")
    if len(x.shape) != 2:
        raise InvalidValue(f"diag takes a vector or a matrix, got {len(x.shape)} dimensions.")
    first = np.arange(max(-offset, 0), rows_)
    second = first + offset
    inside = second < columns
    index = np.stack([first[inside], second[inside]], 1)
    from ..graph.layers.tensors import gather_nd

    return gather_nd(x, constant(index, "int64"))


def to_tensor(
    data: Any, dtype: Any = None, place: Any = None, stop_gradient: bool = True
) -> Variable:
    """Numbers, lists or an array as a constant of the program; floats get the default element type."""
    if isinstance(data, Variable):
        return data if dtype is None else layers.cast(data, dtype)
    array = np.asarray(data)
    if array.dtype.kind not in "fiub":
        raise InvalidType(f"to_tensor takes numbers, got {type(data).__name__}.")
    if dtype is None:
        from_python = array.dtype.kind == "f" and not isinstance(data, (np.ndarray, np.generic))
        dtype = dtype_or_default(None) if from_python else array.dtype
    variable = constant(array, dtype)
    variable.stop_gradient = stop_gradient
    return variable


def assign(x: Any, output: Variable | None = None) -> Variable:
    """A copy of a Variable, or of an array, a list or a number."""
    if isinstance(x, Variable):
        return layers.assign(x, output)
    tensor = to_tensor(np.asarray(x))
    return tensor if output is None else layers.assign(tensor, output)


def meshgrid(*args: Any, **kwargs: Any) -> list[Variable]:
    """Vectors repeated to grids: output i varies along dimension i."""
    vectors = list(args[0]) if len(args) == 1 and isinstance(args[0], (list, tuple)) else list(args)
    sizes: list[int] = []
    for vector in vectors:
        check_variable(vector, "an argument", "meshgrid")
        if vector.ndim != 1 or vector.shape[0] < 0:
            raise InvalidValue(f"meshgrid takes vectors of known sizes, got {vector!r}.")
        sizes.append(vector.shape[0])
    grids = []
    for i, vector in enumerate(vectors):
        view = layers.reshape(vector, [-1 if j == i else 1 for j in range(len(sizes))])
        grids.append(layers.expand(view, [1 if j == i else n for j, n in enumerate(sizes)]))
    return grids


def known_sizes(shape: Any, layer: str) -> Sequence[int]:
    """Return a shape of numbers; one int stands for a vector."""
    return [shape] if isinstance(shape, int) else sizes_of(shape, layer)
