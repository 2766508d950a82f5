"""What calls are made of, so that calls for other sizes can be made of it, too."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from functools import cache, partial
from struct import Struct
from threading import Lock
from typing import Any, Self

import numpy as np


class NumberedCall(partial[Any]):
    """A call of a function of numbers: addresses, sizes and strides. It keeps ``alive`` what they tell of."""

    __slots__ = ("alive",)
    alive: Any

    @property
    @abstractmethod
    def form(self) -> Hashable:
        """What tells its function from others: calls of one form differ in numbers alone."""

    @property
    @abstractmethod
    def numbers(self) -> Sequence[int] | None:
        """Its numbers; None: they change between its calls."""

    @abstractmethod
    def reading(self, words: np.ndarray) -> Self:
        """Return this call with numbers that it reads from ``words`` (int64) whenever it is made."""


class Fields:
    """A record; a call for other sizes holds one in which some fields differ."""

    def replace(self, **changes: Any) -> Self:
        """Return a copy in which these fields differ."""
        other = copy(self)
        vars(other).update(changes)
        return other


class Rebound:
    """Something that is bound to memory, and to no sizes: calls for all sizes share it.

    ``scratch`` are the bytes of scratch memory that it has, ``nbytes`` those that it takes beside.
    """

    scratch = 0
    nbytes = 0


class Memo:
    """What calls remember of their last runs, by what tells these apart: calls for all sizes share it.

    It takes up to ``capacity`` bytes, or is of one run; what was kept first goes. Several threads may use it.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self._nbytes = capacity, 0
        self._known: dict[Hashable, tuple[Any, int]] = {}
        self._keeping = Lock()

    def get(self, key: Hashable) -> Any:
        """Return what was kept under a key; None: nothing, or it is forgotten."""
        value, _ = self._known.get(key, (None, 0))
        return value

    def keep(self, key: Hashable, value: Any, nbytes: int) -> None:
        """Keep a value, which takes so many bytes."""
        with self._keeping:
            _, before = self._known.pop(key, (None, 0))
            self._known[key] = value, nbytes
            self._nbytes += nbytes - before
            while self._nbytes > self.capacity and len(self._known) > 1:
                _, forgotten = self._known.pop(next(iter(self._known)))
                self._nbytes -= forgotten


@cache
def packer(count: int) -> Callable[..., bytes]:
    """Return what packs so many int64 numbers: NumPy looks at each to find its type, which takes longer."""
    return Struct(f"{count}q").pack
