"""A trainer's program is given out once all servers answer."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from rowlock import fluid
from rowlock.fluid.transpiler.details import wait_server_ready
from rowlock.strategies.errors import ServerLost
from tests.programs import executor_after

from .roles import endpoints, threads, transpiled


def net() -> Any:
    loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.data("x", [4]), 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    return loss


def test_the_trainer_waits_for_a_server_that_starts_late() -> None:
    (endpoint,) = endpoints(1)
    with threads():
        transpiler, main, startup, _ = transpiled(net, 0, [endpoint], trainers=1)
        begins, waits = threading.Event(), threading.Event()

        def serve() -> None:
            begins.wait(60)
            program, first = transpiler.get_pserver_programs(endpoint)
            exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
            exe.run(first, scope=scope)
            exe.run(program, scope=scope)

        def begin() -> None:
            assert not waits.is_set()
            begins.set()

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        threading.Timer(0.2, begin).start()
        assert transpiler.get_trainer_program() is main
        waits.set()
        assert begins.is_set()
        exe = executor_after(startup, fluid.Scope())
        exe.close()
        server.join(60)
        assert not server.is_alive()


def test_servers_that_never_start_are_named() -> None:
    (endpoint,) = endpoints(1)
    with threads(), pytest.raises(ServerLost, match=f"{endpoint} after"):
        wait_server_ready([endpoint], 0.1)
