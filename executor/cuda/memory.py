"""GPU memory that the plans of a replica share: an arena, scratch memory, the step's number, assertions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..host.arena import Memory
from ..host.numbered import Memo
from .device_assert import DeviceAsserts
from .runtime import Event, Runtime

_SCRATCH_PART = 2048  # of a GPU's memory: 68 MiB of 139 GiB hardly ever have to grow
_TICKS = ("step", "row", "share")  # the clock in device memory: int64, the last as float64
_IN_FLIGHT = 4  # clocks on their way to the device


class Held(NamedTuple):
    """Device memory that lasts as long as it is referred to."""

    bytes: Any


class DeviceMemory:
    """Memory of one GPU for plans of which one runs at a time.

    The arenas of all plans begin at one address. When one needs more, there is a new arena, and ``on_growth``
    is called to release the plans that were bound to the old one, and the graphs that were captured on it.
    """

    def __init__(self, runtime: Runtime, on_growth: Callable[[], None] = lambda: None) -> None:
        self.runtime = runtime
        self.on_growth = on_growth
        self.taken = 0
        self._arena: Any = None
        self._scratch: Held | None = None
        self._beside: Any = None
        self.host = Memory()  # scratch of ops on the host
        self.memo = Memo(self.host.memo.capacity)
        self.asserts = DeviceAsserts(runtime)
        self.ticks = runtime.empty(8 * len(_TICKS)).view(np.int64)
        self._clocks = [runtime.pinned(8 * len(_TICKS)).view(np.int64) for _ in range(_IN_FLIGHT)]
        self._sent: list[Event | None] = [None] * _IN_FLIGHT
        self._turn = 0

    def tick(self, step: int, row: int, share: float = 1.0) -> None:
        """Copy step, first row and share to ``ticks``, before later work on the compute stream."""
        turn, self._turn = self._turn, (self._turn + 1) % _IN_FLIGHT
        event = self._sent[turn]
        if event is not None:
            event.synchronize()
        self._clocks[turn][:2] = step, row
        self._clocks[turn].view(np.float64)[2] = share
        self.runtime.copy(self.ticks, self._clocks[turn], self.runtime.compute)
        self._sent[turn] = self.runtime.record(self.runtime.compute)

    def arena(self, nbytes: int) -> Any:
        """Return ``nbytes`` bytes, the same for every plan as long as they suffice.

        Raises:
            MemoryError: the GPU has less memory left.
        """
        if self._arena is None or self._arena.nbytes < nbytes:
            if self._arena is not None:
                self._arena = None
                self.on_growth()
            self._arena = self.runtime.empty(nbytes)
            self.taken = nbytes
        return self._arena[:nbytes]

    def on_host(self, nbytes: int) -> Any:
        """Return so many bytes of pinned host memory, the same for every plan as long as they suffice."""
        if self._beside is None or self._beside.nbytes < nbytes:
            if self._beside is not None:
                self._beside = None
                self.on_growth()
            self._beside = self.runtime.pinned(nbytes)
        return self._beside[:nbytes]

    def scratch(self, lane: int, least: int = 0) -> Held:
        """Return memory from which instructions take scratch, one after the other; there is one lane."""
        if self._scratch is None or self._scratch.bytes.nbytes < least:
            usual = self.runtime.properties.memory // _SCRATCH_PART
            self._scratch = Held(self.runtime.empty(max(2 * least, usual)))
        return self._scratch

    def give_back(self) -> None:
        """Release the memory, and the plans that use it."""
        self._arena = self._scratch = self._beside = None
        self.host.give_back()
        self.taken = 0
        self.on_growth()
