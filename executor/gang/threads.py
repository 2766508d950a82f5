"""ThreadDelivery: how replicas that are threads of this process get messages, without Ray."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from ...strategies.errors import CollectiveError, InvalidState
from ..cuda.transfers import Arriving
from ..device.place import Place, runtime_of
from ..host.deadline import Deadline
from ..host.interrupts import interruptible
from ..replica.message import Message
from ..replica.replica import Replica
from .delivery import VALUES_GONE, Torn
from .replica_thread import IDLE, ReplicaThread
from .thread_group import ThreadRendezvous, form_threads, thread_group

if TYPE_CHECKING:
    from ...strategies.cluster import ClusterConfig


_ENDING_S = 1.0


class _Exchange:
    """Messages to replicas; ``own`` is for replica 0 on the caller's thread. Workers note ``answers``."""

    __slots__ = ("answers", "began", "by_worker", "collected", "handed_out", "own", "size")

    def __init__(self, own: Message | None, by_worker: dict[int, Message], collected: bool) -> None:
        self.own, self.by_worker, self.collected = own, by_worker, collected
        self.size = len(by_worker) + (own is not None)
        self.handed_out, self.began = not by_worker, False
        self.answers: dict[int, Message] = {}


class ThreadDelivery:
    """A :class:`Delivery` to threads. Replica 0 runs on the caller's thread, or if asked ahead on its own.

    A replica that answers too late breaks it: no thread can be ended from outside. Answers of replica 0 cannot
    be given up while it was not asked, or was interrupted, for the others may wait for it (:class:`Torn`).
    """

    def __init__(self, places: Sequence[Place], config: ClusterConfig) -> None:
        self.size = size = len(places)
        self.broken = False
        self.where: Sequence[Mapping[str, Any]] = [{} for _ in range(size)]
        self._within = config.step_deadline_s
        self._meeting = meeting = ThreadRendezvous(size)
        self._epoch = 0  # of the messages
        runtimes = [runtime_of(place) for place in places]
        self.replicas = [
            Replica(
                rank,
                thread_group(rank, meeting, runtime) if size > 1 else None,
                config.collective_deadline_s,
                runtime,
            )
            for rank, runtime in enumerate(runtimes)
        ]
        for replica in self.replicas:
            replica.openmp = max(len(os.sched_getaffinity(0)) // size, 1)
            replica.form = form_threads
        self._workers = {rank: ReplicaThread(self.replicas[rank]) for rank in range(1, size)}
        self._numbers = itertools.count()
        self._exchanges: dict[int, _Exchange] = {}
        self._catching_up: threading.Thread | None = None

    def reserve(self) -> int:
        return next(self._numbers)

    def knows(self, number: int) -> bool:
        return number in self._exchanges

    def start(
        self, messages: Mapping[int, Message], ahead: bool = False, number: int | None = None
    ) -> int:
        if self.broken:
            raise InvalidState(VALUES_GONE)
        if ahead and 0 not in self._workers:
            self._workers[0] = ReplicaThread(self.replicas[0])
        collected = number is not None
        number = self.reserve() if number is None else number
        for message in messages.values():
            self._epoch = max(self._epoch, message.head.get("epoch", 0))
        by_worker = dict(messages)
        # Replica 0 stays on its own thread while that has messages to answer.
        first = self._workers.get(0)
        ahead = ahead or (first is not None and not first.idle)
        own = None if ahead else by_worker.pop(0, None)
        for earlier, other in self._exchanges.items():  # that an interrupt left
            if not other.handed_out:
                self._hand_out(earlier, other)
        self._exchanges[number] = exchange = _Exchange(own, by_worker, collected)
        if by_worker:
            self._hand_out(number, exchange)
        return number

    def _hand_out(self, number: int, exchange: _Exchange) -> None:
        """Give the workers their messages; a worker that has one already ignores it."""
        for rank, message in exchange.by_worker.items():
            self._workers[rank].ask(number, message, exchange.answers)
        exchange.handed_out = True

    def finish(self, number: int) -> dict[int, Message]:
        deadline = Deadline(self._within)
        exchange = self._exchanges[number]
        if not exchange.handed_out:
            self._hand_out(number, exchange)
        if exchange.own is not None and 0 not in exchange.answers:
            self._run_own(exchange, exchange.own)
        if exchange.by_worker:
            self._gather(number, exchange, deadline)
        for rank, answer in [*exchange.answers.items()]:
            try:
                if isinstance(answer.arrays, Arriving):
                    answer.arrays.wait()
            except Exception as error:  # of a GPU, whose work failed behind the step
                exchange.answers[rank] = self.replicas[rank].failed(error)
        if not exchange.collected:
            self.give_up(number)
        answers = exchange.answers
        return {rank: answers[rank] for rank in sorted(answers)}

    def _run_own(self, exchange: _Exchange, message: Message) -> None:
        if exchange.began:
            raise Torn
        exchange.began = True
        try:
            exchange.answers[0] = self.replicas[0].handle(message)
        except BaseException:  # do not leave the others waiting for this thread
            self._abort("interrupted")
            raise

    def poll(self, number: int) -> bool:
        exchange = self._exchanges.get(number)
        return exchange is None or len(exchange.answers) == exchange.size

    def give_up(self, number: int) -> None:
        exchange = self._exchanges.get(number)
        if exchange is not None:
            if exchange.own is not None and 0 not in exchange.answers:
                raise Torn
            del self._exchanges[number]

    def drain(self) -> None:
        """Wait until all have ended the interrupted step and stand at one step."""
        self._abort("interrupted")
        number, answers = self.reserve(), dict[int, Message]()
        for worker in self._workers.values():
            worker.ask(number, None, answers)
        waiting = _Exchange(None, dict.fromkeys(self._workers, IDLE), collected=False)
        waiting.answers = answers
        self._gather(number, waiting, Deadline(self._within))
        if self._catching_up is None:
            # On a thread of its own, which no interrupt strikes: writes are made once.
            self._catching_up = threading.Thread(target=self._catch_up, daemon=True)
            with interruptible:
                self._catching_up.start()
        with interruptible:
            self._catching_up.join()
        self._exchanges.clear()
        self._catching_up = None

    def _catch_up(self) -> None:
        furthest = max(self.replicas, key=lambda replica: replica.done)
        for replica in self.replicas:
            if replica.done < furthest.done:
                if replica.runtime is not None:
                    replica.runtime.use()
                replica.catch_up(furthest)

    def _gather(self, number: int, exchange: _Exchange, deadline: Deadline) -> None:
        ranks = exchange.by_worker
        late = [r for r in ranks if not self._workers[r].wait(number, exchange.answers, deadline)]
        if late:
            self.broken = True
            self._abort(f"replicas {late} are late")
            raise CollectiveError(f"replicas {late} did not answer within {self._within:g} s.")

    def calls(self) -> bool:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code is Replica.handle.__code__ and frame.f_locals["self"] in self.replicas:
                return True
            frame = frame.f_back
        return False

    @property
    def alive(self) -> list[int]:
        """All ranks: threads are not lost one by one."""
        return list(range(self.size))

    def _abort(self, reason: str) -> None:
        """Release all replicas that wait in a collective, or will come to one of this epoch."""
        for replica in self.replicas:
            for seat in replica.trainers.values():
                if seat.group is not None:
                    seat.group.abort(reason)
        if self.replicas[0].group is not None:
            self._meeting.let_go()
            self._meeting.skip(self._epoch)
            self.replicas[0].group.abort(reason)

    def close(self) -> None:
        """End the threads; one that is stuck is left to end with the process."""
        self.broken = True
        for worker in self._workers.values():
            worker.asked.put(None)
        with interruptible:
            for worker in self._workers.values():
                worker.join(_ENDING_S)
        self._workers = {}
        for replica in self.replicas:
            replica.close()
