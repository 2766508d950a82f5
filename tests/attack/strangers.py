"""Strangers at every port: they say nothing, garbage, half a hello, or come in floods; work goes on."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

import numpy as np
import ray

import rowlock
from rowlock.cluster.channel import listener
from rowlock.cluster.collective.connector import Address
from rowlock.cluster.collective.inter_host import InterHostTransport
from rowlock.cluster.primitives.doorway import SECRET_BYTES
from rowlock.cluster.ray.actor_pool import ActorPool
from rowlock.executor.plan.group import When
from rowlock.strategies.errors import CollectiveError

from . import inside
from .kills import CONFIG, Enough
from .programs import KINDS, Fetched, Model, same
from .report import DEADLINE_S, START_S, Report, Starting, own_descriptors

_FLOOD = 200
_HOSTS = 3
_STEPS_S = 4.0  # for which steps run among strangers

Door = tuple[Any, ...] | str  # a TCP address, or the name of a Unix socket


class Strangers:
    """Threads that keep calling at doors, each in its own bad manner."""

    def __init__(self, draw: random.Random) -> None:
        self.doors: list[Door] = []
        self.calls = 0
        self._draw, self._over = random.Random(draw.random()), threading.Event()
        manners = (self._silent, self._garbage, self._half, self._flood)
        self._threads = [threading.Thread(target=self._keep_on, args=(m,)) for m in manners]

    def __enter__(self) -> Strangers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _keep_on(self, manner: Any) -> None:
        mine: list[socket.socket] = []
        while not self._over.is_set():
            for door in list(self.doors):
                with contextlib.suppress(OSError):
                    manner(door, mine)
            time.sleep(0.01)
            while len(mine) > _FLOOD:
                mine.pop(0).close()
        for one in mine:
            one.close()

    def _call(self, door: Door, mine: list[socket.socket]) -> socket.socket:
        caller = socket.socket(socket.AF_UNIX if isinstance(door, str) else socket.AF_INET)
        mine.append(caller)
        caller.settimeout(0.2)
        caller.connect(door)
        self.calls += 1
        return caller

    def _silent(self, door: Door, mine: list[socket.socket]) -> None:
        self._call(door, mine)

    def _garbage(self, door: Door, mine: list[socket.socket]) -> None:
        self._call(door, mine).sendall(self._draw.randbytes(self._draw.choice([1, 37, 48, 10_000])))

    def _half(self, door: Door, mine: list[socket.socket]) -> None:
        self._call(door, mine).sendall(self._draw.randbytes(SECRET_BYTES // 2))

    def _flood(self, door: Door, mine: list[socket.socket]) -> None:
        for _ in range(_FLOOD // 4):
            self._call(door, mine).close()


@contextlib.contextmanager
def _doors_of_the_driver(strangers: Strangers) -> Iterator[None]:
    """Tell strangers the doors of every listener that the driver opens."""
    init = listener.Listener.__init__

    def opened(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        strangers.doors += [self.address, self.local_name]
        time.sleep(0.05)  # they are there first

    with mock.patch.object(listener.Listener, "__init__", opened):
        yield


def attack(report: Report, enough: Enough) -> None:
    """Form gangs and groups, and step, with strangers at every door, until it is enough."""
    draw = random.Random(report.seed)
    before = own_descriptors()
    with report.leaving_nothing():
        while not report.counts["formed"] or not enough(report.counts["formed"]):
            _at_the_driver(report, draw)
            _between_hosts(report, draw)
            for apart in (False, True):
                _while_steps_run(report, draw, apart)
    # Ray keeps some for each actor that was.
    if own_descriptors() > before + 50:
        report.note(f"{own_descriptors()} descriptors are open, {before} were before")


def _at_the_driver(report: Report, draw: random.Random) -> None:
    kind = KINDS[0]
    with Strangers(draw) as strangers, _doors_of_the_driver(strangers):
        began = Starting.seconds
        with rowlock.cluster(launcher="ray", **{**CONFIG, "spares": 1}):
            with report.waiting("forming a gang"):
                struck, calm = Model(kind), Model(kind)
                struck.run(0), calm.run(0)
            if Starting.seconds - began > START_S:
                report.note(f"a gang took {Starting.seconds - began:.1f} s to form")
            for step in range(1, 30):
                if step % 10 == 0:  # the newcomer connects while they call
                    os.kill(draw.choice(struck.gang.delivery.where)["pid"], 9)
                with report.waiting(f"step {step} among strangers"):
                    fetched = struck.run(step)
                if not all(map(same, fetched, calm.run(step))):
                    report.note(f"step {step} fetched something else among strangers")
        report.counts["formed"] += 1
        report.counts["calls of strangers"] += strangers.calls


def _while_steps_run(report: Report, draw: random.Random, apart: bool) -> None:
    """Strike every port of a running gang, then send garbage over connections that were let in.

    ``apart``: each replica is a host of its own to the others, so that they are joined by sockets.
    """
    kind = next(kind for kind in KINDS if kind.name == "two optimizers")
    describe = ActorPool.describe

    def described(pool: ActorPool, members: Mapping[int, Any]) -> None:
        describe(pool, members)
        calls = [
            member.actor.__ray_call__.remote(inside.sit_apart, f"host of {member.where['pid']}")
            for member in members.values()
        ]
        ray.get(calls)

    where = "over hosts" if apart else "on one host"
    with (
        mock.patch.object(ActorPool, "describe", described if apart else describe),
        rowlock.cluster(launcher="ray", **{**CONFIG, "spares": 1, "heartbeat_deadline_s": 2.0}),
    ):
        struck, calm = Model(kind), Model(kind)
        trial = _Compared(report, struck, calm, where)
        members = struck.gang.delivery.where
        with Strangers(draw) as strangers:
            pids = [os.getpid(), *(place["pid"] for place in members)]
            strangers.doors = [door for pid in pids for door in listening(pid)]
            report.counts[f"doors {where}"] = len(strangers.doors)
            until = time.monotonic() + _STEPS_S
            while time.monotonic() < until:
                trial.step()
            report.counts["calls of strangers"] += strangers.calls
        if [place["pid"] for place in members] != [p["pid"] for p in struck.gang.delivery.where]:
            report.note(f"{where}: strangers cost the gang a replica")
        for what in ("steps", "watch", *(("aborts", "data") if apart else ())):
            data = draw.randbytes(draw.choice([1, 48, 10_000]))
            member = draw.choice(struck.gang.delivery._members)
            report.counts["garbage let in"] += ray.get(
                member.actor.__ray_call__.remote(inside.babble, what, data)
            )
            for _ in range(5):
                trial.step(f"behind garbage on {what}")
    report.counts["formed"] += 1


class _Compared:
    """A model among strangers, beside one that runs afterwards, alone."""

    def __init__(self, report: Report, struck: Model, calm: Model, where: str) -> None:
        self.report, self.struck, self.calm, self.where = report, struck, calm, where
        struck.run(0), calm.run(0)
        self.number = 1

    def step(self, behind: str = "among strangers") -> None:
        """Run a step of both; one that fails with an error of the family happened or did not."""
        what = f"step {self.number} {self.where} {behind}"
        fetched, expected = (self._run(model, what, behind) for model in (self.struck, self.calm))
        if fetched is not None and expected is not None:
            self.report.counts["fetches compared"] += len(expected)
            if not all(map(same, fetched, expected)):
                self.report.note(f"{what} fetched something else")
        self.number += 1

    def _run(self, model: Model, what: str, behind: str) -> Fetched | None:
        """Return what a step fetches; None if an error was told although it happened."""
        while True:
            try:
                with self.report.waiting(what):
                    return model.run(self.number)
            except CollectiveError as error:
                self.report.counts["errors told"] += 1
                if behind == "among strangers":
                    self.report.note(f"{what}: {error}")
            if int(model.persistables()["steps"][0]) > self.number:
                return None


def listening(pid: int) -> list[Door]:
    """Return the doors at which a process of this machine listens, Ray's own among them."""
    links = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            links.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    doors: list[Door] = []
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}") as file:
            rows = [line.split() for line in file][1:]
        for row in rows:
            if row[3] == "0A" and f"socket:[{row[9]}]" in links:
                host, port = row[1].split(":")
                known = table == "tcp" and int(host, 16)
                address = (
                    socket.inet_ntoa(struct.pack("=I", int(host, 16))) if known else "127.0.0.1"
                )
                doors.append((address, int(port, 16)))
    with open(f"/proc/{pid}/net/unix") as file:
        rows = [line.split() for line in file][1:]
    for row in rows:
        if row[3] == "00010000" and f"socket:[{row[6]}]" in links and len(row) > 7:
            doors.append(row[7].replace("@", "\0", 1) if row[7].startswith("@") else row[7])
    return doors


