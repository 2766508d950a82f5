"""Doorbell: words in shared memory by which a driver starts a step on its host's replicas, and they answer.

The driver leaves one message for all; each replica answers in a column of its own words. Each end looks at the
other's words. A replica that goes to sleep says so, and looks once more; a driver that has rung looks whether
one sleeps, and wakes all by one file of events. A driver that goes to sleep does the same, and the replica
that answers last wakes it. A fence stands between what an end writes and what it looks at then, so one of the
two sees the other. Words become visible in the order in which they are written on x86-64; elsewhere all goes
through the socket.

Before they sleep both ends wait awake for a moment if the driver chose so (``waits.py``), which it tells all
with a message: one that sleeps, as others compute on its core, could not move to that of one which is awake.
"""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable, Sequence
from operator import call
from typing import Any

from .frame import SLOTS

RINGS = platform.machine() in ("x86_64", "AMD64")
PAGE = 4096
_LINE = 64  # bytes that one processor at a time can write
_WORD = 8
_TEXT = 64  # byte of a replica's page at which the head of its message begins, behind its length
TEXT_ROOM = PAGE - _TEXT
_NUMBER, _STEP, _SLOT, _EDITION, _LISTENS, _AWAKE = range(6)  # the driver's words
BY_SOCKET = -2  # stands for the slot of what was posted where the answer went by the socket
_NOBODY, _LAST, _EACH = range(3)  # the replicas that wake the driver
_lock = threading.Lock()
_BOTH: tuple[Callable[[], Any], ...] = (_lock.acquire, _lock.release)


class _Columns:
    """The words of a driver and of ``count`` replicas: a column of theirs has a word for each."""

    def __init__(self, memory: memoryview, count: int) -> None:
        self._memory = memory
        self.count = count
        self.driver = memory[:_LINE].cast("q")
        width = _column_bytes(count)
        columns = [
            memory[_LINE + k * width : _LINE + k * width + count * _WORD].cast("q")
            for k in range(3 + 2 * SLOTS)
        ]
        self.answered, self.posted, self.sleeps = columns[:3]
        # By slot: the number of what was posted there, and the length and the edition of its head.
        self.posts = [(columns[3 + 2 * k], columns[4 + 2 * k]) for k in range(SLOTS)]
        self._views = [self.driver, *columns]
        self._texts = words_bytes(count) - count * PAGE

    def page(self, index: int) -> memoryview:
        """Return the page for the head of a replica's message."""
        begin = self._texts + index * PAGE
        return self._memory[begin : begin + PAGE]

    def close(self) -> None:
        """Let go of the memory."""
        for view in self._views:
            view.release()
        self._memory.release()


