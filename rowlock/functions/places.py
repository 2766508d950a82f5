"""Elements read and written at indices, and dimensions turned and cut, with Paddle 2.x's signatures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..graph.layers import binary, moves, picks, tensors
from ..graph.layers import shape as layers
from ..graph.layers.arguments import Integers, axis_of, check_integers, integer
from ..graph.layers.subscript import check_subscript
from ..graph.ops.rules import product
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidType, InvalidValue, Unsupported
from ..strategies.types import VarType
from .creation import arange, constant, full_like
from .manipulation import expand, expand_as, flip, gather


def known_sizes(x: Variable, layer: str) -> list[int]:
    """Return all sizes of x.

    Raises:
        InvalidValue: one of them is not known.
    """
    sizes = list(x.shape or ())
    if any(size < 0 for size in sizes):
        raise InvalidValue(f"{layer}: the sizes {sizes} of {x.name!r} must be known.")
    return sizes


def sizes_of_step(x: Variable) -> list[Any]:
    """Return all sizes of x: those that are not known as Variables, which a step sets."""
    sizes = enumerate(x.shape or ())
    return [size if size >= 0 else layers.shape(x)[i] for i, size in sizes]


def moveaxis(
    x: Variable, source: int | Sequence[int], destination: int | Sequence[int], name: Any = None
) -> Variable:
    """The dimensions ``source`` moved to ``destination``; the others stay in order.

    Raises:
        InvalidValue: there is no such dimension, or one comes twice.
    """
    pair: list[Any] = [
        axes_ if isinstance(axes_, (list, tuple)) else [axes_] for axes_ in (source, destination)
    ]
    froms, tos = ([axis_of(x, axis, "moveaxis") for axis in axes] for axes in pair)
    if len(froms) != len(tos) or len({*froms}) != len(froms) or len({*tos}) != len(tos):
        raise InvalidValue(f"moveaxis: {source} and {destination} must be as many, none twice.")
    order = [i for i in range(x.ndim) if i not in froms]
    for to, start in sorted(zip(tos, froms, strict=True)):
        order.insert(to, start)
    return layers.transpose(x, order)


def swapaxes(x: Variable, axis0: int, axis1: int, name: str | None = None) -> Variable:
    """Two dimensions in each other's place."""
    order = list(range(x.ndim if isinstance(x, Variable) else 0))
    first, second = (axis_of(x, axis, "swapaxes") for axis in (axis0, axis1))
    order[first], order[second] = order[second], order[first]
    return layers.transpose(x, order)


def rot90(x: Variable, k: int = 1, axes: Sequence[int] = (0, 1), name: Any = None) -> Variable:
    """x turned ``k`` quarters from the first of ``axes`` towards the second.

    Raises:
        InvalidValue: ``axes`` are not two dimensions.
    """
    turns = k % 4
    first, second = (axis_of(x, axis, "rot90") for axis in axes)
    if first == second:
        raise InvalidValue(f"rot90: axes {list(axes)} must be two dimensions.")
    if turns == 0:
        return layers.assign(x)
    if turns == 2:
        return flip(x, [first, second])
    if turns == 1:
        return swapaxes(flip(x, second), first, second)
    return flip(swapaxes(x, first, second), second)


def crop(x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None) -> Variable:
    """A window of x: ``shape`` (-1: the rest) from ``offsets`` (zeros) on."""
    return moves.crop_tensor(x, [-1] * x.ndim if shape is None else shape, offsets, name)


def repeat_interleave(
    x: Variable, repeats: int | Variable, axis: int | None = None, name: str | None = None
) -> Variable:
    """Each element (or layer along ``axis``) ``repeats`` times in a row.

    Raises:
        Unsupported: ``repeats`` is a Variable: the size would depend on its values.
        InvalidValue: ``repeats`` is below 1.
    """
    if isinstance(repeats, Variable):
        raise Unsupported(
            "repeat_interleave: the size would depend on what `repeats` holds, and sizes that depend on values "
            "are not built. Pass a number."
        )
    if integer(repeats, "repeats", "repeat_interleave") < 1:
        raise InvalidValue(f"repeat_interleave: repeats must be above 0, got {repeats}.")
    if axis is None:
        x, axis = layers.reshape(x, [-1]), 0
    place, shape = axis_of(x, axis, "repeat_interleave"), list(x.shape or ())
    times = [1] * (x.ndim + 1)
    times[place + 1] = repeats
    copies = layers.expand(layers.unsqueeze(x, [place + 1]), times)
    sizes = [0 if i < place else size for i, size in enumerate(shape)]
    sizes[place] = shape[place] * repeats if shape[place] >= 0 else -1
    return layers.reshape(copies, sizes)


