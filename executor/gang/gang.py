"""Gang: replicas in lockstep that load programs, run steps and hold values. Made of threads or Ray actors.

``ParallelExecutor`` and ``CompiledProgram`` see only this file.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...graph.ir.replica_program import ReplicaProgram
from ...strategies.errors import InvalidState, ReplicaLost, RowlockError
from ..kernels.capabilities import common
from ..replica import orders
from ..replica.message import Message, StackedMessages
from ..replica.options import RunOptions
from .assign import Change, assign
from .delivery import VALUES_GONE, Delivery, GangChanged, Request, Torn
from .libraries import warn_of_differences
from .recovery import Recovery
from .replicas import Replicas, cause_of
from .trainers import Card, Table, Trainers
from .worlds import World, Worlds

if TYPE_CHECKING:
    from ...strategies.cluster import ClusterConfig
    from ..device.place import Place
    from ..replica.replica import Replica


class Gang(Replicas):
    """Replicas that programs can be loaded on. Several programs share one gang and its device scopes."""

    here: Replica | None = None
    """The only replica, if it runs on the driver's thread and on the driver's tensors."""
    singles: dict[Place, Gang]
    alone = False
    """Whether programs run on a replica that does not wait for its peers."""

    def __init__(self, delivery: Delivery, config: ClusterConfig) -> None:
        super().__init__(delivery, config)
        self._started_with = delivery.size
        self.users: weakref.WeakSet[Any] = weakref.WeakSet()  # what may run on it again
        self._leaving: list[weakref.WeakMethod[Callable[[], None]]] = []
        self._unwanted: dict[str, list[int]] = {"programs": [], "scopes": []}
        self._memory: dict[int, int] = {}  # program -> what its replicas had when it was loaded
        self.worlds = Worlds(self)

    def left_of(self, places: Sequence[Place]) -> list[Place]:
        """Return the places without those that the gang has lost, if it was started on as many."""
        left = list(places)
        if len(left) == self._started_with:
            for ranks in self.shrunk:
                left = [left[rank] for rank in ranks]
        return left

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
        self._mend_first()
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

    def _mend_first(self) -> None:
        """Mend the gang before its requests finish, if an interrupt kept it from being mended."""
        if self.under_way and (self.ledger.uneven or self.ledger.torn):
            self.mend()

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

    def libraries(self) -> frozenset[str]:
        """Return the libraries that all replicas have in one version; one that joins later needs it, too."""
        if self.ledger.libraries is None:
            reports = self._versions()
            warn_of_differences(reports, self.delivery.where)
            self.ledger.libraries = common(reports)
        return frozenset(self.ledger.libraries)

    def _versions(self) -> list[dict[str, str]]:
        return [orders.Versions(**answer.head).versions for answer in self.all(orders.Libraries())]

    # -- other trainers -----------------------------------------------------------------------------

    def world(self, trainers: Trainers, device: str, table: Callable[[], Table]) -> World:
        """Return the group of trainers; they meet first, at a table, if they have not, or if it has ended.

        Raises:
            InvalidValue: trainers disagree about who they are.
            TrainerLost: one does not come within ``ClusterConfig.start_deadline_s``.
            CollectiveError: their replicas cannot form a group.
        """
        with self.turn:
            known = self.worlds.of(trainers)
            if known is not None:
                return known
            shared, backend = common(self._versions()), self.config.collectives
            card = Card(trainers.trainer, trainers.endpoints, self.size, device, shared, backend)
            return self.worlds.enter(trainers, card, table(), self.each)

    # -- programs and values ------------------------------------------------------------------------

    def load(
        self,
        program: ReplicaProgram | str,
        scope: int,
        options: RunOptions | None = None,
        functions: Sequence[int] = (),
    ) -> int:
        """Load a compiled program (or its JSON) on every replica, and return its number there.

        ``options`` (None: of a program without strategies); ``functions``: numbers of the Python functions that
        it calls, which the delivery brings to replicas of other processes.
        """
        number = self.new_id()
        options = options or RunOptions.sequential()
        if self.alone:
            options = replace(options, alone=True)
        load = orders.Load(number, program, scope, options, list(functions))
        with self.turn:
            self._unload()
            answers = self.all(load) if self.here is None else [self.here.on_load(load)]
            self._memory[number] = min(
                orders.ProgramMemory(**answer.head).memory for answer in answers
            )
            self.ledger.programs[number] = load
        return number

    def memory(self, number: int) -> tuple[int, str]:
        """Return the bytes that a loaded program may take on each replica, and whose limit that is."""
        limit = self.config.memory_per_replica_bytes
        if limit is not None:
            return limit, "ClusterConfig.memory_per_replica_bytes allows"
        return self._memory[number], "a place has"

    def forget(self, kind: str, number: int) -> None:
        """Unload a program or a scope (``kind`` "programs" or "scopes") before the next program is loaded."""
        self._unwanted[kind].append(number)

    def _unload(self) -> None:
        if any(self._unwanted.values()) and not self.delivery.broken:
            unwanted = {kind: list(numbers) for kind, numbers in self._unwanted.items()}
            self.all(orders.Unload(unwanted["programs"], unwanted["scopes"]))
            for number in unwanted["programs"]:
                self.ledger.programs.pop(number, None)
                self._memory.pop(number, None)
            for number in unwanted["scopes"]:
                self.ledger.owners.pop(number, None)
                self.ledger.place_values.forget(number)
            for kind, numbers in unwanted.items():  # others may have come meanwhile
                for number in numbers:
                    self._unwanted[kind].remove(number)

    def write(
        self,
        scope: int,
        names: Sequence[str],
        arrays: Sequence[np.ndarray],
        owners: Mapping[str, int] | None = None,
    ) -> None:
        """Write persistables to a device scope of all replicas; one with an owner, on that rank alone."""
        messages, owners = [], owners or {}
        for rank in range(self.size):
            values = [
                (name, array)
                for name, array in zip(names, arrays, strict=True)
                if owners.get(name, rank) == rank
            ]
            write = orders.Write(scope, [name for name, _ in values])
            messages.append(orders.pack(write, [array for _, array in values]))
        with self.turn:
            self.each(messages)
            known = self.ledger.owners.setdefault(scope, {})
            self.ledger.place_values.forget(scope, names)
            for name in names:
                known.pop(name, None)
                if name in owners:
                    known[name] = owners[name]

    def read(self, scope: int, name: str, rank: int = 0) -> np.ndarray:
        """Return a persistable from one replica's device scope; ``rank`` is its number now."""
        ask, idle = orders.pack(orders.Read(scope, [name])), orders.pack(orders.Read(scope, []))
        with self.turn:
            changes = len(self.shrunk)
            while True:
                for ranks in self.shrunk[changes:]:  # a rank that owns its values was not lost
                    rank = ranks.index(rank) if rank in ranks else 0
                changes = len(self.shrunk)
                try:
                    answers = self.each([ask if i == rank else idle for i in range(self.size)])
                except GangChanged:
                    continue
                return answers[rank].arrays[0]

    # -- failures and the end -----------------------------------------------------------------------

    def _recover(self, lost: ReplicaLost) -> None:
        Recovery(self).after(lost)

    @property
    def meets_trainers(self) -> bool:
        return bool(self.worlds)

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

    def before_close(self, call: Callable[[], None]) -> None:
        """Call a method when the gang is closed in good health, while replicas still answer.

        The gang keeps no reference to its object.
        """
        self._leaving.append(weakref.WeakMethod(call))

    def close(self) -> None:
        """End the replicas; a forked process leaves them to its parent."""
        if not self.owned:
            return
        with self.turn:
            try:
                if not self.delivery.broken:
                    self.drain()
                    for reference in self._leaving:
                        call = reference()
                        if call is not None:
                            call()
            except Exception:  # a replica may be found dead only now
                self._leaving.clear()
                self.worlds.close()
                self.delivery.close()
                raise
            # An interrupt before this leaves the gang, which alone has the newest values, to be closed.
            self._leaving.clear()
            self.worlds.close()
            self.delivery.close()
