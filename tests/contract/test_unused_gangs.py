"""Gangs whose programs are gone end when others start, but for a few; values of living scopes stay."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.gang import launchers
from rowlock.executor.gang.launchers import gang_for
from rowlock.executor.gang.trainers import Trainers
from rowlock.strategies.current import current_config, pop_config

from .nets import OPTIMIZERS, Net, feed

pytestmark = pytest.mark.cpu  # a GPU holds one replica
BEFORE, AFTER = {"collective_deadline_s": 299.0}, {"collective_deadline_s": 298.0}


@pytest.fixture(autouse=True)
def none_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep none for programs to come."""
    monkeypatch.setattr(launchers, "_UNUSED_KEPT", 0)


def gang_of(net: Net, step: int) -> Any:
    """Do a step with a program that is gone afterwards; return the gang."""
    program = net.compiled(2)
    net.run(program, feed(8, step), [net.loss])
    return program._parallel.gang


@pytest.mark.parametrize("launcher", ["threads", pytest.param("ray", marks=pytest.mark.slow)])
def test_an_unused_gang_of_another_configuration_ends(
    launcher: str, request: pytest.FixtureRequest
) -> None:
    if launcher == "ray":
        request.getfixturevalue("ray_cluster")
    twin, net, other = (Net(OPTIMIZERS["momentum"]) for _ in range(3))
    with rowlock.cluster(launcher=launcher, **BEFORE):
        expected = twin.compiled(2)
        for step in range(2):
            twin.run(expected, feed(8, step), [twin.loss])
        del expected
        gang = gang_of(net, 0)
        gc.collect()
        with rowlock.cluster(launcher=launcher, **AFTER):
            gang_of(other, 0)
            assert gang.delivery.broken
        assert gang_of(net, 1) is not gang
        for name, value in net.parameters().items():
            np.testing.assert_array_equal(value, twin.parameters()[name])


def test_a_gang_whose_program_is_held_goes_on(threads: None) -> None:
    with rowlock.cluster(launcher="threads", **BEFORE):
        net, other = Net(), Net()
        program = net.compiled(2)
        net.run(program, feed(8, 0), [net.loss])
        future = net.exe.run_async(program, feed(8, 1), [net.loss], scope=net.scope)
        gang = program._parallel.gang
        del program
        gc.collect()
        with rowlock.cluster(launcher="threads", **AFTER):
            gang_of(other, 0)
        assert np.isfinite(future.result()[0]).all()
        assert not gang.delivery.broken


def test_gangs_of_trainers_that_are_gone_end(threads: None) -> None:
    places, endpoints = fluid.cpu_places(2), ("127.0.0.1:7990", "127.0.0.1:7991")
    first = gang_for(places, Trainers(endpoints, 0))
    second = gang_for(places, Trainers(endpoints, 1))
    assert first.delivery.broken and not second.delivery.broken
    assert gang_for(places, Trainers(endpoints, 1)) is second


def test_the_latest_are_kept_unless_they_reserve_something(
    threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers, "_UNUSED_KEPT", 2)
    places, gangs = fluid.cpu_places(2), []
    for k, cpus in enumerate((0, 0, 0, 1, 0)):
        with_cpus = {"num_cpus_per_replica": cpus} if cpus else {}
        rowlock.configure(launcher="threads", collective_deadline_s=290.0 + k, **with_cpus)
        gangs.append(gang_for(places))
    ended = [gang.delivery.broken for gang in gangs]
    rowlock.shutdown()
    for _ in gangs:
        pop_config(current_config())
    assert ended == [True, True, False, True, False]
