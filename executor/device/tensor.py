"""Tensor: the value of a scope's variable, as users read and write it."""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np

from ...strategies.errors import (
    EnforceNotMet,
    InvalidType,
    InvalidValue,
    NotInitialized,
    SequenceError,
)
from ...strategies.types import BFLOAT16, VarType, to_var_type
from ..cuda.page_locked import PageLockedBlocks
from ..host.writes import Writes
from .gpus import page_locked_memory
from .place import CUDAPinnedPlace


class Link(Protocol):
    """The connection of a tensor to the replicas that may hold its newest value.

    ``version`` grows with every step that wrote a persistable of ``written``; ``dirty`` names the persistables
    that the driver wrote since.
    """

    version: int
    dirty: set[str]
    written: set[str]

    @property
    def turn(self) -> AbstractContextManager[Any]:
        """The lock for pulling values and for ``dirty``."""

    def settle(self) -> None:
        """Have all steps happen that were begun; called without the turn."""

    def pull(self, name: str) -> np.ndarray:
        """Return the newest value of ``name``."""


class Storage:
    """Counts replacements of any tensor's memory, and writes to it, so that plans know when to look again."""

    generation = 0
    writes = Writes()


_stamps = itertools.count(1)
LoD = tuple[tuple[int, ...], ...]  # per level, the offsets at which sequences begin and end


