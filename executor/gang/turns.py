"""Whose turn it is: threads of the driver that share scopes and gangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol, TypeAlias

from ...strategies.errors import InvalidState


class HasTurn(Protocol):
    """A gang, as what must be waited for."""

    turn: Lock

    def go_on(self) -> None:
        """Have steps that became void split anew, and sent, in order; called without the turn."""
        ...


class NeedsTurn(Exception):
    """Values are to be fetched from another gang, whose turn must be waited for together with one's own."""

    def __init__(self, gang: HasTurn) -> None:
        super().__init__()
        self.gang = gang


class Refusal:
    """Stands in a forked process for the lock of what answers its parent alone: it cannot be taken."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __enter__(self) -> NoReturn:
        raise InvalidState(self.reason)

    def __exit__(self, *raised: object) -> None:
        """It was never taken."""

    def acquire(self, blocking: bool = True) -> NoReturn:
        """Refuse."""
        raise InvalidState(self.reason)

    def release(self) -> None:
        """It was never taken."""

    def _is_owned(self) -> bool:
        return False


Lock: TypeAlias = "threading.RLock | Refusal"


def in_turn(locks: Sequence[Lock], call: Callable[[], None]) -> None:
    """Call with these locks, taken in this order.

    They are taken by plain ``with`` statements: an interrupt leaves none of them taken.
    """
    if not locks:
        call()
        return
    with locks[0]:
        in_turn(locks[1:], call)
