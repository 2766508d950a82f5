"""A trainer's process that ended anywhere within a step, and another that goes on in its place.

Or its user interrupts the step, and begins it again.
"""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from typing import Any

import numpy as np
import pytest

from rowlock import fluid
from rowlock.executor.rpc.messages import Message, Push, Together
from rowlock.executor.servers.local import LocalWire, service_at
from rowlock.executor.servers.server import ParameterServer

from .nets import batches, plain_sgd, regression, shared_out
from .roles import Roles, alone, endpoints, persistables, run_roles, threads, transpiled

Net = partial(regression, plain_sgd)
STEPS, BROKEN, WAIT_S = 4, 2, 10.0


class Killed(Exception):
    """The process ended here."""


class CutWire(LocalWire):
    """Delivers the gradients of step ``BROKEN`` to some servers, and no answer to them."""

    def __init__(self, reached: list[str], how: type[BaseException]) -> None:
        self._reached, self._how = reached, how

    def call(self, endpoint: str, message: Message, within: float) -> Any:
        """Return the answer, if the process lives until then."""
        parts = message.messages if isinstance(message, Together) else (message,)
        broken = any(isinstance(part, Push) and part.number == BROKEN for part in parts)
        if broken and endpoint not in self._reached:
            for other in self._reached:
                await_gradients(other)
            raise self._how
        answer = super().call(endpoint, message, within)
        if broken:
            raise self._how
        return answer


def await_gradients(endpoint: str) -> None:
    """Wait until a server has the gradients of step ``BROKEN``: another thread delivers them."""
    server = service_at(endpoint)
    assert isinstance(server, ParameterServer)
    state, steps = server.state, server.steps
    with state.changed:
        assert state.changed.wait_for(lambda: steps.begins_at(state.by_id[1]) >= BROKEN, WAIT_S)


def train_on(
    where: list[str], reached: list[str], sync: bool = True, how: type[BaseException] = Killed
) -> Roles:
    """Train with two trainers, the second of which is stopped within a step."""
    feeds = shared_out(batches(STEPS))
    roles = Roles([], [{}, {}])

    def serve(endpoint: str) -> None:
        program, startup = transpiled(Net, 0, where, sync=sync)[0].get_pserver_programs(endpoint)
        scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        exe.run(startup, scope=scope)
        exe.run(program, scope=scope)

    def train(number: int, wire: LocalWire | None = None) -> None:
        _, main, startup, loss = transpiled(Net, number, where, sync=sync)
        scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
        try:
            exe.run(startup, scope=scope)
            (session,) = exe._trainer_runs.sessions
            if session.number == 0:
                roles.initial = persistables(main, scope)
            session._wire = wire or session._wire
            while session.number < STEPS:
                with contextlib.suppress(KeyboardInterrupt):
                    feed = feeds[number][session.number]
                    exe.run(main, feed=feed, fetch_list=[loss], scope=scope)
            roles.parameters[number] = persistables(main, scope)
            if number == 1:
                roles.reports = [report.facts for report in session.reports()]
        except Killed:
            session.open = False  # it says no goodbye
        finally:
            exe.close()

    def train_twice() -> None:
        train(1, CutWire(reached, how))
        if how is Killed:
            train(1)

    calls = {endpoint: partial(serve, endpoint) for endpoint in where}
    with threads(step_deadline_s=10.0):
        run_roles(roles, {**calls, "trainer 0": partial(train, 0), "trainer 1": train_twice})
    assert not roles.errors
    return roles


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("reached", [0, 1])
@pytest.mark.parametrize("how", [Killed, KeyboardInterrupt])
def test_a_step_that_one_server_has_is_sent_to_the_other(
    how: type[BaseException], reached: int, sync: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Each server applies each step once, of which one server has the gradients of the first process."""
    where = endpoints(2)
    with caplog.at_level(logging.WARNING, "rowlock"):
        roles = train_on(where, [where[reached]], sync, how)
    for facts in roles.reports:
        assert facts["trainers"][1]["steps"] == STEPS
        assert facts["lost_steps"] == 0
    (warning,) = [text for text in caplog.messages if "goes on behind step" in text]
    assert f"trainer 1 goes on behind step {BROKEN - 1}" in warning
    assert where[1 - reached] in warning and where[reached] not in warning
    if sync:
        for name, value in roles.parameters[0].items():
            np.testing.assert_array_equal(roles.parameters[1][name], value)


@pytest.mark.parametrize("all_have_it", [True, False])
def test_a_step_that_all_or_no_servers_have_shows_nowhere(
    all_have_it: bool, caplog: pytest.LogCaptureFixture
) -> None:
    where = endpoints(2)
    roles = train_on(where, where if all_have_it else [])
    _, expected = alone(Net, batches(STEPS), roles.initial)
    for trained in roles.parameters:
        for name, value in expected.items():
            np.testing.assert_allclose(trained[name], value, 1e-5, 1e-6, err_msg=name)
    assert "goes on behind" not in caplog.text
