"""Training over hosts equals training alone, and what breaks is named: a replica, a link, a node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.cluster.as_trainer import COUNTED, HOST, ROWS, STEPS
from tests.conftest import eventually, freeze, one_in
from tests.contract.nets import OPTIMIZERS, Net, assert_close, feed
from tests.contract.trainers import endpoints

from .namespaces import ROOT, CannotMakeHosts, Driver, Hosts, hosts, namespaces

MODULE = "tests.cluster.over_hosts"
STEP_DEADLINE_S = 180.0
# An idle machine needs 1 to 4 s; only the deadline must be far, for other tests run beside.
AT_ONCE_S = 60.0
DRIVER_S = 200.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
# The driver on host 0 that ended a scenario and waits for the next: none or one
_idle: list[Driver] = []


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[Hosts]:
    try:
        with hosts(2, labels={1: "rack=b"}) as them:
            yield them
            while _idle:
                driver = _idle.pop()
                driver.close_input()
                assert driver.end() == 0
    except CannotMakeHosts as error:
        pytest.skip(f"no hosts as network namespaces here: {error}")


@pytest.fixture
def pair(two_hosts: Hosts) -> Iterator[Hosts]:
    """Two hosts whose nodes and link are whole again after the test."""
    yield two_hosts
    two_hosts.restore(1)
    if not two_hosts.processes(1):
        two_hosts.start_node(1)


def start(pair: Hosts, scenario: str, **settings: Any) -> Driver:
    """Begin a scenario, in the process of the last one if that ended well."""
    chosen = {"step_deadline_s": STEP_DEADLINE_S, "on_failure": "raise", **settings}
    driver = _idle.pop() if _idle else pair.driver(0, "-m", MODULE)
    driver.say(json.dumps([scenario, chosen]))
    return driver


def where(driver: Driver) -> list[dict[str, Any]]:
    replicas: list[dict[str, Any]] = json.loads(driver.until("where", DRIVER_S))
    return replicas


def finished(driver: Driver) -> None:
    driver.until("done", DRIVER_S)
    _idle.append(driver)


def broken(driver: Driver) -> str:
    """The error that a driver tells of, which must come in time."""
    return driver.until("error", AT_ONCE_S)


@pytest.mark.parametrize(
    ("settings", "chosen"),
    [
        ({"nodes": ["10.9.0.2", "10.9.0.1"]}, ["10.9.0.2", "10.9.0.1"]),
        ({"node_labels": {"rack": "b"}}, ["10.9.0.2", "10.9.0.2"]),
    ],
    ids=["address", "label"],
)
def test_replicas_run_on_the_hosts_that_were_chosen(
    pair: Hosts, settings: dict[str, Any], chosen: list[str]
) -> None:
    driver = start(pair, "training", **settings)
    assert [place["host"] for place in where(driver)] == chosen
    finished(driver)


def test_an_unknown_host_is_refused_at_once(pair: Hosts) -> None:
    driver = start(pair, "refusal", nodes=["10.9.0.1", "10.9.0.20"])
    said = driver.until("error", DRIVER_S)
    assert "PlacementError: ClusterConfig.nodes asks for '10.9.0.20'" in said
    assert all(address in said for address in pair.addresses)
    finished(driver)


def test_a_killed_replica_and_a_killed_node_are_errors_and_new_gangs_run(pair: Hosts) -> None:
    driver = start(pair, "recovery", heartbeat_deadline_s=3.0)
    places = where(driver)
    assert [place["host"] for place in places] == pair.addresses
    freeze(pair.process(1, "ray::NodeProbe"))  # as on a busy host, which answers late
    os.kill(places[1]["pid"], signal.SIGKILL)
    assert f"replica 1 (process {places[1]['pid']} on 10.9.0.2" in broken(driver)
    driver.say("go on")
    assert [place["host"] for place in where(driver)] == pair.addresses
    pair.kill_node(1)
    said = broken(driver)
    assert "replica 1" in said and "10.9.0.2" in said
    driver.say("end")
    assert [place["host"] for place in where(driver)] == pair.addresses[:1] * 2
    finished(driver)


def test_a_cut_link_is_an_error_and_a_new_gang_runs_once_it_is_restored(pair: Hosts) -> None:
    driver = start(pair, "recovery")
    where(driver)
    pair.cut(1)
    said = broken(driver)
    assert "replica 1" in said and "10.9.0.2" in said
    pair.restore(1)
    driver.say("end")
    # The host may not be heard yet when the gang is mended; then its replica runs on the other one.
    assert {place["host"] for place in where(driver)} <= set(pair.addresses)
    finished(driver)


def lost(driver: Driver) -> str:
    """What a driver tells of a replica that it lost and replaced, which must come in time."""
    return driver.until("lost", AT_ONCE_S)


@pytest.mark.parametrize("sign", one_in(2, [signal.SIGKILL, signal.SIGSTOP], more=0))
def test_a_replica_of_the_other_host_is_replaced_there(pair: Hosts, sign: signal.Signals) -> None:
    driver = start(pair, "surviving", on_failure="replace", spares=0)
    pid = where(driver)[1]["pid"]
    os.kill(pid, sign)
    said = lost(driver)
    assert f"replica 1 (process {pid} on 10.9.0.2" in said
    assert ("is gone" if sign == signal.SIGKILL else "is stopped") in said
    places = where(driver)
    assert [place["host"] for place in places] == pair.addresses and places[1]["pid"] != pid
    finished(driver)


@pytest.mark.parametrize("what", one_in(2, ["cut", "kill_node"], more=0))
def test_a_host_that_is_lost_is_trained_without(pair: Hosts, what: str) -> None:
    driver = start(pair, "surviving", on_failure="replace")
    where(driver)
    getattr(pair, what)(1)
    said = lost(driver)
    assert "replica 1" in said and "10.9.0.2" in said
    if what == "cut":
        assert "frozen, or cut off from the network" in said
    assert [place["host"] for place in where(driver)] == pair.addresses[:1] * 2
    finished(driver)


def test_a_host_that_is_lost_leaves_fewer_places(pair: Hosts) -> None:
    driver = start(pair, "surviving", on_failure="shrink")
    where(driver)
    pair.cut(1)
    lost(driver)
    assert [place["host"] for place in where(driver)] == pair.addresses[:1]
    finished(driver)


def test_a_slow_link_changes_no_result(pair: Hosts) -> None:
    pair.slow(1, "200mbit", "1ms")
    try:
        finished(start(pair, "training"))
    finally:
        pair.full_speed(1)


# -- trainers: within a host their replicas meet in shared memory, between hosts by sockets -------------


def trainers(
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


def values(driver: Driver) -> dict[str, np.ndarray]:
    numbers = json.loads(driver.until("values", DRIVER_S))
    return {name: np.array(value, "float32") for name, value in numbers.items()}


def test_trainers_of_two_hosts_train_as_one(pair: Hosts) -> None:
    drivers = trainers(pair, "training")
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
        drivers = trainers(pair, "counted", each, places)
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
    drivers = trainers(pair, "endless", heartbeat_deadline_s=5.0)
    own = [where(driver)[-1]["pid"] for driver in drivers]
    pair.kill_node(1)
    text = json.loads(drivers[0].until("error", AT_ONCE_S))
    assert text.startswith("TrainerLost: trainer 1 (process ") and f"process {own[1]} " in text, (
        text
    )
    drivers[0].kill()


# -- hosts themselves ---------------------------------------------------------------------------------


def test_hosts_leave_nothing_behind(two_hosts: Hosts) -> None:
    with pytest.raises(KeyError), hosts(3, ray=False) as three:
        driver = three.driver(2, "-c", "input()")
        assert eventually(lambda: bool(three.processes(2)))
        (pid,) = three.processes(2)
        raise KeyError
    assert driver.end() != 0 and not os.path.exists(f"/proc/{pid}")
    assert three.count == 3 and not three.exists()
    assert two_hosts.exists()


def test_what_a_killed_run_left_is_cleared(two_hosts: Hosts) -> None:
    killed = (
        "import os\nfrom tests.cluster.namespaces import hosts\n"
        "with hosts(2, ray=False) as left:\n"
        "    left.driver(1, '-c', 'input()')\n"
        "    print(*left.names, flush=True)\n"
        "    os._exit(1)\n"
    )
    run = [sys.executable, "-c", killed]
    process = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=240)
    names = process.stdout.split()
    assert len(names) == 3 and set(names) <= set(namespaces()), process.stderr
    with hosts(1, ray=False):
        assert not set(names) & set(namespaces())
    assert two_hosts.exists()
