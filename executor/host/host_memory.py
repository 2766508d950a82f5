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
    """Have a call made when nobody holds the memory of an array that ``aligned`` made."""
    weakref.finalize(array.base, call)


class Given:
    """Memory that was given and is still held."""

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}  # by where it begins

    def bytes(self, nbytes: int) -> np.ndarray:
        """Give memory."""
        made = aligned(nbytes)
        first = made.ctypes.data
        self._ends[first] = first + nbytes
        when_gone(made, partial(self._forget, first))
        return made

    def _forget(self, first: int) -> None:
        del self._ends[first]

    def __contains__(self, array: np.ndarray) -> bool:
        at = array.ctypes.data
        return any(first <= at < end for first, end in list(self._ends.items()))
