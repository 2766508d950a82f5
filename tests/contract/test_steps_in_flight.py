"""Executor.run_async: steps that are begun before others are done, on every kind of gang."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.strategies.errors import ExecutionError, FeedError, InvalidState, InvalidType
from tests.programs import on_places

from ..conftest import eventually
from .nets import OPTIMIZERS, Net, feed


def begin(net: Net, program: Any, step: int, **how: Any) -> Any:
    return net.exe.run_async(program, feed(8, step), [net.loss], scope=net.scope, **how)


def test_results_are_those_of_plain_runs(gang: str) -> None:
    twin, net = Net(OPTIMIZERS["adam"], drop=0.4), Net(OPTIMIZERS["adam"], drop=0.4)
    plain, program = twin.compiled(2), net.compiled(2)
    expected = [twin.run(plain, feed(8, step), [twin.loss])[0] for step in range(12)]
    futures, arrays = [], feed(8, 0)
    for step in range(12):  # the same arrays, filled anew while the steps before may be under way
        for name, array in feed(8, step).items():
            arrays[name][...] = array
        futures.append(net.exe.run_async(program, arrays, [net.loss, "x"], scope=net.scope))
    arrays["x"][...] = np.nan
    losses, seen = zip(*[future.result() for future in reversed(futures)][::-1], strict=True)
    assert [a.tobytes() for a in losses] == [a.tobytes() for a in expected]
    for step, rows in enumerate(seen):
        np.testing.assert_array_equal(rows, feed(8, step)["x"])
    assert futures[3].result() is futures[3].result() and futures[3].done()
    for name, value in net.parameters().items():
        assert value.tobytes() == twin.parameters()[name].tobytes()


def test_what_is_asked_meanwhile_waits_for_them(gang: str) -> None:
    net = Net(OPTIMIZERS["sgd"])
    program = net.compiled(2)
    net.run(program, feed(8, 0), [net.loss])
    before = net.parameters()
    futures = [begin(net, program, step) for step in (1, 2)]
    after = net.parameters()
    assert any(before[name].tobytes() != after[name].tobytes() for name in before)
    (loss,) = net.run(program, feed(8, 3), [net.loss])
    assert all(future.done() for future in futures)
    again = Net(OPTIMIZERS["sgd"])
    other = again.compiled(2)
    expected = [again.run(other, feed(8, step), [again.loss])[0] for step in range(4)]
    assert loss.tobytes() == expected[3].tobytes()
    assert futures[1].result()[0].tobytes() == expected[2].tobytes()


def test_shapes_and_fetches_may_change_between_them(gang: str) -> None:
    net = Net(OPTIMIZERS["sgd"])
    program = net.compiled(2)
    rows = [4, 8, 6, 4, 8, 2]
    futures = [
        net.exe.run_async(
            program,
            feed(count, step),
            [net.prediction] if step % 2 else [net.loss, net.prediction],
            scope=net.scope,
            return_merged=bool(step % 3),
        )
        for step, count in enumerate(rows)
    ]
    for step, (count, future) in enumerate(zip(rows, futures, strict=True)):
        prediction = future.result()[-1]
        assert (len(prediction) if step % 3 else sum(map(len, prediction))) == count


def test_feeding_overlaps_the_step_before(gang: str, tmp_path: Path) -> None:
    """The driver goes on while a step is under way: this one ends only when the driver says so."""
    over = tmp_path / "over"

    def until_over(x: Any) -> Any:
        assert eventually(over.exists)
        return x

    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 1])
        y = main.current_block().create_var(name="y", dtype="float32", shape=[-1, 1])
        fluid.layers.py_func(until_over, x, y)
    program = on_places(main, 2)
    exe, data = fluid.Executor(), {"x": np.ones((2, 1), "float32")}
    futures = [exe.run_async(program, data, [y]) for _ in range(2)]
    assert not futures[0].done(), "it waits for the step"
    over.touch()
    for future in futures:
        np.testing.assert_array_equal(future.result()[0], data["x"])


def test_an_error_ends_those_behind_it(gang: str) -> None:
    net = Net(OPTIMIZERS["sgd"])
    with fluid.program_guard(net.main):
        index = fluid.data("index", [None, 1], "int64")
        picked = fluid.layers.gather(net.prediction, index)
    program = net.compiled(2)
    good = {"index": np.zeros((8, 1), "int64")}
    bad = {"index": np.full((8, 1), 99, "int64")}
    fetches = [net.loss, picked]
    net.run(program, {**feed(8, 0), **good}, fetches)
    before = net.parameters()
    first = net.exe.run_async(program, {**feed(8, 1), **bad}, fetches, scope=net.scope)
    second = net.exe.run_async(program, {**feed(8, 2), **good}, fetches, scope=net.scope)
    with pytest.raises(ExecutionError, match="gather"):
        first.result()
    with pytest.raises(ExecutionError, match="gather"):
        second.result()
    for name, value in net.parameters().items():
        assert value.tobytes() == before[name].tobytes(), "neither happened"
    net.run(program, {**feed(8, 3), **good}, fetches)


def test_what_cannot_be_fed_is_refused_at_once(gang: str) -> None:
    net = Net()
    program = net.compiled(2)
    with pytest.raises(FeedError, match="nothing"):
        net.exe.run_async(program, {"nothing": np.ones(3)}, [net.loss], scope=net.scope)
    with pytest.raises(InvalidType, match="CompiledProgram"):
        net.exe.run_async(net.main, feed(8, 0), [net.loss], scope=net.scope)
    net.exe.close()
    with pytest.raises(InvalidState, match="closed"):
        begin(net, program, 0)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt; for what runs in the background, a shell has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_with_steps_in_flight(gang: str, ctrl_c: None) -> None:
    """The steps happen all the same, on every replica; the next ones go on from there."""
    net = Net(OPTIMIZERS["momentum"], layers=2)
    program = net.compiled(2)
    net.run(program, feed(8, 0), [net.loss])
    struck = 0
    for step in range(40):
        timer = threading.Timer(
            step % 10 * 1e-4, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)
        )
        try:
            timer.start()
            futures = [begin(net, program, 2 * step + k) for k in range(2)]
            for future in futures:
                future.result()
            timer.join()
            time.sleep(0.001)
        except KeyboardInterrupt:
            struck += 1
        timer.join()
    run = program._parallel
    assert run is not None and struck > 5
    for name in net.parameters():
        values = [run.gang.read(run.values.id, name, rank) for rank in range(2)]
        assert values[0].tobytes() == values[1].tobytes()
