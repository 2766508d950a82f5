"""Replicas die while a recovery is under way, at each of its points: training goes on with the same bits."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence

import pytest

import rowlock

pytest.importorskip("ray")  # its helpers are Ray's

from .nets import OPTIMIZERS, Net, assert_close, feed
from .strikes import Strike, first, last, newcomer, striking
from .test_recovery import kill, pids, quiet, replicas_equal

__all__ = ["quiet"]
_BACK_S = 150.0  # less than the shortest deadline; an idle host takes about 1 s for each new actor
ONCE = [
    Strike("waiting", last),
    Strike("inventory", last, late=True),
    Strike("roll_forward", last, late=True),
    Strike("describe", newcomer),
    Strike("describe", last, late=True),
    Strike("connect", newcomer),
    Strike("connect", newcomer, late=True),
    Strike("regroup", last, late=True),
    Strike("regroup", newcomer, late=True),
    Strike("names", first, late=True),
    Strike("read", first),
    Strike("write", first),
    Strike("write", newcomer, late=True),
    Strike("resume", newcomer, late=True),
    Strike("load", last, late=True),
    Strike("load", newcomer),
    Strike("step", last, late=True),
]
OFTEN = [
    [Strike("regroup", last, late=True), Strike("describe", newcomer, late=True)],
    [Strike("describe", newcomer), Strike("connect", newcomer), Strike("regroup", newcomer, True)],
    [Strike("inventory", last), Strike("write", newcomer, True), Strike("load", newcomer, True)],
    [Strike("load", newcomer, True), Strike("step", newcomer), Strike("step", newcomer, True)],
]


class Trial:
    """A program that is struck; what it makes without that is known beforehand, step by step."""

    def __init__(self, places: int, steps: int) -> None:
        self.rows, self.step = 4 * places, 0
        twin, self.wanted = Net(OPTIMIZERS["adam"], layers=2), []
        undisturbed = twin.compiled(places)
        for step in range(steps):
            (loss,) = twin.run(undisturbed, feed(self.rows, step), [twin.loss])
            self.wanted.append((loss, twin.parameters()))
        self.net = Net(OPTIMIZERS["adam"], layers=2)
        self.program = self.net.compiled(places)
        self.go()

    def go(self) -> float:
        """Do a step, compare everything, and return the seconds that the step took."""
        began = time.monotonic()
        (loss,) = self.net.run(self.program, feed(self.rows, self.step), [self.net.loss])
        seconds = time.monotonic() - began
        expected, parameters = self.wanted[self.step]
        self.step += 1
        assert loss.tobytes() == expected.tobytes()
        for name, value in self.net.parameters().items():
            assert value.tobytes() == parameters[name].tobytes(), name
        replicas_equal(self.net, self.program)
        return seconds

    def struck(self, strikes: Sequence[Strike], rank: int) -> None:
        """Kill a replica, and others while the gang is mended."""
        kill(self.program, rank)
        with striking(strikes) as scene:
            seconds = self.go()
        points = [(s.point, s.victim.__name__, s.late) for s in strikes]
        print(f"{points}: back after {seconds:.2f} s")
        assert not scene.strikes, f"{points}: not made"
        assert seconds < _BACK_S, points
        self.go()


def drawn() -> list[list[Strike]]:
    """Return some strikes (all, if ROWLOCK_TEST_LONG is set): early and late ones, and several in a row."""
    once = [[strike] for strike in ONCE]
    if os.environ.get("ROWLOCK_TEST_LONG"):
        return [*once, *OFTEN]
    half = len(once) // 2
    return [random.choice(once[:half]), random.choice(once[half:]), random.choice(OFTEN)]


@pytest.mark.slow
def test_killed_at_points_of_a_recovery() -> None:
    strikes = drawn()
    with rowlock.cluster(launcher="ray", max_failures=9, start_deadline_s=200):
        trial = Trial(3, 2 * len(strikes) + 1)
        for number, some in enumerate(strikes):
            trial.struck(some, number % 3)


@pytest.mark.slow
def test_killed_while_fewer_places_join() -> None:
    """Ranks are numbered anew before the next one is lost."""
    with rowlock.cluster(launcher="ray", on_failure="shrink"):
        net, alone = Net(OPTIMIZERS["sgd"]), Net(OPTIMIZERS["sgd"])
        program = net.compiled(3)
        for step in range(4):
            strikes: list[Strike] = []
            if step == 2:
                kill(program, 0)
                strikes = [Strike("regroup", last, late=True)]
            with striking(strikes) as scene:
                net.run(program, feed(6, step), [net.loss])
            assert not scene.strikes
            alone.run(alone.main, feed(6, step), [])
        assert len(pids(program)) == 1
        assert_close(net.parameters(), alone.parameters(), 1e-5)
