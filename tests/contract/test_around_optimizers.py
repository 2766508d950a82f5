"""What surrounds optimizers is Paddle's: averages, recomputation, merged gradients, weight norm and others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.strategies.build import ReduceStrategy
from tests.conftest import product
from tests.programs import executor_after, on_places, own_programs
from tests.reference import around_optimizers as programs

REFERENCE = Path(__file__).parents[1] / "reference" / "around_optimizers.json"
PAGE = json.loads(REFERENCE.read_text())
CASES: dict[str, Callable[..., Any]] = {**programs.CASES, **programs.CASES_2X}
# Persistables that Paddle needs: constants (attributes of ops here), and values to restore.
_CONSTANTS = ("lookahead_alpha", "lookahead_k", "gradient_merge_k", "gradient_merge_zero")
OTHERS = (*_CONSTANTS, "learning_rate_1", "w1_restore", "b1_restore", "w2_restore")
PARALLEL = {
    "all_reduce": {},
    "reduce": {"reduce_strategy": ReduceStrategy.Reduce},
    "fused": {"fuse_all_optimizer_ops": True, "enable_auto_fusion": True},
}


class Run:
    """A case of the record, built and started; ``build``: on two places, with these fields of the strategy."""

    def __init__(self, case: str, build: dict[str, Any] | None = None) -> None:
        self.scope = fluid.Scope()
        with own_programs() as (self.main, self.startup):
            package = rowlock if case in programs.CASES_2X else fluid
            self.loss, self.averages = CASES[case](package)
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.exe.run(self.startup, scope=self.scope)
        if case in programs.CASES_2X:
            for name in ("w1", "b1", "w2"):
                tensor = self.scope.find_var(name).get_tensor()
                tensor.set(programs.initial()[name], fluid.CPUPlace())
        self.program: Any = self.main
        if build is not None:
            self.program = on_places(self.main, 2, self.loss, build=build)

    def step(self, feed: dict[str, np.ndarray]) -> float:
        losses = self.exe.run(self.program, feed, [self.loss], scope=self.scope)[0]
        return float(np.mean(losses))

    def value(self, name: str) -> np.ndarray:
        return np.array(self.scope.find_var(name).get_tensor())

    def check(self, expected: dict[str, Any], when: Any) -> None:
        for name in (name for name in expected if not name.startswith(OTHERS)):
            message = f"{name}, {when}"
            value = self.value(name)
            np.testing.assert_allclose(value, expected[name], 1e-5, 1e-5, err_msg=message)
            if name != "learning_rate_0":  # in Paddle 2.x it has no dimension
                assert value.shape == np.shape(expected[name]), message


def train(case: str, build: dict[str, Any] | None = None) -> None:
    """Hold persistables to Paddle's at the start, after the steps recorded, and while averages are applied."""
    run, record = Run(case, build), PAGE["cases"][case]
    run.check(record["start"], "start")
    for k, (feed, (loss, values)) in enumerate(zip(programs.feeds(), record["steps"], strict=True)):
        assert run.step(feed) == pytest.approx(loss, rel=1e-5, abs=1e-5)
        run.check(values, k)
    if run.averages is not None:
        with fluid.scope_guard(run.scope):
            for _ in range(2):  # a second time it is the same
                with run.averages.apply(run.exe):
                    run.check(record["applied"], "applied")
                run.check(record["steps"][-1][1], "restored")
            with run.averages.apply(run.exe, need_restore=False):
                pass
            run.check(record["applied"], "not restored")
            run.averages.restore(run.exe)
        run.check(record["steps"][-1][1], "restored later")


@pytest.mark.parametrize("case", CASES)
def test_steps_are_paddles(case: str) -> None:
    train(case)


def test_filters_that_upsample_are_symmetric() -> None:
    """Paddle's rows are shifted: it divides where it means to count."""
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        programs.bilinear(fluid)
        exe = executor_after()
        names = [p.name for p in fluid.default_main_program().all_parameters()]
        filters = dict(zip(names, exe.run(fetch_list=names), strict=True))
    for name, triangle in (("f4", [0.25, 0.75, 0.75, 0.25]), ("f3", [0.25, 0.75, 0.75])):
        for window in filters[name].reshape(-1, *filters[name].shape[2:]):
            np.testing.assert_allclose(window, np.outer(triangle, triangle))
        np.testing.assert_allclose(
            filters[name][..., 0, 0], np.array(PAGE["filters"][name])[..., 0, 0]
        )


