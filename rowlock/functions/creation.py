"""Tensors of numbers: constants, ranges, diagonals, triangles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph.layers import binary, matrices
from ..graph.layers import shape as layers
from ..graph.layers.arguments import number
from ..graph.layers.helper import LayerHelper
from ..graph.layers.tensors import sizes_of
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidArgument, InvalidType, InvalidValue, NotANumber, Unsupported
from ..strategies.types import INTEGERS, VarType, to_numpy, to_var_type
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
    fill_value = _from_text(fill_value, "full")
    sizes: Any = [shape] if isinstance(shape, int) else shape
    return layers.fill_constant(sizes, dtype_or_default(dtype), fill_value)


def _from_text(value: Any, layer: str) -> Any:
    """Return the number that a str says, such as "inf"; what is none as it is."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        raise NotANumber(f"{layer}: fill_value must be a number, got {value!r} (str).") from None


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
    kind = None if dtype is None else int(to_var_type(dtype))
    attrs = {"value": float(_from_text(fill_value, "full_like")), "dtype": kind}
    return LayerHelper("full_like", name).constant_layers("fill_any_like", "Out", x=x, **attrs)[0]


def ones_like(x: Variable, dtype: Any = None, name: str | None = None) -> Variable:
    """Ones in the shape of ``x``."""
    return full_like(x, 1.0, dtype, name)


def zeros_like(x: Variable, dtype: Any = None, name: str | None = None) -> Variable:
    """Zeros in the shape of ``x``."""
    return full_like(x, 0.0, dtype, name)


empty_like = zeros_like  # elements that are not specified are zeros


def _numbers(layer: str, *values: Any) -> None:
    for value in values:
        if isinstance(value, Variable):
            raise Unsupported(
                f"{layer}: the number of elements would depend on {value.name!r}, and sizes that depend on "
                "values are not built. Pass numbers."
            )
        number(value, "an end, a step or a count", layer)


def arange(
    start: Any = 0, end: Any = None, step: Any = 1, dtype: Any = None, name: str | None = None
) -> Variable:
    """start, start + step, ... up to but without ``end``, each a number or a Variable of one element.

    They are integers where all three are.
    """
    if end is None:
        start, end = 0, start
    variables = [value for value in (start, end, step) if isinstance(value, Variable)]
    if variables:
        whole = not any(isinstance(value, float) for value in (start, end, step))
        whole = whole and all(value.dtype in INTEGERS for value in variables)
        kind = (VarType.INT64 if whole else dtype_or_default(None)) if dtype is None else dtype
        return matrices.range(start, end, step, kind)
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
    """``num`` numbers from ``start`` to ``stop``, evenly apart; ends may be Variables."""
    if isinstance(start, Variable) or isinstance(stop, Variable):
        like = next(end.dtype for end in (start, stop) if isinstance(end, Variable))
        return matrices.linspace(start, stop, num, like if dtype is None else dtype)
    _numbers("linspace", start, stop, num)
    if int(num) < 1:
        raise InvalidValue(f"linspace: num must be 1 or more, got {num}.")
    return constant(np.linspace(start, stop, int(num)), dtype_or_default(dtype))


def logspace(
    start: float,
    stop: float,
    num: int,
    base: float = 10.0,
    dtype: Any = None,
    name: str | None = None,
) -> Variable:
    """``num`` powers of ``base``, whose exponents lie evenly apart from ``start`` to ``stop``."""
    _numbers("logspace", start, stop, num, base)
    if int(num) < 1:
        raise InvalidValue(f"logspace: num must be 1 or more, got {num}.")
    return constant(np.logspace(start, stop, int(num), base=base), dtype_or_default(dtype))


def eye(
    num_rows: Any, num_columns: Any = None, dtype: Any = None, name: str | None = None
) -> Variable:
    """Ones on the diagonal, zeros beside it; sizes are ints or Variables of one element.

    Raises:
        InvalidArgument: a Variable has more or fewer elements.
    """
    sizes = [num_rows, num_rows if num_columns is None else num_columns]
    for argument, size in zip(("num_rows", "num_columns"), sizes, strict=True):
        if isinstance(size, Variable) and size.shape not in ((), (1,), (-1,)):
            raise InvalidArgument(
                f"eye: {argument} must be an int or a Variable of one element, got {size.name!r} of shape "
                f"{list(size.shape or ())}."
            )
    if not any(isinstance(size, Variable) for size in sizes):
        return matrices.eye(sizes[0], sizes[1], None, dtype_or_default(dtype))
    rows, columns = (arange(0, size, 1, "int64") for size in sizes)
    same = binary.equal(layers.unsqueeze(rows, [1]), layers.unsqueeze(columns, [0]))
    return layers.cast(same, dtype_or_default(dtype))


