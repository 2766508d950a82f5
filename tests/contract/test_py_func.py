"""Python functions as ops: the values of Paddle 1.8.5 on one place, on threads, on Ray and on GPUs."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.graph.ops.python_function import FUNCTIONS
from rowlock.strategies.errors import ExecutionError, InvalidType, InvalidValue, Unsupported
from tests.programs import on_places, own_programs
from tests.reference import py_func_cases

TABLE = json.loads((Path(__file__).parents[1] / "reference/py_func.json").read_text())
TRAINED = [name for name, entry in TABLE.items() if len(entry["steps"][0]) > 2]


@pytest.mark.parametrize("device", ["cpu", "gpu"], indirect=True)
@pytest.mark.parametrize("name", TABLE)
def test_values_gradients_and_ops_are_paddles(name: str, device: str, threads: None) -> None:
    entry, expected = py_func_cases.run(fluid, name), TABLE[name]
    assert (entry["ops"], entry["calls"]) == (expected["ops"], expected["calls"])
    for step, numbers in zip(entry["steps"], expected["steps"], strict=True):
        for value, wanted in zip(step, numbers, strict=True):
            np.testing.assert_allclose(value, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", TRAINED)
def test_replicas_train_as_one_place_does(name: str, gang: str) -> None:
    main, startup, fetches, _ = py_func_cases.build(fluid, name)
    program = on_places(main, 2, fetches[0])
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    weight = main.all_parameters()[0].name
    with fluid.scope_guard(scope):
        exe.run(startup)
        for feed, numbers in zip(py_func_cases.feeds(main), TABLE[name]["steps"], strict=True):
            (loss,) = exe.run(program, feed=feed, fetch_list=[fetches[0]])
            np.testing.assert_allclose(np.mean(loss), numbers[0][0], rtol=1e-5, atol=1e-7)
    if weight in fetches:
        value = np.array(scope.find_var(weight).get_tensor())
        after = TABLE[name]["steps"][-1][fetches.index(weight)]
        np.testing.assert_allclose(value, after, rtol=1e-5, atol=1e-7)


def program_of(
    function: Callable[..., Any],
    backward: Callable[..., Any] | None = None,
    shape: tuple[int, ...] = (-1, 2),
    dtype: str = "float32",
) -> tuple[Any, Any]:
    """Return a program that calls a function of x [batch, 2], and the variable that it writes."""
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        x = fluid.data("x", [None, 2])
        out = main.global_block().create_var(name="out", dtype=dtype, shape=shape)
        fluid.layers.py_func(function, x, out, backward)
    return main, out


ROWS = np.arange(8, dtype=np.float32).reshape(4, 2)


def run(main: Any, out: Any, replicas: int = 0) -> np.ndarray:
    """Run a program once on ROWS."""
    program = on_places(main, replicas) if replicas else main
    value: np.ndarray = fluid.Executor(fluid.CPUPlace()).run(
        program, feed={"x": ROWS}, fetch_list=[out]
    )[0]
    return value


def test_threads_share_this_process_and_ray_has_copies(gang: str) -> None:
    counts = [0]

    def count(x: Any) -> np.ndarray:
        counts[0] += 1
        return np.array(x) * 0 + counts[0]

    value = run(*program_of(count), replicas=2)
    if gang == "ray":
        assert counts == [0]
        assert value.tolist() == [[1, 1]] * 4
    else:
        assert counts == [2]


def test_a_replacement_is_brought_the_functions(ray_cluster: None) -> None:
    gc.collect()  # values of one place, that tests before left on the gang, would be missed
    main, out = program_of(lambda x: np.array(x) + os.getpid() * 0)
    with rowlock.cluster(launcher="ray"), fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        program = on_places(main, 2)
        for step in range(4):
            if step == 2:
                pid = program._parallel.gang.delivery.where[1]["pid"]
                os.kill(pid, signal.SIGKILL)
            value = exe.run(program, feed={"x": ROWS}, fetch_list=[out])[0]
            assert value.tolist() == ROWS.tolist()


def test_what_cannot_be_pickled_is_refused_on_ray(ray_cluster: None) -> None:
    lock = threading.Lock()

    def locked(x: Any) -> np.ndarray:
        with lock:
            return np.array(x)

    main, out = program_of(locked)
    with rowlock.cluster(launcher="threads"):
        assert run(main, out, 2).tolist() == ROWS.tolist()
    with (
        rowlock.cluster(launcher="ray"),
        pytest.raises(Unsupported, match=r"locked .*cannot be pickled.*launcher='threads'"),
    ):
        run(main, out, 2)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda x: np.zeros((4, 3), "float32"), r"float32\[4, 3\] for variable 0.*create out with"),
        (lambda x: np.array(x).astype("float64"), r"astype\('float32'\)"),
        (lambda x: None, r"returned None for variable 0"),
        (lambda x: (x, x), r"returned 2 value\(s\) for 1 variable"),
        (
            lambda x: 1 / 0,
            r"ZeroDivisionError: division by zero \(raised at .*test_py_func.py:.*, in <la",
        ),
    ],
)
def test_what_a_function_returns_must_fit(function: Any, problem: str) -> None:
    with pytest.raises(ExecutionError, match=problem):
        run(*program_of(function))


def test_an_error_in_a_package_is_told_with_the_users_line(gang: str) -> None:
    main, out = program_of(lambda x: np.reshape(np.array(x), (5, 5)))
    with pytest.raises(
        ExecutionError, match=r"failed: ValueError: .*\(raised at .*test_py_func.py:"
    ):
        run(main, out, 2)


def test_what_it_keeps_of_a_step_stays(threads: None) -> None:
    tensors: list[Any] = []

    def keep(x: Any) -> np.ndarray:
        tensors.append(x)
        return np.array(x) + len(tensors)

    main, out = program_of(keep)
    for _ in range(3):
        run(main, out)
    assert [np.array(one).tolist() for one in tensors] == [ROWS.tolist()] * 3


@pytest.mark.parametrize("device", ["cpu", "gpu"], indirect=True)
def test_what_lasts_may_be_written_and_read_by_other_ops(device: str, threads: None) -> None:
    with own_programs() as (main, startup):
        x = fluid.data("x", [None, 2])
        total = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="total")
        fluid.layers.py_func(lambda x, t: np.array(t) + np.array(x).sum(), [x, total], total)
        double = fluid.layers.scale(total, 2.0)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        for step in range(1, 4):
            assert exe.run(main, feed={"x": ROWS}, fetch_list=[double])[0] == 2 * step * ROWS.sum()
    assert np.array(scope.find_var("total").get_tensor()) == 3 * ROWS.sum()


def test_sizes_that_the_batch_tells() -> None:
    main, out = program_of(lambda x: np.array(x).sum(1), shape=(-1,))
    assert run(main, out).tolist() == ROWS.sum(1).tolist()
    # the one unknown size of x
    main, out = program_of(lambda x: np.array(x).T.copy(), shape=(2, -1))
    assert run(main, out).tolist() == ROWS.T.tolist()


def positive(rows: Any) -> Any:
    """Return the rows whose sum is above 8, with a column more, as one sequence."""
    rows = np.array(rows)
    rows = np.pad(rows[rows.sum(1) > 8], [(0, 0), (0, 1)])
    tensor = fluid.core.LoDTensor()
    tensor.set(rows, fluid.CPUPlace())
    tensor.set_lod([[0, len(rows)]])
    return tensor


def test_a_function_decides_how_many_rows_it_returns(gang: str) -> None:
    main, out = program_of(positive, shape=(-1, 3))
    with fluid.program_guard(main):
        total = fluid.layers.reduce_sum(out, dim=1)
    program = on_places(main, 2)
    exe = fluid.Executor(fluid.CPUPlace())
    for scale, counts in (
        (1, [2]),
        (3, [1, 2]),
        (9, [1, 2]),
    ):  # of rows, on each place that has some
        rows = ROWS * np.float32(scale)
        rows[0] = 0 if scale > 1 else rows[0]
        chosen = np.pad(rows[rows.sum(1) > 8], [(0, 0), (0, 1)])
        for runs in (main, program):
            pair = exe.run(runs, {"x": rows}, [out, total], return_numpy=False)
            np.testing.assert_array_equal(np.array(pair[0]), chosen)
            np.testing.assert_array_equal(np.array(pair[1]), chosen.sum(1))
            lengths = pair[0].recursive_sequence_lengths()
            expected = [len(chosen)] if runs is main else [0] * (2 - len(counts)) + counts
            assert lengths == [expected]


def test_sizes_that_a_function_decides_do_not_stop_the_training_of_others(threads: None) -> None:
    """A sampler whose rows enter the loss as they are, as the targets of detectors do."""
    losses = []
    for places in (0, 2):
        with own_programs() as (main, startup):
            x = fluid.data("x", [None, 2])
            block = main.global_block()
            rows = block.create_var(name="rows", dtype="float32", shape=[-1, 3])
            count = block.create_var(name="count", dtype="int64", shape=[1])
            fluid.layers.py_func(
                lambda x: (positive(x), np.array([x.shape()[0]])), x, [rows, count]
            )
            start = fluid.initializer.Constant(0.5)
            y = fluid.layers.fc(rows, 2, param_attr=fluid.ParamAttr(initializer=start))
            loss = fluid.layers.reduce_sum(y) * 0.01
            fluid.optimizer.SGD(0.1).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            program: Any = main
            if places:  # each place has all of it, so that the mean over places is that of one
                program = on_places(main, places, loss)
            for step in range(3):
                feed = {"x": np.tile(ROWS, (max(places, 1), 1)) + np.float32(step)}
                losses.append(float(np.mean(exe.run(program, feed, [loss, count])[0])))
    np.testing.assert_allclose(losses[:3], losses[3:], rtol=1e-5)
    assert losses[0] != losses[1]


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda x: np.zeros(3, "float32"), r"1 dimension\(s\) for variable 0, which has 2"),
        (lambda x: np.zeros((2, 3)), r"astype\('float32'\)"),
        (lambda x: None, r"returned None for variable 0"),
    ],
)
def test_what_decides_sizes_must_fit_in_all_else(function: Any, problem: str) -> None:
    with pytest.raises(ExecutionError, match=problem):
        run(*program_of(function, shape=(-1, 3)))


def test_functions_of_modules_that_import_paddle_go_to_replicas(
    ray_cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rowlock import alias

    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = set(sys.modules)
    alias.install()
    try:
        from tests.contract.written_for_paddle import largest_first

        main, out = program_of(largest_first, shape=(-1, 2))
        with rowlock.cluster(launcher="ray"):
            assert run(main, out, 2).tolist() == [[2, 3], [0, 1], [6, 7], [4, 5]]
    finally:
        for name in set(sys.modules) - before:
            if name.split(".")[0] == "paddle" or name.endswith("written_for_paddle"):
                del sys.modules[name]


def test_mistakes_are_named() -> None:
    def declare(**changes: Any) -> None:
        main = fluid.Program()
        with fluid.program_guard(main):
            x = fluid.data("x", [3, 2])
            out = main.global_block().create_var(name="o", dtype="float32", shape=[3, 2])
            bare = main.global_block().create_var(name="bare")
            open_size = main.global_block().create_var(name="p", dtype="float32", shape=[-1, 2])
            named = {"bare": bare, "open": open_size}
            arguments = {"func": lambda x: x, "x": x, "out": out}
            arguments.update(
                {k: named.get(v, v) if isinstance(v, str) else v for k, v in changes.items()}
            )
            fluid.layers.py_func(**arguments)

    declare()
    for error, problem, changes in (
        (InvalidType, "func must be a Python function, got 3", {"func": 3}),
        (InvalidType, "backward_func must be a Python function", {"backward_func": 3}),
        (InvalidType, "x must be a Variable or a list", {"x": np.zeros(3)}),
        (InvalidType, "out must be a Variable or a list", {"out": [3]}),
        (InvalidValue, "'bare' has no shape or no dtype. Create it with both", {"out": "bare"}),
        (
            InvalidValue,
            "dimension 0 of 'p' is unknown",
            {"out": "open", "backward_func": lambda x, y, d: d},
        ),
        (InvalidValue, "func must take 1 arguments", {"func": lambda a, b: a}),
        (InvalidValue, "backward_func must take 3 arguments", {"backward_func": lambda dy: dy}),
        (
            InvalidValue,
            "'p', which is neither in x nor in out",
            {"backward_func": lambda x, y, d: d, "skip_vars_in_backward_input": "open"},
        ),
    ):
        with pytest.raises(error, match=problem):
            declare(**changes)


def test_a_saved_program_has_no_functions() -> None:
    main, _ = program_of(lambda x: np.array(x) * 2)
    text = main.desc.serialize_to_string()
    again = fluid.Program.parse_from_string(text)
    assert run(again, "out").tolist() == (ROWS * 2).tolist()  # in the process that has them
    number = main.global_block().ops[0].attr("forward_callable_id")
    assert fluid.layers.py_func.registered_func(number) is FUNCTIONS[number].function
    assert fluid.layers.py_func.registered_func_num() == len(FUNCTIONS)
    with fluid.program_guard(fluid.Program()):
        x = fluid.data("x", [None, 3])
        fluid.layers.py_func(lambda x: None, x, None)
    again.global_block().ops[0].set_attr("forward_callable_id", len(FUNCTIONS) - 1)
    with pytest.raises(ValueError, match=r"was registered for X = FP32\[-1,3\] \(got X 'x'"):
        run(again, "out")
    again.global_block().ops[0].set_attr("forward_callable_id", 10**6)
    with pytest.raises(Unsupported, match=r"no Python function has number 1000000.*build it again"):
        run(again, "out")


@pytest.mark.cpu  # there the function runs on the thread of the driver, whose replica can run both
def test_a_function_may_run_another_program_on_the_same_executor() -> None:
    exe, inner, outer = fluid.Executor(fluid.CPUPlace()), fluid.Program(), fluid.Program()
    with fluid.program_guard(inner, fluid.Program()):
        doubled = fluid.layers.scale(fluid.data("a", [None, 8]), 2.0)
        total = fluid.layers.reduce_sum(fluid.layers.tanh(doubled))

    def function(x: Any) -> Any:
        exe.run(inner, feed={"a": np.ones((500, 8), "float32")}, fetch_list=[total])
        return np.asarray(x) * 2

    with fluid.program_guard(outer, fluid.Program()):
        x = fluid.data("x", [None, 8])
        six = outer.current_block().create_var(name="made", dtype="float32", shape=[-1, 8])
        five = fluid.layers.scale(x, 5.0)
        fluid.layers.py_func(function, fluid.layers.scale(x, 3.0), six)
        result = fluid.layers.elementwise_add(six, five)
    x = np.arange(80, dtype="float32").reshape(10, 8)
    for _ in range(2):
        (sums,) = exe.run(outer, feed={"x": x}, fetch_list=[result])
        np.testing.assert_array_equal(sums, x * 11)


@pytest.mark.parametrize("device", ["gpu"], indirect=True)
def test_a_function_cannot_run_a_program_on_its_gpu(device: str, threads: None) -> None:
    exe, again = fluid.Executor(fluid.CPUPlace()), fluid.Program()
    with fluid.program_guard(again, fluid.Program()):
        doubled = fluid.layers.scale(fluid.data("a", [None, 2]), 2.0)

    def run_again(x: Any = ROWS) -> Any:
        return exe.run(again, feed={"a": np.array(x)}, fetch_list=[doubled])[0]

    main, out = program_of(run_again)
    for _ in range(2):
        with pytest.raises(ExecutionError, match=r"py_func\) cannot run programs.*test_py_func"):
            exe.run(main, feed={"x": ROWS}, fetch_list=[out])
        assert run_again().tolist() == (ROWS * 2).tolist()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_function_cannot_ask_the_replicas_that_wait_for_it(rank: int, threads: None) -> None:
    exe, scope, main = fluid.Executor(fluid.CPUPlace()), fluid.Scope(), fluid.Program()
    startup, calls = fluid.Program(), list[Callable[[], Any]]()

    def ask(x: Any) -> Any:
        if np.array(x)[0, 0] == ROWS[2 * rank, 0]:
            for call in calls:
                call()
        return np.array(x)

    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x = fluid.data("x", [None, 2])
        out = main.global_block().create_var(name="out", dtype="float32", shape=[-1, 2])
        fluid.layers.py_func(ask, x, out)
        loss = fluid.layers.mean(fluid.layers.fc(x, 2))
        fluid.optimizer.SGD(0.1).minimize(loss)
    places, weight = fluid.cpu_places(2), main.all_parameters()[0].name
    program = on_places(main, places, loss)

    def run_program() -> Any:
        return exe.run(program, feed={"x": ROWS}, fetch_list=[out])[0]

    def read_weight() -> Any:
        return np.array(scope.find_var(weight).get_tensor())

    with fluid.scope_guard(scope):
        exe.run(startup)
        for call in (run_program, read_weight):
            calls.append(call)
            with pytest.raises(ExecutionError, match=r"py_func\) cannot run programs, or read"):
                run_program()
            calls.clear()
            assert run_program().tolist() == ROWS.tolist()
