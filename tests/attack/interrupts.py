"""Ctrl-C at random bytecodes of the driver's step, some followed by a kill: no stall, right steps."""

from __future__ import annotations

import contextlib
import dis
import functools
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import rowlock

from .kills import CONFIG, Enough
from .programs import KINDS, Fetched, Model, Values, differences, same
from .report import Report

STEPS = 150  # a model trains before it begins again
KILLS = 0.1  # of the interrupts are followed by one
_LOOKS = {
    number
    for name, number in dis.opmap.items()
    if name in ("CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "YIELD_VALUE", "SEND")
    or name.startswith("POP_JUMP_BACKWARD")
}  # opcodes after which Python looks for signals; it does so when a function begins, too


class Interrupter:
    """Raises KeyboardInterrupt at one of the moments at which Python looks for signals, by number."""

    def __init__(self) -> None:
        self.passed, self._at = 0, -1
        self._before: dict[FrameType, int] = {}

    @contextlib.contextmanager
    def armed(self, at: int) -> Iterator[None]:
        """Raise at moment number ``at`` (-1: count the moments)."""
        self.passed, self._at = 0, at
        self._before.clear()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            if frame.f_code.co_filename == __file__:
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            self._look()
        elif event == "opcode":
            before = self._before.get(frame)
            self._before[frame] = _codes(frame.f_code)[frame.f_lasti]
            if before in _LOOKS:
                self._look()
        elif event == "return":
            self._before.pop(frame, None)
        return self._trace

    def _look(self) -> None:
        self.passed += 1
        if self.passed == self._at + 1:
            sys.settrace(None)
            raise KeyboardInterrupt


@functools.cache
def _codes(code: CodeType) -> bytes:
    return code.co_code


class Alarm:
    """Raises KeyboardInterrupt after some time, as Ctrl-C does."""

    def __init__(self) -> None:
        self._armed = False

    def _ring(self, *_: Any) -> None:
        if self._armed:
            self._armed = False
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def armed(self, seconds: float) -> Iterator[None]:
        """Raise after so many seconds, unless the block ended before."""
        before = signal.signal(signal.SIGALRM, self._ring)
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


class Trial:
    """A model whose step counter tells how many steps happened, beside what an undisturbed one does."""

    def __init__(self, report: Report, draw: random.Random) -> None:
        self.report, self.draw = report, draw
        self.kind = next(kind for kind in KINDS if kind.name == "two optimizers")
        calm = Model(self.kind)
        self.fetched: list[Fetched] = []
        self.values: list[Values] = [calm.persistables()]
        for step in range(STEPS + 2):
            self.fetched.append(calm.run(step))
            self.values.append(calm.persistables())
        self.interrupter = Interrupter()
        self.begin_again()
        with self.interrupter.armed(-1):
            self.model.run(1)
        self.moments, self.step = self.interrupter.passed, 2

    def begin_again(self) -> None:
        """Train from the start."""
        self.model, self.step = Model(self.kind), 1
        self.model.run(0)

    def once(self) -> None:
        """Interrupt one operation, and see what became of the step."""
        operation, what = self._drawn()
        killed = self.draw.random()
        if killed < KILLS / 4:
            self._kill()  # recovery is interrupted
            what += " behind a kill"
        interrupted = self._interrupted(operation, what)
        if interrupted and KILLS / 4 <= killed < KILLS:
            self._kill()
            what += ", then a kill"
        with self.report.waiting(f"{what}: reading"):
            found = self.model.persistables()
        happened = int(found["steps"][0])
        if not self.step <= happened <= self.step + 1:
            raise AssertionError(f"{what}: {happened} steps happened, not {self.step} or one more")
        if names := differences(found, self.values[happened]):
            raise AssertionError(f"{what}: after {happened} steps these differ: {names}")
        with self.report.waiting(f"{what}: the next step"):
            fetched = self.model.run(happened)
        if not all(map(same, fetched, self.fetched[happened])):
            raise AssertionError(f"{what}: step {happened} fetches something else")
        self.step = happened + 1

    def _drawn(self) -> tuple[Callable[[], Any], str]:
        """Return an operation to interrupt, mostly a step."""
        step, model = self.step, self.model
        number = self.draw.random()
        if number < 0.1:
            return model.persistables, f"step {step}: reading interrupted"
        if number < 0.3:
            return lambda: model.begin(step).result(), f"step {step}: run_async interrupted"
        return lambda: model.run(step), f"step {step}: run interrupted"

    def _interrupted(self, operation: Callable[[], Any], what: str) -> bool:
        """Run an operation; tell whether an interrupt struck it."""
        if self.draw.random() < 0.7:
            at = self.draw.randrange(self.moments)
            armed, what = self.interrupter.armed(at), f"{what} at moment {at}"
        else:
            armed = Alarm().armed(1e-6 + self.draw.random() * 1.5e-3)
        try:
            with self.report.waiting(what), armed:
                operation()
        except KeyboardInterrupt:
            self.report.counts["interrupts"] += 1
            return True
        return False

    def _kill(self) -> None:
        members = self.model.gang.delivery.where
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.draw.choice(members)["pid"], signal.SIGKILL)
        self.report.counts["kills"] += 1


def attack(report: Report, enough: Enough) -> None:
    """Interrupt steps until it is enough."""
    draw = random.Random(report.seed)
    with report.leaving_nothing(), rowlock.cluster(launcher="ray", **CONFIG):
        trial = Trial(report, draw)
        report.counts["moments of a step"] = trial.moments
        while not enough(report.counts["interrupts"]):
            try:
                trial.once()
            except Exception as error:
                report.note(f"{type(error).__name__}: {error}")
                trial.begin_again()
            if trial.step >= STEPS:
                trial.begin_again()
