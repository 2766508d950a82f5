"""The gang made of Ray actors: starting, dying, ending. What all gangs share is in test_gang_contract."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import glob
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

import rowlock
import rowlock.fluid as fluid
from rowlock.cluster.gang import RayDelivery, launch_ray
from rowlock.cluster.ray.replica import set_threads
from rowlock.executor.gang.gang import Gang
from rowlock.executor.replica.message import Message
from rowlock.executor.replica.orders import Drop
from rowlock.strategies.cluster import ClusterConfig
from rowlock.strategies.errors import (
    CollectiveError,
    InvalidState,
    PlacementError,
    ReplicaLost,
    ResourceExhausted,
)
from tests.programs import executor_after, on_places

from ..conftest import eventually, freeze, segments_end
from ..executor.test_gang_contract import Regression, feeds

ROOT = Path(__file__).parents[2]
Launch = Callable[..., Gang]
_AT_ONCE_S = 60.0  # far from the deadline of 300 s, also on a busy host

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def last() -> Iterator[list[tuple[int, ClusterConfig, Gang]]]:
    """The gang that the last test left whole, if there is one, with its size and configuration."""
    gangs: list[tuple[int, ClusterConfig, Gang]] = []
    yield gangs
    for *_, gang in gangs:
        gang.close()


@pytest.fixture
def launch(ray_cluster: None, last: list[tuple[int, ClusterConfig, Gang]]) -> Iterator[Launch]:
    """Start a gang, or go on with that of the last test, if a test needs no ``fresh`` one."""
    gangs: list[tuple[int, ClusterConfig, Gang]] = []

    def start(size: int = 2, fresh: bool = False, **settings: Any) -> Gang:
        # Actors of other tests start on the same cores: longer than users would wait for them.
        config = ClusterConfig(**{"start_deadline_s": 200.0, **settings})
        while last:
            left = last.pop()
            if left[:2] == (size, config) and not fresh:
                gangs.append(left)
                return left[-1]
            left[-1].close()
        gangs.append((size, config, launch_ray(fluid.cpu_places(size), config)))
        return gangs[-1][-1]

    yield start
    for size, config, gang in gangs:
        if not last and not gang.delivery.broken and len(delivery(gang).alive) == size:
            last.append((size, config, gang))
        else:
            gang.close()


def delivery(gang: Gang) -> RayDelivery:
    assert isinstance(gang.delivery, RayDelivery)
    return gang.delivery


def processes(gang: Gang) -> list[int]:
    return [place["pid"] for place in delivery(gang).where]


def running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    return False


def open_sockets() -> set[socket.socket]:
    """Return the sockets that Python code of this process has open; those of Ray's C++ core come and go."""
    sockets = [each for each in gc.get_objects() if issubclass(type(each), socket.socket)]
    return {each for each in sockets if each.fileno() >= 0}


def blas_threads() -> int:
    """How many threads NumPy's BLAS uses."""
    (path,) = glob.glob(str(Path(np.__file__).parents[1] / "numpy.libs" / "*openblas*"))
    return int(ctypes.CDLL(path).scipy_openblas_get_num_threads64_())


def test_closing_leaves_nothing(launch: Launch) -> None:
    before = open_sockets()
    gang = launch(2, fresh=True)
    gang.all(Drop(0))
    assert len(open_sockets() - before) == 4, "each replica has one for steps, one for heartbeats"
    pids = processes(gang)
    assert len(set(pids)) == 2 and os.getpid() not in pids
    reservation = delivery(gang)._members[0].reservation.id.hex()
    gang.close()
    assert not open_sockets() - before
    gang.close()
    assert eventually(lambda: not any(map(running, pids)))
    assert segments_end()
    table = ray.util.placement_group_table()[reservation]
    assert table["state"] == "REMOVED"
    with pytest.raises(InvalidState, match="run the startup program, or load them"):
        gang.all(Drop(0))
    assert ray.is_initialized(), "a Ray that was joined is not ended"


