"""Going on without a lost replica: what happened is kept, what did not is done again.

A step happens on all replicas or on none (``graph/passes/commit.py``), so the living stand at the same step, or
some one step behind others that they can still finish: they came to the vote, and kept what was reduced. Once
they are even, others come in with the values of one of them, and the steps that did not happen are sent again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ..strategies.errors import CollectiveError, InvalidState, ReplicaLost, RowlockError
from .delivery import Mendable, Request
from .gang import Gang
from .message import Message

_log = logging.getLogger("rowlock")


class Recovery:
    """Mends one gang, as its configuration says (``on_failure``)."""

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self.ledger = gang.ledger
        self.delivery = cast(Mendable, gang.delivery)

    def after(self, lost: ReplicaLost) -> None:
        """A replica was lost just now: go on without it, or raise if that is not wanted.

        Raises:
            ReplicaLost: it is not to be replaced now, or too many were lost without a step in between.
        """
        began = time.monotonic()
        self.gang.epoch += 1
        self.ledger.uneven = True
        self.ledger.stale.update(lost.ranks)
        self._even(lost)
        self.ledger.failures += 1
        config = self.gang.config
        if config.on_failure == "raise" or self.ledger.failures > config.max_failures:
            self._give_up(lost)
            raise lost
        self.resume(lost)
        self._tell(lost, time.monotonic() - began)

    def resume(self, lost: ReplicaLost | None = None) -> None:
        """Bring others in, or go on with fewer; then send again what has not happened.

        Raises:
            ReplicaLost: too many more were lost meanwhile.
            InvalidState: a lost replica alone held some values.
        """
        while self.ledger.stale or self.ledger.torn or self.ledger.uneven:
            self.ledger.torn = True
            try:
                if self.ledger.uneven:  # an interrupt kept it from being found out
                    self._even(
                        lost or ReplicaLost("a replica was lost.", sorted(self.ledger.stale))
                    )
                self._check_owned()
                if self.gang.config.on_failure == "shrink":
                    self._shrink()
                else:
                    self._replace()
                self.ledger.torn = False
                for (
                    request
                ) in self.gang.under_way:  # what an interrupt leaves is sent by Gang._review
                    self.gang.send(request, ahead=True)
            except ReplicaLost as another:
                self.gang.epoch += 1
                self.ledger.failures += 1
                self.ledger.uneven = True
                self.ledger.stale.update(another.ranks)
                self._even(another)
                if self.ledger.failures > self.gang.config.max_failures:
                    self._give_up(another)
                    raise another from lost
            except RowlockError as error:  # there is no place for another one
                self._give_up(error)
                raise

    # -- where everybody stands ---------------------------------------------------------------------

    def _even(self, lost: ReplicaLost) -> None:
        """Bring the living to one step, and note which of the requests under way have happened."""
        furthest = self.level(lost)
        self.ledger.done = furthest
        for request in list(self.gang.under_way):
            known = self.delivery.knows(request.number)
            request.begun = request.begun or known
            done = request.passed(furthest)
            if request.votes and done == request.iterations:
                self._gather(request)
                self.gang.under_way.remove(request)
            elif request.begun:
                request.done = done
            else:  # an interrupt kept it from being sent
                request.failed = KeyboardInterrupt("interrupted before it was sent")
                self.gang.under_way.remove(request)
        self.ledger.uneven = False

    def level(self, cause: RowlockError) -> int:
        """Bring the living to one step, and return how many they have done.

        Raises:
            RowlockError: ``cause``, if nobody is left.
        """
        while True:
            try:
                self.delivery.settle()
                living = [r for r in self.delivery.alive if r not in self.ledger.stale]
                if not living:
                    self._give_up(cause)
                    self.gang.delivery.close()
                    raise cause
                stands = self._ask(dict.fromkeys(living, Message("inventory", {})))
                furthest = max(stands.values())
                behind = [rank for rank in living if stands[rank] < furthest]
                if behind:
                    roll = Message("settle", {"upto": furthest})
                    stands.update(self._ask(dict.fromkeys(behind, roll)))
                self.ledger.stale.update(r for r in behind if stands[r] < furthest)
                return furthest
            except ReplicaLost as another:
                if another is cause:
                    raise
                self.gang.epoch += 1
                self.ledger.stale.update(another.ranks)

    def _ask(self, messages: Mapping[int, Message]) -> dict[int, int]:
        """Ask replicas how many steps they have done."""
        answers = self.gang.some(messages)
        return {rank: answer.head["done"] for rank, answer in answers.items()}

    def _gather(self, request: Request) -> None:
        """Put together what a request that happened has fetched.

        What is known before the vote was posted by everybody. The rest follows from what all replicas have
        alike, so it is taken from one that answered.
        """
        ranks = range(len(request.shares))
        outcomes = [self.delivery.outcome(request.number, rank) for rank in ranks]
        request.done = request.iterations
        full = next((o for o in outcomes if o.answer and o.answer.kind == "fetched"), None)
        if full is None or full.answer is None:
            request.failed = CollectiveError(
                "the step happened, but no replica told what it fetched."
            )
            return
        fetched = []
        for rank, (posted, answer) in enumerate(outcomes):
            answered = answer is not None and answer.kind == "fetched"
            early = full.posted is not None or (full.answer.arrays and not self.delivery.posts)
            if not answered and posted is None and early:
                request.failed = CollectiveError(
                    f"the step happened, but what replica {rank} fetched was lost with it."
                )
                return
            fetched.append(whole(posted, answer if answered and answer else full.answer).arrays)
        request.fetched = fetched

    def _give_up(self, cause: RowlockError) -> None:
        for request in self.gang.under_way:
            request.failed = cause
        self.gang.under_way.clear()

    # -- others -------------------------------------------------------------------------------------

    def _check_owned(self) -> None:
        """Refuse to go on without values that a lost replica alone held."""
        gone = [
            name
            for owners in self.ledger.owners.values()
            for name, rank in owners.items()
            if rank in self.ledger.stale
        ]
        if gone:
            self.gang.delivery.close()
            names = ", ".join(sorted(gone)[:5]) + (", …" if len(gone) > 5 else "")
            raise InvalidState(
                f"with ReduceStrategy.Reduce a lost replica alone held {len(gone)} persistables ({names}). "
                f"Load a checkpoint, or run the startup program again; AllReduce keeps them everywhere."
            )

    def _replace(self) -> None:
        self.ledger.stale.update(self.delivery.replace())
        self._heal()
        for head in self.ledger.programs.values():
            self.gang.ask([Message("load", head)] * self.gang.size)

    def _shrink(self) -> None:
        gang, ledger, kept = self.gang, self.ledger, self.delivery.alive
        if kept == list(range(gang.size)):  # an interrupt struck after it was done
            self.delivery.shrink()
        else:
            owners = {
                scope: {name: kept.index(rank) for name, rank in by_name.items()}
                for scope, by_name in ledger.owners.items()
            }
            stale = {kept.index(rank) for rank in ledger.stale if rank in kept}
            self.delivery.shrink(
                (gang, "shrunk", [*gang.shrunk, kept]),
                (ledger, "stale", stale),
                (ledger, "owners", owners),
                (ledger, "programs", {}),
                *((request, "void", True) for request in gang.under_way),
                (gang, "under_way", []),
            )
        self._heal()

    def _heal(self) -> None:
        """Give those who lack them the values of one who has them."""
        stale = sorted(self.ledger.stale)
        if not stale:
            return
        source = next(r for r in range(self.gang.size) if r not in self.ledger.stale)
        names = self.gang.some({source: self._message("names")})[source].head["scopes"]
        for scope, held in names:
            owners = self.ledger.owners.get(scope, {})
            shared = [name for name in held if name not in owners]
            head = {"scope": scope, "names": shared}
            values = self.gang.some({source: self._message("read", **head)})[source].arrays
            self.gang.some(dict.fromkeys(stale, self._message("write", values, **head)))
        done = self._message("resume", done=self.ledger.done)
        self.gang.some(dict.fromkeys(stale, done))
        self.ledger.stale.clear()

    def _message(self, kind: str, arrays: Sequence[Any] = (), **head: object) -> Message:
        return Message(kind, {"epoch": self.gang.epoch, **head}, arrays)

    def _tell(self, lost: ReplicaLost, seconds: float) -> None:
        _log.warning(
            "%s Training goes on at step %d with %d replicas after %.2f s.",
            lost,
            self.ledger.done,
            self.gang.size,
            seconds,
        )


def whole(posted: Message | None, answer: Message) -> Message:
    """Return an answer with what was posted of it in its place."""
    if posted is None or answer.kind == "error":
        return answer
    late = iter(answer.arrays)
    early = dict(zip(posted.head["which"], posted.arrays, strict=True))
    count = len(early) + len(answer.arrays)
    return answer._replace(arrays=[early[i] if i in early else next(late) for i in range(count)])
