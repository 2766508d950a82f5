"""A replica keeps to cores of its own only while they are."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from rowlock.cluster.primitives.processes import processor_ticks
from rowlock.cluster.ray import pinning
from rowlock.cluster.ray.pinning import Counters, PinPolicy, Sample
from tests.conftest import eventually

CALM, BUSY = Sample(0.25, 0.05, 0.5), Sample(0.25, 0.9, 0.9)


def looks_until(policy: PinPolicy, sample: Sample, pinned: bool) -> int:
    """Show the same sample until the policy decides so; return how often."""
    for count in range(1, 1000):
        if policy.see(sample) == pinned:
            return count
    raise AssertionError(f"never pinned={pinned}")


def test_a_replica_is_pinned_once_its_host_is_calm() -> None:
    policy = PinPolicy(1, 2)
    assert policy.pinned and not policy.calm, "nobody has looked yet"
    assert all(policy.see(CALM) for _ in range(1000)) and policy.calm
    assert not policy.see(BUSY) and not policy.calm
    assert not policy.see(CALM) and policy.calm, "it may wait awake already"
    assert looks_until(policy, CALM, True) == 1
    policy.see(BUSY)
    for _ in range(100):  # never calm for long enough
        assert not any(policy.see(sample) for sample in (CALM, CALM, BUSY))


def test_a_busy_process_frees_it_at_once_and_for_twice_as_long_each_time() -> None:
    policy = PinPolicy(1, 2)
    looks = []
    for _ in range(10):
        assert looks_until(policy, BUSY, False) == 1 and not policy.calm
        assert not any(policy.see(BUSY) for _ in range(1000))
        looks.append(looks_until(policy, CALM, True))
    assert looks == [2, 4, 8, 16, 32, 64, 128, 240, 240, 240], "a minute at the most"
    for _ in range(240):
        policy.see(CALM)
    policy.see(BUSY)
    assert looks_until(policy, CALM, True) == 2, "a minute of calm makes up for it"


@pytest.mark.parametrize(
    ("own", "total", "sample"),
    [
        (1, 2, Sample(0.25, 0.9, 0.1)),  # the other process runs on another core
        (1, 2, Sample(0.25, 0.1, 0.9)),  # it waits for its own gang
        (8, 16, Sample(0.25, 1.0, 0.9)),  # one busy process beside eight cores
    ],
)
def test_what_does_not_harm_it_leaves_it_pinned(own: int, total: int, sample: Sample) -> None:
    policy = PinPolicy(own, total)
    looks_until(policy, CALM, True)
    assert all(policy.see(sample) for _ in range(100))


def test_the_gangs_own_work_is_nobody_elses() -> None:
    before = Counters(at=10.0, idle=100.0, gang=5.0, ran=2.0, waited=1.0)
    after = Counters(at=10.5, idle=100.2, gang=5.6, ran=2.1, waited=1.3)
    none = Counters(0.0, 0.0, 0.0, 0.0, 0.0)
    seen = none.plus(before, after)
    assert seen.sample(2) == pytest.approx(Sample(0.5, 2 - (0.2 + 0.6) / 0.5, 0.75))
    assert seen.plus(before, after).sample(2) == pytest.approx(seen.sample(2)._replace(seconds=1.0))
    idle = before._replace(at=11.0, idle=102.1)  # ticks are coarse
    assert none.plus(before, idle).sample(2) == Sample(1.0, 0.0, 0.0)


@contextlib.contextmanager
def busy(count: int) -> Iterator[list[int]]:
    """Keep so many cores busy meanwhile."""
    command = [sys.executable, "-S", "-c", "print(flush=True)\nwhile True: pass"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_a_busy_process_is_foreign_unless_it_belongs_to_the_gang() -> None:
    """With a process for each core nothing is idle, and all of it is the others', or the gang's."""
    cores = sorted(os.sched_getaffinity(0))
    with busy(len(cores)) as pids:
        keepers = [pinning.CoreKeeper(0, 1, gang) for gang in ([], pids)]
        befores = []
        for keeper in keepers:
            keeper.step()
            befores.append(keeper._counters())
        began = sum(map(processor_ticks, pids))
        assert eventually(lambda: sum(map(processor_ticks, pids)) > began + 30)
        alone, together = (
            Counters(0.0, 0.0, 0.0, 0.0, 0.0).plus(before, keeper._counters()).sample(len(cores))
            for before, keeper in zip(befores, keepers, strict=True)
        )
    assert alone.foreign > 0.3 * len(cores)  # as much as a hypervisor leaves
    assert together.foreign < alone.foreign


def test_only_long_gaps_between_steps_are_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs while the gang pauses, as others take their turns, is not beside it."""
    clock = [100.0]
    monkeypatch.setattr(pinning.time, "monotonic", lambda: clock[0])
    keeper = pinning.CoreKeeper(0, 1, [])

    def after(seconds: float) -> float:
        clock[0] += seconds
        return keeper._pauses()

    keeper.step()
    assert after(2.0) == 0.0, "it is at work"
    keeper.stepped()
    assert after(0.001) == 0.0
    keeper.step()
    assert after(1.0) == 0.0
    keeper.stepped()
    assert after(3.0) == pytest.approx(3.0), "it pauses now"
    keeper.step()
    keeper.stepped()
    assert after(0.5) == pytest.approx(3.5)


def test_a_keeper_pins_and_frees_the_threads_of_its_process() -> None:
    cores = os.sched_getaffinity(0)
    keeper = pinning.CoreKeeper(1, 2, [os.getpid()])
    try:
        for place, expected in ((keeper._own, set(keeper._own)), (keeper._cores, cores)):
            keeper._keep_to(place)
            assert os.sched_getaffinity(0) == expected
        keeper._keep_to(keeper._own)
        keeper.start()
        keeper.step()
        keeper.close()
        assert not keeper.is_alive()
        assert os.sched_getaffinity(0) == cores, "others will share them out anew"
    finally:
        os.sched_setaffinity(0, cores)


def test_replicas_that_share_a_core_are_left_to_the_system() -> None:
    keeper = pinning.CoreKeeper(0, len(os.sched_getaffinity(0)) + 1, [os.getpid()])
    keeper.start()
    keeper.step()
    keeper.join(20)
    assert not keeper.is_alive() and not keeper.own_core
    keeper.close()
