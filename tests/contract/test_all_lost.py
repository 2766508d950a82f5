"""Every replica is lost: that is told at once, each time, until new values are set; then training goes on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import rowlock
from rowlock.strategies.errors import InvalidState, ReplicaLost
from tests.programs import on_places

from ..conftest import lasting, one_in
from .nets import OPTIMIZERS, Net, feed
from .test_recovery import kill, losses_of, pids, quiet

__all__ = ["quiet"]
_AT_ONCE_S = 100.0  # far from the deadline of 300 s: nothing is waited for, but a host may be slow
CURE = "Set the parameters again"


@contextmanager
def refused() -> Iterator[None]:
    """Hold a block to its promise: it says at once that the values are gone, and what to do."""
    began = time.monotonic()
    with pytest.raises(InvalidState, match=CURE):
        yield
    assert time.monotonic() - began < _AT_ONCE_S


def kill_all(program: Any) -> None:
    for pid in pids(program):
        os.kill(pid, signal.SIGKILL)


def saved(net: Net) -> dict[str, np.ndarray]:
    return {v.name: net.value(v.name) for v in net.main.list_vars() if v.persistable}


def loaded(net: Net, values: dict[str, np.ndarray]) -> None:
    for name, value in values.items():
        net.scope.find_var(name).get_tensor().set(value)


def between(net: Net, program: Any) -> None:
    """Kill all at once, between two steps."""
    kill_all(program)
    net.run(program, feed(8, 9), [net.loss])


def within(net: Net, program: Any) -> None:
    """Kill all at once, in the middle of steps under way."""
    futures = [
        net.exe.run_async(program, feed(8, step), [net.loss], scope=net.scope) for step in (0, 1)
    ]
    kill_all(program)
    for future in futures:  # the first may have happened before
        future.result()
    net.run(program, feed(8, 9), [net.loss])


def in_a_row(net: Net, program: Any) -> None:
    """Kill one while its predecessor is replaced, by a read."""
    from .strikes import Strike, first, striking

    kill(program, 0)
    with striking([Strike("regroup", first, late=True)]):
        net.parameters()


@pytest.mark.parametrize("how", one_in(3, [between, within, in_a_row]))
def test_told_at_once_until_it_is_healed(how: Callable[..., None]) -> None:
    with lasting("ray"):
        twin, net = Net(OPTIMIZERS["adam"], layers=2), Net(OPTIMIZERS["adam"], layers=2)
        if how is not between:
            # the startup program is to heal it: it draws others when it runs again
            twin.run(twin.startup)
        expected = losses_of(twin, twin.compiled(2), 4, lambda step: None)
        parameters = twin.parameters()
        program = net.compiled(2)
        test = on_places(net.test, 2, share_vars_from=program)
        losses_of(net, program, 2, lambda step: None)
        (before,) = net.run(test, feed(8, 5), [net.prediction])
        checkpoint = saved(net)
        losses_of(net, program, 1, lambda step: None)
        with pytest.raises(InvalidState, match=CURE):
            how(net, program)
        for _ in range(2):
            for ask in (
                lambda: net.parameters(),
                lambda: net.run(program, feed(8, 3), [net.loss]),
                lambda: net.run(test, feed(8, 5), [net.prediction]),
                lambda: net.run(net.test, feed(8, 5), [net.prediction]),
                lambda: net.exe.run_async(program, feed(8, 3), [], scope=net.scope).result(),
                lambda: saved(net),
            ):
                with refused():
                    ask()
            assert program.explain() is not None
            assert program.temporaries() == (0, 0)
            program.drop_local_exe_scopes()
        if how is between:  # a load heals it
            loaded(net, checkpoint)
            (after,) = net.run(test, feed(8, 5), [net.prediction])
            assert after.tobytes() == before.tobytes()
            begin = 2
        else:
            net.run(net.startup)
            begin = 0
        for step in range(begin, 4):
            (loss,) = net.run(program, feed(8, step), [net.loss])
            assert loss.tobytes() == expected[step].tobytes()
        for name, value in net.parameters().items():
            assert value.tobytes() == parameters[name].tobytes(), name


def test_what_was_read_before_is_not_lost() -> None:
    with rowlock.cluster(launcher="ray", on_failure="raise"):
        net = Net(OPTIMIZERS["sgd"])
        program = net.compiled(2)
        losses_of(net, program, 2, lambda step: None)
        parameters = net.parameters()
        kill_all(program)
        with pytest.raises(ReplicaLost) as caught:
            net.run(program, feed(8, 2), [net.loss])
        assert sorted(caught.value.ranks) == [0, 1]
        with refused():  # a step that fails may have happened
            net.run(program, feed(8, 2), [net.loss])
        loaded(net, parameters)
        net.run(program, feed(8, 3), [net.loss])  # its learning rate was never written


@pytest.mark.slow
def test_with_fewer_places_and_at_the_end() -> None:
    with rowlock.cluster(launcher="ray", on_failure="shrink"):
        net = Net(OPTIMIZERS["adam"])
        program = net.compiled(3)
        net.run(program, feed(6, 0), [net.loss])
        kill(program, 1)
        before = net.parameters()  # a read notices it, and there are two places from then on
        assert len(pids(program)) == 2
        kill(program, 0)
        for name, value in net.parameters().items():
            np.testing.assert_array_equal(value, before[name])
        net.run(program, feed(6, 1), [net.loss])
        kill_all(program)
        with refused():
            net.parameters()
        net.run(net.startup)
        assert net.run(program, feed(6, 0), [net.loss])
    with pytest.raises(ReplicaLost, match=CURE), rowlock.cluster(launcher="ray"):
        other = net.compiled(2)
        net.run(other, feed(6, 0), [])
        kill_all(other)