def test_a_killed_replica_is_named_at_once(launch: Launch) -> None:
    gang = launch(3, on_failure="raise")
    pid = processes(gang)[1]
    os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    with pytest.raises(
        CollectiveError,
        match=rf"replica 1 \(process {pid} on .*node .*(worker proc|process has ended)",
    ):
        gang.all(Drop(0))
    assert time.monotonic() - began < _AT_ONCE_S
    assert delivery(gang).alive == [0, 2]
    assert len(gang.all(Drop(0))) == 3, "it is replaced when the gang is used again"
    assert processes(gang)[1] != pid


@pytest.mark.slow
def test_survivors_are_released_when_one_dies_in_a_collective(launch: Launch) -> None:
    gang = launch(2, collective_deadline_s=240, on_failure="raise")
    model = Regression(gang)
    model.step(feeds(0))
    pid = processes(gang)[0]
    freeze(pid)  # replica 1 waits for it in the all-reduce
    threading.Timer(0.5, os.kill, (pid, signal.SIGKILL)).start()
    with pytest.raises(CollectiveError, match=r"replica 0 .* is gone"):
        model.step(feeds(1))
    serving = delivery(gang)._members[1].serving
    delivery(gang)._channels.close()
    ray.get(serving, timeout=_AT_ONCE_S)  # it saw the end of the channel: it waits no more


def test_a_stopped_replica_is_named_long_before_the_deadline(launch: Launch) -> None:
    gang = launch(2, on_failure="raise")
    model = Regression(gang)
    model.step(feeds(0))
    pid = processes(gang)[1]
    freeze(pid)
    began = time.monotonic()
    with pytest.raises(CollectiveError, match=rf"replica 1 \(process {pid} .*is stopped"):
        model.step(feeds(1))
    assert time.monotonic() - began < _AT_ONCE_S
    assert eventually(lambda: not running(pid)), "it is ended"
    model.step(feeds(1))
    assert model.weights()[0].tobytes() == model.weights()[1].tobytes()


def test_a_stopped_replica_that_takes_nothing_in_is_named(launch: Launch) -> None:
    gang = launch(2, on_failure="raise")
    pid = processes(gang)[0]
    freeze(pid)
    with pytest.raises(CollectiveError, match=rf"replica 0 \(process {pid}.*is stopped"):
        gang.each([Message("drop", {"id": 0}, [np.zeros(2_000_000)])] * 2)
    assert delivery(gang).alive == [1]


def test_a_slow_step_is_no_alarm(launch: Launch) -> None:
    gang = launch(2, heartbeat_deadline_s=60)
    model = Regression(gang)
    pid = processes(gang)[1]
    freeze(pid)
    threading.Timer(0.5, os.kill, (pid, signal.SIGCONT)).start()
    model.step(feeds(0))
    model.step(feeds(1))
    assert processes(gang)[1] == pid


def test_more_cpus_than_there_are_is_refused_at_once(launch: Launch) -> None:
    with pytest.raises(CollectiveError, match=r"2 replicas with 64 CPUs.*need 128.*has 4"):
        launch(2, num_cpus_per_replica=64, start_deadline_s=10_000)


def test_cpus_that_are_taken_are_told(launch: Launch) -> None:
    taken = ray.util.placement_group([{"CPU": 4}])
    try:
        assert taken.wait(60)
        with pytest.raises(
            CollectiveError, match=r"cannot place .* no resources\. 0 of its 4 CPUs"
        ):
            launch(2, num_cpus_per_replica=1, start_deadline_s=1)
    finally:
        ray.util.remove_placement_group(taken)


