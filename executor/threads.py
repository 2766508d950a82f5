"""A gang made of threads of this process: no Ray, the same interface."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..strategies.errors import CollectiveAborted, CollectiveError, InvalidState
from .gang import Gang
from .place import Place
from .replica import Message, Replica

if TYPE_CHECKING:
    from ..strategies.cluster import ClusterConfig


_SMALL = 1 << 16  # bytes


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
        self.size = meeting.size
        self._meeting = meeting

    def buffer(self, nbytes: int) -> np.ndarray:
        """Return memory for gradients."""
        return np.zeros(nbytes, np.uint8)

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


class _Worker(threading.Thread):
    """Runs one replica beside the driver's thread; a pair of locks hands messages over and back."""

    def __init__(self, replica: Replica) -> None:
        super().__init__(name=f"rowlock-replica-{replica.rank}", daemon=True)
        self.replica = replica
        self.message: Message | None = None
        self.answer = Message("ok", {})
        self._asked, self._answered = threading.Lock(), threading.Lock()
        self._asked.acquire()
        self._answered.acquire()
        self.start()

    def ask(self, message: Message | None) -> None:
        self.message = message
        self._asked.release()

    def wait(self) -> Message:
        self._answered.acquire()
        return self.answer

    def run(self) -> None:
        while True:
            self._asked.acquire()
            if self.message is None:
                return
            self.answer = self.replica.handle(self.message)
            self._answered.release()


class ThreadDelivery:
    """Replica 0 runs on the caller's thread, the others on their own."""

    def __init__(self, size: int, within: float) -> None:
        self.size = size
        self.broken = False
        meeting = _Meeting(size)
        groups = [ThreadGroup(rank, meeting) if size > 1 else None for rank in range(size)]
        self.replicas = [Replica(rank, group, within) for rank, group in enumerate(groups)]
        self._workers = [_Worker(replica) for replica in self.replicas[1:]]

    def exchange(self, messages: Sequence[Message]) -> list[Message]:
        """Deliver one message to each replica and return their answers."""
        if self.broken:
            raise InvalidState("this gang was closed.")
        for worker, message in zip(self._workers, messages[1:], strict=True):
            worker.ask(message)
        try:
            first = self.replicas[0].handle(messages[0])
        except (
            BaseException
        ):  # an interrupt of the caller's thread must not leave the others waiting
            if self.replicas[0].group is not None:
                self.replicas[0].group.abort("interrupted")
            raise
        finally:
            answers = [worker.wait() for worker in self._workers]
        return [first, *answers]

    def close(self) -> None:
        """End the threads."""
        self.broken = True
        for worker in self._workers:
            worker.ask(None)
            worker.join()
        self._workers = []


def launch_threads(places: Sequence[Place], config: ClusterConfig) -> Gang:
    """Start a gang of threads, one per place."""
    return Gang(ThreadDelivery(len(places), config.collective_deadline_s), config.step_deadline_s)
