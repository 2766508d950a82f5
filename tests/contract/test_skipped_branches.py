"""Branches that run only where they are taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.strategies.errors import ExecutionError, ShapeError, Unsupported
from tests.programs import executor_after, on_places, own_programs

pytestmark = pytest.mark.usefixtures("fresh_programs")
L = fluid.layers
ONES = np.ones((2, 2), "float32")


def positive(x: Any) -> Any:
    return L.greater_than(L.reduce_sum(x), L.fill_constant([1], "float32", 0.0))


def do_if(condition: Any, build: Callable[[], Any]) -> None:
    """Have a branch without results stand in the program."""

    def branch() -> None:
        build()

    L.cond(condition, branch, None)


def run(feed: Any, *fetches: Any) -> list[np.ndarray]:
    exe = executor_after()
    return exe.run(feed={"x": feed}, fetch_list=list(fetches))


def both(*fetches: Any) -> list[list[np.ndarray]]:
    """Run where the branch is taken, where it is not, and where it is again."""
    return [run(sign * ONES, *fetches) for sign in (1, -1, 1)]


def test_a_loop_that_would_never_end_is_not_entered() -> None:
    x = fluid.data("x", [2, 2])

    def double() -> Any:
        limit = L.fill_constant([1], "float32", 10.0)
        (result,) = L.while_loop(
            lambda v: L.less_than(L.reduce_sum(v), limit), lambda v: [v * 2.0], [x + 0.0]
        )
        return result

    taken, untaken, _ = both(L.cond(positive(x), double, lambda: x * 0.0))
    np.testing.assert_array_equal(taken[0], 4 * ONES)
    np.testing.assert_array_equal(untaken[0], 0 * ONES)


def test_an_index_past_the_end_is_not_looked_up() -> None:
    x = fluid.data("x", [None, 2])
    index = L.cast(L.reduce_sum(x), "int64") * -1 + 3  # -1 past the end, or 7
    row = L.cond(
        L.less_than(index, L.fill_constant([1], "int64", 2)),
        lambda: L.gather(x, L.abs(index)),
        lambda: L.fill_constant([1, 2], "float32", 5.0),
    )
    taken, untaken, _ = both(row)
    np.testing.assert_array_equal(taken[0], [[1, 1]])
    np.testing.assert_array_equal(untaken[0], [[5, 5]])


def test_a_python_function_is_called_where_its_branch_is_taken() -> None:
    x = fluid.data("x", [2, 2])
    x.stop_gradient = False
    calls: list[str] = []

    def triple(value: Any) -> np.ndarray:
        calls.append("forward")
        return np.array(value) * 3

    def back(value: Any, result: Any, gradient: Any) -> np.ndarray:
        calls.append("backward")
        return np.array(gradient) * 3

    def branch() -> Any:
        block = fluid.default_main_program().current_block()
        out = block.create_var(name="out", shape=[2, 2], dtype="float32")
        L.py_func(triple, x, out, back)
        return out

    y = L.cond(positive(x), branch, lambda: x * 2.0)
    (gradient,) = fluid.gradients([y], [x])
    taken, untaken, _ = both(y, gradient)
    assert calls == ["forward", "backward"] * 2
    np.testing.assert_array_equal(taken, [3 * ONES, 3 * ONES])
    np.testing.assert_array_equal(untaken, [-2 * ONES, 2 * ONES])


def test_an_array_is_written_where_the_branch_is_taken() -> None:
    x = fluid.data("x", [2, 2])
    zero, one = (L.fill_constant([1], "int64", number) for number in (0, 1))
    array = L.array_write(x, zero)
    do_if(positive(x), lambda: L.array_write(x * 2.0, one, array))
    length = L.array_length(array)
    last = L.array_read(array, L.cast(length, "int64") - 1)
    taken, untaken, _ = both(length, last)
    np.testing.assert_array_equal(taken[1], 2 * ONES)
    np.testing.assert_array_equal(untaken[1], -ONES)
    assert taken[0] == 2 and untaken[0] == 1


@pytest.mark.parametrize("reads", [lambda y: y * 2.0, lambda y: y])
def test_what_an_untaken_branch_alone_writes_is_named(reads: Callable[[Any], Any]) -> None:
    x = fluid.data("x", [2, 2])
    block = fluid.default_main_program().current_block()
    y = block.create_var(name="result", shape=[2, 2], dtype="float32")
    do_if(positive(x), lambda: L.assign(L.matmul(x, x), y))
    out = reads(y)
    run(ONES, out)
    with pytest.raises(ExecutionError, match=r"nothing was written to 'result'.* not taken"):
        run(-ONES, out)
    run(ONES, out)


def test_a_branch_that_changes_the_shape_of_a_variable_is_refused() -> None:
    x = fluid.data("x", [2, 2])
    y = x * 1.0
    do_if(positive(x), lambda: L.assign(L.reduce_sum(L.matmul(x, x), dim=0), y))
    with pytest.raises(ShapeError, match=r"is FP32\[2\] where the branch is taken and FP32\[2,2\]"):
        run(ONES, y)


def test_python_in_a_branch_for_some_rows_is_refused() -> None:
    x = fluid.data("x", [2, 2])
    branches = L.IfElse(L.less_than(x[:, 0:1], L.fill_constant([1], "float32", 0.0)))
    with branches.true_block():
        rows = branches.input(x)
        block = fluid.default_main_program().current_block()
        out = block.create_var(name="out", shape=[-1, 2], dtype="float32")
        L.py_func(np.array, rows, out)
        branches.output(out)
    with branches.false_block():
        branches.output(branches.input(x))
    (result,) = branches()
    with pytest.raises(Unsupported, match=r"'py_func' cannot stand in a branch.* in test_python"):
        run(ONES, result)


def train(skips: bool, monkeypatch: pytest.MonkeyPatch, places: list[Any]) -> list[np.ndarray]:
    """Return losses, the rate and parameters of a net whose places take branches of their own."""
    with own_programs(7) as (main, startup):
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
        taken = positive(x)
        hidden = L.fc(x, 5, act="tanh")
        out = L.cond(taken, lambda: L.fc(hidden, 1), lambda: L.fc(L.fc(hidden, 3, act="relu"), 1))
        loss = L.mean(L.square(out - y))
        rate = L.create_global_var([1], 0.05, "float32", persistable=True, name="rate")
        with L.Switch() as switch:
            with switch.case(taken):
                L.assign(rate * 0.9, rate)
            with switch.default():
                L.assign(rate * 0.8, rate)
        fluid.optimizer.Momentum(rate, 0.9).minimize(loss)
    names = [parameter.name for parameter in main.all_parameters()]
    exe, scope = fluid.Executor(places[0]), fluid.Scope()
    exe.run(startup, scope=scope)
    program = on_places(main, places, loss) if len(places) > 1 else main
    draw, results = np.random.RandomState(3), list[np.ndarray]()
    with rowlock.cluster(launcher="threads"), monkeypatch.context() as patch:
        if not skips:
            patch.setattr("rowlock.graph.ir.branches._is_light", lambda block: True)
        for _ in range(6):
            feed = {name: draw.randn(6, n).astype("float32") for name, n in (("x", 4), ("y", 1))}
            results += exe.run(program, feed=feed, fetch_list=[loss], scope=scope)
        results += [np.array(scope.find_var(name).get_tensor()) for name in ["rate", *names]]
    return results


@pytest.mark.parametrize(("count", "gpus"), [(1, False), (2, False), (2, True)])
def test_nets_learn_what_they_do_where_both_sides_are_computed(
    count: int, gpus: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    choosing = train(False, monkeypatch, fluid.cpu_places(count))
    if gpus:
        monkeypatch.setenv("ROWLOCK_SIMULATED_GPUS", str(count))
    places = [fluid.CUDAPlace(k) for k in range(count)] if gpus else fluid.cpu_places(count)
    for value, reference in zip(train(True, monkeypatch, places), choosing, strict=True):
        np.testing.assert_allclose(value, reference, rtol=1e-5, atol=1e-6)


def test_explain_tells_where_a_step_is_cut() -> None:
    x = fluid.data("x", [2, 2])
    out = L.cond(positive(x), lambda: L.matmul(x, x), lambda: x)
    program = fluid.CompiledProgram(fluid.default_main_program())
    fluid.Executor(fluid.CPUPlace()).run(program, feed={"x": ONES}, fetch_list=[out])
    assert "conditional_block, built at" in str(program.explain())


def test_a_branch_sees_each_level_of_sequences() -> None:
    """An operator that is told which of them to take finds it there."""
    w, x = fluid.data("w", [None, 2], lod_level=2), fluid.data("x", [None, 2])
    w.stop_gradient = False
    rows = L.lod_reset(L.sequence_first_step(w), target_lod=[0, 1, 2, 3])
    longer = L.cond(
        positive(x), lambda: L.sequence_expand(rows, w, ref_level=1), lambda: L.matmul(w, x)
    )
    (slope,) = fluid.gradients(L.reduce_sum(longer * longer), [w])
    values, exe = np.arange(10, dtype="float32").reshape(5, 2), fluid.Executor(fluid.CPUPlace())
    feed = {"w": fluid.create_lod_tensor(values, [[2, 1], [2, 1, 2]], fluid.CPUPlace()), "x": ONES}
    out, own = exe.run(feed=feed, fetch_list=[longer, slope], return_numpy=False)
    firsts = values[[0, 0, 2, 3, 3]]
    np.testing.assert_array_equal(out, firsts)
    expected = np.zeros_like(values)
    np.add.at(expected, [0, 0, 2, 3, 3], 2 * firsts)
    np.testing.assert_array_equal(own, expected)
    (out,) = exe.run(feed={**feed, "x": -ONES}, fetch_list=[longer], return_numpy=False)
    np.testing.assert_array_equal(out, values @ -ONES)