def _between_hosts(report: Report, draw: random.Random) -> None:
    """Groups over hosts: leaders connect, meet, and connect again after an abort."""
    listeners = [socket.create_server(("127.0.0.1", 0), backlog=_HOSTS) for _ in range(_HOSTS)]
    addresses = [Address(*s.getsockname()[:2], os.urandom(SECRET_BYTES)) for s in listeners]
    sums: dict[int, list[np.ndarray]] = {}

    def leader(index: int) -> None:
        links = InterHostTransport(index, addresses, listeners[index], DEADLINE_S)
        try:
            for epoch in (1, 2):
                array = np.arange(1000.0) * (index + 1)
                links.all_reduce(array, "sum", When(DEADLINE_S, "among strangers"))
                sums.setdefault(index, []).append(array)
                links.reset(epoch)
        finally:
            links.close()

    with Strangers(draw) as strangers:
        strangers.doors = [s.getsockname() for s in listeners]
        time.sleep(0.2)  # they are there first
        threads = [threading.Thread(target=leader, args=(i,), daemon=True) for i in range(_HOSTS)]
        with report.waiting("forming a group over hosts"):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(2 * DEADLINE_S)
        report.counts["formed"] += 1
        report.counts["calls of strangers"] += strangers.calls
    expected = np.arange(1000.0) * sum(range(1, _HOSTS + 1))
    right = [array for arrays in sums.values() for array in arrays if (array == expected).all()]
    if len(right) != 2 * _HOSTS:
        report.note(f"only {len(right)} of {2 * _HOSTS} sums over hosts are right")
