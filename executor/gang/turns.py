"""Turns: the locks of scopes and gangs, which threads of the driver take in one order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol, TypeAlias

from ...strategies.errors import InvalidState


class HasTurn(Protocol):
    """A gang whose lock is taken."""

    turn: Lock

    def go_on(self) -> None:
        """Have the owners of void requests split and send them anew, in order; called without the lock."""


class NeedsTurn(Exception):
    """The call needs values of another gang: its lock must be taken together with the caller's own."""

    def __init__(self, gang: HasTurn) -> None:
        super().__init__()
        self.gang = gang


class Refusal:
    """Stands for the lock in a forked process, which may not use its parent's replicas: it cannot be taken."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __enter__(self) -> NoReturn:
        raise InvalidState(self.reason)

    def __exit__(self, *raised: object) -> None:
        """Do nothing: it was never taken."""

    def acquire(self, blocking: bool = True) -> NoReturn:
        """Raise InvalidState with the reason."""
        raise InvalidState(self.reason)

    def release(self) -> None:
        """Do nothing: it was never taken."""

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
