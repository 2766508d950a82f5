"""Trainers as processes of their own on one Ray cluster: they train as one, and name who is lost."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import ray

from tests.cluster.as_trainer import ROWS, STEPS
from tests.conftest import one_in
from tests.contract.nets import OPTIMIZERS, Net, assert_close, feed
from tests.contract.trainers import endpoints

from .namespaces import ROOT, Driver

AT_ONCE_S = 60.0
START_S = 200.0

Start = Callable[..., Driver]


@pytest.fixture
def start(ray_cluster: None) -> Iterator[Start]:
    drivers: list[Driver] = []

    def begin(scenario: str, trainer: int, ends: list[str], places: int = 1, **how: Any) -> Driver:
        address = ray.get_runtime_context().gcs_address
        environment = {**os.environ, "RAY_ADDRESS": address, "PYTHONPATH": str(ROOT)}
        arguments = json.dumps([scenario, trainer, ends, places, how])
        module = "tests.cluster.as_trainer"
        drivers.append(Driver([sys.executable, "-m", module, arguments], environment))
        return drivers[-1]

    yield begin
    for driver in drivers:
        driver.kill()


def values(driver: Driver) -> dict[str, np.ndarray]:
    numbers = json.loads(driver.until("values", START_S))
    return {name: np.array(value, "float32") for name, value in numbers.items()}


def where(driver: Driver) -> list[dict[str, Any]]:
    places: list[dict[str, Any]] = json.loads(driver.until("where", START_S))
    return places


def error(driver: Driver) -> str:
    return str(json.loads(driver.until("error", AT_ONCE_S)))


ROWS_ON_GPUS = pytest.param({"rows_on_gpus": True}, marks=pytest.mark.cuda)
KINDS = pytest.mark.parametrize("kind", [{}, ROWS_ON_GPUS], ids=["cpu", "rows on GPUs"])


def test_processes_train_as_one(start: Start) -> None:
    ends = endpoints(2)
    drivers = [start("training", trainer, ends) for trainer in range(2)]
    alone = Net(OPTIMIZERS["adam"])
    program = alone.compiled(2)
    for step in range(STEPS):
        alone.run(program, feed(ROWS, step), [])
    for driver in drivers:
        assert_close(values(driver), alone.parameters())
        assert driver.end() == 0


@pytest.mark.slow
@KINDS
def test_a_driver_that_is_killed_and_started_again(start: Start, kind: dict[str, Any]) -> None:
    ends = endpoints(2)
    drivers = [start("endless", trainer, ends, 2, **kind) for trainer in range(2)]
    pid = [where(driver)[-1]["pid"] for driver in drivers][1]
    os.kill(pid, signal.SIGKILL)
    text = error(drivers[0])
    assert text.startswith("TrainerLost: trainer 1 (process ") and f"process {pid} on" in text, text
    again = start("joining", 1, ends, 2, **kind)
    drivers[0].say("again")
    assert_close(values(again), values(drivers[0]))
    for driver in (drivers[0], again):
        assert driver.end() == 0


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("how", one_in(2, [signal.SIGKILL, signal.SIGSTOP], more=0))
def test_a_replica_that_is_lost_is_named_at_the_other_trainer(
    start: Start, how: int, kind: dict[str, Any]
) -> None:
    ends = endpoints(2)
    drivers = [start("endless", trainer, ends, 2, **kind) for trainer in range(2)]
    places = [where(driver) for driver in drivers][1]
    lost, own = places[1]["pid"], places[-1]["pid"]
    os.kill(lost, how)
    texts = [error(driver) for driver in drivers]
    assert texts[1].startswith("ReplicaLost: replica 1") and f"process {lost} " in texts[1], texts
    assert texts[0].startswith(f"TrainerLost: trainer 1 (process {own} on "), texts
    assert "replica 1" in texts[0] and f"process {lost} " in texts[0], texts
    for driver in drivers:
        driver.say("again")
    assert_close(*(values(driver) for driver in drivers))
    for driver in drivers:
        assert driver.end() == 0


def test_two_processes_are_one_trainer(start: Start) -> None:
    ends = endpoints(2)
    for driver in [start("once", 1, ends) for _ in range(2)]:
        text = str(json.loads(driver.until("error", START_S)))
        assert text.startswith(f"InvalidValue: two drivers are trainer 1 ({ends[1]}): process "), (
            text
        )
        assert driver.end() == 0
