"""Host memory on boundaries, as a simulated GPU gives it, and which arrays lie in it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial

import numpy as np

_ALIGNMENT = 256  # bytes


def aligned(nbytes: int) -> np.ndarray:
    """Return uninitialised bytes that begin on a boundary."""
    raw = np.empty(nbytes + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + nbytes]


def when_gone(array: np.ndarray, call: Callable[[], None]) -> None:
    """Call a function when the memory of an array from ``aligned`` has no references left."""
    weakref.finalize(array.base, call)


class MemoryRanges:
    """Hands out memory, and knows the address ranges that are still in use."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}  # by where it begins

    def bytes(self, nbytes: int) -> np.ndarray:
        """Return new memory."""
        memory = aligned(nbytes)
        first = memory.ctypes.data
        self._ends[first] = first + nbytes
        when_gone(memory, partial(self._forget, first))
        return memory

    def _forget(self, first: int) -> None:
        del self._ends[first]

    def __contains__(self, array: np.ndarray) -> bool:
        at = array.ctypes.data
        # A list of pairs would be no copy of one moment: to make them may begin a search for garbage.
        return any(first <= at < end for first, end in self._ends.copy().items())
