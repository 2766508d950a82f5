"""Roles that are missing, doubled or of another program: each is told, within a deadline."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest

from rowlock import fluid
from rowlock.executor.host.deadline import Deadline
from rowlock.executor.rpc.messages import Ask, Taken
from rowlock.executor.servers import session
from rowlock.executor.servers.local import LocalWire, service_at
from rowlock.strategies.current import current_config
from rowlock.strategies.errors import (
    InvalidState,
    InvalidValue,
    ServerLost,
    TrainerLost,
    Unsupported,
)

from .nets import Layers, batches, plain_sgd, regression
from .roles import Roles, endpoints, run_roles, threads, together, transpiled

Net = partial(regression, plain_sgd)


def started(where: list[str], trainer: int = 0, **settings: Any) -> tuple[Any, Any, Any, Any]:
    """Return an executor, a trainer's program, its startup program and a scope."""
    _, main, startup, _ = transpiled(Net, trainer, where, **settings)
    return fluid.Executor(fluid.CPUPlace()), main, startup, fluid.Scope()


def serving(where: str, transpiler: Any) -> None:
    program, startup = transpiler.get_pserver_programs(where)
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    exe.run(startup, scope=scope)
    exe.run(program, scope=scope)


def in_background(where: str, transpiler: Any) -> threading.Thread:
    """Serve until the service at this endpoint is stopped."""

    def serve() -> None:
        with pytest.raises(InvalidState, match="the test is over"):
            serving(where, transpiler)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def stop(where: str, thread: threading.Thread) -> None:
    service = service_at(where)
    assert service is not None
    service.stop("the test is over.")
    thread.join(60.0)
    assert not thread.is_alive()


def test_a_trainer_without_servers_is_told_where_none_are() -> None:
    where = endpoints(2)
    with threads(start_deadline_s=0.2):
        exe, _, startup, scope = started(where)
        with pytest.raises(ServerLost, match=where[0]) as refusal:
            exe.run(startup, scope=scope)
        exe.close()
    assert "get_pserver_program" in str(refusal.value)
    assert "0.2 s" in str(refusal.value)


def test_a_trainer_that_others_wait_for_is_named() -> None:
    with threads():
        where = endpoints(1)
        transpiler, main, startup, loss = transpiled(Net, 0, where)
        roles = Roles([], [])

        def train() -> None:
            exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
            try:
                exe.run(startup, scope=scope)
                # trainer 0 is there in time, however slow the host
                state = service_at(where[0]).state
                state.config = state.config.model_copy(update={"start_deadline_s": 0.3})
                state._idle = Deadline(0.3)  # for trainer 1, once this one has left
                exe.run(main, feed=batches(1)[0], fetch_list=[loss], scope=scope)
            finally:
                exe.close()

        run_roles(roles, {"server": lambda: serving(where[0], transpiler), "trainer": train})
    for error in roles.errors.values():
        assert isinstance(error, TrainerLost)
        assert "trainer 1 did not join" in str(error)
    assert len(roles.errors) == 2


def test_two_servers_at_one_endpoint_are_refused() -> None:
    with threads():
        (where,) = endpoints(1)
        transpiler = transpiled(Net, 0, [where])[0]
        first = in_background(where, transpiler)
        LocalWire().call(where, Ask(), 30.0)
        with pytest.raises(InvalidState, match=f"another parameter server is at {where}"):
            serving(where, transpiler)
        stop(where, first)


def test_a_servers_program_is_not_compiled() -> None:
    (where,) = endpoints(1)
    program = transpiled(Net, 0, [where])[0].get_pserver_program(where)
    with pytest.raises(InvalidValue, match=r"a parameter server's program.*exe\.run"):
        fluid.CompiledProgram(program)


def test_an_interrupt_ends_the_calls_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = threading.Event()

    class Wire:
        def call(self, endpoint: str, message: Any, within: float) -> Any:
            if endpoint == "a:1":
                raise KeyboardInterrupt
            assert closed.wait(60)
            return Taken()

        def close(self) -> None:
            closed.set()

    class Launcher:
        def wire(self, config: Any) -> Wire:
            return Wire()

    monkeypatch.setattr(session, "launcher_of", lambda config: Launcher())
    both = session.Session(0, ["a:1", "b:1"], current_config())
    with pytest.raises(KeyboardInterrupt):
        both._all({e: [Ask()] for e in both.endpoints})
    assert closed.is_set() and both.open


def test_a_step_waits_for_calls_that_went_on_when_another_failed() -> None:
    gate, order = threading.Event(), []

    def fail() -> None:
        raise ServerLost("a server is lost")

    def push() -> None:
        assert gate.wait(60)
        order.append("pushed")

    def go_on() -> None:
        both.drain()
        order.append("next step")

    with threads():
        both = session.Session(0, ["a:1", "b:1"], current_config())
    with pytest.raises(ServerLost):
        both._at_once({"a:1": fail, "b:1": push})
    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    gate.set()
    thread.join(60)
    assert order == ["pushed", "next step"]


def test_a_trainer_of_another_program_is_refused() -> None:
    def wider(trainer: int) -> Any:
        return partial(_net, 1000 + 100 * trainer)

    with threads():
        where = endpoints(1)
        transpilers = [transpiled(wider(trainer), trainer, where) for trainer in range(2)]
        roles = Roles([], [])

        def train(number: int) -> None:
            exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
            try:
                exe.run(transpilers[number][2], scope=scope)
            finally:
                exe.close()

        calls = {f"trainer {i}": partial(train, i) for i in range(2)}
        service = in_background(where[0], transpilers[0][0])
        run_roles(roles, calls)
        stop(where[0], service)
    assert list(roles.errors) == ["trainer 1"]
    assert isinstance(roles.errors["trainer 1"], InvalidValue)
    assert "another program" in str(roles.errors["trainer 1"])


def _net(width: int) -> Any:
    x, y = fluid.data("x", [None, 20]), fluid.data("y", [None, 1])
    loss = Layers.mean(Layers.square_error_cost(Layers.fc(Layers.fc(x, width), 1), y))
    fluid.optimizer.SGD(0.01).minimize(loss)
    return loss


def test_a_server_goes_on_when_one_trainer_finishes_early() -> None:
    feeds = batches(6)
    with threads():
        roles = together(Net, [feeds, feeds[:2]])
    assert not roles.errors
    assert [len(losses) for losses in roles.losses] == [6, 2]
    assert roles.reports[0]["steps"] == 6


def test_what_is_received_cannot_be_read_in_the_same_step() -> None:
    where = endpoints(1)
    exe, main, _, scope = started(where)
    with fluid.program_guard(main, fluid.Program()):
        Layers.mean(main.global_block().var("fc_1.w_0"))
    with threads(start_deadline_s=0.2), pytest.raises(Unsupported, match=r"mean reads 'fc_1.w_0'"):
        exe.run(main, feed=batches(1)[0], scope=scope)


def test_a_closed_executor_has_said_goodbye() -> None:
    with threads():
        roles = together(Net, [batches(1)], servers=1)
    assert not roles.errors  # else the server would wait
    assert roles.reports[0]["trainers"][0]["joined"]
