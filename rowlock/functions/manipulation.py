"""Tensors joined, cut, repeated, turned and picked from, with Paddle 2.x's signatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..graph.layers import moves, picks, tensors, unary
from ..graph.layers import shape as layers
from ..graph.layers.arguments import Integers, axis_of, check_variable
from ..graph.ops.rules import product
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidType, InvalidValue
from .creation import sizes_or_variables


def concat(x: Sequence[Variable], axis: Any = 0, name: str | None = None) -> Variable:
    """Join tensors along a dimension."""
    if isinstance(x, Variable):
        x = [x]
    if not isinstance(x, (list, tuple)) or not x:
        raise InvalidType(f"concat takes a list of Variables, got {x!r}.")
    for variable in x:
        check_variable(variable, "x", "concat")
    return layers.concat(x, axis, name)


def stack(x: Sequence[Variable], axis: int = 0, name: str | None = None) -> Variable:
    """Join tensors of one shape along a new dimension."""
    return layers.stack(x, axis)


def reshape(x: Variable, shape: Any, name: str | None = None) -> Variable:
    """The same elements in another shape."""
    return layers.reshape(x, [shape] if isinstance(shape, int) else shape, name=name)


def transpose(x: Variable, perm: Sequence[int], name: str | None = None) -> Variable:
    """Dimension i of the result is dimension ``perm[i]`` of x."""
    return layers.transpose(x, [axis_of(x, dim, "transpose") for dim in perm], name)


def split(
    x: Variable, num_or_sections: Any, axis: Any = 0, name: str | None = None
) -> list[Variable]:
    """Cut x along ``axis``."""
    return layers.split(x, num_or_sections, axis, name)


def chunk(x: Variable, chunks: int, axis: int = 0, name: str | None = None) -> list[Variable]:
    """Cut x into equal parts along ``axis``."""
    return layers.split(x, chunks, axis, name)


def unbind(input: Variable, axis: int = 0) -> list[Variable]:
    """The elements at each index along ``axis``, as a list."""
    if input.ndim > 1:
        return moves.unbind(input, axis)
    return [input[i] for i in range((input.shape or (0,))[0])]


def squeeze(x: Variable, axis: Any = None, name: str | None = None) -> Variable:
    """Drop dimensions of size 1; those in ``axis`` that are larger stay."""
    axes = [] if axis is None else [axis] if isinstance(axis, int) else list(axis)
    shape = x.shape or ()
    ones = [dim for dim in axes if not shape[axis_of(x, dim, "squeeze")] > 1]
    return layers.squeeze(x, ones, name) if ones or not axes else layers.assign(x)


def unsqueeze(x: Variable, axis: Any, name: str | None = None) -> Variable:
    """Insert dimensions of size 1."""
    return layers.unsqueeze(x, axis, name)


def flatten(
    x: Variable, start_axis: int = 0, stop_axis: int = -1, name: str | None = None
) -> Variable:
    """Join dimensions ``start_axis`` to ``stop_axis`` into one."""
    assert x.shape is not None
    start, stop = axis_of(x, start_axis, "flatten"), axis_of(x, stop_axis, "flatten")
    if start > stop:
        raise InvalidValue(f"flatten: start_axis={start_axis} lies behind stop_axis={stop_axis}.")
    size = product(x.shape[start : stop + 1])
    return reshape(x, [0] * start + [size] + list(x.shape[stop + 1 :]), name)


def expand(x: Variable, shape: Any, name: str | None = None) -> Variable:
    """x repeated along its dimensions of size 1, to ``shape``; -1 keeps a size.

    Raises:
        InvalidValue: a size other than 1 would change.
    """
    target = sizes_or_variables(shape, "expand")
    have = [1] * (len(target) - x.ndim) + list(x.shape or ())
    if len(have) != len(target):
        raise InvalidValue(f"expand: {x.name!r} has more dimensions than {target}.")
    view = layers.unsqueeze(x, list(range(len(target) - x.ndim))) if len(target) > x.ndim else x
    times: list[Any] = []
    for i, (size, old) in enumerate(zip(target, have, strict=True)):
        if isinstance(size, Variable) or (old == -1 and size != -1):  # a step tells which of both
            times.append(size if old == 1 else size // layers.shape(view)[i])
            continue
        if size != old and size != -1 and old != 1:
            raise InvalidValue(
                f"expand: dimension {i} of {x.name!r} has size {old}; only 1 becomes {size}."
            )
        times.append(size if old == 1 and size > 0 else 1)
    is_same = all(not isinstance(n, Variable) and n == 1 for n in times)
    return layers.assign(view) if is_same else layers.expand(view, times, name)


broadcast_to = expand


def expand_as(x: Variable, y: Variable, name: str | None = None) -> Variable:
    """x repeated along its dimensions of size 1, to the shape of ``y``."""
    if all(size >= 0 for size in y.shape or ()):
        return expand(x, list(y.shape or ()), name)
    like = y if y.dtype == x.dtype else layers.cast(y, x.dtype)
    return x + layers.zeros_like(like) if x.ndim == y.ndim else layers.zeros_like(like) + x


def tile(x: Variable, repeat_times: Any, name: str | None = None) -> Variable:
    """x repeated along each dimension."""
    times = sizes_or_variables(repeat_times, "tile")
    if not times or any(not isinstance(n, Variable) and n < 1 for n in times):
        raise InvalidValue(f"tile: repeat_times must be positive, got {times}.")
    new = len(times) - x.ndim
    view = layers.unsqueeze(x, list(range(new))) if new > 0 else x
    return layers.expand(view, [1] * -new + times if new < 0 else times, name)


def flip(x: Variable, axis: int | Sequence[int], name: str | None = None) -> Variable:
    """The elements from the end to the front along ``axis``."""
    return moves.flip(x, axis, name)


def roll(x: Variable, shifts: Any, axis: Any = None, name: str | None = None) -> Variable:
    """The elements rotated along ``axis``: past the end they continue at the front.

    Raises:
        InvalidValue: ``shifts`` and ``axis`` differ in length.
    """
    return moves.roll(x, shifts, axis)


def gather(x: Variable, index: Integers, axis: Any = None, name: str | None = None) -> Variable:
    """The elements at the indices along ``axis``."""
    if axis is None or axis in (0, -x.ndim):
        return layers.gather(x, index, overwrite=False)
    return picks.index_select(x, index if index.ndim == 1 else layers.reshape(index, [-1]), axis)


def index_select(x: Variable, index: Integers, axis: int = 0, name: str | None = None) -> Variable:
    """The elements at the indices along ``axis``."""
    return picks.index_select(x, index, axis)


def scatter(
    x: Variable, index: Variable, updates: Variable, overwrite: bool = True, name: str | None = None
) -> Variable:
    """Rows replaced by ``updates`` at the indices, or, unless ``overwrite``, by their sums."""
    return tensors.scatter(x, index, updates, name, overwrite)


def scatter_nd_add(
    x: Variable, index: Integers, updates: Variable, name: str | None = None
) -> Variable:
    """x with ``updates`` added at coordinates; those that come twice are added twice."""
    return picks.scatter_nd_add(x, index, updates, name)


# In a static program the result of what works in place elsewhere is a variable of its own.
reshape_, squeeze_, unsqueeze_, scatter_ = reshape, squeeze, unsqueeze, scatter


def tanh_(x: Variable, name: str | None = None) -> Variable:
    """As ``tanh``: in a static program the result is a variable of its own."""
    return unary.tanh(x, name)


def shape(input: Variable) -> Variable:
    """The shape of a tensor, as int64."""
    return layers.cast(layers.shape(input), "int64")


publish_definitions(__name__)
