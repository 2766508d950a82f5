"""Count writes to persistables, so that values derived from them are computed again only after one."""

from __future__ import annotations

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


def address(array: Any) -> int:
    """Return the address of an array's memory."""
    if not isinstance(array, np.ndarray):
        return int(array.data.ptr)
    start: int = array.__array_interface__["data"][0]  # in half the time that ``ctypes`` takes
    return start
