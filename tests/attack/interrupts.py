"""Ctrl-C at random bytecodes of the driver's step, some followed by a kill: no stall, right steps."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Callable
from typing import Any

import rowlock
from tests.contract.interrupts import Strike as Interrupt

from .kills import CONFIG, Enough
from .programs import KINDS, Fetched, Model, Values, differences, same
from .report import Report

STEPS = 150  # a model trains before it begins again
KILLS = 0.1  # of the interrupts are followed by one
TIMED = 0.3  # of the interrupts are real signals, the others come before a bytecode of ours


def _timed(operation: Callable[[], Any], seconds: float) -> bool:
    """Run an operation with a real signal after so many seconds; tell whether that struck it."""
    armed = [True]

    def ring(*_: object) -> None:
        if armed:
            armed.clear()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        operation()
        armed.clear()
    except KeyboardInterrupt:
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return False


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
        self.where = ""
        self.begin_again()
        calm_run = Interrupt()
        calm_run.during(lambda: self.model.run(1))
        self.bytecodes, self.step = calm_run.count, 2

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
        with self.report.waiting(what):
            if self.draw.random() < TIMED:
                struck = _timed(operation, 1e-6 + self.draw.random() * 2e-3)
            else:
                interrupt = Interrupt(self.draw.randrange(1, self.bytecodes + 1))
                struck = interrupt.during(operation) is None
                self.where = interrupt.where
        self.report.counts["interrupts"] += struck
        return struck

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
        report.counts["bytecodes of a step"] = trial.bytecodes
        while not enough(report.counts["interrupts"]):
            try:
                trial.once()
            except Exception as error:
                report.note(f"{type(error).__name__}: {error} (interrupted at {trial.where})")
                trial.begin_again()
            if trial.step >= STEPS:
                trial.begin_again()
