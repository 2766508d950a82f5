"""Paddle's profiler: while it is on, steps are traced; at its end a table is printed and a timeline written."""

from __future__ import annotations

import importlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ...strategies.errors import InvalidValue, Unsupported
from ..device.place import gpu_count
from ..gang.gang import Gang
from ..plan.traced import STEPS_KEPT, TracedStep
from ..replica.message import Message
from ..replica.orders import Order, StepTraces, Trace
from .timeline import Offset, Spans, chrome_trace, named, offsets, write

if TYPE_CHECKING:
    from ..plan.plan import Plan

STATES, OPTIONS = ("CPU", "GPU", "All"), ("Default", "OpDetail", "AllOpDetail")
_HERE_KEPT = 10_000  # steps of plain programs


class TracedRun(Protocol):
    """What the profiler needs of a parallel program's run."""

    gang: Gang
    spans: Spans
    tracing: bool

    @property
    def steps(self) -> int:
        """Steps that happened, or are under way."""

    def trace(self, on: bool) -> None:
        """Keep the times of instructions from the next step on, or no longer."""

    def tell(self, about: Callable[[int], Order]) -> list[list[Message]]:
        """Send an order about each variant of the program, by number; return the answers."""


@dataclass
class _Run:
    """What is known of a parallel program's steps: by place, and which of them were collected."""

    run: TracedRun
    traced: bool  # the user traces it: leave that on
    first: int  # replicas may keep steps before this one for the user
    collected: int
    steps: list[dict[int, TracedStep]] = field(default_factory=list)

    def collect(self) -> None:
        """Take in the steps that the replicas keep."""
        self.collected = self.run.steps
        for answers in self.run.tell(partial(Trace, on=True)):
            self.steps += [{} for _ in range(len(answers) - len(self.steps))]
            for own, answer in zip(self.steps, answers, strict=False):
                traced = map(TracedStep.from_plain, StepTraces(**answer.head).steps)
                own.update((step.step, step) for step in traced if step.step >= self.first)

    def restart(self) -> None:
        """Discard the steps so far."""
        self.first = self.collected = self.run.steps
        self.steps.clear()


class Profiler:
    """Traces all steps of this process while it is on."""

    def __init__(self) -> None:
        self.on = False
        self._state = "All"
        self._here: list[TracedStep] = []
        self._runs: dict[int, _Run] = {}

    def reset(self) -> None:
        """Discard the traced events."""
        self._here.clear()
        for known in self._runs.values():
            known.restart()

    def begin(self, state: str) -> None:
        """Trace steps from now on."""
        self.reset()
        self.on, self._state = True, state

    def note(self, step: int, plan: Plan) -> None:
        """Take in a step of a plain program that ran in this process."""
        if len(self._here) < _HERE_KEPT:
            self._here.append(TracedStep.of(step, plan))

    def follow(self, run: TracedRun) -> None:
        """Trace the next step of a parallel program, too; what its replicas kept is collected in time."""
        known = self._runs.get(id(run))
        if known is None:
            known = self._runs[id(run)] = _Run(run, run.tracing, run.steps, run.steps)
            run.trace(True)
        elif run.steps - known.collected > STEPS_KEPT // 2:
            known.collect()

    def end(self, key: str) -> tuple[str, dict[str, Any]]:
        """Stop, and return the table and the timeline."""
        self.on = False
        steps, ahead, names, spans = [], [], [], []
        if self._here:
            steps, names, ahead = [self._here], ["this process"], [_NO_OFFSET]
        for known in self._runs.values():
            run = known.run
            if run.gang.delivery.broken:
                continue
            known.collect()
            spans += [span for span in run.spans.recent if span.step >= known.first]
            where = run.gang.delivery.where
            ahead += offsets(run.gang)[: len(known.steps)]
            names += [named(rank, where[rank]) for rank in range(len(known.steps))]
            steps += [[own[number] for number in sorted(own)] for own in known.steps]
            run.trace(known.traced)
        self._runs.clear()
        return table(steps, names, key, self._state), chrome_trace(spans, steps, ahead, names)


_NO_OFFSET = Offset(0.0, 0.0)
PROFILER = Profiler()
_ORDERS: dict[str, Callable[[Any], Any] | None] = {
    "default": None,
    "calls": lambda row: -len(row[1]),
    "total": lambda row: -sum(row[1]),
    "max": lambda row: -max(row[1]),
    "min": lambda row: -min(row[1]),
    "ave": lambda row: -sum(row[1]) / len(row[1]),
}


