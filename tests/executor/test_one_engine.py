"""Plain programs on the replica of this thread: scopes, threads, interrupts, and memory that moves."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.device.device_scope import SharedScope
from rowlock.strategies.errors import InvalidState, NotInitialized
from tests.programs import on_places

X = np.ones((2, 4), np.float32)
WAIT_S = 60


def filling(kind: str, value: float, *, size: int = 4) -> fluid.Program:
    """Return a program that writes the persistable ``w``."""
    program = fluid.Program()
    with fluid.program_guard(program):
        block = program.global_block()
        w = block.create_var(name="w", shape=[size], dtype=kind, persistable=True)
        fluid.layers.fill_constant([size], kind, value, out=w)
    return program


def doubling() -> tuple[fluid.Program, Any]:
    """Return a program that reads ``w``, and what it fetches."""
    program = fluid.Program()
    with fluid.program_guard(program):
        block = program.global_block()
        w = block.create_var(name="w", shape=[4], dtype="float32", persistable=True)
        return program, fluid.layers.scale(w, 2.0)


def scaling() -> tuple[fluid.Program, Any]:
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        return program, fluid.layers.scale(fluid.data("x", [None, 4]), 2.0)


def calling(function: Any) -> tuple[fluid.Program, Any]:
    """Return a program that calls a Python function on its feed."""
    program = fluid.Program()
    with fluid.program_guard(program, fluid.Program()):
        x = fluid.data("x", [None, 4])
        out = program.current_block().create_var(name="out", dtype="float32", shape=[-1, 4])
        fluid.layers.py_func(function, x, out)
    return program, out


def test_a_persistable_of_another_type_leaves_no_plan_on_old_memory() -> None:
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    fill, (double, result) = filling("float32", 1.0), doubling()
    exe.run(fill, scope=scope)
    exe.run(double, fetch_list=[result], scope=scope)
    exe.run(filling("float64", 5.0), scope=scope)
    exe.run(fill, scope=scope)
    tensor = scope.find_var("w").get_tensor()
    np.testing.assert_array_equal(np.array(tensor), np.ones(4))
    tensor.set(np.full(4, 9, np.float32))
    np.testing.assert_array_equal(exe.run(double, fetch_list=[result], scope=scope)[0], [18] * 4)


def test_a_program_gives_a_persistable_its_size_whatever_size_it_had() -> None:
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    for size in (4, 6, 2):
        exe.run(filling("float32", size, size=size), scope=scope)
        tensor = scope.find_var("w").get_tensor()
        np.testing.assert_array_equal(np.array(tensor), [size] * size)


def test_an_interrupt_leaves_no_plan_on_old_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    double, result = doubling()
    exe.run(filling("float32", 1.0), scope=scope)
    exe.run(double, fetch_list=[result], scope=scope)
    tensor = scope.find_var("w").get_tensor()
    tensor.set(np.zeros(4, np.float64))  # other memory, and back
    tensor.set(np.full(4, 7, np.float32))

    def interrupt(self: SharedScope) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SharedScope, "moved", property(interrupt))
        with pytest.raises(KeyboardInterrupt):
            exe.run(double, fetch_list=[result], scope=scope)
    np.testing.assert_array_equal(exe.run(double, fetch_list=[result], scope=scope)[0], [14] * 4)


def test_a_run_beside_close_never_computes_on_nothing() -> None:
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    entered, leave = threading.Event(), threading.Event()

    def wait(x: Any) -> Any:
        entered.set()
        leave.wait(WAIT_S)
        return np.array(x)

    slow, (double, result) = calling(wait), doubling()
    exe.run(filling("float32", 2.0), scope=scope)
    exe.run(double, fetch_list=[result], scope=scope)
    values: list[Any] = []

    def run() -> None:
        try:
            values.append(exe.run(double, fetch_list=[result], scope=scope)[0].tolist())
        except InvalidState:
            values.append("closed")

    first = threading.Thread(
        target=lambda: exe.run(slow[0], feed={"x": X}, fetch_list=[slow[1]], scope=scope)
    )
    second = threading.Thread(target=run)
    closing = threading.Thread(target=exe.close)
    first.start()
    assert entered.wait(WAIT_S)
    closing.start()
    second.start()
    leave.set()
    for thread in (first, second, closing):
        thread.join(WAIT_S)
    assert values in ([[4.0] * 4], ["closed"])


def test_threads_on_two_scopes_do_not_wait_for_each_other_in_a_circle() -> None:
    exe, outer_scope, inner_scope = fluid.Executor(), fluid.Scope(), fluid.Scope()
    inner, result = scaling()
    entered = threading.Event()

    def nested(x: Any) -> Any:
        entered.set()
        time.sleep(0.3)  # the other thread waits meanwhile for what this one has
        return exe.run(inner, feed={"x": np.array(x)}, fetch_list=[result], scope=inner_scope)[0]

    outer, out = calling(nested)
    exe.run(inner, feed={"x": X}, fetch_list=[result], scope=inner_scope)
    values: list[Any] = []

    def run(program: Any, fetch: Any, scope: Any) -> None:
        values.append(exe.run(program, feed={"x": X}, fetch_list=[fetch], scope=scope)[0].sum())

    one = threading.Thread(target=run, args=(outer, out, outer_scope), daemon=True)
    other = threading.Thread(target=run, args=(inner, result, inner_scope), daemon=True)
    one.start()
    assert entered.wait(WAIT_S)
    other.start()
    for thread in (one, other):
        thread.join(WAIT_S)
    assert values == [16, 16]


def test_a_program_is_compiled_once_for_all_scopes() -> None:
    exe = fluid.Executor(fluid.CPUPlace())
    fill, (double, result) = filling("float32", 3.0), doubling()
    for _ in range(5):
        scope = fluid.Scope()
        exe.run(fill, scope=scope)
        np.testing.assert_array_equal(exe.run(double, fetch_list=[result], scope=scope)[0], [6] * 4)
    assert exe.compilations == 2


def run_of(program: fluid.Program, two_places: bool) -> Any:
    compiled = fluid.CompiledProgram(program)
    return compiled.with_data_parallel(places=fluid.cpu_places(2)) if two_places else program


@pytest.mark.parametrize("two_places", [False, True])
def test_an_erased_persistable_is_missed_at_the_next_step(two_places: bool) -> None:
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    fill, (double, result) = filling("float32", 1.0), doubling()
    with rowlock.cluster(launcher="threads"):
        runnable = run_of(double, two_places)
        exe.run(fill, scope=scope)
        exe.run(runnable, fetch_list=[result], scope=scope)
        scope.erase(["w", "no such variable"])
        assert scope.find_var("w") is None
        for _ in range(2):
            with pytest.raises(NotInitialized, match=r"'w'\. Run the startup program first"):
                exe.run(runnable, fetch_list=[result], scope=scope)
        scope.var("w").get_tensor().set(np.full(4, 3, np.float32))
        (values,) = exe.run(runnable, fetch_list=[result], scope=scope)
    np.testing.assert_array_equal(values, [6] * (8 if two_places else 4))


def test_an_erased_persistable_is_written_anew() -> None:
    exe, scope, fill = fluid.Executor(fluid.CPUPlace()), fluid.Scope(), filling("float32", 2.0)
    exe.run(fill, scope=scope)
    scope.erase(["w"])
    exe.run(fill, scope=scope)
    np.testing.assert_array_equal(np.array(scope.find_var("w").get_tensor()), [2] * 4)


@pytest.mark.parametrize("two_places", [False, True])
@pytest.mark.parametrize("kind", ["float64", "int32", "float16"])
def test_a_persistable_of_another_type_is_refused_by_name(kind: str, two_places: bool) -> None:
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    fill, (double, result) = filling("float32", 1.0), doubling()
    with rowlock.cluster(launcher="threads"):
        runnable = run_of(double, two_places)
        for other in (filling(kind, 5.0), filling(kind, 6.0)):
            # before the first step, and after it
            exe.run(other, scope=scope)
            with pytest.raises(InvalidState, match=f"'w' holds {kind}, .* as float32"):
                exe.run(runnable, fetch_list=[result], scope=scope)
            exe.run(fill, scope=scope)
            (values,) = exe.run(runnable, fetch_list=[result], scope=scope)
            np.testing.assert_array_equal(values, [2] * (8 if two_places else 4))


def test_a_data_parallel_program_on_one_place_of_threads_works_on_the_scopes_tensors() -> None:
    program, startup = fluid.Program(), fluid.Program()
    startup.random_seed = 3
    with fluid.program_guard(program, startup):
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), 1))
        fluid.optimizer.SGD(0.1).minimize(loss)
    exe, losses = fluid.Executor(fluid.CPUPlace()), []
    for compiles in (False, True):
        scope = fluid.Scope()
        with rowlock.cluster(launcher="threads"), fluid.scope_guard(scope):
            exe.run(startup)
            compiled = on_places(program, 1, loss)
            both = (compiled, program) if compiles else (program, program)
            steps = [exe.run(both[k % 2], feed={"x": X}, fetch_list=[loss])[0] for k in range(6)]
        losses.append(np.ravel(steps))
    assert compiled._parallel is not None and compiled._parallel.gang.here is not None
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)
