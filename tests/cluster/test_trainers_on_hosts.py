"""Trainers on two hosts: within a host their replicas meet in shared memory, between hosts by sockets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.cluster.as_trainer import HOST, ROWS, STEPS
from tests.contract.nets import OPTIMIZERS, Net, assert_close, feed
from tests.contract.trainers import endpoints

from .namespaces import CannotMakeHosts, Driver, Hosts, hosts

AT_ONCE_S = 60.0
DRIVER_S = 200.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def pair() -> Iterator[Hosts]:
    try:
        with hosts(2) as them:
            yield them
    except CannotMakeHosts as error:
        pytest.skip(f"no hosts as network namespaces here: {error}")


def start(pair: Hosts, scenario: str, ends: list[str], **settings: Any) -> list[Driver]:
    """Start a trainer with two places on each host."""
    module = "tests.cluster.as_trainer"
    return [
        pair.driver(
            *(host, "-m", module, json.dumps([scenario, host, ends, 2, settings])),
            **{HOST: address},
        )
        for host, address in enumerate(pair.addresses)
    ]


def ends_of(pair: Hosts) -> list[str]:
    (end,) = endpoints(1)
    return [f"{address}:{end.rpartition(':')[2]}" for address in pair.addresses]


def where(driver: Driver) -> list[dict[str, Any]]:
    places: list[dict[str, Any]] = json.loads(driver.until("where", DRIVER_S))
    return places


def values(driver: Driver) -> dict[str, np.ndarray]:
    numbers = json.loads(driver.until("values", DRIVER_S))
    return {name: np.array(value, "float32") for name, value in numbers.items()}


def test_trainers_of_two_hosts_train_as_one(pair: Hosts) -> None:
    drivers = start(pair, "training", ends_of(pair))
    alone = Net(OPTIMIZERS["adam"])
    for step in range(STEPS):
        alone.run(alone.main, feed(ROWS, step), [])
    for host, driver in enumerate(drivers):
        assert {place["host"] for place in where(driver)[:2]} == {pair.addresses[host]}
        assert_close(values(driver), alone.parameters(), 1e-5)
        driver.until("done", DRIVER_S)
        assert driver.end() == 0


def test_a_host_that_dies_is_named(pair: Hosts) -> None:
    drivers = start(pair, "endless", ends_of(pair), heartbeat_deadline_s=5.0)
    own = [where(driver)[-1]["pid"] for driver in drivers]
    pair.kill_node(1)
    text = json.loads(drivers[0].until("error", AT_ONCE_S))
    assert text.startswith("TrainerLost: trainer 1 (process ") and f"process {own[1]} " in text, (
        text
    )
    drivers[0].kill()
    pair.start_node(1)