@product(
    how=PARALLEL,
    case=[
        "ema_thres_steps",
        "average_short",
        "lookahead_adam",
        "recompute_two",
        "weight_norm_all",
        "decoupled_adam",
        "clip_global",
        "merge_sum",
        "merge_adam",
        "lookahead_2x",
    ],
)
def test_two_places_take_the_same_steps(case: str, how: str, threads: None) -> None:
    train(case, PARALLEL[how])


@pytest.mark.parametrize("build", [None, *PARALLEL.values()], ids=["one_place", *PARALLEL])
def test_a_second_optimizer_differentiates_at_the_weights_that_the_first_one_left(
    build: dict[str, Any] | None, threads: None
) -> None:
    with own_programs() as (main, startup):
        y = fluid.data("x", [None, 1])
        for name, value in (("w1", 0.5), ("w2", 0.2)):
            start = fluid.initializer.Constant(value)
            y = fluid.layers.fc(y, 1, param_attr=fluid.ParamAttr(name, start), bias_attr=False)
        loss = fluid.layers.mean(y)
        for target in (loss, fluid.layers.mean(y)):
            fluid.optimizer.SGD(0.1).minimize(target)
    exe, program, scope = fluid.Executor(fluid.CPUPlace()), main, fluid.Scope()
    exe.run(startup, scope=scope)
    if build is not None:
        program = on_places(main, 2, loss, build=build)
    exe.run(program, {"x": np.full((2, 1), 3.0, "f4")}, scope=scope)
    w1, w2 = (np.array(scope.find_var(name).get_tensor()).item() for name in ("w1", "w2"))
    between = 0.2 - 0.1 * (3 * 0.5)  # w2, which the second gradient of w1 reads
    np.testing.assert_allclose(w2, between - 0.1 * (3 * 0.5), rtol=1e-5)
    np.testing.assert_allclose(w1, 0.5 - 0.1 * (3 * 0.2) - 0.1 * (3 * between), rtol=1e-5)


# -- recomputation ------------------------------------------------------------------------------


class Deep:
    """Layers with batch norm and dropout; ``wrap`` makes the optimizer from Adam and the checkpoints."""

    def __init__(self, wrap: Callable[..., Any], *, low: bool = False, depth: int = 4) -> None:
        self.scope = fluid.Scope()
        marks = []
        with own_programs(7) as (self.main, self.startup):
            x, y = fluid.data("x", [None, 8]), fluid.data("y", [None, 1])
            hidden = x
            for _ in range(depth):
                hidden = fluid.layers.batch_norm(fluid.layers.fc(hidden, 8, act="tanh"))
                hidden = fluid.layers.dropout(hidden, 0.3)
                hidden = fluid.layers.elementwise_add(hidden, x)
                marks.append(hidden)
            self.inside = fluid.layers.relu(hidden)
            cost = fluid.layers.square_error_cost(fluid.layers.fc(self.inside, 1), y)
            self.loss = fluid.layers.mean(cost)
            optimizer = wrap(fluid.optimizer.Adam(0.01), marks[1::2])
            if low:
                optimizer = fluid.contrib.mixed_precision.decorate(optimizer)
            optimizer.minimize(self.loss)

    def train(self, places: int = 0, steps: int = 3, **build: Any) -> dict[str, np.ndarray]:
        """The persistables after some steps, on one executor or on places."""
        exe = executor_after(self.startup, self.scope)
        self.program: Any = self.main
        if places:
            self.program = on_places(self.main, places, self.loss, build=build)
        draw = np.random.RandomState(3)
        for _ in range(steps):
            feed = {
                "x": draw.randn(64, 8).astype("float32"),
                "y": draw.randn(64, 1).astype("float32"),
            }
            exe.run(self.program, feed, [self.loss], scope=self.scope)
        names = [v.name for v in self.main.list_vars() if v.persistable]
        tensors = {name: self.scope.find_var(name).get_tensor() for name in names}
        return {name: np.array(tensor) for name, tensor in tensors.items()}


