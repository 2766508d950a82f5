"""Arrays of tensors, whose entries are known only when a program runs, and the functions on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import zip_longest
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...graph.ops.host_call import no_entry
from ...graph.ops.sequence_choice import rows_of, within
from ...strategies.errors import InvalidValue


class Entry(NamedTuple):
    """A tensor with its sequences: ``levels`` are int64 offsets, outermost first."""

    elements: np.ndarray
    levels: tuple[np.ndarray, ...] = ()


class Unwritten:
    """Stands for a tensor that nothing was written to: it can be handed on, not be read."""

    def __init__(self, name: str) -> None:
        self.refusal = ValueError(
            f"nothing was written to {name!r}: the loop that writes it made no round, or the branch was not "
            f"taken."
        )

    @property
    def elements(self) -> NoReturn:
        """Refuse."""
        raise self.refusal

    levels = elements


class NoLevel(np.ndarray):
    """Offsets of a level that a tensor does not have, and others do that stand in its place in other rounds.

    Segments see a level within which each sequence (or row) is alone; calls and the user see none.
    """


TensorArray = tuple[Entry | None, ...]


def array(*entries: Entry, places: Sequence[int], count: int) -> tuple[TensorArray]:
    """Return the array of ``count`` entries that has tensors in some places."""
    by_place = dict(zip(places, entries, strict=True))
    return (tuple(by_place.get(k) for k in range(count)),)


def sum_arrays(*arrays: TensorArray) -> tuple[TensorArray]:
    """Return the array whose entries are the sums of those that were written."""
    return (tuple(reduce(_sum, column) for column in zip_longest(*arrays)),)


def write_to_array(
    entries: TensorArray, index: Entry, x: Entry, array: str, adds: bool
) -> tuple[TensorArray]:
    """Return the array with another entry; those between its end and the new one were never written.

    ``adds``: it is the sum of what stands there and of ``x``.

    Raises:
        InvalidValue: the index is negative.
    """
    number = _number(index, array)
    longer = [*entries, *[None] * (number + 1 - len(entries))]
    longer[number] = _sum(longer[number], x) if adds else x
    return (tuple(longer),)


def select_input(taken: Entry, no: Entry, yes: Entry) -> tuple[Entry]:
    """Return the result of the branch that was taken; nothing may have been written to the other."""
    return (yes if np.ravel(taken.elements)[0] else no,)


def select_output(taken: Entry, above: Entry, *results: Entry, sides: Sequence[int]) -> list[Entry]:
    """Return the gradients of what two branches return: ``above`` for that of the one taken, else zeros.

    ``results`` are those of ``sides``: 1, where it is taken, and 0. One that was not computed has no size.
    """
    side = int(np.ravel(taken.elements)[0])
    zeros = (
        Entry(np.zeros_like(above.elements if isinstance(result, Unwritten) else result.elements))
        for result in results
    )
    return [above if number == side else zero for number, zero in zip(sides, zeros, strict=True)]


def take_entry(entries: TensorArray, index: Entry, like: Entry) -> tuple[TensorArray, Entry]:
    """Return the array without an entry, and that: zeros if it was never written."""
    number = _number(index, "")
    entry = entries[number] if number < len(entries) else None
    rest = (*entries[:number], None, *entries[number + 1 :])
    return rest, entry or Entry(np.zeros_like(like.elements))


def _sum(one: Entry | None, other: Entry | None) -> Entry | None:
    if one is None or other is None:
        return one or other
    return Entry(one.elements + other.elements, one.levels)


def read_from_array(entries: TensorArray, index: Entry, array: str) -> tuple[Entry]:
    """Return an entry.

    Raises:
        InvalidValue: the array has none there.
    """
    number = _number(index, array)
    entry = entries[number] if number < len(entries) else None
    if entry is None:
        raise InvalidValue(no_entry(number, array, len(entries)))
    return (entry,)


def lod_array_length(entries: TensorArray) -> tuple[Entry]:
    """Return how many entries an array has: int64, shape [1]."""
    return (Entry(np.array([len(entries)], np.int64)),)


def tensor_array_to_tensor(entries: TensorArray, axis: int, use_stack: bool) -> tuple[Entry, Entry]:
    """Join the entries along an axis, or stack them; return the tensor, and the size of each along it (int32).

    Raises:
        InvalidValue: there are no entries, one was never written, or their shapes do not fit together.
    """
    if not entries:
        raise InvalidValue(
            "the array has no entries, which would tell their shape: a loop or a recurrence made no step."
        )
    if None in entries:
        raise InvalidValue(
            f"{len(entries)} entries, of which {entries.count(None)} were never written."
        )
    arrays = [entry.elements for entry in entries if entry is not None]
    try:
        tensor = np.stack(arrays, axis) if use_stack else np.concatenate(arrays, axis)
    except ValueError as error:
        shapes = ", ".join(str(list(each.shape)) for each in arrays)
        raise InvalidValue(f"entries of shapes {shapes} do not fit together: {error}.") from None
    rank = arrays[0].ndim
    at = min(axis % (rank + use_stack), rank - 1)
    sizes = [each.shape[at] for each in arrays]
    return Entry(tensor), Entry(np.array(sizes, np.int32))


def lod_tensor_to_array(x: Entry, table: Entry, bare: bool = False) -> tuple[TensorArray]:
    """Return an array: entry t is the t-th part of each sequence that has one, the longest sequence first.

    ``table`` is a rank table (``graph/ops/sequence_choice.py``) of some level; entries have those within, or
    none if they shall be ``bare``. Where all sequences are empty, there is one entry, without rows.

    Raises:
        InvalidValue: it is of no level of ``x``.
    """
    order, lengths = table.elements.T
    lengths_x = [np.diff(level) for level in x.levels]
    ranked = (
        k
        for k, own in enumerate(lengths_x)
        if len(own) == len(order) and np.array_equal(own[order], lengths)
    )
    number = next(ranked, None)
    if number is None:
        raise InvalidValue(
            f"the rank table is of sequences of the lengths {lengths.tolist()}, and X has "
            f"{[own.tolist() for own in lengths_x]}."
        )
    starts, inner = x.levels[number][:-1][order], x.levels[number + 1 :]
    steps = range(lengths.max(initial=1))
    entries = [_chosen(x.elements, inner, starts[lengths > t] + t) for t in steps]
    return (tuple(Entry(entry.elements) if bare else entry for entry in entries),)


def array_to_lod_tensor(
    entries: TensorArray, table: Entry, row: Sequence[int], dtype: str, levels: int
) -> tuple[Entry]:
    """Return the sequences that :func:`lod_tensor_to_array` took apart, in the order that they had.

    The levels of ``table`` are those around these sequences.

    ``row``, ``dtype``, ``levels``: of the entries, where all sequences are empty and no entry was written.

    Raises:
        InvalidValue: entries are missing, or have other numbers of rows than the table tells.
    """
    order, lengths = table.elements.T
    parts = [entry for entry in entries if entry is not None]
    counts = [_count(entry) for entry in parts]
    alive = [int(np.count_nonzero(lengths > step)) for step in range(lengths.max(initial=1))]
    if not parts and not any(alive):
        start = np.zeros(1, np.int64)
        parts, counts = [Entry(np.empty((0, *row), dtype), (start,) * levels)], [0]
    if counts != alive or len(parts) < len(entries):
        raise InvalidValue(
            f"the entries have {counts} rows (or sequences), and the rank table tells {alive}: write one "
            f"in each step."
        )
    first = np.cumsum([0, *counts])[:-1]
    rank = np.argsort(order)
    numbers = np.concatenate([first[: lengths[r]] + r for r in rank]).astype(np.int64)
    depths = sorted({len(part.levels) for part in parts})
    if len(depths) > 1:
        raise InvalidValue(
            f"the entries have {' and '.join(map(str, depths))} levels of sequences: they do not fit together."
        )
    inner = [_together(levels) for levels in zip(*(part.levels for part in parts), strict=True)]
    selection = _chosen(np.concatenate([part.elements for part in parts]), inner, numbers)
    ends = np.concatenate([[0], np.cumsum(lengths[rank])]).astype(np.int64)
    return (Entry(selection.elements, (*table.levels, ends, *selection.levels)),)


def lod_tensor_to_array_grad(entries: TensorArray, table: Entry, x: Entry) -> tuple[Entry]:
    """Return what came down to the rows of ``x`` from the entries, which have no levels; else zeros."""
    result = np.zeros_like(x.elements)
    (places,) = lod_tensor_to_array(Entry(np.arange(len(result)), x.levels), table)
    for place, entry in zip(places, entries, strict=False):
        if place is not None and entry is not None:
            result[place.elements] = entry.elements
    return (Entry(result, x.levels),)


def _count(entry: Entry) -> int:
    return len(entry.levels[0]) - 1 if entry.levels else len(entry.elements)


def _together(levels: Sequence[np.ndarray]) -> np.ndarray:
    """Return offsets of sequences behind each other."""
    lengths = np.concatenate([np.diff(level) for level in levels])
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _chosen(elements: np.ndarray, levels: Sequence[np.ndarray], numbers: np.ndarray) -> Entry:
    """Return the tensor of some sequences (or rows), by number."""
    result = []
    rows = rows_of(levels, numbers)
    for level in levels:
        ends, numbers = within(level, numbers)
        result.append(ends)
    return Entry(elements[rows], tuple(result))


def tensor_array_to_tensor_grad(
    entries: TensorArray, above: Entry, axis: int, use_stack: bool
) -> tuple[TensorArray]:
    """Cut what came down to a joined tensor into the gradients of its entries."""
    arrays = [entry.elements for entry in entries if entry is not None]
    if use_stack:
        return (tuple(Entry(part) for part in np.moveaxis(above.elements, axis, 0)),)
    ends = np.cumsum([each.shape[axis] for each in arrays])[:-1]
    return (tuple(Entry(part) for part in np.split(above.elements, ends, axis)),)


def as_deep(x: Entry, levels: int) -> tuple[Entry]:
    """Return a tensor with so many levels, the outermost of which may be none: see :class:`NoLevel`."""
    missing = levels - len(x.levels)
    alone = np.arange(_count(x) + 1, dtype=np.int64).view(NoLevel)
    return (Entry(x.elements, (*(alone,) * missing, *x.levels)),)


def told_level(level: Entry) -> tuple[Entry]:
    """Return offsets; none of a level that its tensor does not have."""
    missing = isinstance(level.elements, NoLevel)
    return (Entry(np.empty(0, np.int64) if missing else level.elements),)


def unstack(x: Entry, reverse: bool) -> tuple[TensorArray]:
    """Return an array of the parts of a tensor along dimension 0, of shape [1] where they are numbers."""
    parts = x.elements[::-1] if reverse else x.elements
    return (tuple(Entry(part.reshape(part.shape or (1,))) for part in parts),)


def stack(
    entries: TensorArray, like: Entry, reverse: bool, part: Sequence[int], dtype: str
) -> tuple[Entry]:
    """Return the tensor whose parts along dimension 0 are the entries.

    ``part``, ``dtype``: of the entries, where there are none; sizes of -1 are those of ``like``'s parts.

    Raises:
        InvalidValue: their shapes differ, or there are none and parts of ``like`` have fewer dimensions.
    """
    if not entries:
        sizes = dict(enumerate(like.elements.shape[1:]))
        shape = [sizes.get(k, -1) if size == -1 else size for k, size in enumerate(part)]
        if -1 not in shape:
            return (Entry(np.empty((0, *shape), dtype)),)
    (joined, _) = tensor_array_to_tensor(entries[::-1] if reverse else entries, 0, use_stack=True)
    return (joined,)


def _number(index: Entry, array: str) -> int:
    number = int(np.ravel(index.elements)[0])
    if number < 0:
        raise InvalidValue(f"the array {array!r} has no entry {number}")
    return number


Results = tuple[Entry | TensorArray, ...]
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        array,
        sum_arrays,
        take_entry,
        select_input,
        select_output,
        write_to_array,
        read_from_array,
        lod_array_length,
        tensor_array_to_tensor,
        lod_tensor_to_array,
        array_to_lod_tensor,
        lod_tensor_to_array_grad,
        tensor_array_to_tensor_grad,
        as_deep,
        told_level,
        unstack,
        stack,
    )
}