class Tensor:
    """One array under a name, maybe rows of sequences (LoD). Reading gives a copy; ``set`` writes.

    While replicas hold newer values, reading fetches them first, and a write is sent before the next step.
    What belongs to no scope may lie in page-locked memory (:meth:`set`). ``absence``: what an error
    says while there is no value; empty: that a startup program has to be run.
    """

    __slots__ = ("_array", "_blocks", "_lod", "absence", "link", "link_version", "name", "stamp")

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.absence = ""
        self._array: np.ndarray | None = None
        self._blocks: PageLockedBlocks | None = None
        self._lod: LoD = ()
        self.link: Link | None = None
        self.link_version = 0
        self.stamp = next(_stamps)  # of the value: another one, another number

    @classmethod
    def of(cls, array: np.ndarray) -> Tensor:
        """Return a tensor that belongs to no scope and holds a copy of an array."""
        tensor = cls()
        tensor._array = array.copy()
        return tensor

    @property
    def initialized(self) -> bool:
        """Whether the tensor holds a value."""
        return self._array is not None

    def memory(self, *, newest: bool = True) -> np.ndarray:
        """Return the tensor's own array for the executor, brought up to date unless it is only written.

        Raises:
            NotInitialized: nothing was written yet.
        """
        if newest and self.link is not None:
            self._refresh()
        if self._array is None:
            raise NotInitialized(
                self.absence
                or f"variable {self.name!r} holds no value yet. Run its startup program first."
            )
        return self._array

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return the tensor's own array, a new one if shape or dtype differ."""
        if self._array is None or self._array.shape != shape or self._array.dtype != dtype:
            self.adopt(np.zeros(shape, dtype))
        assert self._array is not None
        return self._array

    def adopt(self, array: np.ndarray) -> None:
        """Take an array for the tensor's own; nothing is copied."""
        self._array = array
        Storage.generation += 1
        Storage.writes.note()

    def move(self, link: Link) -> None:
        """Let go of the memory: the value is where ``link`` pulls it from."""
        self._array, self.link, self.link_version = None, link, -1
        self.renew()
        Storage.generation += 1
        Storage.writes.note()

    def written(self) -> None:
        """Note that the memory was written: replicas must get it before their next step."""
        Storage.writes.note()
        self.renew()
        if self.link is not None:
            self.link.dirty.add(self.name)
            self.link_version = self.link.version

    def renew(self) -> None:
        """Note that the value is another one than before."""
        self.stamp = next(_stamps)

    def set(self, array: Any, place: Any = None) -> None:
        """Write a value (anything ``numpy.asarray`` takes).

        ``place``: with a ``CUDAPinnedPlace`` the value of a tensor that belongs to no scope lies in page-locked
        memory, if this process has a GPU, until another place is named; other places change nothing.

        Arrays of uint16 are the bits of bfloat16 where the tensor holds that.

        Raises:
            InvalidValue: the value is no array of numbers.
        """
        value = np.asarray(array)
        if value.dtype == object or value.dtype.kind in "US":
            raise InvalidValue(f"variable {self.name!r}: cannot hold {value.dtype} values.")
        if value.dtype == np.uint16 and self._array is not None and self._array.dtype == BFLOAT16:
            value = value.view(BFLOAT16)
        with self.link.turn if self.link is not None else contextlib.nullcontext():
            self._place(place)
            if self._blocks is not None and value.size:
                self._array = None  # what nothing reads any more is written again
                self._array = self._blocks.array(value.shape, value.dtype)
            self.allocate(value.shape, value.dtype)[...] = value
            self.written()

    def _place(self, place: Any) -> None:
        """Take page-locked memory, or let go of it."""
        if place is None or self.name:
            return
        if not isinstance(place, CUDAPinnedPlace):
            if self._blocks is not None:
                self._blocks = self._array = None
        elif self._blocks is None and (runtime := page_locked_memory()) is not None:
            self._blocks = PageLockedBlocks(runtime)

    def _value(self) -> np.ndarray:
        """Return the newest value; float64 [0] where there is none, as Paddle does.

        Programs copy every variable of a scope, temporaries among them (PaddleSlim's ``merge``).
        """
        if self.link is not None:
            self._refresh()
        return np.empty(0) if self._array is None else self._array

    def numpy(self) -> np.ndarray:
        """Return a copy of the value; float64 [0] where there is none."""
        return self._value().copy()

    def shape(self) -> list[int]:
        """Return the value's shape; [0] where there is none."""
        return list(self._value().shape)

    @property
    def dtype(self) -> VarType:
        """The type of the elements, in Paddle's numbering as a Variable's."""
        return to_var_type(self._value().dtype)

    def _dtype(self) -> VarType:
        return self.dtype

    def _get_dims(self) -> list[int]:
        return self.shape()

    def _is_initialized(self) -> bool:
        return self.initialized

    def lod(self) -> list[list[int]]:
        """Return, per level, the offsets of the sequences: lengths 2 and 3 are [0, 2, 5]; [] without any."""
        return [list(level) for level in self._lod]

    def set_lod(self, lod: Sequence[Sequence[int]]) -> None:
        """Say where sequences begin and end.

        Raises:
            SequenceError: offsets that do not begin with 0, fall, or do not end at the next level's count.
            InvalidType: the levels are no lists of integers.
        """
        levels = _levels(lod, "offsets", "[[0, 2, 5]]")
        for i, level in enumerate(levels):
            if len(level) < 2 or level[0] != 0 or any(a > b for a, b in pairwise(level)):
                raise SequenceError(
                    f"{self._whose}LoD level {i}: offsets must rise from 0, got {list(level)}."
                )
        self._take_levels(levels, "its offsets end at")

    def _take_levels(self, levels: LoD, end: str) -> None:
        """Take offsets whose last ones are as many as there are sequences, or rows, below them."""
        for i, level in enumerate(levels):
            last = i + 1 == len(levels)
            below = self._rows() if last else len(levels[i + 1]) - 1
            if below is not None and level[-1] != below:
                rows = "rows" if last else f"sequences in level {i + 1}"
                raise SequenceError(
                    f"{self._whose}LoD level {i}: {end} {level[-1]}, but there are {below} {rows} below it."
                )
        self._lod = levels

    @property
    def _whose(self) -> str:
        """Return how an error begins: with the name of the tensor's variable, if it has one."""
        return f"variable {self.name!r}: " if self.name else ""

    def _rows(self) -> int | None:
        return None if self._array is None else len(self._array)

    def recursive_sequence_lengths(self) -> list[list[int]]:
        """Return, per level, the lengths of the sequences; [] without any."""
        return [[b - a for a, b in pairwise(level)] for level in self._lod]

    def set_recursive_sequence_lengths(self, lengths: Sequence[Sequence[int]]) -> None:
        """Say how long the sequences are.

        Raises:
            SequenceError: a length is negative, or a level's lengths do not add up to the next level's count.
            InvalidType: the levels are no lists of integers.
        """
        levels = _levels(lengths, "lengths", "[[2, 3]]")
        for i, level in enumerate(levels):
            if min(level, default=-1) < 0:
                raise SequenceError(
                    f"{self._whose}LoD level {i}: lengths must be 0 or more, one for each sequence, got "
                    f"{list(level)}."
                )
        offsets = tuple(tuple(accumulate(level, initial=0)) for level in levels)
        self._take_levels(offsets, "its lengths add up to")

    def has_valid_recursive_sequence_lengths(self) -> bool:
        """Tell whether the sequences, if any, end where the rows end."""
        return not self._lod or self._lod[-1][-1] == self._rows()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        value = self._value()
        return value.astype(dtype or value.dtype, copy=True)

    @property
    def newer_elsewhere(self) -> bool:
        """Whether replicas alone hold the newest value."""
        link, name = self.link, self.name
        if link is None or self.link_version == link.version:
            return False
        return name not in link.dirty and name in link.written

    def _refresh(self) -> None:
        link = self.link
        assert link is not None
        if not self.newer_elsewhere:
            return
        link.settle()
        with link.turn:
            version = link.version
            value = link.pull(self.name)
            self.allocate(value.shape, value.dtype)[...] = value
            Storage.writes.note()
            self.link_version = version

    def __repr__(self) -> str:
        lod = f", lod={self.lod()}" if self._lod else ""
        try:
            value = repr(self.memory())
        except EnforceNotMet as error:  # a debugger that shows it must not fail
            value = "no value yet" if isinstance(error, NotInitialized) else f"no value: {error}"
        return f"Tensor({self.name!r}, {value}{lod})"