def _column_bytes(count: int) -> int:
    return -(-count * _WORD // _LINE) * _LINE


def words_bytes(count: int) -> int:
    """Return the bytes of whole pages that the words and the heads for so many replicas take."""
    words = _LINE + (3 + 2 * SLOTS) * _column_bytes(count)
    return (-(-words // PAGE) + count) * PAGE


class Doorbell:
    """The driver's end. Numbers of messages are kept plus one: 0 is none. ``wakes``: the file of events."""

    def __init__(self, memory: memoryview, count: int, wakes: int) -> None:
        self._columns = columns = _Columns(memory, count)
        self._wakes = wakes
        self._texts: Sequence[bytes] = ()  # the heads that were written last
        self._all_awake = _same(0, count)
        self._slots = [_same(slot + 1, count) for slot in range(SLOTS)]
        self._expected = -1, b""  # the number of a message, and the column of its answers
        self.posts = columns.posts

    def ring(
        self, number: int, step: int, slot: int, texts: Sequence[bytes], awake: bool = False
    ) -> None:
        """Leave every replica a message with a head of its own, whose arrays lie in a slot, and wake all.

        The same may be left again, as long as it was not answered. ``awake``: all wait awake for what follows.
        """
        columns = self._columns
        words = columns.driver
        if texts != self._texts:
            self._texts = ()
            for index, text in enumerate(texts):
                page = columns.page(index)
                page[:_WORD] = len(text).to_bytes(_WORD, "little")
                page[_TEXT : _TEXT + len(text)] = text
            words[_EDITION] += 1
            self._texts = texts
        words[_STEP], words[_SLOT], words[_AWAKE] = step, slot, awake
        words[_LISTENS] = _NOBODY  # an interrupt may have left it
        words[_NUMBER] = number + 1
        _fence()
        self._expected = number, _same(number + 1, columns.count)
        if columns.sleeps.tobytes() != self._all_awake:
            os.eventfd_write(self._wakes, 1)

    def all_answered(self, number: int) -> bool:
        """Tell whether all replicas answered a message here, or said that they did by the socket."""
        rung, column = self._expected
        return number == rung and self._columns.answered.tobytes() == column

    def all_posted(self, slot: int) -> bool:
        """Tell whether all that answered last posted to a slot before."""
        return self._columns.posted.tobytes() == self._slots[slot]

    def answer(self, index: int, number: int) -> int | None:
        """Return the slot (-1: none) to which a replica posted, if it answered a message here."""
        columns = self._columns
        posted: int = columns.posted[index] - 1
        return None if columns.answered[index] != number + 1 or posted == BY_SOCKET else posted

    def listen(self, each: bool) -> None:
        """Say that the driver sleeps until the last answer, or ``each``, wakes it; look for them after that."""
        self._columns.driver[_LISTENS] = _EACH if each else _LAST
        _fence()

    def close(self) -> None:
        """Let go of the memory."""
        self._columns.close()


class ReplicaBell:
    """The end of the replica that is the ``index``-th of ``count``. ``wakes``: the driver's file of events."""

    def __init__(self, memory: memoryview, count: int, index: int, wakes: int) -> None:
        self._columns = columns = _Columns(memory, count)
        self._driver, self._index, self._wakes = columns.driver, index, wakes
        self._text, self._edition = b"", 0  # the head that was read last
        self._taken = 0
        self.posts = columns.posts

    @property
    def awake(self) -> bool:
        """Whether to wait awake for a moment after the last message, before this end sleeps."""
        return bool(self._driver[_AWAKE])

    @property
    def rung(self) -> bool:
        """Whether there is a message that was not taken."""
        return self._driver[_NUMBER] != self._taken

    def take(self) -> tuple[int, int, int, bytes] | None:
        """Return number, step, slot and head of a message, once.

        The head is the same object as before while it was not written anew.
        """
        words = self._driver
        number = words[_NUMBER]
        if number == self._taken:
            return None
        if words[_EDITION] != self._edition:
            page = self._columns.page(self._index)
            length = int.from_bytes(page[:_WORD], "little")
            self._text = bytes(page[_TEXT : _TEXT + min(length, TEXT_ROOM)])
            self._edition = words[_EDITION]
        self._taken = number
        return number - 1, words[_STEP], words[_SLOT], self._text

    def sleep(self) -> None:
        """Say that the replica is about to sleep; it looks for a message after that."""
        self._columns.sleeps[self._index] = 1
        _fence()

    def wake(self) -> None:
        """Say that the replica is awake."""
        self._columns.sleeps[self._index] = 0

    def reply(self, number: int, posted: int) -> None:
        """Leave the answer to a message, and wake a driver that sleeps until then.

        ``posted``: the slot of what was posted before (-1: nothing was), or ``BY_SOCKET``.
        """
        columns, index = self._columns, self._index
        columns.posted[index] = posted + 1
        columns.answered[index] = number + 1
        _fence()
        listens = self._driver[_LISTENS]
        if listens == _EACH or (
            listens == _LAST and columns.answered.tobytes() == _same(number + 1, columns.count)
        ):
            os.eventfd_write(self._wakes, 1)

    def close(self) -> None:
        """Let go of the memory."""
        self._columns.close()


def _same(value: int, count: int) -> bytes:
    """Return a column in which all words are this one."""
    return value.to_bytes(_WORD, "little") * count


def _fence() -> None:
    """Have what was written be visible to others before anything else is read.

    To take a lock is an atomic instruction, which does that. It is let go of before the next bytecode, so that
    no interrupt leaves it taken.
    """
    all(map(call, _BOTH))
