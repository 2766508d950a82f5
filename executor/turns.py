"""Whose turn it is: threads of the driver that share scopes and gangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .gang import Gang


class NeedsTurn(Exception):
    """Values are to be fetched from another gang, whose turn must be waited for together with one's own."""

    def __init__(self, gang: Gang) -> None:
        super().__init__()
        self.gang = gang


def in_turn(locks: Sequence[threading.RLock], call: Callable[[], None]) -> None:
    """Call with these locks, taken in this order.

    They are taken by plain ``with`` statements: an interrupt leaves none of them taken.
    """
    if not locks:
        call()
        return
    with locks[0]:
        in_turn(locks[1:], call)
