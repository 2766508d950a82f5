"""Replicas: send messages and gather answers, one thread at a time; count epochs and steps in flight."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...strategies import errors
from ...strategies.errors import ExecutionError, InvalidState, ReplicaLost, RowlockError
from ..replica.message import Message
from ..replica.orders import failure_of
from .assign import Change, assign
from .delivery import Delivery, Ledger, Request
from .turns import Lock, Refusal

if TYPE_CHECKING:
    from ...strategies.cluster import ClusterConfig
    from ..device.place import Place


class Replicas:
    """Sends messages to replicas and gathers their answers; ``recovery.py`` replaces those that are lost.

    ``epoch`` counts failures: collectives begin afresh after each. ``under_way`` are the steps that were begun,
    ``voided`` those that are to be split anew, before any other is begun. ``shrunk`` has, each time that the
    number of replicas changed, the ranks that they had before. ``singles`` run programs on one of the replicas.
    """

    heals = True
    """Whether a replica that takes another's place is given the values of those that are left."""

    def __init__(self, delivery: Delivery, config: ClusterConfig) -> None:
        self.delivery = delivery
        self.config = config
        self.epoch = 0
        self.ledger = Ledger()
        self.under_way: list[Request] = []
        self.voided: list[Request] = []
        # For all that is asked of the replicas: threads wait their turn, ``with gang.turn:``.
        self.turn: Lock = threading.RLock()
        self._owner = os.getpid()
        self._sent: list[int] = []  # numbers of messages whose answers are kept
        self.shrunk: list[list[int]] = []
        self.singles: Mapping[Place, Replicas] = {}
        self._ids = itertools.count(1)
        _started.add(self)

    def has_turn(self) -> bool:
        """Tell whether it is the calling thread's turn."""
        return self.turn._is_owned()  # type: ignore[union-attr]  # as Condition does

    @property
    def owned(self) -> bool:
        """Whether this process started the replicas, rather than being forked from the one that did."""
        return not isinstance(self.turn, Refusal)

    def check_owner(self) -> None:
        """Refuse a forked process.

        Raises:
            InvalidState: the replicas answer another process.
        """
        if isinstance(self.turn, Refusal):
            raise InvalidState(self.turn.reason)

    def check_caller(self) -> None:
        """Refuse a caller that a step has called (py_func): the replica runs nothing else until it returns.

        Raises:
            InvalidState: the caller is such a function.
        """
        if self.under_way and self.delivery.calls():
            raise InvalidState(
                "a function that a step calls (py_func) cannot run programs, or read values, on the replicas "
                "that wait for it. Pass it as x= what it reads; run programs on other places."
            )

    def disown(self) -> None:
        """Refuse all use of the replicas from now on: this process was forked from the one that has them."""
        self.turn = Refusal(
            f"process {os.getpid()} was forked from process {self._owner}, whose replicas answer that process "
            f"alone: run the program there, or in a process that is spawned, not forked."
        )

    @property
    def meets_trainers(self) -> bool:
        """Whether steps under way wait for other trainers, so that they cannot be run again here alone."""
        return False

    @property
    def size(self) -> int:
        """Number of replicas."""
        return self.delivery.size

    def new_id(self) -> int:
        """Return a number that no program or device scope of this gang has."""
        return next(self._ids)

    @property
    def keeps(self) -> bool:
        """Whether the driver keeps persistables that differ by place, for a replica that comes in later."""
        return self.config.launcher == "ray" and self.config.on_failure != "shrink"

    def ask(self, messages: Sequence[Message]) -> list[Message]:
        """Send each replica its own message, and return the answers.

        Raises:
            RowlockError: a replica failed, or was lost.
        """
        same = {id(message): self.stamped(message) for message in messages}
        answers = self.some({rank: same[id(m)] for rank, m in enumerate(messages)})
        return [answers[rank] for rank in range(len(messages))]

    def some(self, messages: Mapping[int, Message]) -> Mapping[int, Message]:
        """Send messages to some replicas, and return their answers.

        Raises:
            RowlockError: a replica failed, or was lost.
        """
        with self.turn:
            number = self._new_number()
            try:
                self.delivery.start(messages, number=number)
                answers = self.delivery.finish(number)
            except RowlockError:
                self.epoch += 1  # whatever the replicas were in the middle of is void
                raise
            self._forget(number)
            self._check(answers)
            return answers

    def fail(self, error: BaseException, *changes: Change) -> None:
        """End all that is under way by an error, and make ``changes`` at the same moment (:func:`assign`)."""
        failures = [(request, "failed", error) for request in self.under_way]
        assign(*changes, *failures, (self, "under_way", []))

    def withdraw(self, request: Request) -> None:
        """End a request that an interrupt kept from being sent."""
        request.failed = KeyboardInterrupt("interrupted before it was sent")
        self.under_way.remove(request)

    def voiding(self) -> list[Change]:
        """Return the changes by which all that is under way is to be split anew, before any other begins."""
        return [
            *((request, "void", True) for request in self.under_way),
            (self, "voided", [*self.under_way, *self.voided]),
            (self, "under_way", []),
        ]

    def settle(self, lost: ReplicaLost) -> None:
        """End what would be wrong if it were sent again; steps of all replicas vote, so none of them would."""

    def follow(self) -> None:
        """Go on with the replicas that took the places of lost ones."""

    def _new_number(self) -> int:
        """Return a number for messages, noted first, so that answers are given up if an interrupt strikes."""
        number = self.delivery.reserve()
        self._sent.append(number)
        return number

    def _forget(self, number: int) -> None:
        self.delivery.give_up(number)
        self._sent.remove(number)

    def stamped(self, message: Message) -> Message:
        """Return a message with the epoch."""
        return message._replace(head={**message.head, "epoch": self.epoch})

    def _check(self, answers: Mapping[int, Message]) -> None:
        if any(answer.kind == "error" for answer in answers.values()):
            self.epoch += 1
            raise cause_of(answers.values())

    def send(self, request: Request, ahead: bool = False) -> None:
        """Send the steps of a request that have not happened."""
        if request.begun:
            request.number = self._new_number()
        self.delivery.start(request.messages(self.epoch), ahead, request.number)
        request.begun = True


_started: weakref.WeakSet[Replicas] = weakref.WeakSet()


def _after_fork() -> None:
    for replicas in _started:
        replicas.disown()


os.register_at_fork(after_in_child=_after_fork)


def cause_of(answers: Iterable[Message]) -> RowlockError:
    """Return the first cause among error answers, not what followed from it."""
    failures = [failure_of(answer) for answer in answers if answer.kind == "error"]
    first = next((f for f in failures if not f.collateral), failures[0])
    kind, text, rank = first.type, first.text, first.rank
    known = getattr(errors, kind, None)
    text = text if f"replica {rank}" in text else f"replica {rank}: {text}"
    if isinstance(known, type) and issubclass(known, RowlockError):
        return known(text)
    return ExecutionError(f"{text} ({kind})")
