"""Roles as processes that were started by hand: on one host without a Ray, and over three hosts."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..conftest import eventually
from ..executor.servers.roles import alone
from .as_role import batch, net
from .namespaces import CannotMakeHosts, Driver, Hosts, hosts

MODULE = "tests.cluster.as_role"
STEPS = 12
ROLE_S = 120.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def environment(role: str, servers: list[str], number: int = 0, **others: Any) -> dict[str, str]:
    """Return what tells a script who it is."""
    own = {
        "PADDLE_TRAINING_ROLE": role,
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(servers),
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_TRAINER_ID": str(number),
        "STEPS": str(STEPS),
    }
    if role == "PSERVER":
        own["POD_IP"], own["PADDLE_PORT"] = servers[number].rsplit(":", 1)
    return own | {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in others.items()
    }


def check_learnt(trainers: list[Driver]) -> None:
    """Compare what trainers ended with to training in one process from the same values."""
    initial = json.loads(trainers[0].until("initial", ROLE_S))
    whole = [
        {name: np.concatenate([batch(0, step)[name], batch(1, step)[name]]) for name in ("x", "y")}
        for step in range(STEPS)
    ]
    _, expected = alone(net, whole, {n: np.array(v, "f4") for n, v in initial.items()})
    for trainer in trainers:
        result = json.loads(trainer.until("result", ROLE_S))
        for name, value in expected.items():
            np.testing.assert_allclose(np.array(result[name]), value, rtol=1e-4, atol=1e-5)
        trainer.until("done", ROLE_S)
        assert trainer.end() == 0


# -- one host, no Ray --------------------------------------------------------------------------------


class Here:
    """Starts roles on this host, which know of no Ray."""

    def __init__(self, folder: Path) -> None:
        self._drivers: list[Driver] = []
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("RAY_")
        }
        self._environment = {**inherited, "TMPDIR": str(folder)}

    def start(self, **own: str) -> Driver:
        command = [sys.executable, "-u", "-m", MODULE]
        name = f"driver {len(self._drivers)}"
        self._drivers.append(Driver(command, {**self._environment, **own}, name, self._drivers))
        return self._drivers[-1]

    def close(self) -> None:
        for driver in self._drivers:
            driver.kill()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    roles = Here(tmp_path)
    yield roles
    roles.close()
    assert eventually(lambda: not leftovers(tmp_path)), leftovers(tmp_path)
    assert not glob.glob(f"{tmp_path}/rowlock-*/head.json")


def leftovers(folder: Path) -> list[str]:
    """Return the command lines of processes that were started for roles."""
    commands = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"TMPDIR={folder}\0".encode() in Path(path).read_bytes():
                commands.append(Path(path).with_name("cmdline").read_text().replace("\0", " "))
    return commands


def test_scripts_find_each_other_and_leave_nothing(here: Here) -> None:
    where = ["127.0.0.1:18941", "127.0.0.1:18942"]
    servers = [here.start(**environment("PSERVER", where, i)) for i in range(2)]
    # Ray leaves this mode in a process that started a Ray of its own, and its children inherit it.
    inherited = [{"RAY_AUTH_MODE": "token"}, {}]
    trainers = [
        here.start(**environment("TRAINER", where, i), **own) for i, own in enumerate(inherited)
    ]
    check_learnt(trainers)
    for server in servers:
        server.until("done", ROLE_S)
        assert server.end() == 0


# -- three hosts -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three() -> Iterator[Hosts]:
    try:
        with hosts(3) as them:
            yield them
    except CannotMakeHosts as error:
        pytest.skip(f"no hosts as network namespaces here: {error}")


def actor_on(three: Hosts, host: int) -> int | None:
    """Return the process of the server that runs on a host; None without one."""
    for pid in three.processes(host):
        with contextlib.suppress(OSError):
            if "ServerActor" in Path(f"/proc/{pid}/cmdline").read_text():
                return pid
    return None


def test_a_server_and_a_trainer_are_killed_and_a_link_is_cut(three: Hosts, tmp_path: Path) -> None:
    """One server starts late, too; what is learnt is that of a training in which nothing happened.

    So the trainer is killed between two steps: of one that some servers have and others do not, it computes
    gradients from other values (``tests/executor/servers/test_trainers_that_come_again.py``).
    """
    where = [f"{three.addresses[host]}:6174" for host in (1, 2)]
    settings = {
        "trainer_deadline_s": 100.0,
        "server_snapshot_folder": str(tmp_path),
        "server_snapshot_steps": 2,
    }

    def start(host: int, role: str, number: int, **own: Any) -> Driver:
        variables = environment(role, where, number, SETTINGS=settings, **own)
        return three.driver(host, "-m", MODULE, **variables)

    servers = [start(1, "PSERVER", 0)]
    first = start(0, "TRAINER", 0, PAUSES=[2, 5, 8])
    second = start(2, "TRAINER", 1, PAUSES=[5])
    late = f"waiting for the parameter server {where[1]}"
    assert eventually(lambda: late in first.output, ROLE_S), first.output[-3000:]
    servers.append(start(2, "PSERVER", 1))
    first.until("paused 2", ROLE_S)
    server = actor_on(three, 1)
    assert server is not None
    os.kill(server, signal.SIGKILL)
    first.say("the server of host 1 is gone")
    first.until("paused 5", ROLE_S)
    second.until("paused 5", ROLE_S)
    second.kill()
    second = start(2, "TRAINER", 1)
    first.say("trainer 1 is gone, and comes again")
    first.until("paused 8", ROLE_S)
    three.cut(2)
    first.say("the link is cut")
    with pytest.raises(AssertionError, match="no 'result'"):
        first.until("result", 3.0)
    three.restore(2)
    first.until("result", ROLE_S)
    output = first.output
    assert "initial" in output
    second.until("result", ROLE_S)
    initial = json.loads(
        next(line for line in output.splitlines() if line.startswith("initial"))[8:]
    )
    whole = [
        {name: np.concatenate([batch(0, step)[name], batch(1, step)[name]]) for name in ("x", "y")}
        for step in range(STEPS)
    ]
    _, expected = alone(net, whole, {n: np.array(v, "f4") for n, v in initial.items()})
    for trainer in (first, second):
        lines = trainer.output.splitlines()
        result = json.loads(next(line for line in lines if line.startswith("result"))[7:])
        for name, value in expected.items():
            np.testing.assert_allclose(np.array(result[name]), value, rtol=1e-4, atol=1e-5)
        assert trainer.end() == 0
    for server in servers:
        server.until("done", ROLE_S)
        assert server.end() == 0


def test_a_server_that_never_comes_is_named_on_every_trainer(three: Hosts) -> None:
    where = [f"{three.addresses[1]}:6175", f"{three.addresses[2]}:6175"]
    settings = {"start_deadline_s": 100.0, "trainer_deadline_s": 3.0}
    server = three.driver(1, "-m", MODULE, **environment("PSERVER", where, 0, SETTINGS=settings))
    assert eventually(lambda: actor_on(three, 1) is not None, ROLE_S), server.output[-3000:]
    settings = {"start_deadline_s": 15.0, "step_deadline_s": 15.0}
    trainers = [
        three.driver(i, "-m", MODULE, **environment("TRAINER", where, i, SETTINGS=settings))
        for i in range(2)
    ]
    for trainer in trainers:
        assert f"no parameter server {where[1]}" in trainer.until("error", ROLE_S)
        assert trainer.end() == 1
    server.until("error", ROLE_S)
    assert server.end() == 1
