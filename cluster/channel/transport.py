"""Transport: what carries a gang's messages to its replicas, and brings back their answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from ...executor.gang.delivery import Outcome
from ...executor.replica.message import Message
from ...strategies.errors import CollectiveError

E = TypeVar("E")  # messages to replicas and what they answered


class Transport(ABC, Generic[E]):
    """Sends each replica its message, and gathers the answers in any order; several exchanges may be in flight.

    ``lost(rank)`` returns the error for a replica whose connection closed, ``late(ranks, seconds)`` the one for
    replicas that did not answer in time. ``watch(ranks)`` is called now and then while these have yet to
    answer, and raises if one never will.
    """

    def __init__(
        self,
        lost: Callable[[int], CollectiveError],
        late: Callable[[list[int], float], CollectiveError],
        watch: Callable[[list[int]], None] = lambda ranks: None,
    ) -> None:
        self._lost, self._late, self._watch = lost, late, watch
        self._number = 0
        self._under_way: dict[int, E] = {}

    def reserve(self) -> int:
        """Return a number for messages to be sent."""
        self._number = (self._number + 1) & 0xFFFFFFFF
        return self._number

    def knows(self, number: int) -> bool:
        """Tell whether messages of this number are in flight or answered, and not given up."""
        return number in self._under_way

    @abstractmethod
    def start(
        self, messages: Mapping[int, Message], within: float, number: int | None = None
    ) -> int:
        """Send messages by rank; return the number by which :meth:`finish` finds the answers.

        With a ``number`` from :meth:`reserve` the answers are kept until they are given up, else returned once.
        After an interrupt (Ctrl-C) every replica still gets its message, if any got one.

        Raises:
            CollectiveError: a replica is gone, or does not take in what was sent before.
        """

    @abstractmethod
    def finish(self, number: int, within: float) -> Mapping[int, Message]:
        """Wait for the answers; return them by rank, with what replicas posted before.

        After an interrupt (Ctrl-C) every replica still gets its message, so that all finish the step. The
        answers can be asked for again if the number was reserved, else they are discarded.

        Raises:
            CollectiveError: a replica is gone or late.
        """

    @abstractmethod
    def poll(self, number: int) -> bool:
        """Tell, without waiting, whether :meth:`finish` would return or raise at once."""

    @abstractmethod
    def give_up(self, number: int) -> None:
        """Discard these answers, now or when they arrive."""

    @abstractmethod
    def outcome(self, number: int, rank: int) -> Outcome:
        """Return what came of a message from a replica, even if that was lost since."""

    @abstractmethod
    def drain(self, ranks: set[int], within: float) -> None:
        """Wait until these replicas have answered everything."""

    @abstractmethod
    def hang_up(self, rank: int) -> None:
        """Neither send to a replica nor listen to it any more."""

    @abstractmethod
    def close(self) -> None:
        """Let go of every replica."""
