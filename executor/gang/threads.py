"""A gang of threads in this process, without Ray: how they get messages, and their collectives."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...strategies.errors import CollectiveAborted, CollectiveError, InvalidState
from ...strategies.types import is_low
from ..cuda.runtime import Runtime
from ..cuda.transfers import Arriving
from ..device.place import Place, runtime_of
from ..host.interrupts import interruptible
from ..plan.group import WHEN, CollectiveGroup, Ints, When, spans
from ..replica.agreement import NO_STEP, format_step, mismatch_message
from ..replica.message import Message
from ..replica.replica import Replica
from .delivery import VALUES_GONE, Torn
from .replica_thread import IDLE, ReplicaThread
from .staged import StagedGroup

if TYPE_CHECKING:
    from ...strategies.cluster import ClusterConfig


_SMALL = 1 << 16  # bytes
_COMBINE = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}
_ENDING_S = 1.0


class _Meeting:
    """The place where threads of a group wait for each other."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.turn = threading.Condition()
        self.arrived = 0
        self.round = 0
        self.reason: str | None = None
        self.epoch = 0
        self.tags: list[tuple[str, int]] = [("", NO_STEP)] * size
        self.arrays: list[np.ndarray | None] = [None] * size

    def wait(
        self,
        rank: int,
        within: float,
        tag: tuple[str, int],
        then: Callable[[], None] | None = None,
    ) -> None:
        """Return when all ranks are here for the same thing at the same moment, and the last has done ``then``.

        Raises:
            CollectiveError: a rank failed, is missing after ``within`` seconds, or came for something else.
        """
        with interruptible, self.turn:
            self._refuse_aborted(tag[0])
            self.tags[rank] = tag
            self.arrived += 1
            mine = self.round
            if self.arrived == self.size:
                self._check_tags()
                if then is not None:
                    then()
                self.arrived = 0
                self.round += 1
                self.turn.notify_all()
                return
            deadline = time.monotonic() + within
            while self.round == mine:
                self._refuse_aborted(tag[0])
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0:
                    self._give_up(tag, within)
                self.turn.wait(remaining_s)

    def let_go(self) -> None:
        """Release the lock if an interrupt kept this thread, which is not inside, from doing it."""
        while self.turn._is_owned():  # type: ignore[attr-defined]  # Condition.wait asks the same
            self.turn.release()

    def skip(self, epoch: int) -> None:
        """Let only epochs after this one make a reset."""
        with self.turn:
            self.epoch, self.arrived = max(self.epoch, epoch), 0

    def _refuse_aborted(self, tag: str) -> None:
        if self.reason is not None:
            raise CollectiveAborted(f"collective {tag} aborted: {self.reason}")

    def _give_up(self, tag: tuple[str, int], within: float) -> None:
        """Abort the group: the deadline is over."""
        missing = [r for r in range(self.size) if self.tags[r] != tag]
        self.reason = f"{tag[0]}{format_step(tag[1])}: ranks {missing} are missing after {within} s"
        self.turn.notify_all()
        raise CollectiveError(f"collective stopped: {self.reason}.")

    def _check_tags(self) -> None:
        if len(set(self.tags)) > 1:
            texts = {rank: f"{what}{format_step(at)}" for rank, (what, at) in enumerate(self.tags)}
            self.reason = mismatch_message(texts)
            self.turn.notify_all()
            raise CollectiveError(f"collective stopped: {self.reason}.")