def tril(x: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """The matrices with zeros above a diagonal."""
    return matrices.tril(x, diagonal, name)


def triu(x: Variable, diagonal: int = 0, name: str | None = None) -> Variable:
    """The matrices with zeros below a diagonal."""
    return matrices.triu(x, diagonal, name)


def diag(
    x: Variable, offset: int = 0, padding_value: float = 0, name: str | None = None
) -> Variable:
    """A matrix with the vector on its diagonal and ``padding_value`` beside it, or a matrix's diagonal."""
    if x.ndim == 2:
        return matrices.diagonal(x, offset, 0, 1, name)
    if x.ndim != 1:
        raise InvalidValue(f"diag takes a vector or a matrix, got {x.ndim} dimensions.")
    matrix = matrices.diag_embed(x, offset)
    if not padding_value:
        return matrix
    on_it = matrices.diag_embed(ones_like(x), offset) > 0
    return layers.where(on_it, matrix, full_like(matrix, padding_value))


def diagflat(x: Variable, offset: int = 0, name: str | None = None) -> Variable:
    """A matrix with all elements of x, in a row, on its diagonal."""
    return diag(x if x.ndim == 1 else layers.reshape(x, [-1]), offset)


def tril_indices(
    row: int, col: int | None = None, offset: int = 0, dtype: Any = "int64"
) -> Variable:
    """Rows and columns, [2, n], of the elements on and below a diagonal of [row, col]."""
    rows, columns = sizes_of([row, row if col is None else col], "tril_indices")
    return constant(np.stack(np.tril_indices(rows, offset, columns)), dtype)


def triu_indices(
    row: int, col: int | None = None, offset: int = 0, dtype: Any = "int64"
) -> Variable:
    """Rows and columns, [2, n], of the elements on and above a diagonal of [row, col]."""
    rows, columns = sizes_of([row, row if col is None else col], "triu_indices")
    return constant(np.stack(np.triu_indices(rows, offset, columns)), dtype)


def trace(
    x: Variable, offset: int = 0, axis1: int = 0, axis2: int = 1, name: str | None = None
) -> Variable:
    """The sum of the diagonal of two dimensions."""
    return matrices.trace(x, offset, axis1, axis2, None, name)


def to_tensor(
    data: Any, dtype: Any = None, place: Any = None, stop_gradient: bool = True
) -> Variable:
    """Numbers, lists or an array as a constant of the program; floats get the default element type."""
    if isinstance(data, Variable):
        return data if dtype is None else layers.cast(data, dtype)
    try:
        array = np.asarray(data)
    except ValueError:
        raise InvalidValue(
            "to_tensor: data must be lists of one length each, got others."
        ) from None
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
    return matrices.meshgrid(vectors, kwargs.get("name"))


def shape_numbers(shape: Any, layer: str) -> Sequence[int]:
    """Return a shape of numbers; one int stands for a vector."""
    return [shape] if isinstance(shape, int) else sizes_of(shape, layer)


def sizes_or_variables(shape: Any, layer: str) -> list[Any]:
    """Return sizes as a list of ints and Variables; a Variable [n] holds n of them."""
    if isinstance(shape, Variable) and shape.ndim == 1 and (shape.shape or (-1,))[0] > 0:
        return [shape[i] for i in range((shape.shape or ())[0])]
    if isinstance(shape, (list, tuple)) and any(isinstance(size, Variable) for size in shape):
        known = (size for size in shape if not isinstance(size, Variable))
        numbers = iter(shape_numbers(list(known), layer))
        return [size if isinstance(size, Variable) else next(numbers) for size in shape]
    return list(shape_numbers(shape, layer))


publish_definitions(__name__, withhold=(constant, shape_numbers, sizes_or_variables))
