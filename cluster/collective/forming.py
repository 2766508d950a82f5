"""Form a group: how long its ranks wait for each other, and how they learn that one will not come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from ...strategies.errors import CollectiveAborted, CollectiveError
from ..primitives import ray_private
from .rendezvous import never_ended

_LOOK_S = 0.05


class Terms(NamedTuple):
    """``forming_s``: for how long a rank waits for others to join; ``collective_s``: later, for memory and the
    like. ``ended()`` returns why the driver gave the group up, for good (None: it did not).
    """

    forming_s: float = 60.0
    collective_s: float = 60.0
    ended: Callable[[], str | None] = never_ended


class Forming:
    """What ranks tell each other while a group forms: that one gave up. A formed group has its own ways."""

    def __init__(self, name: str, terms: Terms) -> None:
        self.terms = terms
        self.under_way = True
        self._key = f"group/{name}/given up"
        self._looked = 0.0
        self._reason: str | None = None

    def ended(self) -> str | None:
        """Return why the group was given up: by the driver, or by a rank while it formed. None: it was not."""
        reason = self.terms.ended()
        if reason is not None or not self.under_way:
            return reason
        if self._reason is None and time.monotonic() - self._looked > _LOOK_S:
            self._looked = time.monotonic()
            text = ray_private.get(self._key)
            self._reason = text.decode(errors="replace") if text else None
        return self._reason

    def refuse_ended(self) -> None:
        """Raise CollectiveAborted if the group was given up."""
        if (reason := self.ended()) is not None:
            raise CollectiveAborted(f"forming the group was aborted: {reason}")

    def give_up(self, rank: int, error: BaseException) -> None:
        """Tell the other ranks that this one cannot join; that it heard so of another is no news."""
        if not isinstance(error, CollectiveAborted):
            text = str(error) if isinstance(error, CollectiveError) else repr(error)
            reason = f"rank {rank} failed: {text}"
            ray_private.put(self._key, reason.encode())