def plain(optimizer: Any, marks: Any) -> Any:
    return optimizer


def again(optimizer: Any, marks: Any) -> Any:
    wrapped = fluid.optimizer.RecomputeOptimizer(optimizer)
    wrapped._set_checkpoints(marks)
    return wrapped


def assert_same(arrays: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert arrays.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(arrays[name], value, err_msg=name)


@pytest.mark.parametrize(
    ("low", "places", "build"),
    [(False, 0, {}), (True, 2, {}), (False, 2, PARALLEL["reduce"])],
)
def test_what_is_computed_again_is_the_same(
    low: bool, places: int, build: Any, threads: None
) -> None:
    """Also what dropout draws; and a batch norm counts its statistics once."""
    assert_same(
        Deep(again, low=low).train(places, **build), Deep(plain, low=low).train(places, **build)
    )


def test_computing_again_takes_less_memory(threads: None) -> None:
    arenas = []
    for wrap in (plain, again):
        deep = Deep(wrap, depth=8)
        deep.train(1, steps=1)
        arenas.append(deep.program.explain().memory.arena)
    assert arenas[1] < 0.5 * arenas[0]


def test_ops_of_segments_stand_before_their_gradients() -> None:
    main = Deep(again).main
    types = [op.type for op in main.global_block().ops]
    assert types.count("tanh") == types.count("dropout") == 2 * 4
    written = [name for op in main.global_block().ops for name in op.output_arg_names]
    repeated = [name for name in written if ".subprog_" in name]
    assert repeated and len(set(repeated)) == len(repeated)
    assert {name.rpartition("_")[2] for name in repeated} == {"0", "1"}


def test_append_backward_takes_checkpoints() -> None:
    deep = Deep(plain)
    parts = []
    for checkpoints in (None, ["elementwise_add_1.tmp_0"]):
        main = deep.main.clone(for_test=True)
        loss = main.global_block().var(deep.loss.name)
        with fluid.program_guard(main):
            pairs = fluid.backward.append_backward(loss, checkpoints=checkpoints)
        parts.append([(p.name, g.name) for p, g in pairs])
        again = any(".subprog_0" in name for name in main.global_block().vars)
        assert again == (checkpoints is not None)
    assert parts[0] == parts[1]


# -- optimizers around optimizers ---------------------------------------------------------------


def merged(optimizer: Any, marks: Any) -> Any:
    return fluid.optimizer.GradientMergeOptimizer(optimizer, k_steps=2)


def test_merged_gradients_of_what_is_computed_again_in_low_precision(threads: None) -> None:
    def both(optimizer: Any, marks: Any) -> Any:
        return merged(again(optimizer, marks), marks)

    assert_same(Deep(both, low=True).train(2, 4), Deep(merged, low=True).train(2, 4))


def test_updates_between_merges_change_nothing() -> None:
    deep = Deep(merged)
    start = deep.train(steps=0)
    (first, second) = (deep.train(steps=k) for k in (1, 2))
    trained = {p.name for p in deep.main.all_parameters() if p.trainable}
    state = {name for name in first if "moment" in name or "pow_acc" in name} | trained
    for name in state:
        np.testing.assert_array_equal(first[name], start[name], err_msg=name)
        assert (second[name] != start[name]).any(), name


def test_weights_look_ahead_in_mixed_precision(threads: None) -> None:
    def ahead(optimizer: Any, marks: Any) -> Any:
        decorated = fluid.contrib.mixed_precision.decorate(optimizer)
        return fluid.optimizer.LookaheadOptimizer(decorated, alpha=0.5, k=2)

    values = Deep(ahead).train(2, 2)
    for name in (name for name in values if name.endswith("@SLOW")):
        np.testing.assert_array_equal(values[name], values[name.removesuffix("@SLOW")])


def test_averages_of_float16_parameters_are_float32() -> None:
    with own_programs() as (main, startup):
        w = fluid.layers.create_parameter(
            [4], "float16", "w", default_initializer=fluid.initializer.Constant(1.0)
        )
        fluid.layers.assign(w + w * 0.001, w)
        moving = fluid.optimizer.ExponentialMovingAverage(0.999)
        moving.update()
        mean = fluid.optimizer.ModelAverage(1.0, 2, 100)
    exe, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        exe.run(startup)
        for _ in range(20):
            exe.run(main)
        value = np.array(scope.find_var("w").get_tensor())
        for averages in (moving, mean):
            with averages.apply(exe):
                average = np.array(scope.find_var("w").get_tensor())
            assert average.dtype == np.float16 and (average > 1).all() and (average < value).all()
            np.testing.assert_array_equal(np.array(scope.find_var("w").get_tensor()), value)


def sgd() -> Any:
    return fluid.optimizer.SGD(0.1)


def decorated() -> Any:
    return fluid.contrib.mixed_precision.decorate(sgd())


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: fluid.optimizer.RecomputeOptimizer(None), AssertionError, "cannot be None"),
        (lambda: fluid.optimizer.RecomputeOptimizer(decorated()), TypeError, "decorate the"),
        (lambda: again(sgd(), "x"), AssertionError, "a list of Variables"),
        (lambda: fluid.optimizer.RecomputeOptimizer(sgd()).load({}), NotImplementedError, "load"),
        (lambda: Deep(lambda o, _: fluid.optimizer.RecomputeOptimizer(o)), AssertionError, "call"),
        (lambda: fluid.optimizer.LookaheadOptimizer(None), AssertionError, "cannot be None"),
        (lambda: fluid.optimizer.LookaheadOptimizer(3), TypeError, "takes an optimizer, got int"),
        (lambda: fluid.optimizer.LookaheadOptimizer(sgd(), 1.5), AssertionError, "alpha"),
        (lambda: fluid.optimizer.LookaheadOptimizer(sgd(), k=0), AssertionError, "above 0, got 0"),
        (lambda: fluid.optimizer.GradientMergeOptimizer(sgd(), 1.5), AssertionError, "k_steps"),
        (lambda: fluid.optimizer.ExponentialMovingAverage(0.9, 3), TypeError, "thres_steps"),
        (lambda: fluid.optimizer.ExponentialMovingAverage(2.0), ValueError, r"in \[0, 1\]"),
        (
            lambda: Run("average_bounds"),
            ValueError,
            "must not be above max_average_window: .* max_average_window = 3",
        ),
        (lambda: fluid.optimizer.PipelineOptimizer, AttributeError, "has not built it"),
        (lambda: fluid.clip.ClipByNorm(1.0, need_clip=3), TypeError, "need_clip"),
        (lambda: fluid.contrib.extend_with_decoupled_weight_decay(3), TypeError, "a class"),
        (lambda: Run("decoupled_text"), TypeError, "weight_decay must be"),
        (lambda: Run("flat_filter"), ValueError, r"\[out, in, K, K\], got \[4, 4\]"),
        (lambda: Run("no_checkpoints"), TypeError, "checkpoints must be a list"),
    ],
)
def test_what_cannot_work_is_refused(
    make: Callable[[], Any], error: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flat(fluid: Any) -> None:
        attr = fluid.ParamAttr("w", initializer=fluid.initializer.Bilinear())
        fluid.layers.create_parameter([4, 4], "float32", attr=attr)

    def unlisted(fluid: Any) -> None:
        fluid.backward.append_backward(programs.net(fluid)[0], checkpoints="x")

    others = {
        "average_bounds": programs.model_average(1.0, 5, 3),
        "decoupled_text": programs.decoupled(lambda o: o.SGD, "0.1"),
        "flat_filter": flat,
        "no_checkpoints": unlisted,
    }
    for name, build in others.items():
        monkeypatch.setitem(CASES, name, build)
    with pytest.raises(error, match=text):
        make()


def test_a_rate_that_a_program_puts_in_the_optimizer_is_the_one_that_updates_take() -> None:
    with own_programs() as (main, _):
        loss = fluid.layers.reduce_sum(fluid.layers.create_parameter([1], "float32", name="w"))
        optimizer = fluid.optimizer.SGD(0.5)
        rate = fluid.layers.create_global_var([1], 0.25, "float32", True, name="scheduled")
        optimizer._learning_rate_map[main] = rate
        optimizer.minimize(loss)
    updates = [op for op in main.global_block().ops if op.type == "sgd"]
    assert [op.input("LearningRate") for op in updates] == [["scheduled"]]
