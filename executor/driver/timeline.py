"""A timeline of traced steps: what every replica and the driver did when, on the driver's clock.

Written as a Chrome trace (JSON), which chrome://tracing and Perfetto show: a process for the driver and each
replica, a thread for each lane.
"""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...graph.ops.collective import COLLECTIVES
from ...strategies.errors import NotSaved
from ..plan.instruction import EARLY_FETCH
from ..plan.traced import STEPS_KEPT, TracedStep
from ..replica.orders import Clock, Now, pack

if TYPE_CHECKING:
    from ..gang.gang import Gang

_SPANS_KEPT = 8 * STEPS_KEPT
_TRIPS = 12  # to each replica and back, to compare clocks
_GAP_S = 100e-6  # a lane that does nothing for longer is shown to wait
_US = 1e6
COMPUTE, COMMUNICATION, WAITING = "compute", "communication", "waiting"


class Span(NamedTuple):
    """Something that the driver did for a step, by its clock."""

    name: str
    step: int
    began: float
    ended: float


class Spans:
    """What the driver does for its steps; kept while ``on``."""

    def __init__(self) -> None:
        self.on = False
        self.recent: deque[Span] = deque(maxlen=_SPANS_KEPT)

    def switch(self, on: bool) -> None:
        """Begin to keep spans, or end it; those of an earlier time are forgotten at the beginning."""
        if on and not self.on:
            self.recent.clear()
        self.on = on

    def note(self, name: str, step: int, began: float) -> None:
        """Keep what was done for a step since ``began`` (``time.perf_counter``)."""
        if self.on:
            self.recent.append(Span(name, step, began, time.perf_counter()))


class Offset(NamedTuple):
    """What a replica's clock shows more than the driver's, and by how much that may be wrong (seconds)."""

    seconds: float
    error: float


def offsets(gang: Gang) -> list[Offset]:
    """Compare the clocks: of several round trips the shortest tells best, taken to be halfway at its middle.

    The error is at most half of that trip, and nearly nothing where both ways take the same time.
    """
    gang.drain()
    clocks = []
    for rank in range(gang.size):
        trips = []
        for _ in range(_TRIPS):
            departure = time.perf_counter()
            answer = gang.some({rank: pack(Clock())})[rank]
            arrival = time.perf_counter()
            trips.append((arrival - departure, Now(**answer.head).now - (departure + arrival) / 2))
        trip, ahead = min(trips)
        clocks.append(Offset(ahead, trip / 2))
    return clocks


def chrome_trace(
    spans: Sequence[Span],
    steps: Sequence[Sequence[TracedStep]],
    ahead: Sequence[Offset],
    names: Sequence[str],
) -> dict[str, Any]:
    """Return what a Chrome trace file holds. By replica: traced steps, its clock, what it is called."""
    starts = [span.began for span in spans]
    starts += [s.began - o.seconds for own, o in zip(steps, ahead, strict=True) for s in own]
    zero = min(starts, default=0.0)
    events = [*_process(0, "driver", {0: "steps"}), *_driver(spans, zero)]
    for rank, (own, offset, name) in enumerate(zip(steps, ahead, names, strict=True)):
        events += _process(rank + 1, name, _lanes(own))
        for step in own:
            events += _replica(rank + 1, step, step.began - offset.seconds - zero)
    clocks = [{"ahead_s": o.seconds, "error_s": o.error} for o in ahead]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"clocks": clocks}}


def named(rank: int, place: Mapping[str, Any]) -> str:
    """Return what a replica is called; ``place`` tells its process and host, if it has its own."""
    return f"replica {rank}" + (f" (process {place['pid']} on {place['host']})" if place else "")


def write(path: str, trace: Mapping[str, Any]) -> None:
    """Write a trace to a file.

    Raises:
        NotSaved: the file cannot be written.
    """
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(trace, file)
    except OSError as error:
        failure = NotSaved(
            f"the timeline cannot be written to {path!r}: {error.strerror or error}. Name a file in a folder "
            f"that is there and that this user may write to."
        )
        failure.errno = error.errno
        raise failure from error


def _process(pid: int, name: str, threads: Mapping[int, str]) -> Iterator[dict[str, Any]]:
    about = {"ph": "M", "pid": pid}
    yield {**about, "name": "process_name", "args": {"name": name}}
    yield {**about, "name": "process_sort_index", "args": {"sort_index": pid}}
    for tid, thread in threads.items():
        yield {**about, "tid": tid, "name": "thread_name", "args": {"name": thread}}


def _slice(
    pid: int, tid: int, name: str, kind: str, began: float, ended: float, **args: Any
) -> dict[str, Any]:
    times = {"ts": began * _US, "dur": max(ended - began, 0.0) * _US}
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "cat": kind, **times, "args": args}


def _driver(spans: Sequence[Span], zero: float) -> Iterator[dict[str, Any]]:
    for span in spans:
        yield _slice(
            0, 0, span.name, "driver", span.began - zero, span.ended - zero, step=span.step
        )
    for number in sorted({span.step for span in spans}):
        own = [span for span in spans if span.step == number]
        about = {"cat": "step", "name": f"step {number}", "id": number, "pid": 0, "tid": 0}
        yield {"ph": "b", "ts": (min(s.began for s in own) - zero) * _US, **about}
        yield {"ph": "e", "ts": (max(s.ended for s in own) - zero) * _US, **about}


def _lanes(steps: Sequence[TracedStep]) -> dict[int, str]:
    """Return what the threads of a replica are called. One that computes may have collectives among it."""
    names: dict[int, str] = {}
    for step in steps:
        for lane in {event.lane for event in step.events}:
            alone = lane == step.communication
            names[lane] = COMMUNICATION if alone else f"{COMPUTE} {lane}" if lane else COMPUTE
    return dict(sorted(names.items()))


def _replica(pid: int, step: TracedStep, at: float) -> Iterator[dict[str, Any]]:
    """Yield a step's slices; ``at`` is when it began. Waiting lies inside what waits, or between two."""
    lanes = {event.lane for event in step.events}
    free = dict.fromkeys(lanes, 0.0)
    for event in sorted(step.events, key=lambda event: event.began):
        if len(lanes) > 1 and event.began - free[event.lane] > _GAP_S:
            gap = (at + free[event.lane], at + event.began)
            yield _slice(pid, event.lane, "waiting for a lane", WAITING, *gap, step=step.step)
        free[event.lane] = event.ended
        talks = event.op in COLLECTIVES
        kind = COMMUNICATION if talks else EARLY_FETCH if event.op == EARLY_FETCH else COMPUTE
        about: dict[str, Any] = {"writes": list(event.writes), "built at": event.where}
        about |= {"step": step.step, "busy_us": event.busy * _US}
        times = (at + event.began, at + event.ended)
        yield _slice(pid, event.lane, event.op, kind, *times, **about)
        if talks and not math.isclose(event.waited, 0.0, abs_tol=1e-9):
            until = min(at + event.began + event.waited, times[1])
            yield _slice(
                pid, event.lane, "waiting for peers", WAITING, times[0], until, step=step.step
            )
