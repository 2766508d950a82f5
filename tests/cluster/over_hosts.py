"""The driver that test_hosts.py runs inside a host: ``python -m tests.cluster.over_hosts``.

It reads a scenario and fields of ClusterConfig as a line of JSON, and after "done" the next, until its input
ends. A line begins with what it tells: where, error, done.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
from functools import partial
from typing import Any

import numpy as np
import ray

import rowlock
import rowlock.fluid as fluid
from rowlock.cluster.ray.nodes import nodes
from rowlock.executor.plan import emission
from rowlock.executor.plan.run import MEASURED_STEPS
from rowlock.strategies.errors import CollectiveError
from tests.contract.nets import OPTIMIZERS, Net, assert_close, feed
from tests.programs import on_places, own_programs

SELF = "tests.cluster.over_hosts"  # whose __name__ is __main__
PLACES = 2
STEPS = 3
ENDLESS_S = 120.0
ACTORS_S = 180.0  # in which a busy host starts them


class Training:
    """The same net over the hosts and alone."""

    def __init__(self) -> None:
        self.net = Net(OPTIMIZERS["adam"])
        self.program = self.net.compiled(PLACES)

    def equals_alone(self) -> None:
        """Train both from the same fresh values; the parameters must agree."""
        alone = Net(OPTIMIZERS["adam"])
        self.net.run(self.net.startup)  # draws others each time
        for name, value in self.net.parameters().items():
            alone.scope.find_var(name).get_tensor().set(value, fluid.CPUPlace())
        for step in range(STEPS):
            self.step(step)
            alone.run(alone.main, feed(6, step), [])
        assert_close(self.net.parameters(), alone.parameters(), 1e-5)

    def step(self, step: int) -> None:
        self.net.run(self.program, feed(6, step), [self.net.loss])

    def tell_where(self) -> None:
        told("where", self.program._parallel.gang.delivery.where)


class WideNet:
    """Square layers, whose gradients are a bucket each, of 256 KiB. Little is fed, much is computed.

    On actors behind :func:`slow_products` the gradient of a layer takes ``SLOW_S`` longer on any host, however
    busy: as long as its bucket on a link of 50 Mbit/s.
    """

    WIDTH, LAYERS, ROWS, SLOW_S = 256, 5, 1000, 0.04

    def __init__(self) -> None:
        self.scope = fluid.Scope()
        with own_programs(1) as (self.main, startup):
            top = fluid.layers.fc(fluid.data("x", [None, 1]), self.WIDTH, bias_attr=False)
            for _ in range(self.LAYERS):
                top = fluid.layers.fc(top, self.WIDTH, act="relu", bias_attr=False)
            self.loss = fluid.layers.mean(top)
            fluid.optimizer.SGD(0.1).minimize(self.loss)
        self.exe = fluid.Executor()
        self.exe.run(startup, scope=self.scope)
        self.program = on_places(self.main, PLACES, self.loss)
        self.feed = {"x": np.random.default_rng(0).random((self.ROWS, 1), "float32")}

    def step(self) -> None:
        self.exe.run(self.program, self.feed, [self.loss], scope=self.scope)


def told(what: str, value: Any = "") -> None:
    # one write: no other thread's text in it
    print(f"{what} {json.dumps(value)}\n", end="", flush=True)


def training() -> None:
    """Train over the hosts; the parameters are those of training alone."""
    run = Training()
    run.equals_alone()
    run.tell_where()


def recovery() -> None:
    """Train until something breaks, say how, and once told to go on train with a new gang; so until the end."""
    run = Training()
    run.equals_alone()
    run.tell_where()
    line = ""
    while line != "end\n":
        try:
            end = time.monotonic() + ENDLESS_S
            while time.monotonic() < end:
                run.step(0)
            told("error", f"nothing broke in {ENDLESS_S:g} s")
        except CollectiveError as error:
            told("error", str(error))
        line = sys.stdin.readline()
        run.equals_alone()
        run.tell_where()


class Lost(logging.Handler):
    """Tells the test of every replica that was lost and replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.seen += 1
        told("lost", record.getMessage())


def surviving() -> None:
    """Train until a replica was lost, and a while longer; nothing of it shows in the parameters."""
    losses = Lost()
    logging.getLogger("rowlock").addHandler(losses)
    run, alone = Training(), Net(OPTIMIZERS["adam"])
    for name, value in run.net.parameters().items():
        alone.scope.find_var(name).get_tensor().set(value, fluid.CPUPlace())
    run.step(0)
    run.tell_where()
    steps, end = 1, time.monotonic() + ENDLESS_S
    while not losses.seen and time.monotonic() < end:
        run.step(steps % STEPS)
        steps += 1
    for _ in range(200):
        run.step(steps % STEPS)
        steps += 1
    run.tell_where()
    for step in range(steps):
        alone.run(alone.main, feed(6, step % STEPS), [])
    assert_close(run.net.parameters(), alone.parameters(), 1e-4)
    logging.getLogger("rowlock").removeHandler(losses)


def refusal() -> None:
    """Ask for more than the hosts have."""
    try:
        training()
    except CollectiveError as error:
        told("error", f"{type(error).__name__}: {error}")
    told("nodes", [node.address for node in nodes()])


def slow_products() -> None:
    """Ray calls this in each worker: let gradients of products sleep, which needs no processor."""
    kernel = emission.Emission._kernel

    def slow_kernel(self: emission.Emission, node: Any, *means: Any) -> Any:
        is_slow = node.op.startswith("mul") and node.op.endswith("_grad")
        return [*kernel(self, node, *means), *[partial(time.sleep, WideNet.SLOW_S)] * is_slow]

    emission.Emission._kernel = slow_kernel  # type: ignore[method-assign]


def overlap() -> None:
    """Train a net whose gradients take a while on a slow link; tell a timeline of steps with lanes."""
    ray.init(runtime_env={"worker_process_setup_hook": f"{SELF}.slow_products"})
    for _ in range(5):
        net = WideNet()
        for _ in range(MEASURED_STEPS + 1):
            net.step()
        if all(net.program.signals()):
            break  # else others on the machine spoiled the steps that were timed
    told("lanes", net.program.signals())
    net.program.trace()
    for _ in range(8):
        net.step()
    with tempfile.NamedTemporaryFile("r") as file:
        net.program.timeline(file.name)
        told("timeline", json.load(file))


SCENARIOS = {
    "training": training,
    "recovery": recovery,
    "surviving": surviving,
    "refusal": refusal,
    "overlap": overlap,
}


def main() -> None:
    while line := sys.stdin.readline():
        scenario, settings = json.loads(line)
        with rowlock.cluster(**{"launcher": "ray", "start_deadline_s": ACTORS_S, **settings}):
            SCENARIOS[scenario]()
        told("done")


if __name__ == "__main__":
    main()
