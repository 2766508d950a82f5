"""Lockstep: steps that all replicas run, several in flight, and what they are asked in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...strategies.errors import InvalidState, ReplicaLost, RowlockError
from ..replica import orders
from ..replica.message import Message, StackedMessages
from .assign import Change, assign
from .delivery import VALUES_GONE, GangChanged, Request, Torn
from .recovery import Recovery
from .replicas import Replicas, cause_of


class Lockstep(Replicas):
    """Replicas that run steps in the order of their begin. A step happens on all of them, once, or on none.

    A request is under way from before it is sent until its outcome is noted: what it fetched, why it failed,
    or that it is void. An interrupt may strike at any bytecode between; the next call tidies up. A replica that
    is lost meanwhile is replaced, and what it had under way is sent again, as the configuration says.
    """

    # -- messages ---------------------------------------------------------------------------------

    def all(self, order: orders.Order, arrays: Sequence[np.ndarray] = ()) -> list[Message]:
        """Send one order to every replica and return the answers; see :meth:`each`."""
        return self.each([orders.pack(order, arrays)] * self.size)

    def each(self, messages: Sequence[Message]) -> list[Message]:
        """Wait until no step is in flight, send each replica its own message, and return the answers.

        Raises:
            RowlockError: a replica failed; the first cause is raised, not what followed from it.
            GangChanged: there are not as many replicas as messages any more.
        """
        self.check_caller()
        with self.turn:
            self.drain()
            while True:
                self.mend()
                if len(messages) != self.size:
                    raise GangChanged
                try:
                    return self.ask(messages)
                except ReplicaLost as lost:
                    self._recover(lost)

    # -- steps ------------------------------------------------------------------------------------

    def make_way(self, ahead: bool) -> None:
        """Wait until a step may begin: all before it are done, or with ``ahead`` few are in flight."""
        if self.under_way or self._sent:
            ahead = ahead and all(request.ahead for request in self.under_way)
            self.drain(self.config.steps_in_flight - 1 if ahead else 0)

    def begin(self, request: Request, ahead: bool = False, *changes: Change) -> None:
        """Send steps to all replicas; :meth:`finish` returns their fetches.

        ``ahead``: other steps may be in flight, and the caller does not wait for this one at once. ``changes``
        are made (see :func:`assign`) at the moment when the request is noted as under way.

        Raises:
            RowlockError: a step before failed.
            GangChanged: there are not as many replicas as shares any more.
        """
        with self.turn:
            ledger, changes_before = self.ledger, len(self.shrunk)
            if self.under_way or self._sent:
                self.make_way(ahead)
            self.mend()
            if ledger.place_values.old:
                self._look_again()
            if len(request.shares) != self.size or len(self.shrunk) > changes_before:
                raise GangChanged
            before = self.under_way[-1] if self.under_way else None
            request.base = before.end(before.base) if before is not None else ledger.done
            request.number, request.ahead = self._new_number(), ahead
            under_way = [*self.under_way, request]  # noted before it is sent: see _review
            assign((self, "under_way", under_way), *changes)
            try:
                self.send(request, ahead)
            except ReplicaLost as lost:
                request.begun = True
                self._recover(lost)
            except Exception as error:
                request.failed = error
                self.under_way.remove(request)
                raise
            if request.void:
                raise GangChanged

    def finish(self, request: Request) -> Sequence[Sequence[np.ndarray]]:
        """Wait for a request and those before it; return its last step's fetches, by rank.

        Raises:
            RowlockError: a replica failed; the first cause is raised, not what followed from it.
            GangChanged: there are fewer replicas now; ``request.done`` of the steps have happened.
        """
        with self.turn:
            if not self._orderly():
                self._review()
            while not request.settled:
                self._finish(self.under_way[0])
            if request.failed is not None:
                raise request.failed
            if request.void:
                raise GangChanged
            assert request.fetched is not None
            return request.fetched

    def go_on(self) -> None:
        """Have the owners of void requests split and send them anew, in order; called without the lock."""
        while self.voided:
            request = self.voided[0]
            owner = request.owner() if request.owner is not None else None
            try:
                if owner is not None and request.failed is None:
                    owner.go_on(request)
            except GangChanged:  # once more
                continue
            except RowlockError as error:  # those behind it do not happen either
                assign(*((other, "failed", error) for other in self.voided))
            with self.turn:
                if self.voided and self.voided[0] is request:
                    del self.voided[0]

    def poll(self, request: Request) -> bool:
        """Tell, without waiting, whether a request and those before it are done."""
        free: list[bool] = []
        try:
            # The lock is taken and noted between two bytecodes: no interrupt keeps it from being let go of.
            free.extend(map(self.turn.acquire, (False,)))
            return request.settled or (free[0] and self.delivery.poll(request.number))
        finally:
            if True in free:
                self.turn.release()

    def drain(self, left: int = 0) -> None:
        """Wait until at most ``left`` requests are in flight; each keeps its fetches, or its error."""
        if not self.under_way and not self._sent:
            self.check_owner()
            return
        self.check_caller()
        with self.turn:
            if not self._orderly():
                self._review()
            while len(self.under_way) > left:
                self._finish(self.under_way[0])

    def _review(self) -> None:
        """Tidy up after an interrupt.

        A request is under way from before it is sent until after its outcome is noted. So one may be found that
        was never sent: it is withdrawn; one that is settled: it is removed; one that a lost replica had: it is
        sent again. Answers to anything else are given up.
        """
        if self.under_way and (self.ledger.uneven or self.ledger.torn):
            self.mend()
        try:
            for request in [r for r in self.under_way if r.settled]:
                self.under_way.remove(request)
            for request in list(self.under_way):
                if self.delivery.knows(request.number):
                    request.begun = True
                elif request.begun:
                    self.send(request, ahead=True)
                else:
                    self.withdraw(request)
            if len(self._sent) > len(self.under_way):
                wanted = {request.number for request in self.under_way}
                for number in [n for n in self._sent if n not in wanted]:
                    self._forget(number)
        except ReplicaLost as lost:
            self._recover(lost)
        except Torn:
            self._torn()

    def _orderly(self) -> bool:
        """Tell whether exactly the requests under way were sent."""
        ledger, sent = self.ledger, self._sent
        if ledger.uneven or ledger.torn or len(sent) != len(self.under_way):
            return False
        for index, request in enumerate(self.under_way):
            if request.number != sent[index] or not self.delivery.knows(sent[index]):
                return False
        return True

    def _finish(self, request: Request) -> None:
        try:
            answers = self.delivery.finish(request.number)
        except ReplicaLost as lost:
            self._recover(lost)
            return
        except Torn:
            self._torn()
            return
        except RowlockError as error:  # the gang cannot be used again
            self.fail(error)
            raise
        ledger = self.ledger
        fetched: Sequence[Sequence[np.ndarray]]
        if isinstance(answers, StackedMessages):
            fetched = answers.arrays
        elif any([answer.kind == "error" for answer in answers.values()]):
            self.epoch += 1
            self._failed(request, answers, cause_of(answers.values()))
            return
        else:
            fetched = [answers[rank].arrays for rank in range(len(answers))]
        if request.results.own_names:
            fetched = request.keep(ledger, fetched)
        ledger.failures = 0
        assign(
            (ledger, "done", request.end(request.base) if request.votes else ledger.done),
            (request, "done", request.iterations),
            (request, "fetched", fetched),
            (self, "under_way", self.under_way[1:]),
        )
        self._forget(request.number)

    def _failed(
        self, request: Request, answers: Mapping[int, Message], error: RowlockError
    ) -> None:
        """Note that an op raised: earlier steps happened, the failed one and those behind it never will."""
        counted = self.ledger.done
        if request.votes:
            through = request.end(request.base)
            failed = [orders.failure_of(a).done for a in answers.values() if a.kind == "error"]
            stands = {*failed, *([through] if len(failed) < len(answers) else [])}
            counted = stands.pop() if len(stands) == 1 else Recovery(self).level(error)
            self.ledger.place_values.aged(range(self.size))
        self._end(error, counted)
        self._review()

    def _torn(self) -> None:
        """End all that is under way, at one step: an interrupt struck a replica of this process."""
        self.epoch += 1
        interrupt = KeyboardInterrupt("interrupted")
        counted = Recovery(self).level(interrupt)
        self.ledger.place_values.aged(range(self.size))
        self._end(interrupt, counted)

    def _end(self, error: BaseException, counted: int) -> None:
        """End all that is under way by an error, after so many counted steps."""
        done = ((request, "done", request.passed(counted)) for request in self.under_way)
        self.fail(error, (self.ledger, "done", counted), *done)

    def _look_again(self) -> None:
        """Read each replica's own persistables again, as those of some steps did not arrive."""
        values = self.ledger.place_values
        for scope in values.scopes():
            names = values.names(scope)
            for rank, answer in enumerate(self.all(orders.Read(scope, names))):
                values.put(scope, rank, dict(zip(names, answer.arrays, strict=True)))
        values.old.clear()

    # -- losses ------------------------------------------------------------------------------------

    def _recover(self, lost: ReplicaLost) -> None:
        Recovery(self).after(lost)

    def mend(self) -> None:
        """Bring in others for those that were lost before.

        Raises:
            InvalidState: the gang was closed, or no replica of it is left.
        """
        ledger = self.ledger
        if ledger.stale or ledger.uneven or ledger.torn:
            if self.delivery.broken:  # else the delivery says so when it is asked to send
                raise InvalidState(VALUES_GONE)
            Recovery(self).resume()
