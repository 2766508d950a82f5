"""Lanes: run long, independent instructions of a plan side by side, on several threads of a replica.

Instructions are dealt to lanes, one thread each. A lane runs its instructions in program order and waits where
one needs memory that another lane still works on, so results never depend on the number of lanes. Collectives
may have a lane to themselves: they mostly wait, and the rest of the step goes on meanwhile.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...graph.ops.collective import COLLECTIVES
from ...strategies.errors import CollectiveAborted, ExecutionError
from ..host.cores import openmp_threads
from ..host.interrupts import interruptible
from .instruction import Instruction

MEASURED_STEPS = 2  # steps run in order before lanes are dealt
_HANDOVER_S = 70e-6  # what it takes until another thread goes on
# Lanes are used if they are expected to take less than this share of the time in order
_WORTH = 0.9


@dataclass(frozen=True)
class Event:
    """When an instruction ran: seconds since the step began, on the replica's own clock.

    ``waited``: seconds in a collective before the last peer arrived; ``busy``: seconds that its thread had a
    processor. ``where``: the user's line that built the op.
    """

    op: str
    writes: tuple[str, ...]
    lane: int
    began: float
    ended: float
    where: str = ""
    waited: float = 0.0
    busy: float = 0.0

    @property
    def took(self) -> float:
        """Its seconds without those that it waited for peers."""
        return self.ended - self.began - self.waited


def timed(
    instruction: Instruction, lane: int, started: float, waited: Callable[[], float]
) -> Event:
    """Run an instruction and return its event; ``waited`` returns the seconds that collectives waited."""
    meets = instruction.op in COLLECTIVES
    before = waited() if meets else 0.0
    used, began = time.thread_time(), time.perf_counter()
    for call in instruction.calls:
        call()
    ended = time.perf_counter()
    busy = time.thread_time() - used
    spent = waited() - before if meets else 0.0
    times = (began - started, ended - started)
    return Event(instruction.op, instruction.writes, lane, *times, instruction.where, spent, busy)


def dependencies(
    reads: Sequence[Sequence[int]], writes: Sequence[Sequence[int]], chained: Sequence[int]
) -> list[set[int]]:
    """Return, for each instruction, those that it must wait for as they use what it reads or overwrites.

    ``reads`` and ``writes`` name memory by address. ``chained`` instructions (collectives) keep their order.
    """
    needs: list[set[int]] = []
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    for i, (read, written) in enumerate(zip(reads, writes, strict=True)):
        waits_for = {writer[at] for at in (*read, *written) if at in writer}
        waits_for.update(k for at in written for k in readers.get(at, ()))
        for at in read:
            readers.setdefault(at, []).append(i)
        for at in written:
            writer[at], readers[at] = i, []
        needs.append(waits_for - {i})
    for before, after in itertools.pairwise(chained):
        needs[after].add(before)
    return needs


def last_concurrent(needs: Sequence[set[int]], chosen: Sequence[int]) -> Callable[[int], int]:
    """Return a function from a set of instructions (bits) to the last one that may run before all are done.

    ``chosen`` is the lane of each instruction, which waits for those before it in the lane, and for its needs.
    """
    waits: list[int] = []  # per instruction, bits of all that are done when it begins
    last: dict[int, int] = {}
    for i, waits_for in enumerate(needs):
        known = 0
        for k in (*waits_for, *([last[chosen[i]]] if chosen[i] in last else [])):
            known |= waits[k] | 1 << k
        waits.append(known)
        last[chosen[i]] = i

    def until(users: int) -> int:
        i = len(waits) - 1
        while i >= 0 and not users & ~waits[i]:
            i -= 1
        return i

    return until


def deal(
    seconds: Sequence[float],
    needs: Sequence[set[int]],
    lanes: int,
    meetings: Mapping[int, float] | None = None,
) -> tuple[list[int], float]:
    """Return a lane for each instruction, and the expected seconds of a step.

    Each instruction goes to the lane where it can begin first; one shorter than a hand-over stays with what it
    needs. ``meetings`` (collectives, by number) have lane number ``lanes`` to themselves; each takes so many
    seconds of a processor from another lane.
    """
    meetings = meetings or {}
    free = [0.0] * (lanes + bool(meetings))
    ended: list[float] = []
    chosen: list[int] = []
    for i, duration in enumerate(seconds):

        def begin(lane: int, i: int = i) -> float:
            ready = (ended[k] + (_HANDOVER_S if chosen[k] != lane else 0.0) for k in needs[i])
            return max(free[lane], *ready, 0.0)

        if i in meetings:
            lane = lanes
            free[min(range(lanes), key=free.__getitem__)] += meetings[i]
        elif duration < _HANDOVER_S:
            near = (k for k in needs[i] if chosen[k] < lanes)
            last = max(near, key=lambda k: ended[k], default=None)
            lane = 0 if last is None else chosen[last]
        else:
            lane = min(range(lanes), key=begin)
        start = begin(lane)
        chosen.append(lane)
        ended.append(start + duration)
        free[lane] = ended[-1]
    return chosen, max(free)


def worth_dealing(seconds: Sequence[float], expected: float) -> bool:
    """Tell whether lanes are expected to save enough over running in order."""
    return expected < _WORTH * sum(seconds)


class Lanes:
    """Instructions dealt to lanes, and the locks by which lanes wait for each other.

    Args:
        chosen: the lane of each instruction.
        needs: the instructions that each waits for.
        every_lock: signal every dependency, even where the order within a lane keeps it.
        within: seconds that a lane waits while no other lane moves on.
        on_failure: is called with the first error, to release peers.
        waited: returns the seconds that collectives have waited for peers so far.
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
        waited: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.count = max(chosen) + 1
        self._instructions = instructions
        self.chosen = chosen
        self._edges = _edges(chosen, needs, every_lock)
        self.signals = len(self._edges)
        self._within = within
        self._on_failure = on_failure
        self._waited = waited
        self._round = 0
        self.at: list[Instruction | None] = [None] * self.count  # under way, by lane
        self.trace: list[Event | None] | None = None
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
                if self.chosen[i] == lane
            ]
            for lane in range(self.count)
        ]

    def run(self, trace: list[Event | None] | None = None) -> None:
        """Run every lane; raise what went wrong first, once all have stopped."""
        self.trace, self.started = trace, time.perf_counter()
        self._round += 1
        try:
            for worker in self._workers:
                worker.go.release()
            self.run_lane(0)
        except BaseException as interrupt:
            self._fail(self._instructions[0], interrupt)
        self._join()
        if self.failed is not None:
            instruction, error = self.failed
            self._arm()
            raise LaneFailed(instruction) from error

    def _join(self) -> None:
        """Wait until every lane has stopped; an interrupt (Ctrl-C) makes them stop."""
        for worker in self._workers:
            while worker.finished != self._round:
                try:
                    with interruptible:
                        worker.done.acquire()
                except BaseException as interrupt:
                    self._fail(self._instructions[0], interrupt)

    def run_lane(self, lane: int) -> None:
        """Run one lane on the calling thread; a failure releases the others."""
        at, running = self._instructions[0], self.at
        try:
            with np.errstate(all="ignore"):
                for i, at, waits, wakes in self._programs[lane]:
                    if waits:
                        running[lane] = None
                        self._wait(waits)
                    if self.failed is not None:
                        return
                    running[lane] = at
                    if self.trace is None:
                        for call in at.calls:
                            call()
                    else:
                        self.trace[i] = timed(at, lane, self.started, self._waited)
                    for lock in wakes:
                        lock.release()
        except BaseException as error:
            self._fail(at, error)
            if not isinstance(error, Exception):
                raise
        finally:
            running[lane] = None

    def _wait(self, locks: Sequence[threading.Lock]) -> None:
        """Wait for other lanes for as long as they move on."""
        for lock in locks:
            before = [id(at) for at in self.at]
            while not lock.acquire(timeout=self._within):
                now = [id(at) for at in self.at]
                if now == before:
                    raise ExecutionError(
                        f"another thread of the replica did not finish within {self._within} s"
                    )
                before = now

    def _fail(self, instruction: Instruction, error: BaseException) -> None:
        if self.failed is None:
            self.failed = (instruction, error)
            if not isinstance(error, CollectiveAborted):  # else the peers know
                self._on_failure(f"{instruction.op}: {error}")
        for lock in self._locks.values():
            with contextlib.suppress(RuntimeError):  # it was free already
                lock.release()

    def close(self) -> None:
        """End the threads."""
        for worker in self._workers:
            worker.ending = True
            worker.go.release()
            with interruptible:
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
        self.finished = 0
        self.go, self.done = threading.Semaphore(0), threading.Semaphore(0)
        with interruptible:
            self.start()

    def run(self) -> None:
        while True:
            self.go.acquire()
            if self.ending:
                return
            try:
                with openmp_threads(1):
                    self.lanes.run_lane(self.lane)
            finally:
                self.finished += 1
                self.done.release()


def _edges(chosen: Sequence[int], needs: Sequence[set[int]], every: bool) -> list[tuple[int, int]]:
    """Return the (producer, consumer) pairs to signal; the order within lanes keeps all others."""
    edges: list[tuple[int, int]] = []
    seen: dict[tuple[int, int], int] = {}
    for consumer, waits_for in enumerate(needs):
        lane = chosen[consumer]
        if every:
            edges += [(producer, consumer) for producer in sorted(waits_for)]
            continue
        for other in {chosen[k] for k in waits_for} - {lane}:
            latest = max(k for k in waits_for if chosen[k] == other)
            if seen.get((other, lane), -1) < latest:
                seen[other, lane] = latest
                edges.append((latest, consumer))
    return edges
