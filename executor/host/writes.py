"""Count writes to persistables, so that values derived from them are computed again only after one."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np


class Writes:
    """The number of writes to the persistables of one scope."""

    __slots__ = ("__weakref__", "count")

    def __init__(self) -> None:
        self.count = 0

    def note(self) -> None:
        """Something was, or may have been, written."""
        self.count += 1


# Behind the head of every object: NumPy's ABI has the pointer as the first field of an array.
_POINTER = object.__basicsize__
_word_at = ctypes.c_size_t.from_address


def address(array: Any) -> int:
    """Return the address of an array's memory."""
    if not isinstance(array, np.ndarray):
        return int(array.data.ptr)
    # A plan is bound with hundreds of addresses: NumPy's description of an array takes ten times as long.
    return _word_at(id(array) + _POINTER).value
