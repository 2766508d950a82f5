"""Servers as Ray actors: hosted, found by name, restored from snapshots, refused and ended."""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowlock.cluster.pserver.hosting import HostedServer, Job, RayDirectory, host
from rowlock.cluster.pserver.snapshots import SnapshotFolder
from rowlock.cluster.pserver.wire import SocketWire
from rowlock.executor.rpc.messages import Ask, Goodbye, Hello, Report, Snapshot
from rowlock.strategies.cluster import ClusterConfig
from rowlock.strategies.errors import EnforceNotMet, InvalidState, ServerLost, TrainerLost

from ..conftest import eventually
from .servers import Summing, expected, initial, step_of, train

pytestmark = pytest.mark.ray

A, B = "127.0.0.1:7001", "127.0.0.1:7002"


def job(endpoint: str, names: list[str], trainers: int = 1) -> Job:
    values = initial(names)
    return Job(
        endpoint,
        functools.partial(Summing, trainers),
        names,
        values.__getitem__,
        values.pop,
    )


class Hosting(threading.Thread):
    """Hosts a server as the process that runs its program would."""

    def __init__(self, endpoint: str, names: list[str], trainers: int = 1, **settings: Any) -> None:
        super().__init__(daemon=True)
        self.job, self.config = job(endpoint, names, trainers), ClusterConfig(**settings)
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            host(self.job, self.config)
        except BaseException as error:
            self.error = error

    def end(self) -> BaseException | None:
        self.join(60)
        assert not self.is_alive()
        return self.error


@pytest.fixture
def wire(ray_cluster: None) -> Iterator[SocketWire]:
    wire = SocketWire(RayDirectory(ClusterConfig()))
    yield wire
    wire.close()
    assert eventually(lambda: not RayDirectory(ClusterConfig()).others())


def pid_of(endpoint: str) -> int:
    address = RayDirectory(ClusterConfig()).find(endpoint, 60)
    assert address is not None
    return address.pid


def test_two_servers_and_two_trainers(wire: SocketWire) -> None:
    where = {"w": A, "large": A, "b": B}
    hosts = [Hosting(A, ["w", "large"], 2), Hosting(B, ["b"], 2)]
    others = SocketWire(RayDirectory(ClusterConfig()))
    results: dict[int, Any] = {}
    trainers = [
        threading.Thread(target=lambda t=t, w=w: results.update({t: train(w, where, t, 2, 4)}))
        for t, w in enumerate((wire, others))
    ]
    for trainer in trainers:
        trainer.start()
    for trainer in trainers:
        trainer.join(60)
    others.close()
    for values in results.values():
        for name, value in expected(where, 2, 4).items():
            np.testing.assert_array_equal(values[name], value)
    assert [host.end() for host in hosts] == [None, None]


def test_a_second_server_at_an_endpoint_is_refused(wire: SocketWire) -> None:
    first = Hosting(A, ["w"])
    wire.call(A, Hello(0, 1, "same"), 60)
    error = Hosting(A, ["w"]).end()
    assert isinstance(error, InvalidState) and f"another parameter server is at {A}" in str(error)
    wire.call(A, Goodbye(0), 60)
    assert first.end() is None


def test_a_server_that_is_killed_is_restored_and_nothing_is_lost(
    wire: SocketWire, tmp_path: Path
) -> None:
    where = dict.fromkeys(["w", "large"], A)
    hosting = Hosting(
        A, ["w", "large"], server_snapshot_folder=str(tmp_path), server_snapshot_steps=3
    )
    wire.call(A, Hello(0, 1, "same"), 60)
    values: dict[str, np.ndarray] = {}
    folder = SnapshotFolder(str(tmp_path), A)
    for step in range(1, 12):
        step_of(wire, where, 0, step, values)
        if step in (5, 10):
            assert eventually(lambda: folder.files()[0] > "step-000000000000.safetensors")
            os.kill(pid_of(A), signal.SIGKILL)
    report = wire.call(A, Ask(), 60)
    assert isinstance(report, Report) and report.facts["applied"] == 11
    for name, value in expected(where, 1, 11).items():
        np.testing.assert_array_equal(values[name], value)
    assert eventually(lambda: len(folder.files()) == 2)
    wire.call(A, Goodbye(0), 60)
    assert hosting.end() is None


def test_one_that_is_killed_without_snapshots_is_named_on_both_sides(wire: SocketWire) -> None:
    hosting = Hosting(A, ["w"])
    wire.call(A, Hello(0, 1, "same"), 60)
    os.kill(pid_of(A), signal.SIGKILL)
    with pytest.raises(ServerLost, match=f"{A} ended, and its values with it"):
        step_of(wire, {"w": A}, 0, 1, {})
    error = hosting.end()
    assert isinstance(error, ServerLost) and "server_snapshot_folder" in str(error)


def test_a_lost_trainer_ends_the_service_and_its_host_says_why(wire: SocketWire) -> None:
    hosting = Hosting(A, ["w"], 2, trainer_deadline_s=6.0)
    other = SocketWire(RayDirectory(ClusterConfig()))
    other.call(A, Hello(1, 2, "same"), 60)
    wire.call(A, Hello(0, 2, "same"), 60)
    other.close()
    with pytest.raises(TrainerLost, match="trainer 1 ended"):
        step_of(wire, {"w": A}, 0, 1, {})
    error = hosting.end()
    assert error is None or isinstance(error, EnforceNotMet)


def test_stopping_leaves_no_actor(ray_cluster: None) -> None:
    server = HostedServer(job(A, ["w"]), ClusterConfig())
    server.start()
    assert not server.wait(0.1)
    assert eventually(lambda: RayDirectory(ClusterConfig()).find(A, 60))
    pid = pid_of(A)
    server.stop("the test ends it")
    assert eventually(lambda: not RayDirectory(ClusterConfig()).others())
    assert eventually(lambda: not os.path.exists(f"/proc/{pid}"))


def test_an_earlier_training_is_not_gone_on_from(tmp_path: Path) -> None:
    folder = SnapshotFolder(str(tmp_path), A)
    for step in (1, 2, 30):
        folder.write(Snapshot({"w": np.full(3, step, "f4")}, {"applied": step}), step)
    assert folder.files() == ["step-000000000030.safetensors", "step-000000000002.safetensors"]
    newest = folder.newest()
    assert newest is not None and newest[1] == 30 and newest[0].counters == {"applied": 30}
    np.testing.assert_array_equal(newest[0].arrays["w"], np.full(3, 30, "f4"))
    folder.set_aside()
    assert folder.newest() is None
    assert len(os.listdir(os.path.join(folder.path, "earlier"))) == 2


def test_a_damaged_snapshot_is_passed_over(tmp_path: Path) -> None:
    folder = SnapshotFolder(str(tmp_path), A)
    for step in (1, 2):
        folder.write(Snapshot({"w": np.ones(100, "f8")}, {"applied": step}), step)
    newest = os.path.join(folder.path, folder.files()[0])
    os.truncate(newest, os.path.getsize(newest) - 8)
    snapshot = folder.newest()
    assert snapshot is not None and snapshot[1] == 1
