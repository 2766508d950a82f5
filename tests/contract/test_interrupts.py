"""An interrupt at any bytecode of the driver's step loses no replica, no step and no answer."""

from __future__ import annotations

import logging
import os
import random
import signal
from collections.abc import Callable
from typing import Any

import pytest

import rowlock
from rowlock.executor.gang.launchers import close_gangs

from ..conftest import SEED, lasting, one_in
from .interrupts import Strike
from .nets import OPTIMIZERS, Net, feed

BATCH = feed(8)
SAMPLED = not os.environ.get("ROWLOCK_TEST_LONG")  # else: every bytecode


class Training:
    """Steps on one batch, with dropout: what they come to depends on how many there were alone."""

    def __init__(self, places: int = 2) -> None:
        self.net = Net(OPTIMIZERS["momentum"], layers=2, drop=0.3)
        self.program = self.net.compiled(places)
        self.step()

    def step(self) -> Any:
        return self.net.run(self.program, BATCH, [self.net.loss])

    def two_steps(self) -> None:
        """Two steps, one begun before the other is done."""
        how = {"scope": self.net.scope}
        futures = [
            self.net.exe.run_async(self.program, BATCH, [self.net.loss], **how) for _ in range(2)
        ]
        for future in futures:
            assert len(future.result()) == 1

    @property
    def run(self) -> Any:
        return self.program._parallel

    def state(self) -> list[bytes]:
        return [value.tobytes() for value in self.net.parameters().values()]


def undisturbed(steps: int) -> list[list[bytes]]:
    """What training has come to after 0 (not known), 1, 2, ... steps."""
    training = Training()
    states: list[list[bytes]] = [[], training.state()]
    for _ in range(steps):
        training.step()
        states.append(training.state())
    return states


def bytecodes(call: Callable[[], Any]) -> int:
    counting = Strike()
    counting.during(call)
    return counting.count


def interrupted(count: int, kill_each: int, seed: int, call: str = "step") -> dict[str, int]:
    """Interrupt steps at ``count`` bytecodes (0: at each), and compare; now and then a replica dies."""
    draw = random.Random(seed)
    states = undisturbed(3 * (count or 6000) + 20)
    training = Training()
    getattr(training, call)()
    total = min(bytecodes(getattr(training, call)) for _ in range(3))  # fewest where nothing waits
    every = range(1, total + 1)
    places = sorted(draw.sample(every, min(count, total))) if count else every
    others = training.run.gang.ledger.done - training.run.steps  # steps of the undisturbed one
    counts = {"bytecodes": total, "interrupts": 0, "kills": 0}
    for k, at in enumerate(places):
        strike = Strike(at)
        strike.during(getattr(training, call))
        counts["interrupts"] += bool(strike.where)
        if kill_each and k % kill_each == kill_each - 1:
            where = training.run.gang.delivery.where
            os.kill(where[draw.randrange(len(where))]["pid"], signal.SIGKILL)
            counts["kills"] += 1
        message = f"interrupt {at} of {total} (seed {seed}) at {strike.where}"
        state = training.state()
        gang = training.run.gang
        assert training.run.steps == gang.ledger.done - others, message
        assert state == states[training.run.steps], message
        assert not gang.under_way, message
        assert not gang.delivery.broken, message
        if k % 7 == 0:
            training.step()
    before = training.run.gang.ledger.done
    assert len(training.step()) == 1
    assert training.run.gang.ledger.done == before + 1
    return counts


@pytest.mark.parametrize("call", ["step", "two_steps"])
def test_threads(call: str) -> None:
    with rowlock.cluster(launcher="threads"):
        counts = interrupted(60 * SAMPLED, 0, SEED, call)
    assert counts["interrupts"] > 50


@pytest.mark.parametrize("call", one_in(2, ["step", "two_steps"]))
def test_replicas_of_ray_that_die(ray_cluster: None, call: str) -> None:
    logging.getLogger("rowlock").setLevel(logging.ERROR)
    try:
        with lasting("ray", spares=1):
            counts = interrupted(15 * SAMPLED, 7, SEED, call)
    finally:
        logging.getLogger("rowlock").setLevel(logging.NOTSET)
    assert counts["interrupts"] > 10 and counts["kills"] >= 2


def test_a_gang_whose_end_is_interrupted_keeps_its_values(threads: None) -> None:
    draw = random.Random(SEED)
    print(f"ROWLOCK_TEST_SEED={SEED} draws the same again")
    calm, training = Training(), Training()
    for at in draw.choices(range(1, bytecodes(close_gangs) + 1), k=12):
        calm.step()
        training.step()
        expected = calm.state()
        strike = Strike(at)
        strike.during(close_gangs)
        assert training.state() == expected, f"interrupt {at} (seed {SEED}) at {strike.where}"
        close_gangs()
