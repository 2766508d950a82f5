"""Going on without a lost replica: what happened is kept, what did not is done again.

A step happens on all replicas or on none (``graph/passes/commit.py``), so the living stand at the same step, or
some one step behind others that they can still finish: they came to the vote, and kept what was reduced. Once
they are even, others come in with the values of one of them, and the steps that did not happen are sent again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from ...strategies.errors import (
    CollectiveError,
    InvalidState,
    PlacementError,
    ReplicaLost,
    RowlockError,
    ValuesLost,
    first_of,
)
from ..replica import orders
from ..replica.message import Message
from .assign import assign
from .delivery import VALUES_GONE, Mendable, Outcome, Request
from .libraries import deviations
from .replicas import Replicas

_log = logging.getLogger("rowlock")
_SHRINK = 'ClusterConfig(on_failure="shrink") goes on without a lost replica.'
_CURE = f'Run again; {_SHRINK.rstrip(".")}, "replace" with another.'


class Recovery:
    """Mends one gang, as its configuration says (``on_failure``)."""

    def __init__(self, gang: Replicas) -> None:
        self.gang = gang
        self.ledger = gang.ledger
        self.delivery = cast(Mendable, gang.delivery)

    def after(self, lost: ReplicaLost) -> None:
        """Go on without a replica that was lost just now, or raise if that is not wanted.

        Raises:
            ReplicaLost: it is not to be replaced now, or too many were lost without a step in between.
        """
        began = time.monotonic()
        self.ledger.loss = str(lost)
        self._note(lost)
        self._even(lost)
        self.ledger.failures += 1
        config, together = self.gang.config, self.gang.meets_trainers
        if config.on_failure == "raise" and not together:
            lost.args = (f"{lost} {_CURE}",)
        stops = config.on_failure == "raise" or together
        if stops or self.ledger.failures > config.max_failures:
            self._give_up(lost)
            raise lost
        self.resume(lost)
        self._tell(lost, time.monotonic() - began)

    def resume(self, lost: ReplicaLost | None = None) -> None:
        """Bring others in, or go on with fewer; then send again the steps that have not happened.

        Raises:
            ReplicaLost: too many more were lost meanwhile.
            InvalidState: a lost replica alone held some values.
            PlacementError: there is no place for another; the next run looks for one again.
        """
        ledger, gang = self.ledger, self.gang
        while ledger.stale or ledger.torn or ledger.uneven:
            ledger.torn = True
            self._find_out(lost)
            try:
                self._check_owned()
                if gang.config.on_failure == "shrink":
                    self._shrink()
                else:
                    self._replace()
                self._reload()
                ledger.torn = False  # now: Lockstep._review sends what an interrupt leaves
                for user in self._users():
                    for request in user.under_way:
                        user.send(request, ahead=True)
            except ReplicaLost as another:
                self._note(another)
                ledger.failures += 1
                self._even(another)
                if ledger.failures > gang.config.max_failures:
                    self._give_up(another)
                    raise another from lost
            except RowlockError as error:
                if isinstance(error, CollectiveError) and gang.config.on_failure != "shrink":
                    cure = f" {_SHRINK}" * isinstance(error, PlacementError)
                    error.args = (f"{self._loss} It cannot be replaced: {error}{cure}",)
                self._give_up(error)
                raise

    @property
    def _loss(self) -> str:
        return self.ledger.loss or "A replica was lost."

    def _note(self, lost: ReplicaLost) -> None:
        """Note that replicas were lost: the living have to be brought to one step, and to join a group."""
        self.gang.epoch += 1
        self.ledger.uneven = self.ledger.torn = True
        self.ledger.stale.update(lost.ranks)

    def _find_out(self, lost: ReplicaLost | None) -> None:
        """Find out where the living stand if an interrupt kept us from it."""
        stale = self.ledger.stale
        missing = set(range(self.gang.size)).difference(self.delivery.alive, stale)
        if missing:
            self.ledger.uneven = True
            stale.update(missing)
        if self.ledger.uneven:
            self._even(lost or ReplicaLost("a replica was lost.", sorted(stale)))

    # -- where everybody stands ---------------------------------------------------------------------

    def _even(self, lost: ReplicaLost) -> None:
        """Bring the living to one step, and note which of the requests under way have happened."""
        furthest = self.level(lost)
        self.ledger.done = furthest
        for user in self._users():
            user.settle(lost)
        for request in list(self.gang.under_way):
            if request.settled:  # an interrupt kept it from being done with
                self.gang.under_way.remove(request)
                continue
            request.begun = request.begun or self.delivery.knows(request.number)
            done = request.passed(furthest)
            if request.votes and done == request.iterations:
                self._gather(request)
                self.gang.under_way.remove(request)
            elif request.begun:
                if done > request.done and request.results.own_names:
                    self._gather_own(request, furthest)
                request.done = done
            else:  # an interrupt kept it from being sent
                self.gang.withdraw(request)
        self.ledger.uneven = False

    def level(self, cause: BaseException) -> int:
        """Bring the living to one step, and return how many they have done.

        Raises:
            ValuesLost: none is left of those that had the values.
        """
        while True:
            try:
                self.delivery.drain()
                living = [r for r in self.delivery.alive if r not in self.ledger.stale]
                if not living:
                    break
                stands = self._steps_done(living, orders.Inventory())
                furthest = max(stands.values())
                behind = [rank for rank in living if stands[rank] < furthest]
                if behind:
                    stands |= self._steps_done(behind, orders.RollForward(furthest))
                self.ledger.stale.update(r for r in behind if stands[r] < furthest)
                return furthest
            except ReplicaLost as another:
                self.gang.epoch += 1
                self.ledger.stale.update(another.ranks)
        ranks = sorted(self.ledger.stale)
        error = ValuesLost(f"{cause} No other replica is left: {VALUES_GONE}", ranks)
        self._give_up(error)
        self.gang.delivery.close()
        raise error from cause

    def _ask(
        self, ranks: Iterable[int], order: orders.Order, arrays: Sequence[Any] = ()
    ) -> Mapping[int, Message]:
        """Return the answers of these replicas to an order."""
        message = self.gang.stamped(orders.pack(order, arrays))
        return self.gang.some(dict.fromkeys(ranks, message))

    def _steps_done(self, ranks: Sequence[int], order: orders.Order) -> dict[int, int]:
        """Return how many steps each of these replicas has done, once it has followed an order."""
        return {rank: answer.head["done"] for rank, answer in self._ask(ranks, order).items()}

    def _gather(self, request: Request) -> None:
        """Put together the fetches of a request that happened.

        A replica's own values were posted before the vote. Values that all have alike are taken from one that
        answered; the others are lost with the replica.
        """
        outcomes = self._outcomes(request)
        answers = [_whole(outcome) for outcome in outcomes]
        full = next((answer for answer in answers if answer is not None), None)
        if full is None:
            if request.results.own_names:
                self.ledger.place_values.aged(range(len(outcomes)))
            unknown = CollectiveError(
                "the step happened, but no replica is left that tells what was fetched."
            )
            assign((request, "done", request.iterations), (request, "failed", unknown))
            return
        alike = {i: full[i] for i in range(len(full)) if request.results.is_alike(i)}
        wanted = len(full) - len(request.results.own_names)
        fetched: list[Sequence[np.ndarray]] = []
        failed: CollectiveError | None = None
        for rank, (outcome, answer) in enumerate(zip(outcomes, answers, strict=True)):
            own = dict(enumerate(answer)) if answer is not None else _early(outcome.posted)
            known = {**alike, **own}
            if any(i not in known for i in range(wanted)):
                failed = failed or CollectiveError(
                    f"the step happened, but what replica {rank} fetched was lost with it."
                )
            self._keep(request, rank, [known.get(i) for i in range(wanted, len(full))])
            fetched.append([known[i] for i in range(wanted) if i in known])
        assign(
            (request, "done", request.iterations),
            (request, "fetched", fetched if failed is None else None),
            (request, "failed", failed),
        )

    def _gather_own(self, request: Request, done: int) -> None:
        """Keep each place's own values as they were after so many steps, within a request."""
        for rank, outcome in enumerate(self._outcomes(request)):
            own = outcome.own_values.get(done, [None] * len(request.results.own_names))
            self._keep(request, rank, own)

    def _outcomes(self, request: Request) -> list[Outcome]:
        return [self.delivery.outcome(request.number, r) for r in range(len(request.shares))]

    def _keep(self, request: Request, rank: int, own: Sequence[np.ndarray | None]) -> None:
        """Keep a place's own values, or note that they did not arrive; safe to repeat after an interrupt."""
        values = {
            name: array
            for name, array in zip(request.results.own_names, own, strict=True)
            if array is not None
        }
        self.ledger.place_values.put(request.results.scope, rank, values)
        if len(values) < len(own):
            self.ledger.place_values.aged([rank])

    def _give_up(self, cause: RowlockError) -> None:
        for user in self._users():
            user.under_way = [request for request in user.under_way if not request.settled]
            user.fail(cause)

    def _users(self) -> list[Replicas]:
        """Return everyone with programs loaded and steps under way: the gang, and its single replicas."""
        return [self.gang, *self.gang.singles.values()]

    # -- others -------------------------------------------------------------------------------------

    def _check_owned(self) -> None:
        """Refuse to go on without values that a lost replica alone held."""
        lost_names = [
            name
            for owners in self.ledger.owners.values()
            for name, rank in owners.items()
            if rank in self.ledger.stale
        ]
        if lost_names:
            self.gang.delivery.close()
            raise InvalidState(
                f"{self._loss} With ReduceStrategy.Reduce a lost replica alone held {len(lost_names)} "
                f"persistables ({first_of(sorted(lost_names))}). Load a checkpoint, or run the startup program "
                f"again; AllReduce keeps them everywhere."
            )

    def _replace(self) -> None:
        self.ledger.stale.update(self.delivery.replace())
        self.delivery.regroup()
        self._check_libraries()
        self._heal()

    def _check_libraries(self) -> None:
        """Refuse those that came in and would compute other bits than the gang.

        Raises:
            ReplicaLost: some were refused.
        """
        agreed = self.ledger.libraries
        if not agreed or not self.ledger.stale:
            return
        unfit = {}
        for rank, answer in self._ask(sorted(self.ledger.stale), orders.Libraries()).items():
            versions = orders.Versions(**answer.head).versions
            if reason := deviations(versions, agreed):
                unfit[rank] = reason
        if unfit:
            raise self.delivery.refuse(unfit)

    def _shrink(self) -> None:
        gang, ledger, alive = self.gang, self.ledger, self.delivery.alive
        owners = {
            scope: {name: alive.index(rank) for name, rank in by_name.items()}
            for scope, by_name in ledger.owners.items()
        }
        self.delivery.shrink(
            (gang, "shrunk", [*gang.shrunk, alive]),
            (ledger, "stale", {alive.index(rank) for rank in ledger.stale if rank in alive}),
            (ledger, "owners", owners),
            *ledger.place_values.renumbered(alive),
            (ledger, "programs", {}),
            *gang.voiding(),
        )
        self.delivery.regroup()  # last: if one more is lost, all is as the others are numbered now
        self._heal()

    def _reload(self) -> None:
        """Load the programs that were loaded before the replicas formed this group; forget lost single ones."""
        singles = self.gang.singles.items()
        for _, single in singles:
            single.follow()
        self.gang.singles = {place: s for place, s in singles if not s.delivery.broken}
        for user in self._users():
            for load in user.ledger.programs.values():
                if not load.options.trainers:  # those are loaded when the trainers meet again
                    user.ask([orders.pack(load)] * user.size)

    def _heal(self) -> None:
        """Give stale replicas the values of a healthy one, and each place its own values back."""
        stale = sorted(self.ledger.stale)
        if not stale:
            return
        source = next((r for r in range(self.gang.size) if r not in self.ledger.stale), None)
        if source is None:
            raise ReplicaLost("no replica that has the values is left.", stale)
        names = self._ask([source], orders.Names())[source]
        singles = self.gang.singles.values()
        alone = {load.scope for s in singles for load in s.ledger.programs.values()}
        for scope, persistables in orders.PersistableNames(**names.head).scopes:
            if scope in alone:
                continue
            owners = self.ledger.owners.get(scope, {})
            shared = [name for name in persistables if name not in owners]
            values = self._ask([source], orders.Read(scope, shared))[source].arrays
            self._ask(stale, orders.Write(scope, shared), values)
            for rank in stale:
                self._give_back(scope, rank, source)
        self._ask(stale, orders.Resume(self.ledger.done))
        self.ledger.place_values.old.difference_update(stale)
        self.ledger.stale.clear()

    def _give_back(self, scope: int, rank: int, source: int) -> None:
        """Give a place its own values back, and warn of those that differ."""
        values = self.ledger.place_values
        own = values.of(scope, rank)
        if own:
            self._ask([rank], orders.Write(scope, list(own)), list(own.values()))
        large = values.too_large.get(scope)
        if large:
            self._warn(rank, large, f"replica {source} has")
        if own and rank in values.old:
            self._warn(rank, own, "it had a step or more before it was lost")

    def _warn(self, rank: int, names: Collection[str], which: str) -> None:
        _log.warning(
            "Replica %d goes on with other values of %d persistable(s) that each place has for itself (%s) "
            "than it would have had: those that %s.",
            *(rank, len(names), first_of(sorted(names), 3), which),
        )

    def _tell(self, lost: ReplicaLost, seconds: float) -> None:
        _log.warning(
            "%s Training goes on at step %d with %d replica%s after %.2f s.",
            *(lost, self.ledger.done, self.gang.size, "s" * (self.gang.size != 1), seconds),
        )


def _early(posted: Message | None) -> dict[int, np.ndarray]:
    """Return the arrays posted before the answer, by position in the fetch list."""
    if posted is None:
        return {}
    return dict(zip(orders.EarlyFetches(**posted.head).which, posted.arrays, strict=True))


def _whole(outcome: Outcome) -> Sequence[np.ndarray] | None:
    """Return all that a replica fetched, if it answered."""
    answer = outcome.answer
    if answer is None or answer.kind != "fetched":
        return None
    return whole(outcome.posted, answer).arrays


def whole(posted: Message | None, answer: Message) -> Message:
    """Return an answer with the arrays posted before it in their positions."""
    if posted is None or answer.kind == "error":
        return answer
    arrays = posted.arrays  # in the order of the fetch list
    if answer.arrays:
        late, early = iter(answer.arrays), _early(posted)
        count = len(early) + len(answer.arrays)
        arrays = [early[i] if i in early else next(late) for i in range(count)]
    return Message(answer.kind, answer.head, arrays, answer.step)
