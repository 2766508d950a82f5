"""A queue with room for some items, whose taker may be interrupted at any moment.

``queue.Queue`` may not: an interrupt in its ``get`` can leave its lock released twice.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

_LOOK_S = 0.1  # how soon a thread that waits for room notices that the reader is gone


class BoundedQueue:
    """Takes about ``capacity`` items ahead: threads that put at the same moment may exceed it by one each."""

    def __init__(self, capacity: int) -> None:
        self._capacity = max(1, capacity)
        self._items: SimpleQueue[Any] = SimpleQueue()
        self._bell: SimpleQueue[None] = SimpleQueue()

    def put(self, item: Any, closed: threading.Event) -> bool:
        """Put an item once there is room; return False if ``closed`` is set before."""
        while not closed.is_set():
            if self._items.qsize() < self._capacity:
                self._items.put(item)
                return True
            with suppress(Empty):
                self._bell.get(timeout=_LOOK_S)
        return False

    def get(self, timeout: float | None = None) -> Any:
        """Return the next item.

        Raises:
            queue.Empty: none came within ``timeout`` seconds.
        """
        item = self._items.get(timeout=timeout)
        if self._bell.empty():  # a ring that an interrupt swallows is made up for by the next look
            self._bell.put(None)
        return item
