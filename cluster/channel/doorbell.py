"""The first page of the memory that driver and replica share: a step and its answer, without a system call.

Each end looks at the other's words. One that goes to sleep says so, and looks once more; one that has written
something looks whether the other sleeps, and wakes it by a frame on the socket. A fence stands between what an
end writes and what it looks at then, so one of the two sees the other. Words become visible in the order in
which they are written on x86-64; elsewhere all goes through the socket.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable
from operator import call
from typing import Any

RINGS = platform.machine() in ("x86_64", "AMD64")
PAGE = 4096
_TEXT = 256  # byte at which the head of the message begins
TEXT_ROOM = PAGE - _TEXT
# Words of 8 bytes; each end writes lines of 64 bytes of its own. Before them: see ``feed_buffer.py``.
_NUMBER, _STEP, _SLOT, _LENGTH, _EDITION, _LISTENS = 8, 9, 10, 11, 12, 16
_ANSWERED, _POSTED, _SPINS, _SLEEPS = 24, 25, 26, 27
_lock = threading.Lock()
_BOTH: tuple[Callable[[], Any], ...] = (_lock.acquire, _lock.release)


class Doorbell:
    """One end's handle. Numbers of messages are kept plus one: 0 is none."""

    def __init__(self, page: memoryview) -> None:
        self._page = page
        self._words = page[:_TEXT].cast("q")
        self._text, self._edition = b"", 0  # the head that was written, or read, last
        self._taken = 0

    # -- the driver's end -------------------------------------------------------------------------

    def ring(self, number: int, step: int, slot: int, text: bytes) -> bool:
        """Leave a message whose arrays lie in a slot; tell whether the replica sleeps.

        The same may be left again, as long as it was not answered.
        """
        words = self._words
        if text is not self._text:
            self._page[_TEXT : _TEXT + len(text)] = text
            words[_LENGTH] = len(text)
            words[_EDITION] += 1
            self._text = text
        words[_STEP], words[_SLOT] = step, slot
        words[_LISTENS] = 0  # an interrupt may have left it
        words[_NUMBER] = number + 1
        _fence()
        return words[_SLEEPS] != 0

    def answer(self, number: int) -> tuple[int, bool] | None:
        """Return the slot of what was posted with the answer (-1: nothing was), and whether the replica spins.

        None: there is no answer to this message here.
        """
        words = self._words
        if words[_ANSWERED] != number + 1:
            return None
        return words[_POSTED] - 1, words[_SPINS] != 0

    def listen(self, on: bool) -> None:
        """Say whether the driver sleeps, and an answer is to wake it; look for one after that."""
        self._words[_LISTENS] = on
        _fence()

    # -- the replica's end ------------------------------------------------------------------------

    @property
    def rung(self) -> bool:
        """Whether there is a message that was not taken."""
        return self._words[_NUMBER] != self._taken

    def take(self) -> tuple[int, int, int, bytes] | None:
        """Return number, step, slot and head of a message, once.

        The head is the same object as before while it was not written anew.
        """
        words = self._words
        rung = words[_NUMBER]
        if rung == self._taken:
            return None
        if words[_EDITION] != self._edition:
            self._text = bytes(self._page[_TEXT : _TEXT + min(words[_LENGTH], TEXT_ROOM)])
            self._edition = words[_EDITION]
        self._taken = rung
        return rung - 1, words[_STEP], words[_SLOT], self._text

    def sleep(self) -> None:
        """Say that the replica is about to sleep; it looks for a message after that."""
        self._words[_SLEEPS] = 1
        _fence()

    def wake(self) -> None:
        """Say that the replica is awake."""
        self._words[_SLEEPS] = 0

    def reply(self, number: int, posted: int, spins: bool) -> bool:
        """Leave the answer to a message; tell whether the driver sleeps, and is to be woken."""
        words = self._words
        words[_POSTED], words[_SPINS] = posted + 1, spins
        words[_ANSWERED] = number + 1
        _fence()
        return words[_LISTENS] != 0

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()
        self._page.release()


def _fence() -> None:
    """Have what was written be visible to others before anything else is read.

    To take a lock is an atomic instruction, which does that. It is let go of before the next bytecode, so that
    no interrupt leaves it taken.
    """
    all(map(call, _BOTH))