class ThreadGroup(CollectiveGroup):
    """One rank's handle on a group of threads; sums in rank order, so every rank gets the same bits."""

    def __init__(self, rank: int, meeting: _Meeting) -> None:
        self.rank = rank
        self.size = self.local_size = meeting.size
        self._waited = 0.0  # seconds, for peers
        self._meeting = meeting
        self._step = NO_STEP

    def begin(self, step: int) -> None:
        """Let the collectives from now on belong to this step."""
        self._step = step

    @property
    def waited(self) -> float:
        """Seconds that this rank was in collectives before the last peer came, all added up."""
        return self._waited

    def all_reduce(self, array: np.ndarray, op: str = "sum", when: When = WHEN) -> None:
        """Combine ``array`` over the ranks, in place. ``op``: sum, product, min, max.

        Of a large array each rank combines its own chunk of everybody's; a small one is combined whole by the
        last to come, which spares the others a second wait.
        """
        self._all_reduce(
            array, when.within, _in_words(f"all_reduce/{op}", array, when), _COMBINE[op]
        )

    def _all_reduce(self, array: np.ndarray, within: float, what: str, combine: np.ufunc) -> None:
        row = array.reshape(-1)
        self._meeting.arrays[self.rank] = row
        if array.nbytes <= _SMALL:
            self._wait(within, what, lambda: self._combine(slice(None), combine))
            return
        self._wait(within, what)
        share = -(-array.size // self.size)
        chunk = slice(self.rank * share, min((self.rank + 1) * share, array.size))
        self._combine(chunk, combine)
        self._wait(within, "done", done=True)

    def bound_all_reduce(
        self, array: np.ndarray, op: str = "sum", when: When = WHEN
    ) -> Callable[[], None]:
        """Return a call that does :meth:`all_reduce` on this array."""
        request = _in_words(f"all_reduce/{op}", array, when)
        return partial(self._all_reduce, array, when.within, request, _COMBINE[op])

    def reduce_parts(
        self, array: np.ndarray, ends: Ints, roots: Ints, op: str = "sum", when: When = WHEN
    ) -> None:
        """Sum each part of ``array`` over the ranks into its root's; the others keep their own."""
        assert op == "sum", op
        self._meeting.arrays[self.rank] = array
        self._wait(when.within, _in_words("reduce_parts", array, when))
        everyone = [part for part in self._meeting.arrays if part is not None]
        for span, root in zip(spans(ends), roots, strict=True):
            if root == self.rank:
                array[span] = _in_rank_order([part[span] for part in everyone])
        self._wait(when.within, "done", done=True)

    def broadcast_parts(
        self, array: np.ndarray, ends: Ints, roots: Ints, when: When = WHEN
    ) -> None:
        """Copy each part of ``array`` from its root's to every rank's."""
        self._meeting.arrays[self.rank] = array
        self._wait(when.within, _in_words("broadcast_parts", array, when))
        for span, root in zip(spans(ends), roots, strict=True):
            source = self._meeting.arrays[root]
            if root != self.rank and source is not None:
                array[span] = source[span]
        self._wait(when.within, "done", done=True)

    def barrier(self, when: When = WHEN) -> None:
        """Return when every rank is here."""
        self._wait(when.within, f"barrier ({when.tag})")

    def vote(self, when: When = WHEN) -> None:
        """Return at once: a rank that leaves a collective knows that every rank came, and leaves it, too."""

    def _wait(
        self,
        within: float,
        what: str,
        then: Callable[[], None] | None = None,
        done: bool = False,
    ) -> None:
        """Meet for a collective, or once more when it is ``done``."""
        began = time.perf_counter()
        self._meeting.wait(self.rank, within, (what, self._step), then)
        if not done:
            self._waited += time.perf_counter() - began

    def _combine(self, chunk: slice, combine: np.ufunc) -> None:
        """Combine a chunk of every rank's array, in rank order, and give it to all."""
        parts = [part[chunk] for part in self._meeting.arrays if part is not None]
        total = parts[0].astype(np.float32) if is_low(parts[0].dtype) else parts[0]
        for part in parts[1:]:
            combine(total, part, out=total)
        for part in parts if total is not parts[0] else parts[1:]:
            part[...] = total

    @property
    def aborted(self) -> str | None:
        """Why a rank gave up; None: none did."""
        return self._meeting.reason

    def abort(self, reason: str) -> None:
        """Release the ranks that wait; they raise CollectiveError until the group is reset."""
        with self._meeting.turn:
            self._meeting.reason = f"rank {self.rank} failed: {reason}"
            self._meeting.turn.notify_all()

    def reset(self, epoch: int) -> None:
        """Begin afresh after an abort. The first rank to call with a new epoch clears the meeting."""
        meeting = self._meeting
        with meeting.turn:
            if epoch > meeting.epoch:
                meeting.epoch, meeting.reason, meeting.arrived = epoch, None, 0

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _in_words(kind: str, array: np.ndarray, when: When) -> str:
    return f"{kind} ({array.dtype}[{array.size}] {when.tag})"


def _in_rank_order(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sum; that of low-precision numbers is float32, to be rounded once."""
    total = parts[0].astype(np.float32 if is_low(parts[0].dtype) else parts[0].dtype)
    for part in parts[1:]:
        total += part
    return total


class _Exchange:
    """Messages to replicas; ``own`` is for replica 0 on the caller's thread. Workers note ``answers``."""

    __slots__ = ("answers", "began", "by_worker", "collected", "handed_out", "own", "size")

    def __init__(self, own: Message | None, by_worker: dict[int, Message], collected: bool) -> None:
        self.own, self.by_worker, self.collected = own, by_worker, collected
        self.size = len(by_worker) + (own is not None)
        self.handed_out, self.began = not by_worker, False
        self.answers: dict[int, Message] = {}


class ThreadDelivery:
    """Replica 0 runs on the caller's thread, or if asked ahead on its own; the others always on their own."""

    def __init__(self, places: Sequence[Place], config: ClusterConfig) -> None:
        self.size = size = len(places)
        self.broken = False
        self.where: Sequence[Mapping[str, Any]] = [{} for _ in range(size)]
        self._within = config.step_deadline_s
        self._meeting = meeting = _Meeting(size)
        self._epoch = 0  # of the messages
        runtimes = [runtime_of(place) for place in places]
        self.replicas = [
            Replica(
                rank,
                _group(rank, meeting, runtime) if size > 1 else None,
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
        """Return a number for messages to be handed out."""
        return next(self._numbers)

    def knows(self, number: int) -> bool:
        """Tell whether messages were handed out under a number, and not given up."""
        return number in self._exchanges

    def start(
        self, messages: Mapping[int, Message], ahead: bool = False, number: int | None = None
    ) -> int:
        """Hand out messages by rank; return the number to ask for the answers with.

        Raises:
            InvalidState: the gang was closed.
        """
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
        """Return the answers by rank.

        Raises:
            CollectiveError: a replica did not answer in time; the gang cannot be used again.
            Torn: an interrupt struck replica 0.
        """
        until = time.monotonic() + self._within
        exchange = self._exchanges[number]
        if not exchange.handed_out:
            self._hand_out(number, exchange)
        if exchange.own is not None and 0 not in exchange.answers:
            self._run_own(exchange, exchange.own)
        if exchange.by_worker:
            self._gather(number, exchange, until)
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
        """Tell, without waiting, whether the answers are there."""
        exchange = self._exchanges.get(number)
        return exchange is None or len(exchange.answers) == exchange.size

    def give_up(self, number: int) -> None:
        """Throw the answers away when they come.

        Raises:
            Torn: replica 0 was not asked, or an interrupt struck it, and the others may wait for it.
        """
        exchange = self._exchanges.get(number)
        if exchange is not None:
            if exchange.own is not None and 0 not in exchange.answers:
                raise Torn
            del self._exchanges[number]

    def drain(self) -> None:
        """Return when all are done with what was interrupted, and stand at one step."""
        self._abort("interrupted")
        number, answers = self.reserve(), dict[int, Message]()
        for worker in self._workers.values():
            worker.ask(number, None, answers)
        waiting = _Exchange(None, dict.fromkeys(self._workers, IDLE), collected=False)
        waiting.answers = answers
        self._gather(number, waiting, time.monotonic() + self._within)
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

    def _gather(self, number: int, exchange: _Exchange, until: float) -> None:
        ranks = exchange.by_worker
        late = [r for r in ranks if not self._workers[r].wait(number, exchange.answers, until)]
        if late:
            self.broken = True
            self._abort(f"replicas {late} are late")
            raise CollectiveError(f"replicas {late} did not answer within {self._within:g} s.")

    def calls(self) -> bool:
        """Tell whether a replica at work has called the caller: its frame is on the stack."""
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


_meetings: weakref.WeakValueDictionary[str, _Meeting] = weakref.WeakValueDictionary()
_forming = threading.Lock()


def form_threads(
    name: str, rank: int, size: int, runtime: Runtime | None, within: float
) -> CollectiveGroup:
    """Return a rank's handle on the group ``name`` of threads of this process, several trainers' among them."""
    with _forming:
        meeting = _meetings.get(name)
        if meeting is None:
            meeting = _meetings[name] = _Meeting(size)
    group = _group(rank, meeting, runtime)
    group.barrier(When(within, "forming the group of all trainers"))
    return group


def _group(rank: int, meeting: _Meeting, runtime: Runtime | None) -> CollectiveGroup:
    """Return a rank's handle; GPUs of one process meet on the host, for NCCL wants a process for each."""
    group = ThreadGroup(rank, meeting)
    return group if runtime is None else StagedGroup(group, runtime)
