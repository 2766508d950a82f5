"""What a driver writes into shared memory goes to the GPU from there, beside the step before."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from rowlock.cluster.channel.channel import Channels
from rowlock.cluster.channel.connection import ReplicaConnection, ReplicaServer
from rowlock.cluster.collective.group import SharedMemoryGroup
from rowlock.cluster.collective.nccl import NcclGroup
from rowlock.executor.cuda.transfers import Staged
from rowlock.executor.plan.cuda_plan import CudaPlan
from rowlock.executor.replica.message import Message
from rowlock.executor.replica.options import RunOptions
from rowlock.executor.replica.replica import Replica
from rowlock.executor.simulated.simulated import SimulatedRuntime
from tests.cluster.test_channel import late, lost
from tests.cluster.test_nccl_programs import SCOPE, WIDTH, compiled, trained

pytestmark = pytest.mark.cuda
SIZE, WITHIN = 2, 60.0


class Served:
    """Two replicas on simulated GPUs, each in a thread that serves a driver's line."""

    def __init__(self) -> None:
        name = f"test-{uuid.uuid4().hex}"

        def join(rank: int) -> Replica:
            control = SharedMemoryGroup(name, rank, SIZE, WITHIN)
            group = NcclGroup(control, SimulatedRuntime(rank), WITHIN)
            return Replica(rank, group, WITHIN, group.runtime)

        with ThreadPoolExecutor(SIZE) as pool:
            self.replicas = list(pool.map(join, range(SIZE)))
        self.channels, lines = Channels(lost, late), {}
        self.threads = []
        for rank, replica in enumerate(self.replicas):
            here, there = socket.socketpair()
            lines[rank] = ReplicaConnection(here, near=True)
            server = ReplicaServer(there, replica)
            self.threads.append(threading.Thread(target=server.serve, daemon=True))
            self.threads[-1].start()
        self.channels.use(lines)
        program, values = compiled(SIZE)
        options = RunOptions.sequential().to_plain()
        load = {"id": 1, "program": program.program.to_json(), "scope": SCOPE, "functions": []}
        self.tell(Message("load", {**load, "options": options}))
        self.tell(Message("write", {"scope": SCOPE, "names": list(values)}, list(values.values())))

    def tell(self, message: Message) -> None:
        messages = {
            rank: message._replace(head={**message.head, "epoch": 0}) for rank in range(SIZE)
        }
        answers = self.channels.finish(self.channels.start(messages, WITHIN), WITHIN)
        assert all(a.kind != "error" for a in answers.values()), answers

    def begin(self, number: int) -> int:
        """Send a step as :func:`test_nccl_programs.step` feeds it."""
        rng = np.random.default_rng(number)
        xs = [rng.standard_normal((4, WIDTH)).astype("f4") for _ in range(SIZE)]
        head = {"id": 1, "rows": [0], "parts": [1.0], "idle": [False], "iterations": 1, "drop": []}
        messages = {
            rank: Message("step", {**head, "epoch": 0}, [x, x.sum(1, keepdims=True)], number)
            for rank, x in enumerate(xs)
        }
        return self.channels.start(messages, WITHIN)

    def end(self, number: int) -> list[float]:
        answers = self.channels.finish(number, WITHIN)
        assert all(a.kind == "fetched" for a in answers.values()), answers
        return [float(answers[rank].arrays[0][0]) for rank in range(SIZE)]

    def plan(self, rank: int) -> CudaPlan:
        (bound,) = self.replicas[rank].programs[1].plans
        assert isinstance(bound.plan, CudaPlan)
        return bound.plan

    def close(self) -> None:
        self.channels.close()
        for thread in self.threads:
            thread.join(WITHIN)
        for replica in self.replicas:
            replica.close()


@pytest.fixture
def served() -> Iterator[Served]:
    server = Served()
    yield server
    server.close()


def test_feeds_go_to_the_gpu_from_where_the_driver_wrote_them(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, losses = trained("memory", SIZE, 8)
    # by the socket: there is no area
    assert served.end(served.begin(0)) == pytest.approx(losses[:2])
    ways: list[bool] = []
    registered: list[np.ndarray] = []
    monkeypatch.setattr(SimulatedRuntime, "pin", lambda self, array: registered.append(array))
    bring = Staged.bring

    def noted(self: Staged, feeds: Any, lasting: bool = False) -> None:
        new = self._feeds_ahead is not feeds
        bring(self, feeds, lasting)
        if new:
            with_cuda = any(np.may_share_memory(feeds[0], area) for area in registered)
            ways.append(self.read is not None and with_cuda)

    monkeypatch.setattr(Staged, "bring", noted)
    outcome = []
    for number in range(1, 8):  # a slot is written again as soon as its step was answered
        outcome += served.end(served.begin(number))
    assert outcome == pytest.approx(losses[2:], rel=1e-5)
    assert ways == [True] * 14, "not one was copied on the host"


def test_shared_memory_is_given_up_once_the_gpu_has_read_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registered: dict[int, list[str]] = {}

    def noted(what: str) -> Any:
        def call(self: SimulatedRuntime, array: np.ndarray) -> None:
            assert what == "pin" or all(s.did == s.put for s in self._streams), "it is in use"
            registered.setdefault(array.ctypes.data, []).append(what)

        return call

    for name in ("pin", "unpin"):
        monkeypatch.setattr(SimulatedRuntime, name, noted(name))
    server = Served()
    for number in range(4):
        server.end(server.begin(number))
    for replica in server.replicas:  # as of a step that is not fetched
        assert replica.runtime is not None
        replica.runtime.execute([lambda: None])
    server.close()
    assert [*registered.values()] == [["pin", "unpin"]] * SIZE


def test_the_next_feed_is_on_its_way_while_the_gpu_works_on_a_step(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, losses = trained("memory", SIZE, 8)
    outcome = [loss for number in range(2) for loss in served.end(served.begin(number))]
    sent, staged = threading.Event(), [threading.Event() for _ in range(SIZE)]
    looks = [replica.look_ahead for replica in served.replicas]
    for rank, replica in enumerate(served.replicas):

        def look(rank: int = rank) -> None:
            if sent.wait(WITHIN):
                looks[rank]()  # type: ignore[misc]
            if served.plan(rank)._inward._feeds_ahead is not None:
                staged[rank].set()

        replica.look_ahead = look
    first = served.begin(2)
    second = served.begin(3)
    sent.set()
    outcome += served.end(first)
    assert all(event.is_set() for event in staged)
    outcome += served.end(second)
    assert outcome == pytest.approx(losses[:8], rel=1e-5)
    assert all(served.plan(rank)._inward._feeds_ahead is None for rank in range(SIZE))


def test_what_was_staged_for_a_step_that_does_not_come_is_not_used(served: Served) -> None:
    for number in range(2):
        served.end(served.begin(number))
    plan, feeds = served.plan(0), [np.full((4, WIDTH), np.nan, "f4"), np.zeros((4, 1), "f4")]
    head = {"id": 1, "rows": [0], "parts": [1.0], "idle": [False], "iterations": 1, "drop": []}
    served.replicas[0].stage(Message("step", {**head, "epoch": 0}, feeds, 2))
    assert plan._inward._feeds_ahead is feeds
    served.tell(Message("inventory", {}))
    assert plan._inward._feeds_ahead is None
    _, losses = trained("memory", SIZE, 3)
    assert served.end(served.begin(2)) == pytest.approx(losses[4:6], rel=1e-5)
