"""Ctrl-C at random bytecodes of the driver's steps, recoveries, reads, saves, loads and ends of gangs.

Some are followed by a kill. There is no stall, each step happens once or not at all, and no value is lost.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from typing import Any, ClassVar

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.gang.launchers import close_gangs
from tests.contract.interrupts import Strike as Interrupt

from .kills import CONFIG, Enough
from .programs import KINDS, Fetched, Model, Values, differences, same
from .report import Report

STEPS = 150  # a model trains before it begins again
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

    def __init__(self, report: Report, draw: random.Random, folder: str, kills: float) -> None:
        self.report, self.draw, self.folder, self.kills = report, draw, folder, kills
        self.kind = next(kind for kind in KINDS if kind.name == "two optimizers")
        calm = Model(self.kind)
        self.fetched: list[Fetched] = []
        self.values: list[Values] = [calm.persistables()]
        for step in range(STEPS + 2):
            self.fetched.append(calm.run(step))
            self.values.append(calm.persistables())
        self.where = ""
        # Bytecodes and seconds of each operation, when it was last not interrupted.
        self.lengths: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        self.begin_again()

    def begin_again(self) -> None:
        """Train from the start, and keep the values of the first step on disk."""
        self.model, self.step = Model(self.kind), 1
        self.model.run(0)
        with fluid.scope_guard(self.model.scope):
            self._save()

    def once(self) -> None:
        """Interrupt one operation, and see what became of the values."""
        weights = self.weights if not self.kills else (*self.weights[:-1], 1)  # actors start slowly
        name = self.draw.choices(list(self.operations), weights)[0]
        operation, what = self.operations[name], f"step {self.step}: {name}"
        killed = self.draw.random()
        if killed < self.kills / 2:  # its recovery is interrupted
            self._kill()
            name, what = f"{name} behind a kill", f"{what} behind a kill"
        interrupted = self._interrupted(name, lambda: operation(self), what)
        if interrupted and self.kills / 2 <= killed < self.kills:
            self._kill()
            what += ", then a kill"
        if operation in (Trial._load, Trial._save, Trial._close):  # as a user does who goes on
            with self.report.waiting(f"{what}: again"), fluid.scope_guard(self.model.scope):
                operation(self)
        steps = {Trial._load: [1], Trial._step: [self.step, self.step + 1]}
        steps[Trial._async] = steps[Trial._step]
        self._compare(what, steps.get(operation, [self.step]))

    def _compare(self, what: str, steps: list[int]) -> None:
        """Check that as many steps happened as may have, and that the next one is as it should be."""
        with self.report.waiting(f"{what}: reading"):
            values = self.model.persistables()
        happened = int(values["steps"][0])
        if happened not in steps:
            raise AssertionError(f"{what}: {happened} steps happened, not one of {steps}")
        if names := differences(values, self.values[happened]):
            raise AssertionError(f"{what}: after {happened} steps these differ: {names}")
        with self.report.waiting(f"{what}: the next step"):
            fetched = self.model.run(happened)
        if not all(map(same, fetched, self.fetched[happened])):
            raise AssertionError(f"{what}: step {happened} fetches something else")
        self.report.counts["fetches compared"] += len(fetched)
        self.step = happened + 1

    # -- what is interrupted ------------------------------------------------------------------------

    def _step(self) -> None:
        self.model.run(self.step)

    def _async(self) -> None:
        self.model.begin(self.step).result()

    def _read(self) -> None:
        self.model.persistables()

    def _save(self) -> None:
        folder = self.folder if self.step == 1 else f"{self.folder}-later"
        fluid.io.save_persistables(self.model.exe, folder, self.model.main)

    def _load(self) -> None:
        fluid.io.load_persistables(self.model.exe, self.folder, self.model.main)

    def _close(self) -> None:
        close_gangs()

    operations: ClassVar[dict[str, Callable[[Trial], None]]] = {
        "run interrupted": _step,
        "run_async interrupted": _async,
        "reading interrupted": _read,
        "save interrupted": _save,
        "load interrupted": _load,
        "close interrupted": _close,
    }
    weights = (50, 20, 10, 6, 6, 8)

    def _interrupted(self, name: str, operation: Callable[[], Any], what: str) -> bool:
        """Run an operation; tell whether an interrupt struck it."""
        began = time.monotonic()
        with self.report.waiting(what), fluid.scope_guard(self.model.scope):
            length = self.lengths.get(name, 0)
            if length and self.draw.random() < TIMED:
                self.where = "a moment"
                struck = _timed(operation, 1e-6 + self.draw.random() * self.seconds[name])
            else:
                interrupt = Interrupt(self.draw.randrange(1, length + 1) if length else 0)
                struck = interrupt.during(operation) is None and bool(interrupt.where)
                self.where = interrupt.where
                if not struck:
                    self.lengths[name] = interrupt.count
        if not struck:
            self.seconds[name] = time.monotonic() - began
        self.report.counts["interrupts"] += struck
        self.report.counts[name] += struck
        return struck

    def _kill(self) -> None:
        run: Any = self.model.program._parallel
        if run.gang.delivery.broken:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.draw.choice(run.gang.delivery.where)["pid"], signal.SIGKILL)
        self.report.counts["kills"] += 1


def attack(report: Report, enough: Enough) -> None:
    """Interrupt on replicas that are threads, which is quick, and on actors that are killed, too."""
    draw = random.Random(report.seed)
    with report.leaving_nothing(), tempfile.TemporaryDirectory() as folder:
        while not report.counts["interrupts"] or not enough(report.counts["interrupts"]):
            for launcher, count, kills in (("threads", 900, 0.0), ("ray", 100, 1.0)):
                with rowlock.cluster(launcher=launcher, **CONFIG):
                    _attack_on(report, draw, f"{folder}/{launcher}", count, kills, enough)


def _attack_on(
    report: Report, draw: random.Random, folder: str, count: int, kills: float, enough: Enough
) -> None:
    trial = Trial(report, draw, folder, kills)
    until = report.counts["interrupts"] + count
    while report.counts["interrupts"] < until and not enough(report.counts["interrupts"]):
        try:
            trial.once()
        except Exception as error:
            report.note(f"{type(error).__name__}: {error} (interrupted at {trial.where})")
            trial.begin_again()
        if trial.step >= STEPS:
            trial.begin_again()
