"""Run instructions side by side: long ones that do not need each other, on several threads of a replica.

Instructions are dealt to lanes, one thread each. A lane runs its instructions in program order and waits where
one needs memory that another lane still works on, so results never depend on the number of lanes.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..strategies.errors import ExecutionError

if TYPE_CHECKING:
    from .plan import Instruction

MEASURED_STEPS = 2  # steps run in order before lanes are dealt
_HANDOVER_S = 70e-6  # what it takes until another thread goes on
_WORTH = 0.9  # of the time in order: lanes that promise no less are not used


@dataclass(frozen=True)
class Event:
    """When an instruction ran: seconds since the step began, on the replica's own clock."""

    op: str
    writes: tuple[str, ...]
    lane: int
    began: float
    ended: float


def dependencies(
    reads: Sequence[Sequence[int]], writes: Sequence[Sequence[int]], chained: Sequence[int]
) -> list[set[int]]:
    """Return, per instruction, those it must wait for: what it reads or overwrites is still in their use.

    Memory is named by its address. ``chained`` instructions (collectives) keep their order.
    """
    needs: list[set[int]] = []
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    for i, (read, written) in enumerate(zip(reads, writes, strict=True)):
        found = {writer[at] for at in (*read, *written) if at in writer}
        found.update(k for at in written for k in readers.get(at, ()))
        for at in read:
            readers.setdefault(at, []).append(i)
        for at in written:
            writer[at], readers[at] = i, []
        needs.append(found - {i})
    for before, after in itertools.pairwise(chained):
        needs[after].add(before)
    return needs


def deal(
    seconds: Sequence[float], needs: Sequence[set[int]], lanes: int
) -> tuple[list[int], float]:
    """Return a lane for each instruction, and how long a step is then expected to take (seconds).

    Each instruction goes where it can begin first; one shorter than a hand-over stays with what it needs.
    """
    free = [0.0] * lanes
    ended: list[float] = []
    chosen: list[int] = []
    for i, duration in enumerate(seconds):

        def begin(lane: int, i: int = i) -> float:
            ready = (ended[k] + (_HANDOVER_S if chosen[k] != lane else 0.0) for k in needs[i])
            return max(free[lane], *ready, 0.0)

        if duration < _HANDOVER_S:
            last = max(needs[i], key=lambda k: ended[k], default=None)
            lane = 0 if last is None else chosen[last]
        else:
            lane = min(range(lanes), key=begin)
        start = begin(lane)
        chosen.append(lane)
        ended.append(start + duration)
        free[lane] = ended[-1]
    return chosen, max(free)


def worth_dealing(seconds: Sequence[float], expected: float) -> bool:
    """Tell whether lanes promise enough over running in order."""
    return expected < _WORTH * sum(seconds)


class Lanes:
    """Instructions dealt to lanes, and the locks by which lanes wait for each other.

    ``every_lock``: signal every dependency, also where the order within a lane already keeps it.
    """

    def __init__(
        self,
        instructions: Sequence[Instruction],
        chosen: Sequence[int],
        needs: Sequence[set[int]],
        *,
        every_lock: bool,
        within: float,
        on_failure: Callable[[str], None],
    ) -> None:
        self.count = max(chosen) + 1
        self._instructions = instructions
        self._chosen = chosen
        self._edges = _edges(chosen, needs, every_lock)
        self.signals = len(self._edges)
        self._within = within
        self._on_failure = on_failure
        self._arm()
        self._workers = [_Worker(self, lane) for lane in range(1, self.count)]

    def _arm(self) -> None:
        """Make the locks, all taken; a lane releases its end, another takes it."""
        self.failed: tuple[Instruction, BaseException] | None = None
        self._locks = {edge: threading.Lock() for edge in self._edges}
        for lock in self._locks.values():
            lock.acquire()
        waits: dict[int, list[threading.Lock]] = {}
        wakes: dict[int, list[threading.Lock]] = {}
        for (producer, consumer), lock in self._locks.items():
            waits.setdefault(consumer, []).append(lock)
            wakes.setdefault(producer, []).append(lock)
        self._programs = [
            [
                (i, instruction, waits.get(i, []), wakes.get(i, []))
                for i, instruction in enumerate(self._instructions)
                if self._chosen[i] == lane
            ]
            for lane in range(self.count)
        ]

    def run(self, trace: list[Event | None] | None = None) -> None:
        """Run every lane; raise what went wrong first, once all have stopped."""
        self.trace, self.started = trace, time.perf_counter()
        for worker in self._workers:
            worker.go.release()
        try:
            self.run_lane(0)
        finally:
            for worker in self._workers:
                worker.done.acquire()
        if self.failed is not None:
            instruction, error = self.failed
            self._arm()
            raise LaneFailed(instruction) from error

    def run_lane(self, lane: int) -> None:
        """Run one lane on the calling thread; a failure releases the others."""
        at = None
        try:
            with np.errstate(all="ignore"):
                for i, instruction, waits, wakes in self._programs[lane]:
                    at = instruction
                    for lock in waits:
                        if not lock.acquire(timeout=self._within):
                            raise ExecutionError(
                                f"another thread of the replica did not finish within {self._within} s"
                            )
                    if self.failed is not None:
                        return
                    began = time.perf_counter()
                    for call in instruction.calls:
                        call()
                    if self.trace is not None:
                        self.trace[i] = Event(
                            instruction.op,
                            instruction.writes,
                            lane,
                            began - self.started,
                            time.perf_counter() - self.started,
                        )
                    for lock in wakes:
                        lock.release()
        except BaseException as error:
            assert at is not None
            self._fail(at, error)
            if not isinstance(error, Exception):
                raise

    def _fail(self, instruction: Instruction, error: BaseException) -> None:
        if self.failed is None:
            self.failed = (instruction, error)
            self._on_failure(f"{instruction.op}: {error}")
        for lock in self._locks.values():
            with contextlib.suppress(RuntimeError):  # it was free already
                lock.release()

    def close(self) -> None:
        """End the threads."""
        for worker in self._workers:
            worker.ending = True
            worker.go.release()
            worker.join()
        self._workers = []


class LaneFailed(Exception):
    """An instruction failed in a lane; the cause is chained."""

    def __init__(self, instruction: Any) -> None:
        super().__init__(str(instruction))
        self.instruction = instruction


class _Worker(threading.Thread):
    """The thread of one lane."""

    def __init__(self, lanes: Lanes, lane: int) -> None:
        super().__init__(name=f"rowlock-lane-{lane}", daemon=True)
        self.lanes, self.lane = lanes, lane
        self.ending = False
        self.go, self.done = threading.Semaphore(0), threading.Semaphore(0)
        self.start()

    def run(self) -> None:
        while True:
            self.go.acquire()
            if self.ending:
                return
            try:
                self.lanes.run_lane(self.lane)
            finally:
                self.done.release()


def _edges(chosen: Sequence[int], needs: Sequence[set[int]], every: bool) -> list[tuple[int, int]]:
    """Return (producer, consumer) pairs that must be signalled; lanes run in order, which spares the rest."""
    edges: list[tuple[int, int]] = []
    seen: dict[tuple[int, int], int] = {}
    for consumer, found in enumerate(needs):
        lane = chosen[consumer]
        if every:
            edges += [(producer, consumer) for producer in sorted(found)]
            continue
        for other in {chosen[k] for k in found} - {lane}:
            latest = max(k for k in found if chosen[k] == other)
            if seen.get((other, lane), -1) < latest:
                seen[other, lane] = latest
                edges.append((latest, consumer))
    return edges
