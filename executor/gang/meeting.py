"""How trainers meet: each lays its card on a table, reads the others', and is through when all have read all.

So a card that an earlier run left behind, which answers nobody, is never taken for a trainer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from ...strategies.errors import InvalidValue, TrainerLost
from ...strategies.log import WaitLog
from ..host.deadline import Deadline
from .trainers import ENTRY, Card, Table, Trainers

_BEAT_S = 0.2  # how often a card that waits is laid anew
_LOOK_S = 0.005  # between the first looks at a table
_SELDOM_S = 0.25  # between looks after a long time
_SHARE = 0.125  # of the time since the last news: by how much news may be seen too late


class Looks:
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


def meet(trainers: Trainers, card: Card, table: Table, within: float) -> list[Card]:
    """Return the cards of all trainers, in order, once each has read those of all.

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
        self._looks = Looks()

    def wait(self, within: float) -> list[Card]:
        deadline, waiting = Deadline(within), WaitLog()
        self._lay()
        while True:
            self._look()
            if len(self.cards) == len(self.others) and self._all_read():
                return self._everyone()
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
        return None if entry is None else Card.read(entry)

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
        return f"{ENTRY}/refused/{card.nonce}"

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
