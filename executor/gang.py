"""What a gang offers: replicas in lockstep that answer messages. One is made of threads, one of Ray actors.

``ParallelExecutor`` and ``CompiledProgram`` see only this file.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph.memory import ALL_WISHES, Wishes
from ..strategies import errors
from ..strategies.errors import ExecutionError, ReplicaLost, RowlockError
from .capabilities import common
from .delivery import VALUES_GONE, Delivery, GangChanged, Ledger, Request
from .message import Message

if TYPE_CHECKING:
    from ..strategies.cluster import ClusterConfig


class Gang:
    """Replicas that programs can be loaded on. Several programs share one gang and its device scopes."""

    def __init__(self, delivery: Delivery, config: ClusterConfig) -> None:
        self.delivery = delivery
        self.config = config
        self.epoch = 0
        self.ledger = Ledger()
        self.under_way: list[Request] = []
        self.shrunk: list[list[int]] = []  # each time: the ranks that the replicas had before
        self.users: weakref.WeakSet[Any] = weakref.WeakSet()  # what may run on it again
        self._ids = 0
        self._leaving: list[weakref.WeakMethod[Callable[[], None]]] = []
        self._unwanted: dict[str, list[int]] = {"programs": [], "scopes": []}
        self._libraries: frozenset[str] | None = None
        self._memory: dict[int, int] = {}  # program -> what its replicas had when it was loaded

    @property
    def size(self) -> int:
        """Number of replicas."""
        return self.delivery.size

    def new_id(self) -> int:
        """Return a number that no program or device scope of this gang has."""
        self._ids += 1
        return self._ids

    @property
    def keeps(self) -> bool:
        """Whether the driver keeps what each place has for itself, for a replica that comes in later."""
        return self.config.launcher == "ray" and self.config.on_failure != "shrink"

    # -- messages ---------------------------------------------------------------------------------

    def all(self, kind: str, arrays: Sequence[np.ndarray] = (), **head: Any) -> list[Message]:
        """Send one message to every replica."""
        return self.each([Message(kind, head, arrays)] * self.size)

    def each(self, messages: Sequence[Message]) -> list[Message]:
        """Send each replica its own message, once no step is under way, and return the answers.

        Raises:
            RowlockError: a replica failed; the first cause is raised, not what followed from it.
            GangChanged: there are not as many replicas as messages any more.
        """
        self.drain()
        while True:
            self._mend()
            if len(messages) != self.size:
                raise GangChanged
            try:
                return self.ask(messages)
            except ReplicaLost as lost:
                self._recover(lost)

    def ask(self, messages: Sequence[Message]) -> list[Message]:
        """Send each replica its own message, and return the answers.

        Raises:
            RowlockError: a replica failed, or was lost.
        """
        same = {id(message): self._stamped(message) for message in messages}
        answers = self.some({rank: same[id(m)] for rank, m in enumerate(messages)})
        return [answers[rank] for rank in range(len(messages))]

    def some(self, messages: Mapping[int, Message]) -> dict[int, Message]:
        """Send messages to some replicas, and return their answers.

        Raises:
            RowlockError: a replica failed, or was lost.
        """
        try:
            answers = self.delivery.finish(self.delivery.start(messages))
        except BaseException:
            self.epoch += 1  # whatever the replicas were in the middle of is void
            raise
        self._check(answers)
        return answers

    def _stamped(self, message: Message) -> Message:
        return message._replace(head={**message.head, "epoch": self.epoch})

    def _check(self, answers: Mapping[int, Message]) -> None:
        failures = [answer for answer in answers.values() if answer.kind == "error"]
        if failures:
            self.epoch += 1
            raise _cause(failures)

    # -- steps ------------------------------------------------------------------------------------

    def begin(self, request: Request, ahead: bool = False) -> None:
        """Have steps run; :meth:`finish` returns what they fetch.

        ``ahead``: some steps may be under way already, and this one may stay so.

        Raises:
            RowlockError: a step before failed.
            GangChanged: there are not as many replicas as shares any more.
        """
        self.drain(self.config.steps_in_flight - 1 if ahead else 0)
        self._mend()
        if self.ledger.unsure:
            self.ledger.done = max(a.head["done"] for a in self.all("inventory"))
            self.ledger.unsure = False
        if self.ledger.kept.old:
            self._look_again()
        while len(request.shares) == self.size:
            try:
                self.send(request, ahead)
            except ReplicaLost as lost:
                self._recover(lost)
                continue
            self.under_way.append(request)
            return
        raise GangChanged

    def send(self, request: Request, ahead: bool = False) -> None:
        """Send what has not happened of a request."""
        request.number = self.delivery.start(request.messages(self.epoch), ahead)

    def finish(self, request: Request) -> list[Sequence[np.ndarray]]:
        """Return what a request's last step fetches, by rank; those begun before it finish first.

        Raises:
            RowlockError: a replica failed; the first cause is raised, not what followed from it.
            GangChanged: there are fewer replicas now; ``request.done`` of the steps have happened.
        """
        while not request.settled:
            self._finish(self.under_way[0])
        if request.void:
            raise GangChanged
        if request.failed is not None:
            raise request.failed
        assert request.fetched is not None
        return request.fetched

    def poll(self, request: Request) -> bool:
        """Tell, without waiting, whether a request and those before it are done."""
        return request.settled or self.delivery.poll(request.number)

    def drain(self, left: int = 0) -> None:
        """Wait until at most ``left`` requests are under way; what they fetch, or why they fail, is kept."""
        while len(self.under_way) > left:
            self._finish(self.under_way[0])

    def _finish(self, request: Request) -> None:
        try:
            answers = self.delivery.finish(request.number)
        except ReplicaLost as lost:
            self._recover(lost)
            return
        except BaseException as interrupt:
            self._interrupted(interrupt)
            raise
        self.under_way.remove(request)
        try:
            self._check(answers)
        except RowlockError as error:
            self._failed(request, answers, error)
            return
        if request.votes:
            self.ledger.done += request.iterations - request.done
        self.ledger.failures = 0
        request.done = request.iterations
        request.fetched = [answers[rank].arrays for rank in range(len(answers))]
        request.keep(self.ledger)

    def _failed(
        self, request: Request, answers: Mapping[int, Message], error: RowlockError
    ) -> None:
        """An op raised: the steps before it happened, the others did not, nor do those behind it."""
        from .recovery import Recovery

        request.failed = error
        if request.votes:
            through = self.ledger.done + request.iterations - request.done
            stands = {a.head["done"] if a.kind == "error" else through for a in answers.values()}
            happened = stands.pop() if len(stands) == 1 else Recovery(self).level(error)
            request.done += happened - self.ledger.done
            self.ledger.done = happened
            self.ledger.kept.aged(range(self.size))
        for behind in self.under_way:
            self.delivery.give_up(behind.number)
            behind.failed = error
        self.under_way.clear()

    def _interrupted(self, interrupt: BaseException) -> None:
        """Ctrl-C: the replicas finish what they have; nobody waits for it."""
        self.epoch += 1
        for request in self.under_way:
            self.delivery.give_up(request.number)
            request.failed, request.done = interrupt, request.iterations
        self.under_way.clear()
        self.ledger.unsure = True
        self.ledger.kept.aged(range(self.size))

    def _look_again(self) -> None:
        """Ask the replicas for their own values: those of the last steps were not waited for."""
        kept = self.ledger.kept
        for scope in kept.scopes():
            names = kept.names(scope)
            for rank, answer in enumerate(self.all("read", scope=scope, names=names)):
                kept.put(scope, rank, dict(zip(names, answer.arrays, strict=True)))
        kept.old.clear()

    def libraries(self) -> frozenset[str]:
        """Return the libraries that all replicas have in one version. Who joins later must have them too."""
        if self._libraries is None:
            self._libraries = common([a.head["versions"] for a in self.all("libraries")])
        return self._libraries

    # -- programs and values ------------------------------------------------------------------------

    def load(
        self,
        program: str,
        scope: int,
        *,
        threads: int = 1,
        capped: bool = False,
        every_lock: bool = False,
        wishes: Wishes = ALL_WISHES,
        captures: bool = True,
        alone: bool = False,
    ) -> int:
        """Give a compiled program (JSON) to every replica and return its id there.

        ``threads`` that a replica may use, ``capped`` by its share of the host's cores or not; ``every_lock``:
        they signal every dependency; ``wishes``: how temporaries may share memory; ``captures``: a GPU's work
        is launched as graphs; ``alone``: peers take no part.
        """
        self._unload()
        number = self.new_id()
        how: dict[str, Any] = {"threads": threads, "capped": capped, "every_lock": every_lock}
        how.update(wishes=list(wishes), captures=captures, alone=alone)
        head = {"id": number, "program": program, "scope": scope, **how}
        answers = self.all("load", **head)
        self._memory[number] = min(answer.head["memory"] for answer in answers)
        self.ledger.programs[number] = head
        return number

    def memory(self, number: int) -> tuple[int, str]:
        """Return the bytes that a loaded program may take of each replica's memory, and who says so."""
        limit = self.config.memory_per_replica_bytes
        if limit is not None:
            return limit, "ClusterConfig.memory_per_replica_bytes allows"
        return self._memory[number], "a place has"

    def forget(self, kind: str, number: int) -> None:
        """Have a program or a scope ("programs", "scopes") unloaded before the next program is loaded."""
        self._unwanted[kind].append(number)

    def _unload(self) -> None:
        if any(self._unwanted.values()) and not self.delivery.broken:
            unwanted, self._unwanted = self._unwanted, {"programs": [], "scopes": []}
            self.all("unload", programs=unwanted["programs"], scopes=unwanted["scopes"])
            for number in unwanted["programs"]:
                self.ledger.programs.pop(number, None)
                self._memory.pop(number, None)
            for number in unwanted["scopes"]:
                self.ledger.owners.pop(number, None)
                self.ledger.kept.forget(number)

    def write(
        self,
        scope: int,
        names: Sequence[str],
        arrays: Sequence[np.ndarray],
        owners: Mapping[str, int] | None = None,
    ) -> None:
        """Write persistables to a device scope of every replica, or of their owners alone."""
        messages = []
        for rank in range(self.size):
            held = [
                (name, array)
                for name, array in zip(names, arrays, strict=True)
                if (owners or {}).get(name, rank) == rank
            ]
            head = {"scope": scope, "names": [name for name, _ in held]}
            messages.append(Message("write", head, [array for _, array in held]))
        self.each(messages)
        known = self.ledger.owners.setdefault(scope, {})
        self.ledger.kept.forget(scope, names)
        for name in names:
            known.pop(name, None)
            if name in (owners or {}):
                known[name] = (owners or {})[name]

    def read(self, scope: int, name: str, rank: int = 0) -> np.ndarray:
        """Return a persistable from one replica's device scope; ``rank`` is its number now."""
        ask = Message("read", {"scope": scope, "names": [name]})
        idle = Message("read", {"scope": scope, "names": []})
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
        from .recovery import Recovery

        Recovery(self).after(lost)

    def _mend(self) -> None:
        """Bring in others for those that were lost before.

        Raises:
            InvalidState: the gang was closed, or no replica of it is left.
        """
        if self.delivery.broken:
            raise errors.InvalidState(VALUES_GONE)
        if self.ledger.stale or self.ledger.torn:
            from .recovery import Recovery

            Recovery(self).resume()

    def before_close(self, call: Callable[[], None]) -> None:
        """Have a method called when the gang is closed in good health, while replicas still answer.

        Its object is not kept alive for that.
        """
        self._leaving.append(weakref.WeakMethod(call))

    def close(self) -> None:
        """End the replicas."""
        try:
            if not self.delivery.broken:
                self.drain()
                for held in self._leaving:
                    call = held()
                    if call is not None:
                        call()
        finally:  # a replica may be found dead only now
            self._leaving.clear()
            self.delivery.close()


def _cause(failures: Sequence[Message]) -> RowlockError:
    first = next((f for f in failures if not f.head["collateral"]), failures[0])
    kind, text, rank = first.head["type"], first.head["text"], first.head["rank"]
    known = getattr(errors, kind, None)
    text = text if f"replica {rank}" in text else f"replica {rank}: {text}"
    if isinstance(known, type) and issubclass(known, RowlockError):
        return known(text)
    return ExecutionError(f"{text} ({kind})")
