"""What travels between driver and replica, and what a replica needs of its collective group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ..plan.buckets import Collectives

KEPT = "kept"  # the kind of message that posts a place's own values of a step that is not the last


class Message(NamedTuple):
    """What travels between driver and replica: a kind, a head of plain data, arrays, the number of a step.

    ``lasting``: the arrays are places that are filled anew for each such message.
    """

    kind: str
    head: Mapping[str, Any]
    arrays: Sequence[np.ndarray] = ()
    step: int = 0
    lasting: bool = False


class Group(Collectives, Protocol):
    """A collective group as a replica uses it."""

    rank: int
    size: int
    local_size: int  # ranks on this host

    def begin(self, step: int) -> None:
        """Let the collectives from now on belong to this step (see :func:`pack_step`)."""
        ...

    def abort(self, reason: str) -> None:
        """Release every rank that waits; they raise CollectiveAborted."""
        ...

    def reset(self, epoch: int) -> None:
        """Make the group usable again; every rank calls it with the same number."""
        ...

    def close(self) -> None:
        """Let go of memory and peers."""
        ...
