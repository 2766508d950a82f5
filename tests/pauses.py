"""Clocks for waits: one that leaps, as a pause of this process makes it, and one that stands still."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rowlock.executor.host import deadline

_PAUSE_S = 1000.0


class Pause:
    """The clock by which deadlines are looked at. It leaps while somebody waits; then ``go_on`` is called."""

    def __init__(self, go_on: Callable[[], object]) -> None:
        self._ahead, self._looked = 0.0, threading.Semaphore(0)
        self._go_on = go_on
        threading.Thread(target=self._leap, daemon=True).start()

    def monotonic(self) -> float:
        self._looked.release()
        return time.monotonic() + self._ahead

    def _leap(self) -> None:
        for ahead in (0.0, _PAUSE_S):
            self._ahead = ahead
            for _ in range(3):  # the last of them looked after it leapt
                self._looked.acquire()
        self._go_on()


def paused(go_on: Callable[[], object]) -> None:
    """Have this process seem paused in its next wait, and call ``go_on`` when it waits again."""
    deadline.time = Pause(go_on)  # type: ignore[assignment]


class Clock:
    """A clock that stands still until it ``goes``; then a second passes with each look at it."""

    goes, _now = False, 0.0

    def monotonic(self) -> float:
        self._now += self.goes
        return self._now
