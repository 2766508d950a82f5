"""Transpiled programs, their servers in Ray actors: what trainers learn equals training alone."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rowlock import fluid
from rowlock.cluster.pserver.hosting import RayDirectory
from rowlock.cluster.pserver.hosting import endpoints as endpoints_there
from rowlock.cluster.pserver.topology import TrainerProgram, launch
from rowlock.strategies.cluster import ClusterConfig
from rowlock.strategies.errors import (
    InvalidArgument,
    InvalidState,
    InvalidType,
    InvalidValue,
    StateMismatch,
    TrainerLost,
)

from ..conftest import eventually, lasting, one_in
from ..executor.servers.roles import (
    Roles,
    Trainer,
    alone,
    endpoints,
    run_roles,
    together,
    transpiled,
)

pytestmark = pytest.mark.ray


def net() -> Any:
    x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
    hidden = fluid.layers.fc(x, 8, act="tanh")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return loss


def feeds(seed: int, steps: int = 5) -> list[dict[str, Any]]:
    draw = np.random.default_rng(seed)
    return [
        {"x": draw.standard_normal((6, 4)).astype("f4"), "y": draw.random((6, 1)).astype("f4")}
        for _ in range(steps)
    ]


@pytest.fixture
def on_ray(ray_cluster: None) -> Iterator[None]:
    with lasting("ray", trainer_deadline_s=60.0):
        yield


def check(roles: Roles) -> None:
    """Nothing failed, but that servers' values were looked for in scopes that they have left."""
    for error in roles.errors.values():
        assert isinstance(error, InvalidState) and "lives in the parameter server" in str(error)


def test_two_trainers_learn_what_one_process_does(on_ray: None) -> None:
    halves = [feeds(0), feeds(1)]
    whole = [
        {name: np.concatenate([a[name], b[name]]) for name in a}
        for a, b in zip(*halves, strict=True)
    ]
    roles = together(net, halves)
    check(roles)
    _, expected = alone(net, whole, roles.initial)
    for parameters in roles.parameters:
        for name, value in expected.items():
            np.testing.assert_allclose(parameters[name], value, rtol=1e-5, atol=1e-6)


def test_values_leave_the_scope_of_the_process_that_ran_the_servers_program(on_ray: None) -> None:
    where = endpoints(1)
    transpiler, main, startup, loss = transpiled(net, 0, where, 1)
    scope = fluid.Scope()

    def serve() -> None:
        program, initial = transpiler.get_pserver_programs(where[0])
        exe = fluid.Executor()
        exe.run(initial, scope=scope)
        exe.run(program, scope=scope)

    def train() -> None:
        own, exe = fluid.Scope(), fluid.Executor()
        exe.run(startup, scope=own)
        for feed in feeds(0):
            exe.run(main, feed=feed, fetch_list=[loss], scope=own)
        exe.close()

    roles = Roles([], [])
    run_roles(roles, {"server": serve, "trainer": train})
    assert not roles.errors, roles.errors
    name = main.all_parameters()[0].name
    tensor = scope.find_var(name).get_tensor()
    assert not tensor.initialized
    with pytest.raises(InvalidState, match=f"'{name}' lives in the parameter server {where[0]}"):
        np.array(tensor)


# -- one driver starts all ---------------------------------------------------------------------------

TRAINERS = 2
WHERE = ("127.0.0.1:19801", "127.0.0.1:19802")


def trainer(number: int) -> list[float]:
    """Build a trainer's program and run it, as a script would."""
    _, main, startup, loss = transpiled(net, number, WHERE, TRAINERS)
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    losses = [exe.run(main, feed, [loss], scope=scope)[0] for feed in feeds(number)]
    exe.close()
    return [float(np.mean(loss)) for loss in losses]


def servers() -> dict[str, Any]:
    transpiler = transpiled(net, 0, WHERE, TRAINERS)[0]
    return {endpoint: transpiler.get_pserver_programs(endpoint) for endpoint in WHERE}


def program_of(number: int) -> Any:
    _, main, startup, loss = transpiled(net, number, WHERE, TRAINERS)
    return TrainerProgram(main, startup, feeds(number), [loss])


@pytest.mark.slow
def test_functions_and_programs_as_trainers(on_ray: None) -> None:
    with launch(servers(), [trainer, trainer]) as topology:
        in_tasks = topology.wait(200)
    with launch(servers(), [program_of(0), program_of(1)]) as topology:
        on_threads = topology.wait(200)
    for task, thread in zip(in_tasks, on_threads, strict=True):
        np.testing.assert_allclose(task, [float(np.mean(loss)) for (loss,) in thread], rtol=1e-5)
    assert not endpoints_there()


def failing(number: int) -> None:
    if number:
        raise StateMismatch("the second trainer fails")
    trainer(number)


def dying(number: int) -> None:
    if number:
        os.kill(os.getpid(), signal.SIGKILL)
    trainer(number)


@pytest.mark.parametrize(
    ("function", "error", "text"),
    one_in(
        2,
        [(failing, StateMismatch, "the second trainer fails"), (dying, TrainerLost, "trainer 1")],
    ),
)
def test_a_trainer_that_fails_ends_the_training(
    on_ray: None, function: Any, error: Any, text: str
) -> None:
    with pytest.raises(error, match=text), launch(servers(), [function, function]) as topology:
        topology.wait(200)
    assert eventually(lambda: not endpoints_there())


def test_what_cannot_be_launched_is_refused(on_ray: None) -> None:
    with pytest.raises(InvalidArgument, match="servers and trainers"):
        launch({}, [trainer])
    with pytest.raises(InvalidType, match="a function of its number"):
        launch(servers(), [trainer, 7])  # type: ignore[list-item]
    with pytest.raises(InvalidValue, match="transpiled for 2"):
        launch(servers(), [trainer])
    swapped = dict(zip(WHERE, reversed(list(servers().values())), strict=True))
    with pytest.raises(InvalidValue, match="under its own endpoint"):
        launch(swapped, [trainer, trainer])
    assert eventually(lambda: not endpoints_there())


# -- servers and trainers that die -------------------------------------------------------------------


@pytest.mark.slow
def test_a_server_that_is_killed_shows_nowhere_in_what_is_learnt(
    ray_cluster: None, tmp_path: Path
) -> None:
    halves = [feeds(0, 12), feeds(1, 12)]

    steps = itertools.count()

    def kill(trainer: Trainer, feed: Any) -> float:
        """Kill one server, later the other one, before a step of the first trainer."""
        step = next(steps) if trainer.number == 0 else 0
        if step in (4, 9):
            address = RayDirectory(ClusterConfig()).find(endpoints_there()[step % 2], 60)
            assert address is not None
            os.kill(address.pid, signal.SIGKILL)
        return trainer.step(feed)

    undisturbed = {"launcher": "ray", "trainer_deadline_s": 60.0}
    with lasting(**undisturbed):
        expected = together(net, halves)
    with lasting(**undisturbed, server_snapshot_folder=str(tmp_path), server_snapshot_steps=3):
        roles = together(net, halves, step=kill)
    check(expected)
    check(roles)
    for mine, theirs in zip(roles.losses, expected.losses, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
