"""Trainers: several drivers that train one program, each with a gang. How they meet, and learn of losses.

Each lays a card where all can see it (a :class:`Table`), reads the others', and is through when all have read
all; so a card that an earlier run left behind, which answers nobody, is never taken for a trainer.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, NoReturn, Protocol

from ...strategies.endpoints import checked_endpoints
from ...strategies.errors import (
    CollectiveAborted,
    CollectiveError,
    InvalidValue,
    ReplicaLost,
    RowlockError,
    TrainerLost,
)
from ...strategies.log import WaitLog
from ..host.deadline import Deadline

_BEAT_S = 0.2  # how often a card that waits is laid anew
_LOOK_S = 0.005  # between the first looks at a table
_SELDOM_S = 0.25  # between looks after a long time
_SHARE = 0.125  # of the time since the last news: by how much news may be seen too late
_LAST_WORDS_S = 10.0  # for which trainers that stop wait for each other's reasons
_ENTRY = "trainers"
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
        return f"{_ENTRY}/{self.kind}/{self.endpoints[trainer]}"


class Table(Protocol):
    """Where trainers leave word for each other."""

    def put(self, key: str, value: bytes) -> None:
        """Set a value."""

    def get(self, key: str) -> bytes | None:
        """Return a value, None without one."""

    def delete(self, key: str) -> None:
        """Forget a value."""


class _Looks:
    """Pauses between looks at a table: short where news is fresh, longer the longer there is none."""

    def __init__(self) -> None:
        self.news()

    def news(self) -> None:
        """Note that something changed: more may follow soon."""
        self._since = time.monotonic()

    def pause(self) -> None:
        """Wait for the next look."""
        waited = time.monotonic() - self._since
        time.sleep(min(max(_LOOK_S, _SHARE * waited), _SELDOM_S))


def _process_space() -> int:
    """Return the id of the process namespace: containers of one host have different ones."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


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


def meet(trainers: Trainers, card: Card, table: Table, within: float) -> World:
    """Return the world of all trainers once each has read the cards of all.

    Raises:
        InvalidValue: two drivers are the same trainer, or trainers disagree about who they are.
        TrainerLost: one does not come within so many seconds.
    """
    return _Meeting(trainers, card, table).wait(within)


