"""Trainers: several drivers that train one program, each with a gang; their cards, and where these lie."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple, Protocol

from ...strategies.endpoints import checked_endpoints

ENTRY = "trainers"  # of all that they leave on a table
ENDPOINTS = "PADDLE_TRAINER_ENDPOINTS"


def listed_endpoints() -> tuple[str, ...]:
    """Return the trainers' endpoints as the environment lists them; none without a list.

    Raises:
        InvalidValue: one is not ``ip:port``, or stands there twice.
    """
    listed = os.environ.get(ENDPOINTS, "").strip()
    return tuple(checked_endpoints(ENDPOINTS, listed)) if listed else ()


class Trainers(NamedTuple):
    """The trainers of a program by endpoint, and the number of this one; ``kind`` tells groups apart."""

    endpoints: tuple[str, ...]
    trainer: int
    kind: str = "places"

    @property
    def size(self) -> int:
        """Number of trainers."""
        return len(self.endpoints)

    def key(self, trainer: int) -> str:
        """Return where the card of a trainer lies."""
        return f"{ENTRY}/{self.kind}/{self.endpoints[trainer]}"


class Table(Protocol):
    """Where trainers leave word for each other."""

    def put(self, key: str, value: bytes) -> None:
        """Set a value."""

    def get(self, key: str) -> bytes | None:
        """Return a value, None without one."""

    def delete(self, key: str) -> None:
        """Forget a value."""


def _process_space() -> int:
    """Return the id of the process namespace: containers of one host have different ones."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


class LocalTable(Table):
    """A table for trainers that are threads of one process."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def put(self, key: str, value: bytes) -> None:
        self._values[key] = value

    def get(self, key: str) -> bytes | None:
        return self._values.get(key)

    def delete(self, key: str) -> None:
        self._values.pop(key, None)


@dataclass(frozen=True)
class Card:
    """A trainer's introduction; ``nonce`` is drawn for one meeting, ``seen`` are the others' nonces by number.

    ``processes`` tells in which space ``process`` is a number.
    """

    trainer: int
    endpoints: Sequence[str]
    places: int
    device: str
    libraries: Mapping[str, str]
    collectives: str = ""
    host: str = field(default_factory=socket.gethostname)
    process: int = field(default_factory=os.getpid)
    processes: int = field(default_factory=_process_space)
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))
    seen: Mapping[str, str] = field(default_factory=dict)
    beat: int = 0

    def __str__(self) -> str:
        return f"trainer {self.trainer} (process {self.process} on {self.host})"

    def packed(self) -> bytes:
        """Return the card as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, text: bytes) -> Card:
        """Return the card that :meth:`packed` made so."""
        return cls(**json.loads(text))

    def agrees(self, other: Card) -> str:
        """Return in what another trainer's card contradicts this one; empty: in nothing."""
        if list(self.endpoints) != list(other.endpoints):
            return f"the list of trainers is {list(self.endpoints)} and {list(other.endpoints)}"
        if self.device != other.device:
            return f"the places are {self.device}s and {other.device}s"
        if self.collectives != other.collectives:
            ours, theirs = self.collectives, other.collectives
            return f"ClusterConfig.collectives is {ours!r} and {theirs!r}"
        return ""
