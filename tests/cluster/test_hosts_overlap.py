"""Over a slow link the backward pass goes on while gradients travel, and the timeline shows it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from rowlock.graph.ops.collective import COLLECTIVES

from .namespaces import CannotMakeHosts, Driver, Hosts, hosts
from .over_hosts import WideNet

DRIVER_S = 240.0  # a busy host takes most of it to start Ray
SKEW_US = 1000.0  # hosts of one machine have one clock

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    try:
        with hosts(2, ray=False) as pair:
            slow(pair)
            start(pair)
            driver = pair.driver(0, "-m", "tests.cluster.over_hosts")
            driver.say(json.dumps(["overlap", {"bucket_bytes": 1 << 18}]))
            yield driver
    except CannotMakeHosts as error:
        pytest.skip(f"no hosts as network namespaces here: {error}")


def start(pair: Hosts) -> None:
    """Give each host a core of its own, as if it were a machine."""
    cores = sorted(os.sched_getaffinity(0))
    try:
        for host in range(pair.count):
            os.sched_setaffinity(0, {cores[host % len(cores)]})
            pair.start_node(host)
    finally:
        os.sched_setaffinity(0, cores)


def slow(pair: Hosts) -> None:
    try:
        pair.slow(1, "50mbit", "0ms")
    except (RuntimeError, FileNotFoundError) as error:
        pytest.skip(f"the link cannot be slowed here: {error}")


def end(event: dict[str, Any]) -> float:
    return float(event["ts"] + event["dur"])


def test_gradients_travel_beside_the_backward_pass(driver: Driver) -> None:
    lanes = json.loads(driver.until("lanes", DRIVER_S))
    trace = json.loads(driver.until("timeline", DRIVER_S))
    skew_us = SKEW_US  # and what the comparison says of its error
    for clock in trace["otherData"]["clocks"]:
        assert 1e6 * abs(clock["ahead_s"]) < SKEW_US + 1e6 * clock["error_s"]
        skew_us += 1e6 * clock["error_s"]
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    for step in {e["args"]["step"] for e in slices if e["pid"]}:
        first, second = (talking(slices, pid, step) for pid in (1, 2))
        assert len(first) == len(second) > WideNet.LAYERS
        for here, there in zip(first, second, strict=True):
            # no rank leaves before the last has come
            assert max(here["ts"], there["ts"]) - min(end(here), end(there)) < skew_us
    assert min(lanes) > 0
    for pid in (1, 2):
        computing = [e for e in slices if e["pid"] == pid and e["cat"] == "compute"]
        steps = {e["args"]["step"] for e in computing}
        beside = [
            sum(any(meet(t, c) for c in computing) for t in talking(slices, pid, step))
            for step in steps
        ]
        assert max(beside) >= WideNet.LAYERS - 2, beside


def talking(slices: list[dict[str, Any]], pid: int, step: int) -> list[dict[str, Any]]:
    """The collectives of a step, as they came."""
    own = [e for e in slices if e["pid"] == pid and e["args"]["step"] == step]
    return sorted((e for e in own if e["name"] in COLLECTIVES), key=lambda e: float(e["ts"]))


def meet(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return min(end(a), end(b)) > max(float(a["ts"]), float(b["ts"]))
