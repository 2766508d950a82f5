"""Tensors cut, joined and seen in other shapes with Paddle 2.x's signatures, made of other functions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import reduce
from typing import Any, Literal

import numpy as np

from ..graph.layers import binary, tensors
from ..graph.layers import shape as layers
from ..graph.layers.arguments import axis_of, check_variable, integers
from ..graph.ops.rules import product
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidType, InvalidValue, Unsupported
from ..strategies.types import VarType
from . import math as functions
from .creation import constant, full_like, meshgrid, ones_like
from .manipulation import concat, expand, flatten, gather, reshape, stack, transpose
from .math import mod
from .places import known_sizes, setitem, sizes_of_step, swapaxes
from .search import where


def permute(input: Variable, dims: Sequence[int]) -> Variable:
    """Dimension i of the result is dimension ``dims[i]``."""
    return transpose(input, dims)


def matrix_transpose(x: Variable, name: str | None = None) -> Variable:
    """The last two dimensions exchanged."""
    return swapaxes(x, -2, -1)


def ravel(input: Variable) -> Variable:
    """All elements in one row."""
    return flatten(input)


def unflatten(x: Variable, axis: int, shape: Any, name: str | None = None) -> Variable:
    """Dimension ``axis`` in several; one of ``shape`` may be -1."""
    axis = axis_of(x, axis, "unflatten")
    sizes = list(x.shape or ())
    rest = product(tuple(size for size in shape if size != -1))
    if -1 in shape and sizes[axis] > 0:
        shape = [sizes[axis] // rest if size == -1 else size for size in shape]
    return layers.reshape(x, [0] * axis + list(shape) + sizes[axis + 1 :])


def view(x: Variable, shape_or_dtype: Any, name: str | None = None) -> Variable:
    """The same elements in another shape.

    Raises:
        Unsupported: a dtype is asked for: no op reads the bytes of one type as another.
    """
    if not isinstance(shape_or_dtype, (list, tuple)):
        raise Unsupported(f"view: {shape_or_dtype!r} is no shape. Use astype for another dtype.")
    return reshape(x, list(shape_or_dtype))


def view_as(x: Variable, other: Variable, name: str | None = None) -> Variable:
    """The same elements in the shape of ``other``."""
    return reshape(x, known_sizes(other, "view_as"))


def _at_least(rank: int, layer: str, inputs: Sequence[Variable]) -> Any:
    views = []
    for tensor in (
        inputs[0] if len(inputs) == 1 and isinstance(inputs[0], (list, tuple)) else inputs
    ):
        check_variable(tensor, "inputs", layer)
        new = [0] if rank == 2 or tensor.ndim == 1 else []
        new += [2] if rank == 3 else []
        views.append(layers.unsqueeze(tensor, new) if tensor.ndim < rank else tensor)
    return views[0] if len(views) == 1 else views


def atleast_1d(*inputs: Any, name: str | None = None) -> Any:
    """The tensors: all have a dimension here."""
    return _at_least(1, "atleast_1d", inputs)


def atleast_2d(*inputs: Any, name: str | None = None) -> Any:
    """Vectors [N] as [1, N]."""
    return _at_least(2, "atleast_2d", inputs)


def atleast_3d(*inputs: Any, name: str | None = None) -> Any:
    """Vectors [N] as [1, N, 1], matrices [M, N] as [M, N, 1]."""
    return _at_least(3, "atleast_3d", inputs)


def _listed(x: Any, layer: str) -> list[Variable]:
    if not isinstance(x, (list, tuple)) or not x:
        raise InvalidType(f"{layer} takes a list of Variables, got {x!r}.")
    for tensor in x:
        check_variable(tensor, "x", layer)
    return list(x)


def hstack(x: Sequence[Variable], name: str | None = None) -> Variable:
    """Tensors joined along the second dimension, vectors along their only one."""
    rows = _listed(x, "hstack")
    return concat(rows, 0 if rows[0].ndim == 1 else 1, name)


def vstack(x: Sequence[Variable], name: str | None = None) -> Variable:
    """Tensors joined along the first dimension, vectors as rows."""
    return concat([atleast_2d(tensor) for tensor in _listed(x, "vstack")], 0, name)


row_stack = vstack


def dstack(x: Sequence[Variable], name: str | None = None) -> Variable:
    """Tensors joined along the third dimension."""
    return concat([atleast_3d(tensor) for tensor in _listed(x, "dstack")], 2, name)


def column_stack(x: Sequence[Variable], name: str | None = None) -> Variable:
    """Tensors joined along the second dimension, vectors as columns."""
    columns = [
        layers.unsqueeze(tensor, [1]) if tensor.ndim == 1 else tensor
        for tensor in _listed(x, "column_stack")
    ]
    return concat(columns, 1, name)


def block_diag(inputs: Sequence[Variable], name: str | None = None) -> Variable:
    """Matrices along the diagonal of one, zeros elsewhere."""
    blocks = [atleast_2d(tensor) for tensor in _listed(inputs, "block_diag")]
    sizes = [known_sizes(tensor, "block_diag") for tensor in blocks]
    width, before, rows = sum(columns for _, columns in sizes), 0, []
    for block, (_, columns) in zip(blocks, sizes, strict=True):
        rows.append(tensors.pad(block, [0, 0, before, width - before - columns]))
        before += columns
    return concat(rows, 0)


def cartesian_prod(x: Sequence[Variable], name: str | None = None) -> Variable:
    """Every choice of one element of each vector, as rows."""
    vectors = _listed(x, "cartesian_prod")
    if len(vectors) == 1:
        return vectors[0]
    return stack([layers.reshape(tensor, [-1]) for tensor in meshgrid(vectors)], 1)


def broadcast_shape(x_shape: Sequence[int], y_shape: Sequence[int]) -> list[int]:
    """Return the shape of a sum of tensors of two shapes.

    Raises:
        InvalidValue: sizes differ, and neither is 1.
    """
    return _common_shape("broadcast_shape", x_shape, y_shape)


def _common_shape(layer: str, *shapes: Sequence[int]) -> list[int]:
    """Return the shape that tensors of these shapes have together."""
    rank, result = max(map(len, shapes), default=0), []
    columns = zip(*([1] * (rank - len(shape)) + [*shape] for shape in shapes), strict=True)
    for dim, sizes in enumerate(columns):
        larger = [*dict.fromkeys(size for size in sizes if size != 1)]
        if len(larger) > 1:
            raise InvalidValue(
                f"{layer}: the shapes {', '.join(str(list(s)) for s in shapes)} do not fit: dimension "
                f"{dim - rank} has the sizes {' and '.join(map(str, larger))}, and only 1 is repeated."
            )
        result += larger or [1]
    return result


def broadcast_tensors(input: Sequence[Variable], name: str | None = None) -> list[Variable]:
    """Tensors, each repeated to the shape of their sum."""
    operands = _listed(input, "broadcast_tensors")
    if any(-1 in (tensor.shape or ()) for tensor in operands):
        zeros = reduce(functions.add, [tensor * 0 for tensor in operands])
        return [functions.add(tensor, zeros) for tensor in operands]
    shape = _common_shape("broadcast_tensors", [1], *(tensor.shape or () for tensor in operands))
    return [expand(tensor, shape) for tensor in operands]


def narrow(input: Variable, dim: int, start: int, length: int) -> Variable:
    """``length`` elements along ``dim`` from ``start`` on."""
    dim = axis_of(input, dim, "narrow")
    size = (input.shape or ())[dim]
    start = start + size if start < 0 else start
    if not 0 <= start <= start + length or 0 <= size < start + length:
        raise InvalidValue(f"narrow: {length} elements from {start} on do not lie in {size}.")
    return layers.slice(input, [dim], [start], [start + length])


def select_scatter(
    x: Variable, values: Variable, axis: int, index: int, name: str | None = None
) -> Variable:
    """x with ``values`` at an index along ``axis``."""
    axis = axis_of(x, axis, "select_scatter")
    size = known_sizes(x, "select_scatter")[axis]
    if not -size <= index < size:
        raise InvalidValue(f"select_scatter: index {index} is outside {size} elements.")
    index %= size
    parts = [layers.unsqueeze(values, [axis])]
    if index > 0:
        parts.insert(0, layers.slice(x, [axis], [0], [index]))
    if index < size - 1:
        parts.append(layers.slice(x, [axis], [index + 1], [size]))
    return concat(parts, axis)


def slice_scatter(
    x: Variable,
    value: Variable,
    axes: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
    strides: Sequence[int],
    name: str | None = None,
) -> Variable:
    """x with ``value`` where ``strided_slice(x, axes, starts, ends, strides)`` reads."""
    index = [slice(None)] * x.ndim
    for axis, *bounds in zip(axes, starts, ends, strides, strict=True):
        index[axis_of(x, axis, "slice_scatter")] = slice(*bounds)
    return setitem(x, tuple(index), value)


def diagonal_scatter(
    x: Variable,
    y: Variable,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    name: str | None = None,
) -> Variable:
    """x with ``y`` on a diagonal of two dimensions, in the shape that ``diagonal`` reads.

    Raises:
        InvalidValue: a size of x is not known, or ``y`` has another shape.
    """
    sizes = known_sizes(x, "diagonal_scatter")
    numbers = np.arange(product(tuple(sizes)), dtype=np.int64).reshape(sizes)
    places = np.diagonal(numbers, offset, axis1, axis2)
    if y.shape != places.shape:
        raise InvalidValue(
            f"diagonal_scatter: y must be {list(places.shape)}, the diagonal of {x.name!r}, got "
            f"{list(y.shape or ())}."
        )
    flat, updates = layers.reshape(x, [-1]), layers.reshape(layers.cast(y, x.dtype), [-1])
    return layers.reshape(tensors.scatter(flat, constant(places.ravel(), "int64"), updates), sizes)


def combinations(
    x: Variable, r: int = 2, with_replacement: bool = False, name: str | None = None
) -> Variable:
    """All choices of ``r`` elements of a vector, in order, as rows; ``with_replacement`` one may come again.

    Raises:
        InvalidValue: x is no vector of a known length, or there is no choice.
    """
    if x.ndim != 1:
        raise InvalidValue(f"combinations takes a vector, got {x.ndim} dimensions.")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    numbers = [*choose(range(known_sizes(x, "combinations")[0]), r)]
    if r < 1 or not numbers:
        raise InvalidValue(f"combinations: {x.name!r} has no choice of r={r} elements.")
    return layers.reshape(gather(x, constant(np.ravel(numbers), "int64")), [-1, r])


def diff(
    x: Variable,
    n: int = 1,
    axis: int = -1,
    prepend: Variable | None = None,
    append: Variable | None = None,
    name: str | None = None,
) -> Variable:
    """Differences of neighbours along ``axis``, ``n`` times, of x between ``prepend`` and ``append``."""
    axis = axis_of(x, axis, "diff")
    if n < 1:
        raise InvalidValue(f"diff: n must be an int above 0, got {n!r}.")
    parts = [tensor for tensor in (prepend, x, append) if tensor is not None]
    x = concat(parts, axis) if len(parts) > 1 else x
    for _ in range(n):
        ahead = layers.slice(x, [axis], [1], [2**31 - 1])
        behind = layers.slice(x, [axis], [0], [-1])
        change = binary.logical_xor if x.dtype == VarType.BOOL else binary.elementwise_sub
        x = change(ahead, behind)
    return x


def trapezoid(
    y: Variable,
    x: Variable | None = None,
    dx: float | None = None,
    axis: int = -1,
    name: str | None = None,
) -> Variable:
    """The integral of y along ``axis`` by the trapezoidal rule, at places x or ``dx`` (1) apart."""
    axis = axis_of(y, axis, "trapezoid")
    return layers.reduce_sum(_trapezia(y, x, dx, axis, "trapezoid"), [axis])


def cumulative_trapezoid(
    y: Variable,
    x: Variable | None = None,
    dx: float | None = None,
    axis: int = -1,
    name: str | None = None,
) -> Variable:
    """The integrals of y from the first to each further place along ``axis``: see :func:`trapezoid`."""
    axis = axis_of(y, axis, "cumulative_trapezoid")
    return tensors.cumsum(_trapezia(y, x, dx, axis, "cumulative_trapezoid"), axis)


def _trapezia(
    y: Variable, x: Variable | None, dx: float | None, axis: int, function: str
) -> Variable:
    """Return the areas between neighbours along ``axis``."""
    if x is not None and dx is not None:
        raise InvalidValue(f"{function} takes x or dx, not both.")
    ends = layers.slice(y, [axis], [1], [2**31 - 1]) + layers.slice(y, [axis], [0], [-1])
    if x is None:
        half: Variable = ends * (0.5 * (1.0 if dx is None else float(dx)))
        return half
    steps = diff(x) if x.ndim == 1 else diff(x, axis=axis)
    if x.ndim == 1:
        steps = layers.reshape(steps, [-1 if i == axis else 1 for i in range(y.ndim)])
    areas: Variable = ends * steps * 0.5
    return areas


def broadcast_shapes(*shapes: Sequence[int]) -> list[int]:
    """The shape that tensors of these shapes have together.

    Raises:
        InvalidType: one is no list of integers.
        InvalidValue: sizes differ, and none is 1.
    """
    sizes = [integers(s, f"shapes[{i}]", "broadcast_shapes", 0) for i, s in enumerate(shapes)]
    return _common_shape("broadcast_shapes", *sizes)


def unfold(x: Variable, axis: int, size: int, step: int, name: str | None = None) -> Variable:
    """Windows of ``size`` elements along ``axis``, each ``step`` behind the one before, as a last dimension.

    Raises:
        InvalidValue: no window fits, the size along ``axis`` is not known, or ``step`` is below 1.
    """
    axis = axis_of(x, axis, "unfold")
    length = (x.shape or ())[axis]
    if step < 1 or not 0 < size <= length:
        raise InvalidValue(
            f"unfold: size must be 1 to the {length} elements along axis {axis} of {x.name!r}, and step "
            f"above 0, got {size} and {step}."
        )
    count = (length - size) // step + 1
    places = (np.arange(count)[:, None] * step + np.arange(size)).ravel()
    windows = unflatten(gather(x, constant(places, VarType.INT64), axis), axis, [count, size])
    order = [i for i in range(x.ndim + 1) if i != axis + 1]
    return transpose(windows, [*order, axis + 1])


def vander(
    x: Variable, n: int | None = None, increasing: bool = False, name: str | None = None
) -> Variable:
    """Powers of the elements of a vector as rows: x^(n-1) to 1, or, with ``increasing``, 1 to x^(n-1)."""
    if x.ndim != 1:
        raise InvalidValue(f"vander takes a vector, got {x.ndim} dimensions.")
    count = known_sizes(x, "vander")[0] if n is None else n
    if count < 1:
        raise InvalidValue(f"vander: n must be above 0, got {n}.")
    powers = [ones_like(x)]
    while len(powers) < count:
        powers.append(x if len(powers) == 1 else powers[-1] * x)
    return stack(powers if increasing else powers[::-1], 1)


def take(
    x: Variable,
    index: Variable,
    mode: Literal["raise", "wrap", "clip"] = "raise",
    name: str | None = None,
) -> Variable:
    """The elements at indices of x as one row: negative ones count from the end.

    ``mode`` says what indices outside do: "raise" in the step, "wrap" around, "clip" to the ends.
    """
    row, places = layers.reshape(x, [-1]), layers.reshape(index, [-1])
    size = (row.shape or ())[0]
    count = full_like(places, size) if size >= 0 else layers.cast(layers.shape(row), index.dtype)
    if mode == "wrap":
        places = mod(places, count)
    elif mode == "clip":
        first = full_like(places, 0)
        places = binary.elementwise_min(binary.elementwise_max(places, first), count - 1)
    else:
        places = where(places < 0, places + count, places)
    return layers.reshape(gather(row, places), sizes_of_step(index))


def masked_select(x: Variable, mask: Variable, name: str | None = None) -> Variable:
    """Return the elements of ``x`` where ``mask`` (bool, broadcast with it) is true, as a list."""
    if mask.dtype != VarType.BOOL:
        raise InvalidType(f"masked_select: mask must hold bool, and {mask.name!r} does not.")
    if x.shape != mask.shape:
        x, mask = broadcast_tensors([x, mask])
    return x[mask]


publish_definitions(__name__)
