"""Copy the feeds of steps in flight, so that users may change their arrays; the memory is used again."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from ..gang.assign import assign

if TYPE_CHECKING:
    from .future import InFlightSteps

_ARRAYS_KEPT = 16  # that are free: steps in flight times feeds, of one or two shapes
_SMALL = 1 << 16  # bytes up to which new memory is as quick to get as old is to find

_Key = tuple[tuple[int, ...], Any]


class Copies:
    """Makes copies, and notes for which steps. Much new memory costs several times what copying costs."""

    def __init__(self) -> None:
        self._free: OrderedDict[int, np.ndarray] = OrderedDict()  # by address, the oldest first
        self._fresh: list[np.ndarray] = []
        self._lent: list[tuple[InFlightSteps, list[np.ndarray]]] = []

    def copy(self, array: np.ndarray) -> np.ndarray:
        """Return a copy (in C order)."""
        if array.nbytes <= _SMALL:
            return array.copy()
        key: _Key = (array.shape, array.dtype)
        free = next((k for k, a in self._free.items() if (a.shape, a.dtype) == key), None)
        target = self._free.pop(free) if free is not None else np.empty(*key)
        target[...] = array
        self._fresh.append(target)
        return target

    def begin(self) -> None:
        """Take back what was copied for steps that every replica has done.

        What was copied for others, which failed or may still be on their way, is not used again.
        """
        self._fresh = []
        if not self._lent:
            return
        still = []
        free = self._free.copy()
        for flight, arrays in self._lent:
            request = flight.request
            if request is not None and request.fetched is not None:
                free.update((id(array), array) for array in arrays)
            elif request is not None and not request.settled:
                still.append((flight, arrays))
        while len(free) > _ARRAYS_KEPT:
            free.popitem(last=False)
        # At one moment: an interrupt leaves no array both free and lent.
        assign((self, "_free", free), (self, "_lent", still))

    def lend(self, flight: InFlightSteps) -> None:
        """Note that what was copied since :meth:`begin` is for these steps."""
        if self._fresh:
            self._lent.append((flight, self._fresh))
            self._fresh = []
