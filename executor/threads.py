"""A gang made of threads of this process: no Ray, the same interface."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import numpy as np

from ..strategies.errors import CollectiveAborted, CollectiveError, InvalidState
from .gang import Gang
from .place import Place
from .replica import Message, Replica

if TYPE_CHECKING:
    from ..strategies.cluster import ClusterConfig


_SMALL = 1 << 16  # bytes
_ENDING_S = 1.0
_IDLE = Message("ok", {})


class _Meeting:
    """Where the threads of a group wait for each other."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.turn = threading.Condition()
        self.arrived = 0
        self.round = 0
        self.reason: str | None = None
        self.epoch = 0
        self.tags: list[str] = [""] * size
        self.arrays: list[np.ndarray | None] = [None] * size

    def wait(
        self, rank: int, within: float, tag: str, then: Callable[[], None] | None = None
    ) -> None:
        """Return when all ranks are here, and the last to come has done ``then``.

        Raises:
            CollectiveError: a rank failed, is missing after ``within`` seconds, or came for something else.
        """
        with self.turn:
            self._refuse_aborted(tag)
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
                self._refuse_aborted(tag)
                left = deadline - time.monotonic()
                if left <= 0:
                    missing = [r for r in range(self.size) if self.tags[r] != tag]
                    raise CollectiveError(
                        f"collective {tag}: ranks {missing} are missing after {within} s."
                    )
                self.turn.wait(left)

    def _refuse_aborted(self, tag: str) -> None:
        if self.reason is not None:
            raise CollectiveAborted(f"collective {tag} aborted: {self.reason}")

    def _check_tags(self) -> None:
        if len(set(self.tags)) > 1:
            self.reason = f"the ranks came for different collectives: {self.tags}"
            self.turn.notify_all()
            raise CollectiveError(f"collective stopped: {self.reason}")


