"""Read the numbers in an object, and make others like it that have other numbers.

What a call knows are arrays and numbers, and functions, tuples and records of them. Two calls that are alike
but for sizes differ in numbers alone: where arrays begin, their shapes and strides.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Hashable, Sequence
from functools import cache, partial
from operator import itemgetter
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from ...graph.ops.operands import Operands
from ..host.numbered import Fields, Memo, Rebound
from ..host.writes import address
from .node_shapes import picked

Buffer = tuple[int, int, np.ndarray]  # where bytes begin, how many there are, and these
Leaf = Callable[[list[int]], Any]  # makes an array, or a number, of picked numbers
# Makes something of a pool: of arrays, and of what does not vary
Maker = Callable[[list[Any]], Any]
_DEPTH = 12  # of what a call knows
_VALUES = str, float, bool, type(None), np.generic, np.dtype, type
_CONSTANT = (
    *_VALUES,
    np.ufunc,
    type(np.copyto),
    ModuleType,
    Rebound,
)  # what is the same for all sizes


class Unknown(Exception):
    """An object holds something from which no numbers can be read."""


class _Kind(NamedTuple):
    """How objects of a kind are taken apart and made again.

    ``tell`` returns what differs between objects of equal ``parts``; ``remake`` returns an object like a known
    one with other parts.
    """

    tell: Callable[[Any], Hashable]
    parts: Callable[[Any], tuple[Any, ...]]
    remake: Callable[[Any, tuple[Any, ...]], Any]


def _function_like(known: Any, parts: tuple[Any, ...]) -> Any:
    cells, defaults = parts
    around = tuple([CellType(each) for each in cells])
    return FunctionType(known.__code__, known.__globals__, known.__name__, defaults, around)


_RECORD = _Kind(
    type,
    lambda known: tuple([(k, tuple(v) if type(v) is list else v) for k, v in vars(known).items()]),
    lambda known, parts: known.replace(**dict(parts)),
)
_NAMED = _Kind(type, tuple, lambda known, parts: type(known)(*parts))
_KINDS = {
    tuple: _Kind(type, lambda known: known, lambda known, parts: parts),
    partial: _Kind(
        type,
        lambda known: (known.func, known.args, tuple(known.keywords.items())),
        lambda known, parts: partial(parts[0], *parts[1], **dict(parts[2])),
    ),
    FunctionType: _Kind(
        lambda known: known.__code__,
        lambda known: (
            tuple([cell.cell_contents for cell in known.__closure__ or ()]),
            known.__defaults__ or (),
        ),
        _function_like,
    ),
    BuiltinFunctionType: _Kind(  # the method of an object
        lambda known: known.__name__,
        lambda known: (known.__self__,),
        lambda known, parts: getattr(parts[0], known.__name__),
    ),
}


def _kind_of(known: Any) -> _Kind | None:
    """Return the kind of an object that has parts; None: such objects cannot be made again."""
    if isinstance(known, Operands | Fields):
        return _RECORD
    if isinstance(known, tuple) and hasattr(known, "_fields"):
        return _NAMED
    if type(known) is FunctionType and _assigns(known.__code__):
        return None
    return _KINDS.get(type(known))


def _constant(known: Any) -> bool:
    """Tell whether an object is the same for all sizes."""
    if type(known) is BuiltinFunctionType:
        return isinstance(known.__self__, ModuleType | None)
    return isinstance(known, _CONSTANT)


def read(
    known: Any, numbers: list[int], buffers: Sequence[Buffer], depth: int = _DEPTH
) -> Hashable:
    """Append the numbers of an object, and return its form: objects of one form differ in numbers alone.

    Raises:
        Unknown: the object holds something from which no numbers can be read.
    """
    if type(known) is int:
        numbers.append(known)
        return int
    if type(known) is np.ndarray:
        place = address(known), *known.shape, *known.strides
        if _buffer_of(known, buffers) is None:  # such as a parameter: it is the same for all sizes
            return known.dtype, place
        numbers += place
        return known.dtype, known.ndim
    if _constant(known):
        return type(known), known
    if type(known) is Memo:  # that of the memory
        return Memo
    kind = _kind_of(known)
    if kind is None or not depth:
        raise Unknown
    return kind.tell(known), *[
        read(each, numbers, buffers, depth - 1) for each in kind.parts(known)
    ]


@cache
def _assigns(code: CodeType) -> bool:
    """Tell whether a function changes variables of the function around it."""
    return any(
        instruction.opname == "STORE_DEREF" and instruction.argval in code.co_freevars
        for instruction in dis.get_instructions(code)
    )


class Pool:
    """The objects of which calls are made: each array once, however many calls use it.

    ``at`` is the number of the next number that is read. Numbers with equal columns of ``functions`` are equal
    in all plans, and are ``picked`` once. Constants have places counted from the end, as more cuts may be
    added.
    """

    def __init__(self, functions: np.ndarray) -> None:
        self.at, self.varying = 0, np.asarray(functions[1:].any(0))
        columns = dict[tuple[int, ...], int]()
        each = zip(*functions.tolist(), strict=True)
        self._same = [columns.setdefault(column, k) for k, column in enumerate(each)]
        self._picked = dict[int, int]()
        self._places = dict[Hashable, int]()
        self.picked: list[int] = []
        self.cuts: list[tuple[np.ndarray, int]] = []
        self.leaves: list[tuple[int, Leaf]] = []
        self.constants: list[Any] = []

    def next(self, count: int) -> slice:
        """Return the slice of the next numbers."""
        begin, self.at = self.at, self.at + count
        return slice(begin, self.at)

    def pick(self, number: int) -> int:
        """Return the place of this number, or an equal one, among those picked."""
        same = self._same[number]
        if same not in self._picked:
            self._picked[same] = len(self.picked)
            self.picked.append(same)
        return self._picked[same]

    def place(self, kind: Hashable, numbers: slice, add: Callable[[], int]) -> int:
        """Return the place of the object of a kind that has these numbers; ``add`` adds it if it is new."""
        key = kind, *self._same[numbers]
        if key not in self._places:
            self._places[key] = add()
        return self._places[key]

    def place_cut(self, whole: np.ndarray, number: int) -> int:
        """Return the place of an array's first rows, which a number counts."""
        self.cuts.append((whole, self.pick(number)))
        return len(self.cuts) - 1

    def place_leaf(self, make: Leaf) -> int:
        """Return the place of an object that is made of picked numbers."""
        place = self.place_constant(None)
        self.leaves.append((place, make))
        return place

    def place_constant(self, known: Any) -> int:
        """Return the place of an object that does not vary."""
        self.constants.append(known)
        return -len(self.constants)


