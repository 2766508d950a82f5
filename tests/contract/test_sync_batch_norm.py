"""sync_batch_norm: the batch norm of the whole batch, however it was split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.errors import ExecutionError, Unsupported
from tests.conftest import ON_RAY_TOO
from tests.contract.nets import OPTIMIZERS, assert_close, device_copies
from tests.programs import executor_after, on_places, own_programs

L = fluid.layers
SHAPES = {"NCHW": [2, 5, 5], "NHWC": [5, 5, 2], "rows": [6]}


class Normed:
    """A batch norm between two layers, trained on a regression."""

    def __init__(
        self, layout: str = "NCHW", dtype: str = "float32", optimizer: str = "momentum"
    ) -> None:
        self.scope = fluid.Scope()
        self.shape, self.dtype = SHAPES[layout], dtype
        with own_programs(3) as (self.main, startup):
            x = fluid.data("x", [None, *self.shape], dtype)
            y = fluid.data("y", [None, 1])
            order = "NHWC" if layout == "NHWC" else "NCHW"
            hidden = fluid.layers.conv2d(x, 3, 3) if layout == "NCHW" and dtype == "float32" else x
            hidden = fluid.layers.batch_norm(hidden, act="tanh", momentum=0.8, data_layout=order)
            hidden = hidden if dtype == "float32" else fluid.layers.cast(hidden, "float32")
            self.normed = hidden
            self.out = fluid.layers.fc(hidden, 1)
            self.loss = fluid.layers.mean(fluid.layers.square_error_cost(self.out, y))
            self.test = self.main.clone(for_test=True)
            OPTIMIZERS[optimizer]().minimize(self.loss)
        self.exe = fluid.Executor()
        self.exe.run(startup, scope=self.scope)

    def feed(self, rows: int, step: int) -> dict[str, np.ndarray]:
        """Rows whose mean drifts, so that places differ."""
        draw = np.random.default_rng(step)
        x = draw.standard_normal((rows, *self.shape)) + np.arange(rows).reshape(
            -1, *[1] * len(self.shape)
        )
        return {"x": x.astype(self.dtype), "y": draw.random((rows, 1), "float32")}

    def train(
        self, places: int, sync: bool, rows: int = 6, after_step: Any = lambda program: None
    ) -> fluid.CompiledProgram:
        program = (
            on_places(self.main, places, self.loss, build=BuildStrategy(sync_batch_norm=sync))
            if places
            else self.main
        )
        for step in range(3):
            self.exe.run(program, self.feed(rows, step), [self.loss], scope=self.scope)
            after_step(program)
        return program

    def values(self) -> dict[str, np.ndarray]:
        names = [v.name for v in self.main.list_vars() if v.persistable]
        return {name: np.array(self.scope.find_var(name).get_tensor()) for name in names}


@ON_RAY_TOO
@pytest.mark.parametrize("layout", SHAPES)
@pytest.mark.parametrize("places", [2, 3])
def test_it_is_the_batch_norm_of_the_whole_batch(gang: str, places: int, layout: str) -> None:
    spread, alone = Normed(layout), Normed(layout)
    program = spread.train(places, sync=True)
    alone.train(0, sync=False)
    assert_close(spread.values(), alone.values(), 1e-5)
    assert "sync_batch_norm: 1 batch norm(s) share their statistics" in str(program.explain())
    for name in spread.values():
        copies = device_copies(program, name)
        assert all(copy.tobytes() == copies[0].tobytes() for copy in copies), name


def test_without_it_each_place_normalises_alone(threads: None) -> None:
    spread, alone = Normed(), Normed()
    program = spread.train(2, sync=False)
    alone.train(0, sync=False)
    gap = max(
        np.abs(a - b).max()
        for a, b in zip(spread.values().values(), alone.values().values(), strict=True)
    )
    assert gap > 1e-2
    assert "batch norm" not in str(program.explain())


@ON_RAY_TOO
def test_halves(gang: str) -> None:
    spread, alone = Normed("rows", "float16"), Normed("rows", "float16")
    spread.train(2, sync=True)
    alone.train(0, sync=False)
    expected = alone.values()
    for name, value in spread.values().items():
        error = np.linalg.norm(value - expected[name]) / max(np.linalg.norm(expected[name]), 1e-3)
        assert error < 5e-3, name


def test_large_halves_do_not_overflow() -> None:
    """Squares of float16 do not fit into float16."""
    net = Normed("rows", "float16")
    batch = {name: array * (300 if name == "x" else 1) for name, array in net.feed(6, 0).items()}
    (normed,) = net.exe.run(net.main, batch, [net.normed], scope=net.scope)
    assert np.isfinite(normed).all() and np.abs(normed).max() > 0.5


@pytest.mark.parametrize("rows", [5, 7])
def test_uneven_rows_weigh_the_same_in_statistics(threads: None, rows: int) -> None:
    spread, alone = Normed(), Normed()
    for net, places in ((spread, 2), (alone, 0)):
        program = (
            on_places(
                net.main,
                places,
                net.loss,
                build=BuildStrategy(
                    sync_batch_norm=True,
                    gradient_scale_strategy=BuildStrategy.GradientScaleStrategy.SampleWeighted,
                ),
            )
            if places
            else net.main
        )
        for step in range(3):
            net.exe.run(program, net.feed(rows, step), [], scope=net.scope)
    assert_close(spread.values(), alone.values(), 1e-5)


def test_a_place_without_rows_adds_nothing(threads: None) -> None:
    spread, alone = Normed(), Normed()
    program = on_places(
        spread.main,
        3,
        spread.loss,
        build=BuildStrategy(
            sync_batch_norm=True,
            gradient_scale_strategy=BuildStrategy.GradientScaleStrategy.SampleWeighted,
        ),
    )
    for step in range(2):
        spread.exe.run(program, spread.feed(2, step), [], scope=spread.scope)
        alone.exe.run(alone.main, alone.feed(2, step), [], scope=alone.scope)
    values, expected = spread.values(), alone.values()
    for copy in (0, 1):
        # the place without rows has no batch to average into its running statistics
        moved = [
            name
            for name in values
            if not np.allclose(device_copies(program, name)[copy], expected[name], 1e-4, 1e-5)
        ]
        assert not moved


def test_fixed_statistics_are_left_alone(threads: None) -> None:
    net = Normed()
    program = on_places(net.test, 2, build=BuildStrategy(sync_batch_norm=True))
    net.exe.run(program, net.feed(4, 0), [net.out], scope=net.scope)
    assert "nothing to do, its batch norms use fixed statistics" in str(program.explain())


def test_it_asks_for_program_order(threads: None) -> None:
    build = BuildStrategy(sync_batch_norm=True)
    net = Normed()
    program = on_places(net.main, 2, net.loss, build=build)
    net.exe.run(program, net.feed(4, 0), [], scope=net.scope)
    assert build.enable_sequential_execution


class Cut:
    """A regression between whose two batch norms a step is cut, at what follows from the first.

    ``cut`` computes it from a hidden layer, a weight and the number of rounds, which is fed.
    """

    def __init__(self, cut: Callable[[Any, Any, Any], Any]) -> None:
        self.scope = fluid.Scope()
        with own_programs(3) as (self.main, startup):
            x, y = fluid.data("x", [None, 6]), fluid.data("y", [None, 1])
            rounds = fluid.data("rounds", [1], "int64")
            hidden = L.batch_norm(L.fc(x, 5), act="tanh", momentum=0.8)
            hidden = cut(hidden, L.create_parameter([5, 5], "float32"), rounds)
            hidden = L.batch_norm(hidden, act="tanh", momentum=0.8)
            self.out = L.fc(hidden, 1)
            self.loss = L.mean(L.square_error_cost(self.out, y))
            fluid.optimizer.Momentum(0.1, 0.9).minimize(self.loss)
        self.exe = fluid.Executor()
        self.exe.run(startup, scope=self.scope)

    def spread(self, places: int, **fields: Any) -> fluid.CompiledProgram:
        build = BuildStrategy(
            sync_batch_norm=True,
            gradient_scale_strategy=BuildStrategy.GradientScaleStrategy.SampleWeighted,
            **fields,
        )
        return on_places(self.main, places, self.loss, build=build)

    def step(self, program: Any, number: int, rows: int = 7) -> np.ndarray:
        draw = np.random.default_rng(number)
        x = draw.standard_normal((rows, 6)) + np.arange(rows)[:, None]
        feed = {"x": x.astype("float32"), "y": draw.random((rows, 1), "float32")}
        feed["rounds"] = np.array([number], "int64")
        return self.exe.run(program, feed, [self.out], scope=self.scope)[0]

    values = Normed.values


def rounds_of_a_loop(hidden: Any, w: Any, rounds: Any) -> Any:
    i = L.fill_constant([1], "int64", 0)

    def body(i: Any, h: Any) -> list[Any]:
        return [L.increment(i), L.tanh(L.matmul(h, w)) + h]

    return L.while_loop(lambda i, h: L.less_than(i, rounds), body, [i, hidden])[1]


def rows_that_values_choose(hidden: Any, w: Any, rounds: Any) -> Any:
    rows = L.where(L.reduce_sum(L.abs(hidden), 1) > 0.3)
    chosen = L.matmul(L.gather(hidden, rows), w)
    return L.scatter(L.zeros_like(hidden), L.reshape(rows, [-1]), chosen) + hidden


def branch_that_is_skipped(hidden: Any, w: Any, rounds: Any) -> Any:
    few = L.less_than(rounds, L.fill_constant([1], "int64", 2))
    return L.cond(few, lambda: L.matmul(hidden, w), lambda: L.matmul(hidden * 2.0, w))


CUTS = (rounds_of_a_loop, rows_that_values_choose, branch_that_is_skipped)


@pytest.mark.parametrize("mode", ["AllReduce", "Reduce"])
@pytest.mark.parametrize("cut", CUTS)
def test_a_step_may_be_cut_behind_it(gang: str, cut: Callable[..., Any], mode: str) -> None:
    """All replicas run the same segments, so they meet in each at the same point of their order.

    A place without rows computes nothing in them, and meets the others there.
    """
    spread, alone = Cut(cut), Cut(cut)
    way = getattr(BuildStrategy.ReduceStrategy, mode)
    program = spread.spread(3, reduce_strategy=way)
    for number, rows in enumerate((7, 2, 8, 2)):
        out, expected = spread.step(program, number, rows), alone.step(alone.main, number, rows)
        np.testing.assert_allclose(out, expected, atol=1e-5)
    assert_close(spread.values(), alone.values(), 1e-5)
    for parameter in (p for p in spread.main.all_parameters() if p.trainable):
        copies = device_copies(program, parameter.name)
        assert len({copy.tobytes() for copy in copies}) == 1
    assert "a step is cut into" in str(program.explain())


def test_what_lasts_is_written_behind_a_cut_that_follows_from_the_last_collective(
    threads: None,
) -> None:
    """Its vote is a barrier behind the cut: a place that fails there keeps all from writing."""

    def build() -> tuple[fluid.Program, fluid.Scope, Any]:
        main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
        startup.random_seed = 3
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            x, ids = fluid.data("x", [None, 6]), fluid.data("ids", [None, 1], "int64")
            rows = L.where(L.reduce_sum(L.batch_norm(x, momentum=0.8), 1) > -99.0)
            table = L.create_parameter([4, 3], "float32")
            looked_up = L.gather(table, L.reshape(L.gather(ids, rows), [-1]))
        fluid.Executor().run(startup, scope=scope)
        return main, scope, looked_up

    (main, scope, looked_up), (alone, own, plain) = build(), build()
    exe = fluid.Executor()
    program = on_places(main, 2, build=BuildStrategy(sync_batch_norm=True))
    x = np.random.default_rng(0).standard_normal((4, 6)).astype("float32")
    for last in (2, 9, 3):
        feed = {"x": x * last, "ids": np.array([[0], [1], [2], [last]], "int64")}
        if last == 9:
            with pytest.raises(ExecutionError, match="gather"):
                exe.run(program, feed, [looked_up], scope=scope)
            continue
        (rows,) = exe.run(program, feed, [looked_up], scope=scope)
        np.testing.assert_allclose(rows, exe.run(alone, feed, [plain], scope=own)[0], atol=1e-6)
    for name in ("batch_norm_0.w_1", "batch_norm_0.w_2"):
        np.testing.assert_allclose(
            scope.find_var(name).get_tensor(), own.find_var(name).get_tensor(), atol=1e-5
        )
        first, second = device_copies(program, name)
        assert first.tobytes() == second.tobytes()


def test_a_cut_that_follows_from_what_an_owner_alone_has_is_refused(threads: None) -> None:
    scope = fluid.Scope()
    with own_programs() as (main, startup):
        x = fluid.data("x", [None, 6])
        loss = L.reduce_mean(L.fc(x, 1))
        (slope,) = (g for p, g in fluid.backward.append_backward(loss) if len(p.shape) == 2)
        rows = L.where(slope > 0.0)
    exe = executor_after(startup, scope)
    feed = {"x": np.ones((4, 6), "float32")}
    for mode in ("AllReduce", "Reduce"):
        build = BuildStrategy(reduce_strategy=getattr(BuildStrategy.ReduceStrategy, mode))
        program = on_places(main, 2, loss, build=build)
        if mode == "AllReduce":
            (at,) = exe.run(program, feed, [rows], scope=scope)
            assert at.tolist() == [[k, 0] for k in range(6)] * 2
            continue
        with pytest.raises(
            Unsupported, match=r"where_index.*its owner alone.*test_sync_batch_norm"
        ):
            exe.run(program, feed, [rows], scope=scope)