class ThreadGroup:
    """One rank's handle on a group of threads; sums in rank order, so every rank gets the same bits."""

    def __init__(self, rank: int, meeting: _Meeting) -> None:
        self.rank = rank
        self.size = self.local_size = meeting.size
        self._meeting = meeting

    def buffer(self, nbytes: int) -> np.ndarray:
        """Return memory for gradients."""
        return np.zeros(nbytes, np.uint8)

    def release(self, buffer: np.ndarray) -> None:
        """Nothing to do: the array goes with its last reference."""

    def all_reduce(
        self, array: np.ndarray, op: str = "sum", *, within: float = 60.0, tag: str = ""
    ) -> None:
        """Sum ``array`` over the ranks, in place.

        Of a large array each rank sums its own chunk of everybody's; a small one is summed whole by the last
        to come, which spares the others a second wait.
        """
        assert op == "sum", op
        meeting = self._meeting
        meeting.arrays[self.rank] = array
        if array.nbytes <= _SMALL:
            meeting.wait(self.rank, within, tag, lambda: self._sum(slice(None)))
            return
        meeting.wait(self.rank, within, tag)
        share = -(-array.size // self.size)
        chunk = slice(self.rank * share, min((self.rank + 1) * share, array.size))
        self._sum(chunk)
        meeting.wait(self.rank, within, f"{tag}/done")

    def reduce_parts(
        self,
        array: np.ndarray,
        ends: Sequence[int],
        roots: Sequence[int],
        *,
        within: float = 60.0,
        tag: str = "",
    ) -> None:
        """Sum each part of ``array`` over the ranks into its root's; the others keep their own."""
        self._meeting.arrays[self.rank] = array
        self._meeting.wait(self.rank, within, tag)
        everyone = [part for part in self._meeting.arrays if part is not None]
        for begin, end, root in zip((0, *ends), ends, roots, strict=False):
            if root == self.rank:
                array[begin:end] = _in_rank_order([part[begin:end] for part in everyone])
        self._meeting.wait(self.rank, within, f"{tag}/done")

    def broadcast_parts(
        self,
        array: np.ndarray,
        ends: Sequence[int],
        roots: Sequence[int],
        *,
        within: float = 60.0,
        tag: str = "",
    ) -> None:
        """Copy each part of ``array`` from its root's to every rank's."""
        self._meeting.arrays[self.rank] = array
        self._meeting.wait(self.rank, within, tag)
        for begin, end, root in zip((0, *ends), ends, roots, strict=False):
            source = self._meeting.arrays[root]
            if root != self.rank and source is not None:
                array[begin:end] = source[begin:end]
        self._meeting.wait(self.rank, within, f"{tag}/done")

    def barrier(self, *, within: float = 60.0, tag: str = "") -> None:
        """Return when every rank is here."""
        self._meeting.wait(self.rank, within, tag)

    def _sum(self, chunk: slice) -> None:
        """Add up a chunk of every rank's array, in rank order, and give it to all."""
        parts = [part[chunk] for part in self._meeting.arrays if part is not None]
        total = parts[0]
        for part in parts[1:]:
            np.add(total, part, out=total)
        for part in parts[1:]:
            part[...] = total

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
        """Nothing to let go of."""


def _in_rank_order(parts: Sequence[np.ndarray]) -> np.ndarray:
    total = parts[0] + parts[1]
    for part in parts[2:]:
        total += part
    return total


class _Worker(threading.Thread):
    """Runs one replica beside the driver's thread. Numbers pair answers with questions."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(name=f"rowlock-replica-{replica.rank}", daemon=True)
        self.replica = replica
        self.asked: SimpleQueue[tuple[int, Message | None] | None] = SimpleQueue()
        self.answers: SimpleQueue[tuple[int, Message]] = SimpleQueue()
        self.start()

    def wait(self, number: int, until: float) -> Message | None:
        """Return the answer to question ``number`` (those before it were given up); None if it is late."""
        while True:
            try:
                answered, answer = self.answers.get(timeout=max(until - time.monotonic(), 0.001))
            except Empty:
                return None
            if answered == number:
                return answer

    def run(self) -> None:
        while (asked := self.asked.get()) is not None:
            number, message = asked
            answer = _IDLE if message is None else self.replica.handle(message)
            self.answers.put((number, answer))


class ThreadDelivery:
    """Replica 0 runs on the caller's thread, the others on their own."""

    def __init__(self, size: int, config: ClusterConfig) -> None:
        self.size = size
        self.broken = False
        self._within = config.step_deadline_s
        meeting = _Meeting(size)
        groups = [ThreadGroup(rank, meeting) if size > 1 else None for rank in range(size)]
        self.replicas = [
            Replica(rank, group, config.collective_deadline_s) for rank, group in enumerate(groups)
        ]
        self._workers = [_Worker(replica) for replica in self.replicas[1:]]
        self._numbers = itertools.count()
        self._at_work = False  # stays true when an exchange was interrupted

    def exchange(self, messages: Sequence[Message]) -> list[Message]:
        """Deliver one message to each replica and return their answers.

        Raises:
            InvalidState: the gang was closed.
            CollectiveError: a replica did not answer in time; the gang cannot be used again.
        """
        if self.broken:
            raise InvalidState("this gang was closed.")
        until = time.monotonic() + self._within
        if self._at_work:
            self._settle(until)
        self._at_work = True
        number = next(self._numbers)
        try:
            self._put(number, messages[1:])
            first = self.replicas[0].handle(messages[0])
        except BaseException:  # do not leave the others waiting for this thread
            self._abort("interrupted")
            raise
        answers = [first, *self._gather(number, until)]
        self._at_work = False
        return answers

    def _settle(self, until: float) -> None:
        """Return when the others are done with the step that was interrupted."""
        number = next(self._numbers)
        self._put(number, [None] * len(self._workers))
        self._gather(number, until)

    def _put(self, number: int, messages: Sequence[Message | None]) -> None:
        for worker, message in zip(self._workers, messages, strict=True):
            worker.asked.put((number, message))

    def _gather(self, number: int, until: float) -> list[Message]:
        answers = [worker.wait(number, until) for worker in self._workers]
        late = [rank for rank, answer in enumerate(answers, start=1) if answer is None]
        if late:
            self.broken = True
            self._abort(f"replicas {late} are late")
            raise CollectiveError(f"replicas {late} did not answer within {self._within:g} s.")
        return [answer for answer in answers if answer is not None]

    def _abort(self, reason: str) -> None:
        if self.replicas[0].group is not None:
            self.replicas[0].group.abort(reason)

    def close(self) -> None:
        """End the threads; one that is stuck is left to end with the process."""
        self.broken = True
        for worker in self._workers:
            worker.asked.put(None)
        for worker in self._workers:
            worker.join(_ENDING_S)
        self._workers = []
        for replica in self.replicas:
            replica.close()


def launch_threads(places: Sequence[Place], config: ClusterConfig) -> Gang:
    """Start a gang of threads, one per place."""
    return Gang(ThreadDelivery(len(places), config), config.step_deadline_s)