class _Meeting:
    """One trainer's way to a meeting."""

    def __init__(self, trainers: Trainers, card: Card, table: Table) -> None:
        self.trainers, self.card, self.table = trainers, card, table
        self.others = [t for t in range(trainers.size) if t != trainers.trainer]
        self.cards: dict[int, Card] = {}
        self._first: dict[int, Card] = {}  # as each was when it was seen first
        self._laid = 0.0
        self._looks = _Looks()

    def wait(self, within: float) -> World:
        deadline, waiting = Deadline(within), WaitLog()
        self._lay()
        while True:
            self._look()
            if len(self.cards) == len(self.others) and self._all_read():
                return World(self.trainers, self._everyone(), self.table)
            if deadline.over:
                self._give_up(within)
            waiting.look(f"trainer {self._named(self._missing())}")
            self._looks.pause()

    def _everyone(self) -> list[Card]:
        return [self.cards.get(t, self.card) for t in range(self.trainers.size)]

    def _all_read(self) -> bool:
        nonces = {str(card.trainer): card.nonce for card in self._everyone()}
        return all(
            other.seen == {t: nonce for t, nonce in nonces.items() if t != str(other.trainer)}
            for other in self.cards.values()
        )

    def _lay(self) -> None:
        self._laid = time.monotonic()
        self.card = replace(self.card, beat=self.card.beat + 1)
        self.table.put(self.trainers.key(self.card.trainer), self.card.packed())

    def _look(self) -> None:
        """Read all cards; lay the own one anew if it has news, or for a sign of life."""
        self._check_own()
        for t in self.others:
            card = self._read(t)
            if card is None:
                continue
            first = self._first.setdefault(t, card)
            if first.nonce != card.nonce:
                first = self._first[t] = card
            problem = self.card.agrees(card) or (
                "" if card.trainer == t else "its number is another"
            )
            if not problem:
                if (known := self.cards.get(t)) is None or known.seen != card.seen:
                    self._looks.news()
                self.cards[t] = card
            elif card.beat != first.beat or self.card.nonce in card.seen.values():  # it is alive
                self._refuse(
                    f"{self.card} and {card} disagree: {problem}. Give all the same.", card
                )
        seen = {str(t): card.nonce for t, card in self.cards.items()}
        if seen != self.card.seen or time.monotonic() - self._laid > _BEAT_S:
            self.card = replace(self.card, seen=seen)
            self._lay()

    def _read(self, trainer: int) -> Card | None:
        entry = self.table.get(self.trainers.key(trainer))
        return None if entry is None else Card(**json.loads(entry))

    def _check_own(self) -> None:
        """Raise if another driver refused this one, or laid its card in this one's place."""
        reason = self.table.get(self._refusal(self.card))
        if reason is not None:
            self.table.delete(self._refusal(self.card))
            raise InvalidValue(reason.decode())
        own = self._read(self.card.trainer)
        if own is not None and own.nonce != self.card.nonce:
            endpoint = self.trainers.endpoints[self.card.trainer]
            self._refuse(
                f"two drivers are trainer {self.card.trainer} ({endpoint}): process {own.process} on "
                f"{own.host} and process {self.card.process} on {self.card.host}. Give each its own "
                f"trainer_id.",
                own,
            )

    def _refusal(self, card: Card) -> str:
        return f"{_ENTRY}/refused/{card.nonce}"

    def _refuse(self, text: str, culprit: Card) -> NoReturn:
        """Raise, and have all that are there raise the same."""
        others = [self._read(t) for t in self.others]
        for card in (culprit, *(card for card in others if card is not None)):
            self.table.put(self._refusal(card), text.encode())
        raise InvalidValue(text)

    def _missing(self) -> list[int]:
        """Return the trainers that did not read this one's card."""
        return [
            t
            for t in self.others
            if t not in self.cards or self.card.nonce not in self.cards[t].seen.values()
        ]

    def _named(self, trainers: Sequence[int]) -> str:
        return ", ".join(f"{t} ({self.trainers.endpoints[t]})" for t in trainers or self.others)

    def _give_up(self, within: float) -> NoReturn:
        self.table.delete(self.trainers.key(self.card.trainer))
        missing = self._missing()
        raise TrainerLost(
            f"trainer {self._named(missing)} did not come within {within:g} s "
            f"(ClusterConfig.start_deadline_s); {self.trainers.size - len(missing)} of {self.trainers.size} "
            f"are here. Start every trainer, with the same list of endpoints and on the same Ray cluster "
            f"(RAY_ADDRESS), or give them longer."
        )


