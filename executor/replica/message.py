"""Message: what a driver and a replica send each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

KEPT = "kept"  # the kind of message that posts a place's own values of a step that is not the last


class StepHead(dict[str, Any]):
    """The head of a step, or of several that are alike but for their numbers and what their arrays hold.

    ``text`` is what it is on the way, and ``order`` the record that it holds, once they are known.
    """

    text = b""
    order: Any = None


class Message(NamedTuple):
    """What travels between driver and replica: a kind, a head of plain data, arrays, the number of a step.

    ``lasting``: the arrays are places that are filled anew for each such message.
    """

    kind: str
    head: Mapping[str, Any]
    arrays: Sequence[np.ndarray] = ()
    step: int = 0
    lasting: bool = False


class Stacked(Sequence[list[np.ndarray]]):
    """The arrays of ``count`` ranks: each of ``arrays`` has the ranks in front, or 1 if all have the same."""

    def __init__(self, arrays: Sequence[np.ndarray], count: int) -> None:
        self.arrays, self._count = arrays, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, rank: Any) -> Any:
        if isinstance(rank, slice):
            return [self[place] for place in range(*rank.indices(self._count))]
        if not 0 <= rank < self._count:
            raise IndexError(rank)
        return [array[rank if len(array) > 1 else 0] for array in self.arrays]


class StackedMessages(Mapping[int, Message]):
    """Messages of one kind and step to, or from, ranks from 0 on, each with a head of its own."""

    def __init__(
        self, kind: str, heads: Sequence[Mapping[str, Any]], arrays: Stacked, step: int = 0
    ) -> None:
        self.kind, self.heads, self.arrays, self.step = kind, heads, arrays, step

    def __len__(self) -> int:
        return len(self.heads)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.heads)))

    def __getitem__(self, rank: int) -> Message:
        if rank not in range(len(self.heads)):
            raise KeyError(rank)
        return Message(self.kind, self.heads[rank], self.arrays[rank], self.step)