def _levels(levels: Any, numbers: str, example: str) -> LoD:
    """Return levels of sequences as integers.

    Raises:
        InvalidType: they are no lists of integers.
    """
    try:
        return tuple(tuple(map(operator.index, level)) for level in levels)
    except TypeError:
        raise InvalidType(
            f"the LoD of a tensor is a list of levels, each a list of integer {numbers}, for example "
            f"{example}; got {levels!r}."
        ) from None


LoDTensor = Tensor  # Paddle's name for a tensor that may hold sequences


def create_lod_tensor(data: Any, recursive_seq_lens: Sequence[Sequence[int]], place: Any) -> Tensor:
    """Return a tensor of rows that form sequences of these lengths.

    ``data``: an array or Tensor of all rows, or a list of sequences (whose rows are put behind each other,
    int64 [N, 1], if they hold plain integers).

    Raises:
        SequenceError: the lengths do not add up to the rows.
        InvalidType: ``data`` is none of these.
    """
    tensor = Tensor()
    if isinstance(data, (np.ndarray, Tensor)):
        tensor.set(np.array(data), place)
    elif isinstance(data, list):
        lengths = [len(sequence) for sequence in data]
        if not recursive_seq_lens or list(recursive_seq_lens[-1]) != lengths:
            raise SequenceError(
                f"create_lod_tensor: the sequences of data have lengths {lengths}, the last level of "
                f"recursive_seq_lens must be these, got {recursive_seq_lens}."
            )
        rows = np.concatenate([np.asarray(sequence) for sequence in data])
        tensor.set(rows.astype(np.int64).reshape(-1, 1) if rows.ndim == 1 else rows, place)
    else:
        raise InvalidType(f"create_lod_tensor takes an array or a list, got {type(data).__name__}.")
    tensor.set_recursive_sequence_lengths(recursive_seq_lens)
    return tensor


def create_random_int_lodtensor(
    recursive_seq_lens: Sequence[Sequence[int]],
    base_shape: Sequence[int],
    place: Any,
    low: int,
    high: int,
) -> Tensor:
    """Return sequences of these lengths whose rows, of ``base_shape``, hold int64 from low to high."""
    shape = (sum(recursive_seq_lens[-1]), *base_shape)
    rows = np.random.default_rng().integers(low, high + 1, shape, np.int64)
    return create_lod_tensor(rows, recursive_seq_lens, place)