def table(steps: list[list[TracedStep]], names: list[str], key: str, state: str) -> str:
    """Return a line for each op of each place: calls, and milliseconds in all, least, most and on average."""
    by_place: list[tuple[str, dict[str, list[float]]]] = []
    for name, own in zip(names, steps, strict=True):
        spent_by: defaultdict[str, list[float]] = defaultdict(list)
        for step in own:
            for event in step.events:
                spent_by[event.op].append((event.ended - event.began) * 1e3)
        by_place.append((name, spent_by))
    whole = sum(sum(spent) for _, times in by_place for spent in times.values()) or 1.0
    width = max((len(op) for _, times in by_place for op in times), default=0) + 4
    head = "".join(f"{title:<12}" for title in ("Calls", "Total", "Min.", "Max.", "Ave.", "Ratio."))
    lines = ["", "Profiling Report", f"Place: {state}", "Time unit: ms"]
    lines += [f"Sorted by: {key}" if key != "default" else "In the order of the first call"]
    for name, times in by_place:
        order = _ORDERS[key]
        rows = list(times.items()) if order is None else sorted(times.items(), key=order)
        lines += [
            "",
            f"{name}, {sum(map(sum, times.values())):.4g} ms",
            f"{'Event':<{width}}{head}",
        ]
        for op, spent in rows:
            numbers = (sum(spent), min(spent), max(spent), sum(spent) / len(spent))
            columns = "".join(f"{number:<12.6g}" for number in (*numbers, sum(spent) / whole))
            lines.append(f"{op:<{width}}{len(spent):<12}{columns}")
    return "\n".join(lines)


def start_profiler(state: str, tracer_option: str = "Default") -> None:
    """Trace all steps from now on: which op ran when on every place. Nothing happens if it is on already.

    ``state`` and ``tracer_option`` are checked and named in the table; every place and every op is traced.

    Raises:
        InvalidValue: ``state`` or ``tracer_option`` is none of Paddle's.
    """
    _check("state", state, STATES)
    _check("tracer_option", tracer_option, OPTIONS)
    if not PROFILER.on:
        PROFILER.begin(state)


def stop_profiler(sorted_key: str | None = None, profile_path: str = "/tmp/profile") -> None:
    """Print a table of ops and write a Chrome trace to ``profile_path``; nothing happens if it is off.

    Raises:
        InvalidValue: ``sorted_key`` is none of calls, total, max, min, ave and default.
        NotSaved: ``profile_path`` cannot be written; the table is printed before.
    """
    key = "default" if sorted_key is None else sorted_key
    _check("sorted_key", key, tuple(_ORDERS))
    if PROFILER.on:
        operators, timeline = PROFILER.end(key)
        print(operators, file=sys.stdout, flush=True)
        write(profile_path, timeline)


def reset_profiler() -> None:
    """Discard the events traced so far."""
    PROFILER.reset()


@contextmanager
def profiler(
    state: str,
    sorted_key: str | None = None,
    profile_path: str = "/tmp/profile",
    tracer_option: str = "Default",
) -> Iterator[None]:
    """Profile the steps of a ``with`` block (see :func:`start_profiler` and :func:`stop_profiler`)."""
    _check("sorted_key", "default" if sorted_key is None else sorted_key, tuple(_ORDERS))
    start_profiler(state, tracer_option)
    try:
        yield
    finally:
        stop_profiler(sorted_key, profile_path)


@contextmanager
def cuda_profiler(
    output_file: str, output_mode: str | None = None, config: Any = None
) -> Iterator[None]:
    """Let NVIDIA's profiler, under which the process was started, look at a ``with`` block only.

    That profiler writes its file itself: what it is called is said at its start (``nsys profile -o``).

    Raises:
        InvalidValue: ``output_mode`` is neither "kvp" nor "csv".
        Unsupported: there is no GPU.
    """
    _check("output_mode", "csv" if output_mode is None else output_mode, ("kvp", "csv"))
    if gpu_count() == 0:
        raise Unsupported("cuda_profiler: there is no GPU here. Use profiler('CPU').")
    runtime = importlib.import_module("cupy.cuda.runtime")
    runtime.profilerStart()
    try:
        yield
    finally:
        runtime.profilerStop()


def _check(argument: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidValue(f"profiler: {argument} must be one of {known}, got {value!r}.")
