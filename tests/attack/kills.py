"""Replicas are killed while programs of every kind train; nothing that is fetched or kept may differ."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.simulated.simulated import COUNT
from rowlock.strategies.errors import CollectiveError, InvalidState

from .programs import KINDS, Fetched, Kind, Model, Values, differences, same
from .report import DEADLINE_S, Report
from .strikes import AMID, AMID_ON_GPUS, Points, Strike, Striker, at_random, named

STEPS = 3  # around each kill
SPARES = 3  # so many actors start while others are killed
CONFIG = {"step_deadline_s": DEADLINE_S, "collective_deadline_s": DEADLINE_S, "spares": SPARES}
Enough = Callable[[int], bool]


@dataclass
class Record:
    """What a program does when nothing disturbs it: fetches of each step, what lasts after each trial."""

    fetched: list[Fetched] = field(default_factory=list)
    values: list[dict[str, Values]] = field(default_factory=list)


class Trial:
    """A model that is struck, beside the record of one that is not."""

    def __init__(self, kind: Kind, report: Report) -> None:
        self.kind, self.report = kind, report
        self.calm, self.record = Model(kind), Record()
        self.begin_again()

    def begin_again(self) -> None:
        """Train from the start: a documented error ended the model, or a wrong value spoiled it."""
        self.model, self.trials = Model(self.kind), 0
        self.model.run(0)  # on a gang, so that it can be struck

    def struck(self, striker: Striker, strike: Strike) -> None:
        """Train some steps, with a kill at the first of them, and compare."""
        before = pids(self.model)
        first = 1 + self.trials * STEPS
        self._record(first)
        what = f"{self.kind.name}, step {first}: {strike}"
        well = False
        try:
            well = self._train(striker, strike, first, what)
        except InvalidState as error:
            self.report.counts["documented errors"] += 1
            if "alone" not in str(error):
                self.report.note(f"{what}: {error}")
        except Exception as error:
            self.report.note(f"{what}: {type(error).__name__}: {error}")
        missed = striker.settle(self.model.gang)
        self.report.counts["points not reached"] += missed
        if before == pids(self.model):
            self.report.counts["kills that came too late"] += 1
        else:
            self.report.counts["kills"] += 1 + (strike.then is not None) - missed
        self.trials += 1
        if not well:
            with self.report.waiting(f"{what}: starting again"):
                self.begin_again()

    def _train(self, striker: Striker, strike: Strike, first: int, what: str) -> bool:
        self.report.log.texts.clear()
        striker.strike(self.model.gang, strike)
        well = True
        for number, fetched in self._steps(first, what):
            if fetched is None:
                continue
            expected = self.record.fetched[number]
            wrong = [
                i for i, (a, b) in enumerate(zip(fetched, expected, strict=True)) if not same(a, b)
            ]
            self.report.counts["fetches compared"] += len(expected)
            if wrong:
                well = False
                self.report.note(f"{what}: fetches {wrong} of step {number} differ")
        striker.wait()
        with self.report.waiting(f"{what}: reading"):
            by_place = lasting(self.model)
        for where, values in by_place.items():
            self.report.counts["values compared"] += len(values)
            if names := differences(values, self.record.values[self.trials][where]):
                well = False
                if set(names) <= self._lost_as_told():
                    self.report.counts["values lost, as documented"] += 1
                else:
                    self.report.note(f"{what}: {where} differ: {names}")
        return well

    @property
    def _over_actor_calls(self) -> bool:
        """Whether what a replica alone can tell may be lost with it."""
        return bool(self.model.gang.config.transport == "actor")

    def _lost_as_told(self) -> set[str]:
        """Return the persistables of places that the log named as lost in this trial."""
        if not self._over_actor_calls:
            return set()
        texts = [text for text in self.report.log.texts if "has for itself" in text]
        names = self.model.persistables()
        return {name for name in names if any(name in text for text in texts)}

    def _steps(self, first: int, what: str) -> Iterator[tuple[int, Fetched | None]]:
        """Run steps; what one fetches, or None if it is documented to be lost."""
        numbers = range(first, first + STEPS)
        calls: list[Callable[[], Fetched]]
        if self.kind.in_flight:
            futures = []
            for number in numbers:
                with self.report.waiting(f"{what}: beginning step {number}"):
                    futures.append(self.model.begin(number))
            calls = [future.result for future in futures]
        else:
            calls = [lambda number=number: self.model.run(number) for number in numbers]  # type: ignore[misc]
        for number, call in zip(numbers, calls, strict=True):
            try:
                with self.report.waiting(f"{what}: step {number}"):
                    yield number, call()
            except CollectiveError as error:
                if "was lost with it" not in str(error) or not self._over_actor_calls:
                    raise
                self.report.counts["fetches lost, as documented"] += 1
                yield number, None

    def _record(self, first: int) -> None:
        """Let the calm model go as far as the struck one is to go."""
        while len(self.record.fetched) < first + STEPS:
            self.record.fetched.append(self.calm.run(len(self.record.fetched)))
            if len(self.record.fetched) % STEPS == 1 and len(self.record.fetched) > 1:
                self.record.values.append(lasting(self.calm))


def pids(model: Model) -> list[int]:
    """Return the processes of the replicas."""
    return [place["pid"] for place in model.gang.delivery.where]


def lasting(model: Model) -> dict[str, Values]:
    """Return what lasts: as the user reads it, and the parameters of each place."""
    return {"persistables": model.persistables(), **model.copies()}


@dataclass(frozen=True)
class Delivery:
    """How replicas are reached, which programs run there, how many random strikes there are in a round."""

    config: Mapping[str, Any]
    kinds: list[str]
    strikes: int
    named: bool = False  # every named point is struck, too
    each: int = 1000  # strikes that a gang survives
    gpus: int = 0

    def programs(self) -> list[Kind]:
        """Return the kinds of program that are struck here."""
        chosen = [kind for kind in KINDS if kind.name in self.kinds]
        return [replace(kind, on=_gpus) if self.gpus else kind for kind in chosen]


def _gpus(count: int) -> Any:
    return fluid.cuda_places(range(count))


# that a loss leaves fewer places, or no gang
_APART = ("whole numbers", "Reduce mode, state of one")
DELIVERIES = [
    Delivery(
        {"transport": "actor", "spares": 1}, ["sgd", "momentum, batch norm", "4 iterations"], 12
    ),
    Delivery({"on_failure": "shrink", "spares": 0}, [_APART[0]], 6, each=3),
    Delivery({"spares": 0}, [_APART[1]], 2),
    Delivery({"spares": 1}, ["sgd", "weights in flight", "momentum, batch norm"], 9, gpus=4),
    Delivery({}, [kind.name for kind in KINDS if kind.name not in _APART], 50, named=True),
]


def attack(report: Report, enough: Enough) -> None:
    """Kill replicas, under every kind of program and delivery, until it is enough."""
    draw = random.Random(report.seed)
    points = Points()
    with report.leaving_nothing(), points.watched():
        for delivery in itertools.cycle(DELIVERIES):
            with mock.patch.dict(os.environ, {COUNT: str(delivery.gpus)} if delivery.gpus else {}):
                _attack_on(delivery, report, draw, points, enough)
            if enough(report.counts["kills"]):
                break
            _lose_all(report, draw)


def _lose_all(report: Report, draw: random.Random) -> None:
    """Kill every replica amid steps: each use says so at once, until the startup program heals it."""
    kind = next(kind for kind in KINDS if kind.in_flight)
    with rowlock.cluster(launcher="ray", **{**CONFIG, "spares": 0}):
        model, calm = Model(kind), Model(kind)
        expected = [calm.run(step) for step in range(STEPS)]
        model.run(0)
        futures = [model.begin(step) for step in range(1, STEPS)]
        time.sleep(draw.random() * 5e-3)
        for pid in pids(model):
            os.kill(pid, signal.SIGKILL)
        report.counts["kills"] += kind.places
        calls = [*(future.result for future in futures), lambda: model.run(STEPS)]
        calls += [model.persistables] * 2 + calls[-1:]
        for number, call in enumerate(calls):
            with report.waiting(f"all are lost: use {number}"):
                try:
                    fetched = call()
                    if number >= len(futures) or not all(map(same, fetched, expected[number + 1])):
                        report.note(f"all are lost: use {number} returned something")
                except InvalidState:
                    report.counts["documented errors"] += 1
                except CollectiveError as error:  # it happened; the replicas were lost behind it
                    if number >= len(futures):
                        report.note(f"all are lost: use {number}: {type(error).__name__}: {error}")
        with report.waiting("all are lost: starting again"):
            model.start()
            fetched = model.run(0)
        if not all(map(same, fetched, expected[0])):
            report.note("after all were lost a fresh start fetched something else")


def _attack_on(
    delivery: Delivery, report: Report, draw: random.Random, points: Points, enough: Enough
) -> None:
    programs = delivery.programs()
    places = programs[0].places
    amid = AMID_ON_GPUS if delivery.gpus else AMID
    strikes = [at_random(draw, places, amid) for _ in range(delivery.strikes)]
    strikes += named(draw, places) if delivery.named else []
    draw.shuffle(strikes)
    for first in range(0, len(strikes), delivery.each):
        with rowlock.cluster(launcher="ray", **{**CONFIG, **delivery.config}):
            _attack_gang(programs, report, points, strikes[first : first + delivery.each], enough)


def _attack_gang(
    programs: list[Kind], report: Report, points: Points, strikes: list[Strike], enough: Enough
) -> None:
    for number, kind in enumerate(programs):
        if enough(report.counts["kills"]):
            return
        trial, striker = Trial(kind, report), Striker(points)
        for strike in strikes[number :: len(programs)]:
            if enough(report.counts["kills"]):
                return
            trial.struck(striker, strike)
