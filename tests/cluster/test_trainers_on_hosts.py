"""Trainers on two hosts: within a host their replicas meet in shared memory, between hosts by sockets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.cluster.as_trainer import COUNTED, HOST, ROWS, STEPS
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


def start(
    pair: Hosts, scenario: str, each: int = 1, places: int = 2, **settings: Any
) -> list[Driver]:
    """Start as many trainers on each host, with so many places each."""
    module, drivers = "tests.cluster.as_trainer", []
    ports = [end.rpartition(":")[2] for end in endpoints(each)]
    ends = [f"{address}:{port}" for address in pair.addresses for port in ports]
    for number, end in enumerate(ends):
        arguments = json.dumps([scenario, number, ends, places, settings])
        own = {HOST: end.rpartition(":")[0]}
        drivers.append(pair.driver(number // each, "-m", module, arguments, **own))
    return drivers


def where(driver: Driver) -> list[dict[str, Any]]:
    places: list[dict[str, Any]] = json.loads(driver.until("where", DRIVER_S))
    return places


def values(driver: Driver) -> dict[str, np.ndarray]:
    numbers = json.loads(driver.until("values", DRIVER_S))
    return {name: np.array(value, "float32") for name, value in numbers.items()}


def test_trainers_of_two_hosts_train_as_one(pair: Hosts) -> None:
    drivers = start(pair, "training")
    alone = Net(OPTIMIZERS["adam"])
    for step in range(STEPS):
        alone.run(alone.main, feed(ROWS, step), [])
    for host, driver in enumerate(drivers):
        assert {place["host"] for place in where(driver)[:2]} == {pair.addresses[host]}
        assert_close(values(driver), alone.parameters(), 1e-5)
        driver.until("done", DRIVER_S)
        assert driver.end() == 0


def test_one_of_each_host_speaks_for_all_its_trainers(pair: Hosts) -> None:
    """What travels between hosts for a gradient of a megabyte depends on hosts, not on trainers or places."""
    megabytes = []
    for each, places in ((1, 1), (2, 2)):
        drivers = start(pair, "counted", each, places)
        for driver in drivers:
            driver.until("ready", DRIVER_S)
        before = pair.sent(0)
        for driver in drivers:
            driver.say("go on")
        for driver in drivers:
            driver.until("counted", DRIVER_S)
        megabytes.append((pair.sent(0) - before) / COUNTED / 2**20)
        for driver in drivers:
            driver.say("")
        for driver in drivers:
            assert driver.end() == 0
    # Each host sends half of its own sum, and half of the sum of both; frames and Ray's own words add a bit.
    assert all(0.9 < sent < 1.4 for sent in megabytes), megabytes


def test_a_host_that_dies_is_named(pair: Hosts) -> None:
    drivers = start(pair, "endless", heartbeat_deadline_s=5.0)
    own = [where(driver)[-1]["pid"] for driver in drivers]
    pair.kill_node(1)
    text = json.loads(drivers[0].until("error", AT_ONCE_S))
    assert text.startswith("TrainerLost: trainer 1 (process ") and f"process {own[1]} " in text, (
        text
    )
    drivers[0].kill()
    pair.start_node(1)