class World:
    """The trainers that met: their cards, and the name of the group that their replicas form.

    Ranks are numbered by trainer, then by place.
    """

    def __init__(self, trainers: Trainers, cards: Sequence[Card], table: Table) -> None:
        self.trainers, self.cards, self._table = trainers, list(cards), table
        nonces = " ".join(card.nonce for card in cards)
        self.name = f"rowlock-trainers-{hashlib.sha256(nonces.encode()).hexdigest()[:24]}"
        self.first = sum(card.places for card in cards[: trainers.trainer])
        self.size = sum(card.places for card in cards)
        self.ended: str | None = None
        self.programs = 0  # that were agreed on
        self._left: list[str] = []

    @property
    def own(self) -> Card:
        """The card of this trainer."""
        return self.cards[self.trainers.trainer]

    def first_rank(self, trainer: int) -> int:
        """Return the rank of a trainer's first replica."""
        return sum(card.places for card in self.cards[:trainer])

    def libraries(self) -> frozenset[str]:
        """Return the libraries that all replicas of all trainers have in one version."""
        shared = set(self.own.libraries.items())
        for card in self.cards:
            shared &= set(card.libraries.items())
        return frozenset(name for name, _ in shared)

    def exchange(self, what: str, value: Any, within: float) -> list[Any]:
        """Return every trainer's value, in order; all call this for the same things in the same order.

        Raises:
            TrainerLost: one does not come, or has ended.
        """
        mine = self._key(what, self.trainers.trainer)
        self._left.append(mine)
        self._table.put(mine, json.dumps(value).encode())
        deadline, values, waiting = Deadline(within), [], WaitLog()
        for t, card in enumerate(self.cards):
            over, looks = False, _Looks()
            while (entry := self._table.get(self._key(what, t))) is None:
                if over:
                    raise TrainerLost(f"{card} has ended; it was waited for to agree on {what}.")
                # Looked at again once it has ended: its value may have come just before that.
                over = self._ended(t)
                waiting.look(f"{card} to agree on {what}")
                if deadline.over:
                    raise TrainerLost(
                        f"{card} did not come within {within:g} s to agree on {what}."
                    )
                looks.pause()
            values.append(json.loads(entry))
        return values

    def _ended(self, trainer: int) -> bool:
        end = self._table.get(self._key("end", trainer))
        return end is not None or _is_dead(self.cards[trainer], self.own)

    def _key(self, what: str, trainer: int) -> str:
        return f"{_ENTRY}/{self.name}/{what}/{trainer}"

    def explain(self, error: RowlockError) -> RowlockError:
        """Return what to raise for an error that ended the training of all: it names the trainer at fault.

        The others hear of it. The world is over: the next run meets the trainers anew.
        """
        witness = isinstance(error, CollectiveError) and not isinstance(error, ReplicaLost)
        self.ended = str(error)
        words = {"text": str(error), "at_fault": not witness, "kind": type(error).__name__}
        self._table.put(self._key("end", self.trainers.trainer), json.dumps(words).encode())
        if not witness or isinstance(error, TrainerLost):
            return error
        heard = self._last_words()
        for t, said in heard.items():
            if said["at_fault"]:
                kind = TrainerLost if said["kind"] == "ReplicaLost" else CollectiveError
                return kind(f"{self.cards[t]} stopped: {said['text']} {_CURE}")
        silent = [card for t, card in enumerate(self.cards) if t not in heard]
        if silent:
            named = ", ".join(
                f"{card} {'has ended' if _is_dead(card, self.own) else 'does not answer'}"
                for card in silent
            )
            return TrainerLost(f"{named}. {error} {_CURE}")
        if isinstance(error, CollectiveAborted):
            first = next(
                (said for said in heard.values() if said["kind"] == "CollectiveError"), None
            )
            error = CollectiveError(first["text"] if first else str(error))
        return CollectiveError(f"{error} {self._ranks()}")

    def _ranks(self) -> str:
        parts = [
            f"{card}: ranks {self.first_rank(t)} to {self.first_rank(t) + card.places - 1}"
            for t, card in enumerate(self.cards)
        ]
        return f"({'; '.join(parts)})"

    def _last_words(self) -> dict[int, Any]:
        """Return the last words of trainers that stopped while they could still speak, by number."""
        heard: dict[int, Any] = {}
        deadline, looks = Deadline(_LAST_WORDS_S), _Looks()
        while True:
            waiting = False
            for t, card in enumerate(self.cards):
                entry = None if t in heard else self._table.get(self._key("end", t))
                if entry is not None:
                    heard[t] = json.loads(entry)
                elif t not in heard:
                    waiting = waiting or not _is_dead(card, self.own)
            at_fault = any(said["at_fault"] for said in heard.values())
            if at_fault or not waiting or deadline.over:
                return heard
            looks.pause()

    def leave(self) -> None:
        """Tell the others that this trainer ended, and remove its messages to them."""
        if self.ended is None:
            self.ended = "this trainer left"
            words = {
                "text": "it left, its training was over.",
                "at_fault": True,
                "kind": "ReplicaLost",
            }
            self._table.put(self._key("end", self.trainers.trainer), json.dumps(words).encode())
        for key in self._left:
            self._table.delete(key)
        self._left.clear()
        key = self.trainers.key(self.trainers.trainer)
        entry = self._table.get(key)
        if entry is not None and Card(**json.loads(entry)).nonce == self.own.nonce:
            self._table.delete(key)


_CURE = "The next run waits for all trainers to meet again, and begins with the values of the one furthest on."


def _is_dead(card: Card, own: Card) -> bool:
    """Tell whether a trainer's process is known to have ended; never of one on another host."""
    if (card.host, card.processes) != (own.host, own.processes) or card.process == own.process:
        return False
    try:
        os.kill(card.process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


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
