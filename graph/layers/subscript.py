"""``variable[...]``: numbers, slices, ``None``, ``...`` and variables, by slice, strided_slice, unsqueeze."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from ...strategies.errors import InvalidType, InvalidValue, Unsupported
from ...strategies.types import INTEGERS, VarType
from ..program import unique_name
from ..program.variable import Variable
from .shape import assign, gather, reshape, stack, transpose, unsqueeze, where
from .tensors import gather_nd

END = 10_000_000  # stands for "to the last element", as in Paddle


@dataclass
class _Window:
    """The positions taken of each dimension that is not taken whole."""

    axes: list[int] = field(default_factory=list)
    starts: list[Any] = field(default_factory=list)
    ends: list[Any] = field(default_factory=list)
    strides: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    reversed: list[int] = field(default_factory=list)

    def take(self, axis: int, start: Any, end: Any, stride: int = 1) -> None:
        self.axes.append(axis)
        self.starts.append(start)
        self.ends.append(end)
        self.strides.append(stride)


def getitem(self: Variable, item: Any) -> Variable:
    """Return some of the elements: an index of one element drops its dimension, one of several picks rows.

    A list of numbers, or of booleans, picks as a Variable that holds them.

    Raises:
        InvalidType: an index is of a type that picks nothing.
        InvalidValue: there are more indices than dimensions, or one is outside its dimension.
        Unsupported: a mask stands beside other subscripts, or several indices of several elements do.
    """
    if isinstance(item, Variable) and item.dtype == VarType.BOOL:
        return masked(self, item)
    if isinstance(item, Variable) and item.dtype in INTEGERS and item.shape != (1,):
        return _rows(self, item)
    items = [_listed(part) for part in (item if isinstance(item, tuple) else [item])]
    rank = _rank(self)
    indices, new_axes = _expanded(self, items, rank)
    axes = [axis for axis, index in enumerate(indices) if _picks_several(index)]
    if axes:
        return _picked(self, indices, axes, new_axes)
    window = _Window()
    for axis, index in enumerate(indices):
        _note(self, window, axis, index)
    out = _cut(self, window) if window.axes else self
    if window.reversed:
        out = _reversed(self, out, window)
    if new_axes:
        out = _with_axes(out, new_axes, rank - len(window.dropped))
    return out


def check_subscript(x: Variable, item: Any) -> None:
    """Refuse what :func:`getitem` refuses of numbers and slices, without appending ops.

    Raises:
        InvalidType, InvalidValue: as there.
    """
    items = item if isinstance(item, tuple) else (item,)
    if not any(isinstance(part, (list, np.ndarray, Variable)) for part in items):
        indices, _ = _expanded(x, list(items), _rank(x))
        for axis, index in enumerate(indices):
            _note(x, _Window(), axis, index)


def _listed(item: Any) -> Any:
    """Return the positions that a list, or an array, picks as a constant; other subscripts as they are."""
    if not isinstance(item, (list, np.ndarray)):
        return item
    array = np.asarray(item)
    if array.dtype == bool and array.ndim == 1:
        array = np.flatnonzero(array)
    if array.ndim == 0 or array.dtype.kind not in "iu":
        return item
    positions = assign(array.astype(np.int64))
    positions.stop_gradient = True
    return positions


def _picks_several(index: Any) -> bool:
    return isinstance(index, Variable) and index.dtype in INTEGERS and index.shape != (1,)


def _picked(x: Variable, indices: list[Any], axes: list[int], new_axes: list[int]) -> Variable:
    """Return the elements at several positions of one dimension, or of the first few dimensions together.

    Raises:
        Unsupported: other subscripts would move the dimensions of the positions elsewhere.
    """
    if len(axes) > 1 and axes == list(range(len(indices))) and not new_axes:
        kind = indices[0].dtype
        return gather_nd(x, stack([i if i.dtype == kind else i.astype(kind) for i in indices], -1))
    axis = axes[0]
    index = indices[axis]
    sliced = [isinstance(i, slice) for i in indices]
    # Dimensions that numbers drop on both sides of a slice bring the positions to the front.
    dropped = [i for i, is_slice in enumerate(sliced) if not is_slice and i != axis]
    apart = any(any(sliced[min(i, axis) : max(i, axis)]) for i in dropped)
    if len(axes) > 1 or new_axes or apart:
        raise Unsupported(
            f"{x.name!r}: the index {index.name!r} of several positions stands beside other subscripts, which "
            f"is not built. Take one after the other, as in {x.name}[1:3][:, index]."
        )
    rest = tuple(slice(None) if i == axis else part for i, part in enumerate(indices))
    out = x if all(part == slice(None) for part in rest) else getitem(x, rest)
    place = sum(sliced[:axis])
    if place == 0:
        return _rows(out, index)
    others = [i for i in range(out.ndim) if i != place]
    rows = _rows(transpose(out, [place, *others]), index)
    width = index.ndim
    behind = range(width + place, rows.ndim)
    return transpose(rows, [*range(width, width + place), *range(width), *behind])


def _rank(x: Variable) -> int:
    if x.shape is None:
        raise InvalidValue(f"{x.name!r} cannot be indexed: its shape is not known yet.")
    return len(x.shape)


def _expanded(x: Variable, items: list[Any], rank: int) -> tuple[list[Any], list[int]]:
    """Return an index for each of the first dimensions, and where the result has new ones."""
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise InvalidValue(f"{x.name!r}: an index may hold one '...', got {len(dots)}.")
    count = sum(item is not None and item is not Ellipsis for item in items)
    if count > rank:
        raise InvalidValue(f"{x.name!r} has {rank} dimensions, and {count} indices were used.")
    indices: list[Any] = []
    new_axes: list[int] = []
    place = 0  # among the dimensions of the result
    for item in items:
        if item is None:
            new_axes.append(place)
            place += 1
        elif item is Ellipsis:
            indices += [slice(None)] * (rank - count)
            place += rank - count
        else:
            indices.append(item)
            place += isinstance(item, slice)
    return indices, new_axes


def _note(x: Variable, window: _Window, axis: int, index: Any) -> None:
    if isinstance(index, slice):
        _note_slice(x, window, axis, index)
    elif isinstance(index, Variable):
        window.dropped.append(axis)
        window.take(axis, _position(x, index), index)
    elif isinstance(index, (int, np.integer)) and not isinstance(index, bool):
        size = (x.shape or ())[axis]
        if size >= 0 and not -size <= index < size:
            raise InvalidValue(
                f"{x.name!r}: index {index} is outside dimension {axis}, which has {size} elements."
            )
        window.dropped.append(axis)
        window.take(axis, int(index), int(index) + 1 if index != -1 else END)
    else:
        raise InvalidType(
            f"{x.name!r}[{index!r}]: an index is a number, a slice, None, '...' or a Variable, "
            f"not {type(index).__name__}."
        )


def _rows(x: Variable, index: Variable) -> Variable:
    """Return the rows at integers [...], as [..., row]."""
    rows = gather(x, reshape(index, [-1]), overwrite=False)
    return rows if index.ndim == 1 else reshape(rows, [*(index.shape or ()), *(x.shape or ())[1:]])


def masked(x: Variable, mask: Variable) -> Variable:
    """Return the elements, or rows, that a mask of the leading dimensions keeps; the step is cut here.

    Raises:
        InvalidValue: the mask has other sizes.
    """
    lead, sizes = mask.ndim, x.shape or ()
    if not 0 < lead <= x.ndim or any(
        a != b and -1 not in (a, b) for a, b in zip(mask.shape or (), sizes, strict=False)
    ):
        raise InvalidValue(
            f"{x.name!r}: the mask {mask.name!r} of shape {list(mask.shape or ())} does not fit the leading "
            f"dimensions of {list(sizes)}."
        )
    places = reshape(where(reshape(mask, [-1])), [-1])
    return gather(reshape(x, [-1, *sizes[lead:]]), places)


def _position(x: Variable, index: Variable) -> Variable:
    if index.dtype == VarType.BOOL:
        raise Unsupported(
            f"{x.name!r}: the mask {index.name!r} stands beside other subscripts, which is not built. "
            f"Take {x.name!r}[mask] first."
        )
    if index.dtype not in INTEGERS:
        raise InvalidType(f"{x.name!r}: the index {index.name!r} must hold integers.")
    return index


def _note_slice(x: Variable, window: _Window, axis: int, index: slice) -> None:
    start, end, stride = index.start, index.stop, index.step
    if stride is not None and not isinstance(stride, (int, np.integer)):
        raise InvalidType(f"{x.name!r}: the step of a slice is a number, got {stride!r}.")
    stride = 1 if stride is None else int(stride)
    if stride == 0:
        raise InvalidValue(f"{x.name!r}: the step of a slice cannot be 0.")
    if start is None and end is None and stride in (1, -1):
        if stride == -1:
            window.reversed.append(axis)
        return
    forward = stride > 0
    start = (0 if forward else END) if start is None else _bound(x, start)
    # Backwards, a number before the first element; -1 is the last.
    end = (END if forward else -END) if end is None else _bound(x, end)
    window.take(axis, start, end, stride)


def _bound(x: Variable, value: Any) -> Any:
    if isinstance(value, Variable):
        return _position(x, value)
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    raise InvalidType(f"{x.name!r}: a slice's bounds are numbers or Variables, got {value!r}.")


def _cut(x: Variable, window: _Window) -> Variable:
    block = x.block.program.current_block()
    op_type = "slice" if all(stride == 1 for stride in window.strides) else "strided_slice"
    # A position that is a variable ends one behind itself.
    ends = [
        _next(end) if isinstance(end, Variable) and axis in window.dropped else end
        for axis, end in zip(window.axes, window.ends, strict=True)
    ]
    attrs: dict[str, Any] = {"axes": window.axes, "decrease_axis": window.dropped}
    if op_type == "strided_slice":
        attrs["strides"] = window.strides
    inputs: dict[str, Any] = {"Input": x}
    flags = [1] * len(window.axes)
    for slot, bounds in (("Starts", window.starts), ("Ends", ends)):
        attrs[slot.lower()] = [-1 if isinstance(bound, Variable) else bound for bound in bounds]
        if any(isinstance(bound, Variable) for bound in bounds):
            inputs[f"{slot}TensorList"] = list(_as_variables(x, bounds))
            flags = [
                -1 if isinstance(b, Variable) else f for b, f in zip(bounds, flags, strict=True)
            ]
    attrs["infer_flags"] = flags
    out = block.create_var(name=unique_name.generate(f"{x.name}_{op_type}"), dtype=x.dtype)
    block.append_op(op_type, inputs, {"Out": out}, attrs)
    return out


def _constant(x: Variable, value: int) -> Variable:
    block = x.block.program.current_block()
    out = block.create_var(dtype="int32", stop_gradient=True)
    attrs = {"shape": [1], "dtype": int(VarType.INT32), "value": float(value), "force_cpu": True}
    block.append_op("fill_constant", None, {"Out": out}, attrs)
    out.stop_gradient = True
    return out


def _next(index: Variable) -> Variable:
    block = index.block.program.current_block()
    step = _constant(index, 1)
    if index.dtype != VarType.INT32:
        step = step.astype(index.dtype)
    out = block.create_var(dtype=index.dtype)
    block.append_op("elementwise_add", {"X": index, "Y": step}, {"Out": out}, {"axis": -1})
    out.stop_gradient = True
    return out


def _as_variables(x: Variable, bounds: Sequence[Any]) -> Iterator[Variable]:
    for bound in bounds:
        if isinstance(bound, Variable):
            bound.stop_gradient = True
            yield bound
        else:
            yield _constant(x, bound)


def _reversed(x: Variable, out: Variable, window: _Window) -> Variable:
    """Reverse dimensions; positions skip the dimensions that were dropped before."""
    block = x.block.program.current_block()
    axes = [axis - sum(dropped < axis for dropped in window.dropped) for axis in window.reversed]
    result = block.create_var(name=unique_name.generate(f"{x.name}_slice_reverse"), dtype=x.dtype)
    block.append_op("reverse", {"X": out}, {"Out": result}, {"axis": axes})
    return result


def _with_axes(out: Variable, new_axes: list[int], rank: int) -> Variable:
    """Insert dimensions of one element. Where all were dropped, the remaining one is the first of them."""
    axes = new_axes if rank else new_axes[1:]
    return unsqueeze(out, axes) if axes else out


def length(self: Variable) -> int:
    """Return the size of the first dimension.

    Raises:
        InvalidType: it is not known.
    """
    size = self.shape[0] if self.shape else -1
    if size < 0:
        raise InvalidType(
            f"the length of {self.name!r} is known only when the program runs, so Python can neither count "
            "nor iterate its rows: read it as layers.shape(variable)[0], and loop by layers.while_loop or "
            "StaticRNN."
        )
    return size


def iterate(self: Variable) -> Iterator[Variable]:
    """Yield the elements at each index of the first dimension.

    Raises:
        InvalidType: its size is not known.
    """
    return (getitem(self, i) for i in range(length(self)))


def _set_item(self: Variable, item: Any, value: Any) -> NoReturn:
    raise InvalidType(
        f"elements of {self.name!r} cannot be assigned, because a variable is what its op computes: "
        "compute another one by layers.scatter, layers.where or layers.concat."
    )


def _contains(self: Variable, value: Any) -> bool:
    raise InvalidType(
        f"whether {self.name!r} holds a value is known only when the program runs: "
        "compare with ==, and reduce with reduce_any."
    )


setattr(Variable, "__getitem__", getitem)  # noqa: B010 - declared for type checkers
setattr(Variable, "__setitem__", _set_item)  # noqa: B010
setattr(Variable, "__len__", length)  # noqa: B010
setattr(Variable, "__iter__", iterate)  # noqa: B010
setattr(Variable, "__contains__", _contains)  # noqa: B010
