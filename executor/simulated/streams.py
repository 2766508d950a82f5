"""Streams and device memory of simulated GPUs: work that waits, and the addresses that are a GPU's."""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from ...strategies.errors import ExecutionError


class SimulatedStream:
    """Work that no thread has waited for yet. A piece that returns ``NOT_YET`` stays in front.

    ``siblings`` are the streams of one GPU: while one waits for other GPUs, they go on.
    """

    def __init__(self, siblings: list[SimulatedStream], turn: threading.RLock) -> None:
        self._siblings = siblings
        self._siblings.append(self)
        self._turn = turn  # of the threads that use one GPU
        self.work: deque[Callable[[], Any]] = deque()
        self.put = self.did = 0  # pieces of work so far
        self.ptr = next(_handles)
        _streams[self.ptr] = self

    def add(self, piece: Callable[[], Any]) -> None:
        """Put a piece of work at the end."""
        with self._turn:
            self.work.append(piece)
            self.put += 1

    def advance(self, point: int) -> bool:
        """Do the work up to a point, as far as it can be done now; tell whether that is all of it."""
        with self._turn:
            while self.did < point:
                try:
                    waits = self.work[0]() is NOT_YET
                except BaseException:
                    self._done()
                    raise
                if waits:
                    return False
                self._done()
        return True

    def _done(self) -> None:
        self.work.popleft()
        self.did += 1

    def reach(self, point: int) -> None:
        """Do the work up to a point.

        Raises:
            ExecutionError: a graph holds the call that waits. CUDA refuses it while work is captured.
        """
        if is_in_graph():
            raise ExecutionError(
                "work that a graph holds waits for a stream: it cannot be captured"
            )
        while not self.advance(point):
            self.let_others()
            time.sleep(LOOK_S)

    def let_others(self) -> None:
        """Do what can be done in the other streams."""
        for other in self._siblings:
            if other is not self:
                other.advance(other.put)


NOT_YET = object()
LOOK_S = 2e-5
_handles = itertools.count(1)
_streams: weakref.WeakValueDictionary[int, SimulatedStream] = weakref.WeakValueDictionary()


_launch = threading.local()


def in_graph(step: Callable[[], Any]) -> Any:
    """Do a piece of work that a graph holds."""
    _launch.by_graph = True
    try:
        return step()
    finally:
        _launch.by_graph = False


def is_in_graph() -> bool:
    """Tell whether this thread does what a graph holds."""
    return getattr(_launch, "by_graph", False)


def stream_at(handle: int) -> SimulatedStream:
    """Return a stream by its handle (``ptr``)."""
    return _streams[handle]


ALLOCATED: dict[int, int] = {}  # bytes of device memory by address


def is_device_memory(address: int, nbytes: int) -> bool:
    """Tell whether all of a range of addresses is memory of a simulated GPU."""
    ranges = ALLOCATED.copy().items()  # at once: other threads take and give back
    return any(begin <= address and address + nbytes <= begin + size for begin, size in ranges)