def maker_of(known: Any, pool: Pool, buffers: Sequence[Buffer]) -> Maker | None:
    """Return a maker of objects like a known one with other numbers, in the order of :func:`read`.

    None: the numbers do not vary.
    """
    maker = _maker(known, pool, buffers)
    return itemgetter(maker) if isinstance(maker, int) else maker


def _maker(known: Any, pool: Pool, buffers: Sequence[Buffer]) -> int | Maker | None:
    """Return the place of a leaf in the pool, or a maker (see :func:`maker_of`)."""
    if type(known) is int:
        mine = pool.next(1)
        if not pool.varying[mine.start]:
            return None
        return pool.place(int, mine, lambda: pool.place_leaf(itemgetter(pool.pick(mine.start))))
    if type(known) is np.ndarray:
        buffer = _buffer_of(known, buffers)
        if buffer is None:
            return None
        mine = pool.next(1 + 2 * known.ndim)
        if not pool.varying[mine].any():
            return None
        return pool.place(known.dtype, mine, lambda: _place_array(known, mine, pool, buffer))
    kind = None if _constant(known) else _kind_of(known)
    if kind is None:
        return None
    parts = kind.parts(known)
    make = _tuple_maker(parts, [_maker(each, pool, buffers) for each in parts], pool)
    if make is None or type(known) is tuple:
        return make
    remake = kind.remake
    return lambda items: remake(known, make(items))


def _tuple_maker(
    known: tuple[Any, ...], makers: Sequence[int | Maker | None], pool: Pool
) -> Maker | None:
    varying = [(k, make) for k, make in enumerate(makers) if make is not None]
    if not varying:
        return None
    functions = [(k, make) for k, make in varying if not isinstance(make, int)]
    places = [
        make if isinstance(make, int) else pool.place_constant(each)
        for each, make in zip(known, makers, strict=True)
    ]
    take = picked(places)
    if not functions:
        return take

    def make_tuple(items: list[Any]) -> tuple[Any, ...]:
        parts = list(take(items))
        for k, make in functions:
            parts[k] = make(items)
        return tuple(parts)

    return make_tuple


def _place_array(known: np.ndarray, mine: slice, pool: Pool, buffer: Buffer) -> int:
    """Return the place of an array like a known one with other numbers."""
    begin, size, memory = buffer
    varying = pool.varying[mine].nonzero()[0].tolist()
    offset, dtype, steps = address(known) - begin, known.dtype, known.strides
    axis, shape = varying[0] - 1, list(known.shape)
    if len(varying) == 1 and 0 <= axis < known.ndim and known.size and min(steps) > 0:
        # It is cut out of the longest: that takes a fifth of the time.
        shape[axis] = 1
        ends = sum((n - 1) * step for n, step in zip(shape, steps, strict=True)) + known.itemsize
        shape[axis] += (size - offset - ends) // steps[axis]
        whole = np.ndarray(shape, dtype, memory, offset, steps)
        if not axis:
            return pool.place_cut(whole, mine.start + 1)
        before, count = (slice(None),) * axis, pool.pick(mine.start + 1 + axis)
        return pool.place_leaf(lambda numbers: whole[(*before, slice(numbers[count]))])
    take, cut = picked([pool.pick(k) for k in range(mine.start, mine.stop)]), 1 + known.ndim

    def make(numbers: list[int]) -> np.ndarray:
        own = take(numbers)
        return np.ndarray(own[1:cut], dtype, memory, own[0] - begin, own[cut:])

    return pool.place_leaf(make)


def _buffer_of(array: np.ndarray, buffers: Sequence[Buffer]) -> Buffer | None:
    """Return the bytes in which an array lies."""
    at = address(array)
    return next((b for b in buffers if b[0] <= at < b[0] + b[1]), None)
