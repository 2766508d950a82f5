"""Messages between trainers and parameter servers, small typed records with arrays, and a server's interface.

A trainer numbers its steps from 1. Everything that it pushes bears the number of its step, so a server that
hears it twice applies it once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True)
class Hello:
    """A trainer joins, or joins again. ``digest`` tells servers and trainers of other programs apart."""

    trainer: int
    trainers: int
    digest: str


@dataclass(frozen=True)
class Welcome:
    """The number of the last step of this trainer that the server has applied (0: none)."""

    number: int


@dataclass(frozen=True)
class Push:
    """A gradient (or, in geo-SGD, a change) under the name that the server's program has for it.

    ``values``: the tensor, or rows [n, width] whose numbers are ``rows`` [n] int64 of a table
    ``height`` rows high.
    """

    trainer: int
    number: int
    name: str
    values: np.ndarray[Any, Any]
    rows: np.ndarray[Any, Any] | None = None
    height: int = 0


@dataclass(frozen=True)
class Barrier:
    """A trainer has pushed (``kind`` "send") or pulled ("fetch") all of a step; or it asks to wait.

    It waits until it may begin a step by the bound of staleness ("begin").
    """

    trainer: int
    number: int
    kind: str


@dataclass(frozen=True)
class Pull:
    """Asks for variables as they are once step ``number`` is applied (sync), or as they are now (async)."""

    trainer: int
    number: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Lookup:
    """Asks for rows ``ids`` [n] int64, numbered within the server's part of a table or of state."""

    trainer: int
    number: int
    table: str
    ids: np.ndarray[Any, Any]


@dataclass(frozen=True)
class Arrays:
    """Arrays by name: the answer to ``Pull``, and to ``Lookup`` under the table's name."""

    by_name: Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Save:
    """Asks a server to write its values into a folder that its host sees."""

    folder: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Goodbye:
    """A trainer has finished. A server whose trainers all have ends."""

    trainer: int


@dataclass(frozen=True)
class Ask:
    """Asks for a ``Report``."""


@dataclass(frozen=True)
class Report:
    """What a server has done and how stale its gradients were, as numbers and words by name."""

    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Taken:
    """Done, with no more to say."""


@dataclass(frozen=True)
class Refused:
    """An error of ``strategies/errors.py``, by the name of its class, to be raised at the trainer."""

    kind: str
    text: str


Single = Hello | Push | Barrier | Pull | Lookup | Save | Goodbye | Ask


@dataclass(frozen=True)
class Together:
    """Messages in one journey, done in order. The answer is the last one's, or the first refusal."""

    messages: tuple[Single, ...]


Message = Single | Together


def parts_of(message: Message) -> tuple[Single, ...]:
    """Return the messages in one journey: those together, or a single one."""
    return message.messages if isinstance(message, Together) else (message,)


Answer = Welcome | Taken | Arrays | Report | Refused


@dataclass(frozen=True)
class Snapshot:
    """All that a server needs to go on: its arrays, and its counters as plain data."""

    arrays: Mapping[str, np.ndarray[Any, Any]]
    counters: Mapping[str, Any]


class Service(Protocol):
    """A server, however messages reach it. Every method may be called by several threads at once."""

    @property
    def endpoint(self) -> str:
        """Where trainers find it, ``ip:port``."""

    def handle(self, message: Message) -> Answer:
        """Follow a message and answer it; may wait for other trainers, within the service's deadline.

        Of a push, it copies what it needs after its answer. Arrays that it answers may be memory that it works
        on: they stay as they are until the trainer pushes again.
        """

    def destination(
        self,
        trainer: int,
        number: int,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        lent: np.ndarray[Any, Any] | None = None,
    ) -> np.ndarray[Any, Any] | None:
        """Return the memory that a dense push will be put into, for a wire to receive it there.

        The ``Push`` that follows has this very array as its values. None: it would not be put anywhere as it
        is (it was taken before, is refused, or rows are pushed), so the wire receives it elsewhere. ``lent``:
        where it lies already; the service may work on that until it has answered.
        """

    def lost(self, trainer: int, reason: str) -> None:
        """Take note that a trainer died; callers that wait for it are told, or go on, as configured."""

    def snapshot(self) -> Snapshot:
        """Return a state between two updates."""

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a state."""

    def wait(self, within: float) -> bool:
        """Wait until all trainers have finished; tell whether they have.

        Raises:
            EnforceNotMet: the service ended for another reason, such as a lost trainer.
        """

    def stop(self, reason: str) -> None:
        """Refuse all that waits, and all that comes, for this reason."""


class Wire(Protocol):
    """How a trainer's process reaches servers by endpoint (``ip:port``).

    Several threads call it at once, each for another endpoint.
    """

    def call(self, endpoint: str, message: Message, within: float) -> Answer:
        """Return the answer. A server that restarts meanwhile is asked again: messages are numbered.

        Its arrays may be the server's own memory: they are to be read, and before the trainer pushes again.

        Raises:
            ServerLost: none came within ``within`` seconds.
            EnforceNotMet: the server refused; the error is of the class that it named.
            InvalidValue: the endpoint is not ``ip:port``.
            InvalidState: the wire was closed.
        """

    def close(self) -> None:
        """Hang up."""