def test_a_gang_that_cannot_form_leaves_nothing(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = socket.socket()  # its port is no other process's, and nothing listens there
    holder.bind(("127.0.0.1", 0))
    nowhere = holder.getsockname()[1]
    before = sys.modules["rowlock.cluster.gang"].Listener

    class Misled(before):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.address, self.local_name = ("127.0.0.1", nowhere), ""

    monkeypatch.setattr("rowlock.cluster.gang.Listener", Misled)
    with (
        holder,
        pytest.raises(CollectiveError, match=r"replica . \(process .* did not start: .*refused"),
    ):
        launch(2, fresh=True)
    assert segments_end()


@ray.remote(num_cpus=0)
class Failing:
    """An actor that cannot start, as where there is no shared memory left."""

    def __init__(self, *_: Any) -> None:
        raise CollectiveError("/dev/shm has no room")

    def describe(self) -> None:
        """Never answer."""


def test_an_actor_that_does_not_start_is_named_with_its_host(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rowlock.cluster.ray.replica_handle.ReplicaActor", Failing)
    with pytest.raises(ReplicaLost, match=r"actor of replica 0 on [\d.]+ did not start: .*no room"):
        launch(1, fresh=True)


def test_threads_of_the_array_library_are_set() -> None:
    before = blas_threads()
    set_threads(2)
    assert blas_threads() == 2
    set_threads(before)
    assert blas_threads() == before


def script(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    names = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "RAY_ADDRESS")}
    return subprocess.run(
        [sys.executable, "-c", text],
        env={**names, **environment},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.slow
def test_without_a_ray_one_is_started_and_ended() -> None:
    """From a source checkout that no worker knows of; a program's shuffles stay what they are."""
    process = script(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import os, random, ray, rowlock, rowlock.fluid as fluid\n"
        "from rowlock.executor.replica.orders import Drop\n"
        "from rowlock.executor.gang.launchers import gang_for\n"
        "drawn = random.getstate()\n"
        "gang = gang_for(fluid.cpu_places(2))\n"
        "assert random.getstate() == drawn\n"
        "assert len(gang.all(Drop(0))) == 2\n"
        "assert 'PYTHONPATH' not in os.environ\n"
        "pids = [p['pid'] for p in gang.delivery.where]\n"
        "with rowlock.cluster(threads_per_replica=2):\n"
        "    assert gang_for(fluid.cpu_places(1)) is not gang\n"
        "assert ray.is_initialized(), 'a gang is left'\n"
        "ray.shutdown()\n"
        "assert gang.delivery.broken, 'its Ray is gone'\n"
        "gang_for(fluid.cpu_places(1)).all(Drop(0))\n"
        "rowlock.shutdown()\n"
        "assert not ray.is_initialized()\n"
        "print(*pids)\n"
    )
    assert process.returncode == 0, process.stderr
    assert eventually(lambda: not any(running(int(pid)) for pid in process.stdout.split()))


@pytest.mark.slow
def test_a_cluster_that_does_not_know_the_package() -> None:
    process = script(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import ray, rowlock, rowlock.fluid as fluid\n"
        "from rowlock.executor.gang.launchers import gang_for\n"
        # Workers that find Ray, but no package that was installed by a path file.
        "import pathlib, sys\n"
        "site = str(pathlib.Path(ray.__file__).parents[1])\n"
        "hidden = {'py_executable': f'{sys.executable} -S', 'env_vars': {'PYTHONPATH': site}}\n"
        "ray.init('local', include_dashboard=False, object_store_memory=80_000_000, log_to_driver=False,"
        " runtime_env=hidden)\n"
        "gang_for(fluid.cpu_places(2))\n"
    )
    assert process.returncode == 1, process.stderr
    assert "No module named 'rowlock'. Install rowlock on every node" in process.stderr


def test_an_address_where_nobody_answers() -> None:
    process = script(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import rowlock.fluid as fluid\n"
        "from rowlock.cluster.gang import launch_ray\n"
        "from rowlock.strategies.cluster import ClusterConfig\n"
        "launch_ray(fluid.cpu_places(2), ClusterConfig(address='127.0.0.1:1'))\n"
    )
    assert process.returncode == 1
    assert "no Ray cluster answers at '127.0.0.1:1' (ClusterConfig.address): " in process.stderr
    assert "start one there (ray start --head), or unset ClusterConfig.address" in process.stderr


def test_a_replacement_that_would_compute_other_bits_is_refused(launch: Launch) -> None:
    gang = launch(2)
    model = Regression(gang)
    assert "numpy" in gang.libraries()
    model.step(feeds(0))
    agreed = gang.ledger.libraries
    gang.ledger.libraries = {**(agreed or {}), "numpy": "1.0, riscv64"}  # as if all had that
    os.kill(processes(gang)[1], signal.SIGKILL)
    for _ in range(2):  # the node is tried anew each time
        with pytest.raises(
            PlacementError,
            match=r"replica 1 \(process .*\) was refused, for it would compute other bits: numpy is "
            r"\d.*, not 1\.0, riscv64\. Install the same versions on all hosts.* No other node can be used: ",
        ):
            model.step(feeds(1))
    gang.ledger.libraries = agreed
    for step in (1, 2):
        model.step(feeds(step))
    weights = model.weights()
    assert weights[0].tobytes() == weights[1].tobytes()
    whole = Regression(gang)
    for step in range(3):
        whole.step(feeds(step))
    assert whole.weights()[0].tobytes() == weights[0].tobytes()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PlacementError, r"the cluster has no room\. .*on_failure=\"shrink\""),
        (CollectiveError, r"the cluster has no room\.$"),
    ],
)
def test_where_none_can_come_the_loss_is_told_and_the_next_run_tries_again(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, error: type[Exception], words: str
) -> None:
    gang = launch(2)
    model = Regression(gang)
    model.step(feeds(0))

    def nowhere(*_: Any) -> Any:
        raise error("the cluster has no room.")

    os.kill(processes(gang)[1], signal.SIGKILL)
    with monkeypatch.context() as patch:
        patch.setattr(delivery(gang)._pool, "place", nowhere)
        for _ in range(2):
            with pytest.raises(
                error,
                match=rf"^replica 1 \(process .*\) is gone: .* It cannot be replaced: {words}",
            ):
                model.step(feeds(1))
    model.step(feeds(1))
    whole = Regression(gang)
    for step in range(2):
        whole.step(feeds(step))
    assert whole.weights()[0].tobytes() == model.weights()[0].tobytes()


