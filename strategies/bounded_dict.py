"""A dict of bounded size."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(dict[K, V]):
    """Keeps the ``capacity`` entries that were set last: one more drops that which was set first.

    Several threads may set entries at once.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        while len(self) > self.capacity:
            with suppress(RuntimeError):  # another thread sets an entry meanwhile: look again
                self.pop(next(iter(self)), None)