def tensor_split(
    x: Variable, num_or_indices: Any, axis: int = 0, name: str | None = None
) -> list[Variable]:
    """x cut along ``axis`` into so many parts, the first of them one larger if need be, or before indices.

    Raises:
        InvalidValue: there are too few elements, or their number is not known.
    """
    place = axis_of(x, axis, "tensor_split")
    size = (x.shape or ())[place]
    if size < 0:
        raise InvalidValue(
            f"tensor_split: the size of dimension {axis} of {x.name!r} must be known."
        )
    if isinstance(num_or_indices, (list, tuple)):
        inner = [integer(i, "an index", "tensor_split") for i in num_or_indices]
        cuts = [0, *(min(max(i + size if i < 0 else i, 0), size) for i in inner), size]
    else:
        count = integer(num_or_indices, "num_or_indices", "tensor_split")
        if not 0 < count <= size:
            raise InvalidValue(f"tensor_split: {size} elements do not make {count} parts.")
        cuts = [i * (size // count) + min(i, size % count) for i in range(count + 1)]
    pairs = pairwise(cuts)
    return [layers.slice(x, [place], [low], [max(low, high)]) for low, high in pairs]


def _split_at(layer: str, x: Variable, num_or_indices: Any, axis: int) -> list[Variable]:
    axis_of(x, axis, layer)
    return tensor_split(x, num_or_indices, axis)


def hsplit(x: Variable, num_or_indices: Any, name: str | None = None) -> list[Variable]:
    """x cut from side to side: along dimension 1, of a vector 0."""
    return _split_at("hsplit", x, num_or_indices, min(x.ndim - 1, 1))


def vsplit(x: Variable, num_or_indices: Any, name: str | None = None) -> list[Variable]:
    """x cut from top to bottom: along dimension 0."""
    return _split_at("vsplit", x, num_or_indices, 0)


def dsplit(x: Variable, num_or_indices: Any, name: str | None = None) -> list[Variable]:
    """x cut in depth: along dimension 2."""
    return _split_at("dsplit", x, num_or_indices, 2)


def masked_fill(x: Variable, mask: Variable, value: Any, name: str | None = None) -> Variable:
    """``value`` where the mask, which broadcasts to x, is true, else x."""
    filled = value * full_like(x, 1) if isinstance(value, Variable) else full_like(x, value)
    if mask.shape != x.shape:
        mask = layers.cast(expand(layers.cast(mask, "int32"), list(x.shape or ())), "bool")
    return layers.where(mask, filled, x)


def _along(arr: Variable, indices: Variable, axis: int, broadcast: bool, layer: str) -> Any:
    """Return the place of ``axis``, and the indices repeated to the other sizes of ``arr``."""
    place = axis_of(arr, axis, layer)
    have, want = list(indices.shape or ()), list(arr.shape or ())
    if len(have) != len(want):
        raise InvalidValue(f"{layer}: indices {have} must have as many dimensions as {want}.")
    want[place] = have[place]
    if have != want and broadcast:
        indices, have = expand(indices, want), want
    if have != want:
        raise InvalidValue(f"{layer}: indices {have} must have the sizes {want}.")
    return place, indices


def masked_scatter(
    x: Variable, mask: Variable, value: Variable, name: str | None = None
) -> Variable:
    """x with the elements of ``value``, in order, where the mask (it broadcasts) is True."""
    numbers = layers.cast(mask, "int64")
    numbers = binary.elementwise_add(layers.cast(full_like(x, 0), "int64"), numbers)
    order = tensors.cumsum(layers.reshape(numbers, [-1]), 0) - 1
    order = binary.elementwise_max(order, full_like(order, 0))
    taken = gather(layers.reshape(value, [-1]), order)
    taken = layers.reshape(taken, known_sizes(x, "masked_scatter"))
    return layers.where(binary.greater_than(numbers, full_like(numbers, 0)), taken, x)


def take_along_axis(
    arr: Variable, indices: Integers, axis: int, broadcast: bool = True
) -> Variable:
    """The elements of arr at the indices along ``axis``, each within its own line.

    Raises:
        InvalidValue: the indices do not fit, or the size of arr along ``axis`` is not known.
    """
    place, indices = _along(arr, indices, axis, broadcast, "take_along_axis")
    width, count = (arr.shape or ())[place], (indices.shape or ())[place]
    if width < 0 or count < 0:
        raise InvalidValue(f"take_along_axis: the sizes along axis {axis} must be known.")
    lines, at = (moveaxis(array, place, -1) for array in (arr, indices))
    sizes = list(at.shape or ())
    rows, columns = layers.reshape(lines, [-1, width]), layers.reshape(at, [-1, count])
    return moveaxis(layers.reshape(picks.index_sample(rows, columns), sizes), -1, place)


def put_along_axis(
    arr: Variable,
    indices: Integers,
    values: Any,
    axis: int,
    reduce: str = "assign",
    include_self: bool = True,
    broadcast: bool = True,
) -> Variable:
    """arr with ``values`` written (or added) at the indices along ``axis``, each within its own line.

    Raises:
        InvalidValue: the indices do not fit, or the size along ``axis`` is not known.
        Unsupported: ``reduce`` is none of "assign", "add" and "mean".
    """
    if reduce not in ("assign", "add", "mean"):
        raise Unsupported(
            f"put_along_axis: reduce={reduce!r} is not built. Use 'assign', 'add' or 'mean'."
        )
    if reduce != "assign" and (reduce == "mean" or not include_self):
        return _reduced_along(arr, indices, values, axis, reduce == "mean", include_self, broadcast)
    place, indices = _along(arr, indices, axis, broadcast, "put_along_axis")
    moved, at = moveaxis(arr, place, -1), moveaxis(indices, place, -1)
    sizes, width, count = moved.shape or (), (moved.shape or ())[-1], (at.shape or ())[-1]
    if min(width, count) < 0:
        raise InvalidValue(f"put_along_axis: the sizes along axis {axis} must be known.")
    lines = layers.reshape(at, [-1, count])
    known = min(sizes) >= 0
    rows: Any = product(tuple(sizes[:-1])) if known else layers.shape(lines)[0]
    starts = layers.unsqueeze(layers.cast(arange(0, rows, 1, "int64"), at.dtype), [1]) * width
    flat = layers.reshape(lines + starts, [-1])
    whole = values if isinstance(values, Variable) else constant(values, arr.dtype)
    whole = expand_as(whole, layers.cast(indices, whole.dtype))
    updates = layers.reshape(moveaxis(whole, place, -1), [-1])
    row = layers.reshape(moved, [-1])
    if reduce == "assign":
        out = tensors.scatter(row, flat, updates)
    else:
        out = picks.scatter_nd_add(row, layers.unsqueeze(flat, [1]), updates)
    shape: Any = list(sizes) if known else layers.shape(moved)
    return moveaxis(layers.reshape(out, shape), -1, place)


def _reduced_along(
    arr: Variable,
    indices: Variable,
    values: Any,
    axis: int,
    is_mean: bool,
    include_self: bool,
    broadcast: bool,
) -> Variable:
    """Return sums or means of what is written, with arr's own elements only if ``include_self``."""
    counts = put_along_axis(full_like(arr, 0), indices, 1, axis, "add", True, broadcast)
    untouched = binary.equal(counts, full_like(counts, 0))
    own = arr if include_self else layers.where(untouched, arr, full_like(arr, 0))
    sums = put_along_axis(own, indices, values, axis, "add", True, broadcast)
    if not is_mean:
        return sums
    counts = counts + 1 if include_self else binary.elementwise_max(counts, full_like(counts, 1))
    return sums / counts


def scatter_add(input: Variable, dim: int, index: Integers, src: Variable) -> Variable:
    """``input`` with ``src`` added at the indices along ``dim``, each within its own line."""
    return scatter_reduce(input, dim, index, src, "sum")


def scatter_reduce(
    input: Variable,
    dim: int,
    index: Integers,
    src: Variable,
    reduce: str,
    *,
    include_self: bool = True,
) -> Variable:
    """``input`` with sums or means of ``src`` at the indices along ``dim``, each within its own line.

    Args:
        index: integers, of the shape of ``src``; of other dimensions than ``dim`` the sizes are the input's.
        include_self: the input's own elements count, too.

    Raises:
        InvalidValue: the indices do not fit, or the size along ``dim`` is not known.
        Unsupported: ``reduce`` is neither "sum" nor "mean".
    """
    if reduce not in ("sum", "mean"):
        raise Unsupported(f"scatter_reduce: reduce={reduce!r} is not built. Use 'sum' or 'mean'.")
    word = "add" if reduce == "sum" else reduce
    return put_along_axis(input, index, src, dim, word, include_self, broadcast=False)


def index_add(
    x: Variable, index: Integers, axis: int, value: Variable, name: str | None = None
) -> Variable:
    """x with the layers of ``value`` added at the indices along ``axis``."""
    place = axis_of(x, axis, "index_add")
    first, updates = moveaxis(x, place, 0), moveaxis(value, place, 0)
    out = picks.scatter_nd_add(first, layers.unsqueeze(index, [1]), updates)
    return moveaxis(out, 0, place)


def index_fill(
    x: Variable, index: Integers, axis: int, value: Any, name: str | None = None
) -> Variable:
    """x with one number (or a Variable of one element) at the indices along ``axis``."""
    place = axis_of(x, axis, "index_fill")
    first = moveaxis(x, place, 0)
    picked = layers.gather(first, index)
    is_number = not isinstance(value, Variable)
    rows = full_like(picked, value) if is_number else layers.zeros_like(picked) + value
    return moveaxis(tensors.scatter(first, index, rows), 0, place)


def index_put(
    x: Variable,
    indices: Sequence[Variable],
    value: Variable,
    accumulate: bool = False,
    name: str | None = None,
) -> Variable:
    """x with ``value`` written (or added, with ``accumulate``) at coordinates: a tensor for each dimension.

    Raises:
        InvalidType: the indices are no tuple of integers' Variables.
        InvalidValue: they differ in shape, or a size is not known.
    """
    sizes = known_sizes(x, "index_put")
    if not isinstance(indices, (list, tuple)) or not 0 < len(indices) <= x.ndim:
        raise InvalidType(f"index_put: indices must be 1 to {x.ndim} Variables, got {indices!r}.")
    for index in indices:
        check_integers(index, "indices", "index_put")
    depth = len(indices)
    if len({part.shape for part in indices}) > 1:
        raise InvalidValue("index_put: the indices must have one shape.")
    index_sizes = known_sizes(indices[0], "index_put")
    value = expand(value, [*index_sizes, *sizes[depth:]])
    if accumulate:
        return picks.scatter_nd_add(x, layers.stack(list(indices), -1), value)
    place = indices[0]
    for index, size in zip(indices[1:], sizes[1:], strict=False):
        place = place * size + index
    rows = layers.reshape(x, [product(tuple(sizes[:depth])), *sizes[depth:]])
    updates = layers.reshape(value, [product(tuple(index_sizes)), *sizes[depth:]])
    return layers.reshape(tensors.scatter(rows, layers.reshape(place, [-1]), updates), sizes)


def setitem(x: Variable, index: Any, value: Any) -> Variable:
    """x with ``value`` at what ``x[index]`` picks, as a variable of its own; gradients flow to both.

    ``value`` is a number, an array or a Variable; it is broadcast to what is picked.

    Raises:
        InvalidValue: ``value`` does not fit what is picked.
        InvalidType: it is none of these.
        InvalidType, InvalidValue, Unsupported: ``x[index]`` is refused.
    """
    check_subscript(x, index)
    if not isinstance(value, Variable):
        if np.asarray(value).dtype.kind not in "fiub":
            raise InvalidType(
                f"setitem: value must be a number, an array or a Variable, got {value!r}."
            )
        value = constant(value, x.dtype)
        if isinstance(index, Variable) and index.dtype == VarType.BOOL and value.shape == (1,):
            return masked_fill(x, layers.unsqueeze(index, list(range(index.ndim, x.ndim))), value)
    if x.dtype == VarType.BOOL:
        return layers.cast(setitem(layers.cast(x, "int32"), index, value), "bool")
    value = value if value.dtype == x.dtype else layers.cast(value, x.dtype)
    row = layers.reshape(x, [-1])
    count = layers.shape(row) if (row.shape or ())[0] < 0 else (row.shape or ())[0]
    places = layers.reshape(arange(0, count, 1, "int64"), sizes_of_step(x))[index]
    sizes, picked = list(value.shape or ()), list(places.shape or ())
    pairs = zip(reversed(sizes), reversed(picked), strict=False)
    too_wide = len(sizes) > len(picked) and sizes != [1]
    if too_wide or any(a not in (1, b) and -1 not in (a, b) for a, b in pairs):
        raise InvalidValue(
            f"setitem: value {sizes} does not fit {picked}, the shape of what {x.name!r} has there."
        )
    updates = full_like(places, 0, x.dtype) + value
    written = tensors.scatter(row, layers.reshape(places, [-1]), layers.reshape(updates, [-1]))
    return layers.reshape(written, sizes_of_step(x))


publish_definitions(__name__, withhold=(known_sizes, setitem, sizes_of_step))