@pytest.mark.slow
def test_a_spare_that_is_gone_is_passed_over(launch: Launch) -> None:
    gang = launch(2, spares=1)
    model = Regression(gang)
    model.step(feeds(0))
    spare = delivery(gang)._pool.spares[0].where["pid"]
    for pid in (spare, processes(gang)[1]):
        os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: not running(spare))
    model.step(feeds(1))
    assert spare not in processes(gang)
    assert model.weights()[0].tobytes() == model.weights()[1].tobytes()


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def replica_processes() -> dict[int, int]:
    """Return the processes of replica actors on this host, and their parents."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if b"ReplicaActor" in (entry / "cmdline").read_bytes():
                parents[int(entry.name)] = parent(int(entry.name))
    return parents


@pytest.mark.slow
def test_many_kills_in_a_row_leave_nothing(launch: Launch) -> None:
    """The replica that is never killed, and this process, keep their size and their sockets.

    Fifty kills with ROWLOCK_TEST_LONG.
    """
    kills, grown = (45, 16 << 20) if os.environ.get("ROWLOCK_TEST_LONG") else (4, 8 << 20)
    others = replica_processes()  # of gangs that tests share
    gang = launch(2, fresh=True, spares=1)
    model, survivor = Regression(gang), processes(gang)[0]

    def own() -> int:
        raylet = parent(survivor)
        return sum(p == raylet for pid, p in replica_processes().items() if pid not in others)

    def kill_one() -> None:
        os.kill(processes(gang)[1], signal.SIGKILL)
        model.step(feeds(0))

    for _ in range(5):
        kill_one()
    before = len(open_sockets()), resident(os.getpid()), resident(survivor)
    for _ in range(kills):
        kill_one()
    assert processes(gang)[0] == survivor
    assert model.weights()[0].tobytes() == model.weights()[1].tobytes()
    assert eventually(lambda: len(open_sockets()) <= before[0])
    assert resident(os.getpid()) < before[1] + grown
    assert resident(survivor) < before[2] + grown
    assert eventually(lambda: own() == 3), "two, and a spare"
    assert segments_end()


@pytest.mark.slow
def test_a_replica_stuck_in_an_op_is_named_with_the_op(launch: Launch) -> None:
    """It answers whoever asks what it is at, so nobody takes it for frozen before the deadline."""

    def stuck(x: Any) -> Any:
        time.sleep(float(np.max(x)))
        return x

    with rowlock.cluster(on_failure="raise"):
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup):
            x = fluid.data("x", [None, 1])
            y = main.current_block().create_var(name="y", dtype="float32", shape=[-1, 1])
            fluid.layers.py_func(stuck, x, y)
        program = on_places(main, 2)
        exe = fluid.Executor()
        exe.run(program, {"x": np.zeros((2, 1), "float32")}, [y])
        gang = delivery(program._parallel.gang)
        gang.config = gang.config.model_copy(update={"step_deadline_s": 5.0})
        with pytest.raises(
            ReplicaLost,
            match=r"no answer from replica .*\[in py_func, built at .*test_ray_gang.py:\d+",
        ):
            exe.run(program, {"x": np.full((2, 1), 300, "float32")}, [y])


def test_only_the_replica_that_is_stuck_is_given_up(launch: Launch) -> None:
    """The other one waits for it in a collective, and has the values."""

    def stuck(x: Any) -> Any:
        time.sleep(300 * float(np.max(x) > 1))
        return x

    with rowlock.cluster(on_failure="raise", step_deadline_s=6.0):
        main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
        with fluid.program_guard(main, startup):
            x = fluid.data("x", [None, 1])
            hidden = fluid.layers.fc(x, 1, param_attr="w")
            y = main.current_block().create_var(name="y", dtype="float32", shape=[-1, 1])
            fluid.layers.py_func(stuck, x, y)
            loss = fluid.layers.mean(hidden * y)
            fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
        exe = executor_after(startup, scope)
        program = on_places(main, 2, loss)
        exe.run(program, {"x": np.ones((2, 1), "f4")}, scope=scope)
        before = np.array(scope.find_var("w").get_tensor())
        with pytest.raises(ReplicaLost, match=r"no answer from replica 1.*in py_func") as caught:
            exe.run(program, {"x": np.array([[1], [2]], "f4")}, scope=scope)
        assert caught.value.ranks == [1]
        np.testing.assert_array_equal(np.array(scope.find_var("w").get_tensor()), before)
        exe.run(program, {"x": np.ones((2, 1), "f4")}, scope=scope)


def test_memory_that_is_not_there_is_refused_before_the_step(launch: Launch) -> None:
    with rowlock.cluster():
        main, startup = fluid.Program(), fluid.Program()
        with fluid.program_guard(main, startup):
            x = fluid.data("x", [None, 4])
            huge = fluid.layers.fill_constant([1 << 20, 1 << 20], "float32", 1.0)
            top = fluid.layers.elementwise_add(fluid.layers.reduce_sum(huge), x)
        program = on_places(main, 2)
        exe = fluid.Executor()
        for _ in range(2):
            with pytest.raises(
                ResourceExhausted,
                match=r"a step needs 4,398,.* bytes on each replica .* and a place has .*Largest: "
                r"fill_constant.*made by fill_constant, built at .*test_ray.*Not even a batch of 1 fits",
            ):
                exe.run(program, {"x": np.ones((4, 4), "float32")}, [top])
