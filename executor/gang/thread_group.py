"""ThreadGroup: collectives of threads of one process, and how several trainers' threads form a group."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ...strategies.errors import CollectiveAborted, CollectiveError
from ...strategies.types import is_low
from ..cuda.runtime import Runtime
from ..host.deadline import Deadline
from ..host.interrupts import interruptible
from ..plan.group import WHEN, CollectiveGroup, Ints, When, spans
from ..replica.agreement import NO_STEP, format_step, mismatch_message
from .staged import StagedGroup

_SMALL = 1 << 16  # bytes
_COMBINE = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}


class ThreadRendezvous:
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
            deadline = Deadline(within)
            while self.round == mine:
                self._refuse_aborted(tag[0])
                if deadline.over:
                    self._give_up(tag, within)
                self.turn.wait(deadline.slice_s)

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

    def __init__(self, rank: int, meeting: ThreadRendezvous) -> None:
        self.rank = rank
        self.size = self.local_size = meeting.size
        self._waited = 0.0  # seconds, for peers
        self._meeting = meeting
        self._step = NO_STEP

    def begin(self, step: int) -> None:
        self._step = step

    @property
    def waited(self) -> float:
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
        request = _in_words(f"all_reduce/{op}", array, when)
        return partial(self._all_reduce, array, when.within, request, _COMBINE[op])

    def reduce_parts(
        self, array: np.ndarray, ends: Ints, roots: Ints, op: str = "sum", when: When = WHEN
    ) -> None:
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
        self._meeting.arrays[self.rank] = array
        self._wait(when.within, _in_words("broadcast_parts", array, when))
        for span, root in zip(spans(ends), roots, strict=True):
            source = self._meeting.arrays[root]
            if root != self.rank and source is not None:
                array[span] = source[span]
        self._wait(when.within, "done", done=True)

    def barrier(self, when: When = WHEN) -> None:
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
        return self._meeting.reason

    def abort(self, reason: str) -> None:
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
    """Return the sum, in float32 for low-precision numbers, so that it is rounded once."""
    total = parts[0].astype(np.float32 if is_low(parts[0].dtype) else parts[0].dtype)
    for part in parts[1:]:
        total += part
    return total


_meetings: weakref.WeakValueDictionary[str, ThreadRendezvous] = weakref.WeakValueDictionary()
_forming = threading.Lock()


def form_threads(
    name: str, rank: int, size: int, runtime: Runtime | None, within: float
) -> CollectiveGroup:
    """Return a rank's handle on the group ``name`` of threads of this process, several trainers' among them."""
    with _forming:
        meeting = _meetings.get(name)
        if meeting is None:
            meeting = _meetings[name] = ThreadRendezvous(size)
    group = thread_group(rank, meeting, runtime)
    group.barrier(When(within, "forming the group of all trainers"))
    return group


def thread_group(rank: int, meeting: ThreadRendezvous, runtime: Runtime | None) -> CollectiveGroup:
    """Return a rank's handle; GPUs of one process meet on the host, for NCCL wants a process for each."""
    group = ThreadGroup(rank, meeting)
    return group if runtime is None else StagedGroup(group, runtime)
