"""Several driver threads at once: whatever they share, results are as if they had run in some order."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import rowlock
from tests.programs import on_places

from .kills import CONFIG, Enough
from .programs import KINDS, Fetched, Model, same
from .report import Report

THREADS = 4
SECONDS = 1.0  # of each arrangement in each round, of which there are six
_KIND = next(kind for kind in KINDS if kind.name == "two optimizers")
_JOIN_S = 60.0

# in the order of the program's counter: counted, fed, fetched
Runs = list[tuple[int, int, Fetched]]


class Caller(threading.Thread):
    """A driver thread that runs steps of a program, each on rows of its own choice, and keeps what it got."""

    def __init__(
        self, report: Report, what: str, model: Model, program: Any, seed: int, until: float
    ) -> None:
        super().__init__(daemon=True)
        self.report, self.what, self.model, self.program = report, what, model, program
        self.draw, self.until = random.Random(seed), until
        self.runs: Runs = []
        self.failed: BaseException | None = None

    def run(self) -> None:
        """Run steps, plain ones and some that are begun ahead, and read between them."""
        try:
            while time.monotonic() < self.until:
                with self.report.waiting(self.what):
                    self._once()
        except BaseException as error:
            self.failed = error

    def _once(self) -> None:
        chosen, fed = self.draw.random(), self.draw.randrange(10**6)
        if chosen < 0.1:
            counted = self.model.persistables()["steps"][0]
            assert counted >= max((run[0] for run in self.runs), default=0), "the counter went back"
        elif chosen < 0.3:
            futures = [(seed, self.model.begin(seed, self.program)) for seed in (fed, fed + 1)]
            for seed, future in futures:
                self._keep(seed, future.result())
        else:
            self._keep(fed, self.model.run(fed, self.program))

    def _keep(self, fed: int, fetched: Fetched) -> None:
        self.runs.append((int(fetched[-1][0]), fed, fetched))


def _one_program(models: list[Model]) -> list[tuple[Model, Any]]:
    return [(models[0], models[0].program)] * THREADS


def _own_programs(models: list[Model]) -> list[tuple[Model, Any]]:
    return [(model, model.program) for model in models]


def _one_scope(models: list[Model]) -> list[tuple[Model, Any]]:
    """Two programs that share their variables, two threads on each."""
    model = models[0]
    other = on_places(model.main, _KIND.on(_KIND.places), model.loss, share_vars_from=model.program)
    return [(model, model.program), (model, other)] * (THREADS // 2)


ARRANGEMENTS: dict[str, Callable[[list[Model]], list[tuple[Model, Any]]]] = {
    "one program": _one_program,
    "own programs": _own_programs,
    "two programs on one scope": _one_scope,
}


def attack(report: Report, enough: Enough) -> None:
    """Let threads run beside each other, in each arrangement, until it is enough."""
    number = 0
    with report.leaving_nothing():
        while not number or not enough(report.counts["steps"]):
            for launcher in ("ray", "threads"):
                with rowlock.cluster(launcher=launcher, **{**CONFIG, "spares": 0}):
                    for name in ARRANGEMENTS:
                        number += 1
                        _together(report, f"{launcher}, {name}", name, report.seed + number)


def _together(report: Report, what: str, name: str, seed: int) -> None:
    models = [Model(_KIND) for _ in range(THREADS)]
    if name == "one program":
        pass  # even its first run, which starts the gang, is everybody's
    elif name == "two programs on one scope":
        models[0].run(0)
    callers = [
        Caller(report, what, model, program, seed * THREADS + i, time.monotonic() + SECONDS)
        for i, (model, program) in enumerate(ARRANGEMENTS[name](models))
    ]
    with report.waiting(f"{what}: {SECONDS:g} s of steps, and what came on top", meant=SECONDS):
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(max(caller.until + _JOIN_S - time.monotonic(), 0))
    for caller in callers:
        if caller.is_alive():
            report.note(f"{what}: a thread hangs")
        if caller.failed is not None:
            report.note(f"{what}: {type(caller.failed).__name__}: {caller.failed}")
        report.counts["steps"] += len(caller.runs)
    if all(caller.failed is None and not caller.is_alive() for caller in callers):
        for model in {id(c.model): c.model for c in callers}.values():
            runs = [run for c in callers if c.model is model for run in c.runs]
            _in_order(report, what, sorted(runs, key=lambda run: run[0]), model)


def _in_order(report: Report, what: str, runs: Runs, model: Model) -> None:
    """Check that steps fetched what they fetch when they run one after the other as they were counted."""
    first = runs[0][0] if runs else 1
    if [counted for counted, *_ in runs] != list(range(first, first + len(runs))):
        report.note(f"{what}: steps were counted {[counted for counted, *_ in runs][:20]} …")
        return
    calm = Model(_KIND)
    for step in range(1, first):
        calm.run(step - 1)
    for counted, fed, fetched in runs:
        if not all(map(same, fetched, calm.run(fed))):
            report.note(f"{what}: step {counted} fetched something else")
            return
    expected = calm.persistables()
    if any(not same(value, expected[name]) for name, value in model.persistables().items()):
        report.note(f"{what}: what lasts differs")
