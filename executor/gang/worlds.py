"""Worlds: trainers that met, what they tell each other, and the groups that their replicas form."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from ...strategies.errors import (
    CollectiveAborted,
    CollectiveError,
    ReplicaLost,
    RowlockError,
    TrainerLost,
)
from ...strategies.log import WaitLog
from ..host.deadline import Deadline
from ..replica import orders
from ..replica.message import Message
from .meeting import Looks, meet
from .replicas import Replicas
from .trainers import ENTRY, Card, Table, Trainers

_LAST_WORDS_S = 10.0  # for which trainers that stop wait for each other's reasons
_CURE = "The next run waits for all trainers to meet again, and begins with the values of the one furthest on."


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
            over, looks = False, Looks()
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
        return f"{ENTRY}/{self.name}/{what}/{trainer}"

    def explain(self, error: RowlockError) -> RowlockError:
        """Return what to raise for an error that ended the training of all: it names the trainer at fault.

        The others hear of it. The world is over: the next run meets the trainers anew.
        """
        witness = isinstance(error, CollectiveError) and not isinstance(error, ReplicaLost)
        self.ended = str(error)
        self._say_why(str(error), not witness, type(error).__name__)
        if not witness or isinstance(error, TrainerLost):
            return error
        heard = self._last_words()
        for t, said in heard.items():
            if said["at_fault"]:
                kind = TrainerLost if said["kind"] == ReplicaLost.__name__ else CollectiveError
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
                (said for said in heard.values() if said["kind"] == CollectiveError.__name__), None
            )
            error = CollectiveError(first["text"] if first else str(error))
        return CollectiveError(f"{error} {self._ranks()}")

    def _say_why(self, text: str, at_fault: bool, kind: str) -> None:
        """Leave the others this trainer's last words: why it stopped."""
        words = {"text": text, "at_fault": at_fault, "kind": kind}
        self._table.put(self._key("end", self.trainers.trainer), json.dumps(words).encode())

    def _ranks(self) -> str:
        parts = [
            f"{card}: ranks {self.first_rank(t)} to {self.first_rank(t) + card.places - 1}"
            for t, card in enumerate(self.cards)
        ]
        return f"({'; '.join(parts)})"

    def _last_words(self) -> dict[int, Any]:
        """Return the last words of trainers that stopped while they could still speak, by number."""
        heard: dict[int, Any] = {}
        deadline, looks = Deadline(_LAST_WORDS_S), Looks()
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
            self._say_why("it left, its training was over.", True, ReplicaLost.__name__)
        for key in self._left:
            self._table.delete(key)
        self._left.clear()
        key = self.trainers.key(self.trainers.trainer)
        entry = self._table.get(key)
        if entry is not None and Card.read(entry).nonce == self.own.nonce:
            self._table.delete(key)


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


class Worlds:
    """The groups of one gang, by their trainers. The caller has the gang's turn."""

    def __init__(self, gang: Replicas) -> None:
        self._gang = gang
        self._worlds: dict[Trainers, World] = {}

    def __bool__(self) -> bool:
        return bool(self._worlds)

    def of(self, trainers: Trainers) -> World | None:
        """Return the group of trainers, None if they have yet to meet; one that has ended is left."""
        world = self._worlds.get(trainers)
        if world is not None and world.ended is not None:
            self.part(world)
            return None
        return world

    def enter(
        self,
        trainers: Trainers,
        card: Card,
        table: Table,
        each: Callable[[Sequence[Message]], list[Message]],
    ) -> World:
        """Meet the trainers, and have all replicas form a group with theirs; ``each`` sends them messages.

        Raises:
            InvalidValue: trainers disagree about who they are.
            TrainerLost: one does not come within ``ClusterConfig.start_deadline_s``.
            CollectiveError: their replicas cannot form a group.
        """
        within, size = self._gang.config.start_deadline_s, self._gang.size
        world = World(trainers, meet(trainers, card, table, within), table)
        self._worlds[trainers] = world
        ranks = range(world.first, world.first + size)
        try:
            each(
                [orders.pack(orders.JoinTrainers(world.name, r, world.size, within)) for r in ranks]
            )
        except RowlockError as error:
            explained = world.explain(error)
            self.part(world)
            raise explained from error
        return world

    def part(self, world: World) -> None:
        """Have living replicas leave a group that has ended, and forget the programs that met in it."""
        gang = self._gang
        with gang.turn:
            if self._worlds.pop(world.trainers, None) is None:
                return
            loads = gang.ledger.programs.items()
            gang.ledger.programs = {n: p for n, p in loads if p.options.trainers != world.name}
            leave = gang.stamped(orders.pack(orders.LeaveTrainers(world.name, world.ended or "")))
            with contextlib.suppress(RowlockError):  # another loss is noticed at the next step
                if not gang.delivery.broken:
                    gang.some(dict.fromkeys(gang.delivery.alive, leave))

    def close(self) -> None:
        """Tell the other trainers that this one leaves."""
        for world in self._worlds.values():
            world.leave()
        self._worlds.clear()
