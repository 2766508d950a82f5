"""Several threads of the driver, and processes that are forked from it."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import rowlock
from rowlock.strategies.errors import InvalidState
from tests.conftest import lasting

from .nets import OPTIMIZERS, Net, feed


def at_once(calls: list[Callable[[], Any]]) -> None:
    """Call each in a thread of its own; raise what one of them raises."""
    failures: list[str] = []
    skips: list[str] = []

    def body(call: Callable[[], Any]) -> None:
        try:
            call()
        except pytest.skip.Exception as skip:  # this host has too few GPUs
            skips.append(str(skip))
        except BaseException:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=body, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
        assert not thread.is_alive(), "a thread waits for another that waits for it"
    assert not failures, failures[0]
    if skips:
        pytest.skip(skips[0])


@pytest.mark.parametrize("launcher", ["threads", "ray"])
def test_four_threads(launcher: str, request: pytest.FixtureRequest) -> None:
    """Two run one program, one tests with its values, one reads them and runs a plain one."""
    if launcher == "ray":
        request.getfixturevalue("ray_cluster")
    steps, batch = 40, feed(8)
    with lasting(launcher):
        alone, net = Net(OPTIMIZERS["adam"], drop=0.3), Net(OPTIMIZERS["adam"], drop=0.3)
        program, other = alone.compiled(2), net.compiled(2)
        for _ in range(2 * steps + 1):
            alone.run(program, batch, [alone.loss])
        net.run(other, batch, [net.loss])
        tested = net.compiled(2, net.test, share_vars_from=other)

        def train() -> None:
            for _ in range(steps // 2):
                how = {"scope": net.scope}
                future = net.exe.run_async(other, batch, [net.loss], **how)
                assert len(net.run(other, batch, [net.loss])) == 1
                future.done()
                assert len(future.result()) == 1

        def test() -> None:
            for _ in range(steps):
                assert np.isfinite(net.run(tested, batch, [net.loss])[0]).all()

        def look() -> None:
            for _ in range(steps):
                assert all(np.isfinite(value).all() for value in net.parameters().values())
                assert np.isfinite(net.run(net.test, batch, [net.loss])[0]).all()

        at_once([train, train, test, look])
        for name, value in net.parameters().items():
            assert value.tobytes() == alone.parameters()[name].tobytes(), name


@pytest.mark.cpu  # several gangs at once
def test_programs_of_their_own_are_launched_one_after_another() -> None:
    """The first steps of four programs come together: two share a gang, all start one by one."""

    nets = [(Net(), places) for places in (2, 2, 3, 4)]  # threads do not build programs together

    def train(net: Net, places: int) -> None:
        program = net.compiled(places)
        for step in range(5):
            net.run(program, feed(12, step), [net.loss])

    with rowlock.cluster(launcher="threads"):
        at_once([partial(train, *each) for each in nets])


@pytest.mark.parametrize("launcher", ["threads", "ray"])
def test_a_forked_child_is_refused_and_harms_nothing(
    launcher: str, request: pytest.FixtureRequest
) -> None:
    if launcher == "ray":
        request.getfixturevalue("ray_cluster")
    with lasting(launcher):
        net = Net()
        program = net.compiled(2)
        net.run(program, feed(8), [net.loss])
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            answer = b"ran"
            try:
                net.run(program, feed(8), [net.loss])
            except InvalidState as error:
                answer = str(error).encode()
            rowlock.shutdown()
            os.write(write, answer)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            answer = pipe.read()
        os.waitpid(child, 0)
        assert f"was forked from process {os.getpid()}" in answer
        assert len(net.run(program, feed(8), [net.loss])) == 1
