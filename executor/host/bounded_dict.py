"""A dict of bounded size."""

from __future__ import annotations

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
        if len(self) > self.capacity:
            self.pop(next(iter(list(self))), None)
