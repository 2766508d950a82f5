"""Every method is Paddle's: slots, names of accumulators, and numbers of twelve steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
import rowlock.optimizer
from rowlock.executor.gang.thread_group import ThreadGroup
from rowlock.executor.plan.buckets import Bucket
from rowlock.strategies.build import BuildStrategy
from tests.conftest import one_in
from tests.programs import on_places, own_programs

FILES = Path(__file__).parents[1] / "reference"
PAGES = {v: json.loads((FILES / f"optimizers{v}.json").read_text()) for v in ("", "_2x")}
CASES = [(version, case) for version, page in PAGES.items() for case in page["cases"]]
FEED = {name: np.array(value, "float32") for name, value in PAGES[""]["feed"].items()}
# Slots of Paddle 2.x in other words, or for tensors that are attributes here.
OTHER_SLOTS = {"nadam", "radam", "rprop", "asgd"}


def optimizer(version: str, method: str, options: dict[str, Any]) -> Any:
    options = dict(options)
    exclude, norm, l2 = (options.pop(name, None) for name in ("exclude", "global_norm", "l2_decay"))
    if exclude:
        options["exclude_from_weight_decay_fn"] = lambda parameter: parameter.name == exclude
    if norm:
        options["grad_clip"] = fluid.clip.GradientClipByGlobalNorm(norm)
    if l2 and version:
        options["weight_decay"] = l2
    elif l2:
        options["regularization"] = fluid.regularizer.L2Decay(l2)
    return getattr(rowlock.optimizer if version else fluid.optimizer, method)(0.05, **options)


def built(method: Any, width: int = 3) -> tuple[fluid.Program, fluid.Program, fluid.Variable]:
    with own_programs(3) as (main, startup):
        x, y = fluid.layers.data("x", [4]), fluid.layers.data("y", [1])
        hidden = fluid.layers.fc(x, width, act="tanh", param_attr="w1", bias_attr="b1")
        out = fluid.layers.fc(hidden, 1, param_attr="w2", bias_attr=False)
        loss = fluid.layers.mean(fluid.layers.square_error_cost(out, y))
        method.minimize(loss)
    return main, startup, loss


def parallel(main: fluid.Program, loss: fluid.Variable, **build: Any) -> Any:
    strategy = BuildStrategy(**build)
    return on_places(main, 2, loss, build=strategy)


def check(version: str, case: str, start: int = 0, **build: Any) -> None:
    """Train from Paddle's state after ``start`` steps, and hold every persistable to Paddle's."""
    entry = PAGES[version]["cases"][case]
    steps = {int(number): values for number, values in entry["steps"].items()}
    main, startup, loss = built(optimizer(version, entry["method"], entry["options"]))
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    program = parallel(main, loss, **build) if build else main
    with fluid.scope_guard(scope):
        exe.run(startup)
        for name, value in (steps[start] if start else PAGES[version]["initial"]).items():
            array = np.array(value, "float32", ndmin=1)  # 2.x rates have no dimension
            scope.find_var(name).get_tensor().set(array, fluid.CPUPlace())
        for number in range(start + 1, max(steps) + 1):
            exe.run(program, feed=FEED, fetch_list=[loss])
            for name, value in steps.get(number, {}).items():
                tensor = np.array(scope.find_var(name).get_tensor()).reshape(np.shape(value))
                np.testing.assert_allclose(tensor, value, rtol=1e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize(("version", "case"), CASES)
def test_twelve_steps_are_paddles(version: str, case: str) -> None:
    check(version, case)


@pytest.mark.parametrize(("version", "case"), one_in(4, CASES))
def test_training_goes_on_from_paddles_state(version: str, case: str) -> None:
    check(version, case, start=6)


@pytest.mark.parametrize("mode", ["AllReduce", "Reduce"])
@pytest.mark.parametrize(("version", "case"), one_in(4, CASES))
def test_two_places_in_one_update_agree(version: str, case: str, mode: str, threads: None) -> None:
    strategy = getattr(BuildStrategy.ReduceStrategy, mode)
    check(version, case, fuse_all_optimizer_ops=True, reduce_strategy=strategy)


@pytest.mark.parametrize(("version", "case"), [c for c in CASES if " " not in c[1]])
def test_slots_and_names_of_accumulators_are_paddles(version: str, case: str) -> None:
    entry = PAGES[version]["cases"][case]
    main, _, _ = built(optimizer(version, entry["method"], entry["options"]))
    ours = {}
    for op in main.global_block().ops:
        if "ParamOut" in op.output_names:
            names = {
                **{s: op.input(s) for s in op.input_names},
                **{s: op.output(s) for s in op.output_names},
            }
            ours[op.input("Param")[0]] = {slot: many for slot, many in names.items() if many}
    ops = entry["ops"].items()
    theirs = {p: {slot: many for slot, many in names.items() if many} for p, names in ops}
    assert ours == theirs or case in OTHER_SLOTS


def test_names_of_1_8_are_there() -> None:
    for name in ("Ftrl", "LarsMomentum", "Lamb", "Dpsgd", "RMSProp", "DecayedAdagrad"):
        assert getattr(fluid.optimizer, name) is getattr(fluid.optimizer, f"{name}Optimizer")


@pytest.mark.parametrize(
    ("method", "argument"),
    [("RMSProp", "rho"), ("RMSProp", "momentum"), ("Ftrl", "l1"), ("Lamb", "lamb_weight_decay"),
     ("LarsMomentum", "momentum"), ("Dpsgd", "sigma")],
)  # fmt: skip
def test_methods_take_numbers(method: str, argument: str) -> None:
    settings = {"momentum": 0.9} if method == "LarsMomentum" else {}
    with pytest.raises(ValueError, match=f"{method}: {argument} must be a number, got None"):
        getattr(fluid.optimizer, method)(0.1, **{**settings, argument: None})


@pytest.mark.parametrize(
    ("method", "options", "problem"),
    [
        ("NAdam", {"beta1": 1.0}, "NAdam: beta1 must be in"),
        ("RAdam", {"epsilon": -1.0}, "RAdam: epsilon must not be below 0"),
        ("Rprop", {"learning_rate_range": (0.2, 1.0)}, "within learning_rate_range"),
        ("Rprop", {"etas": (1.1, 1.2)}, "one below 1 and one above"),
        ("ASGD", {"batch_num": 0}, "ASGD: batch_num must be an int from 1 up, got 0"),
        ("LBFGS", {}, "imperative mode"),
    ],
)
def test_what_cannot_work_is_refused(method: str, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(fluid.core.EnforceNotMet, match=problem):
        getattr(rowlock.optimizer, method)(0.1, **options)


@pytest.mark.parametrize("seed", [None, 7])
@pytest.mark.parametrize("places", [1, 2])
def test_noise_of_dpsgd_is_normal_and_the_same_at_all_places(
    places: int, seed: int | None, threads: None
) -> None:
    """One number for a parameter and a step, as in Paddle; with a seed the same in every step."""
    method = fluid.optimizer.Dpsgd(1.0, clip=1e-6, batch_size=4.0, sigma=2.0)
    method._seed = seed
    main, startup, loss = built(method)
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    program = main if places == 1 else parallel(main, loss)
    draws: dict[str, list[float]] = {"w1": [], "b1": [], "w2": []}
    with fluid.scope_guard(scope):
        exe.run(startup)
        values = {name: np.array(scope.find_var(name).get_tensor()) for name in draws}
        for _ in range(100 if seed is None else 3):
            exe.run(program, feed=FEED, fetch_list=[loss])
            for name, before in values.items():
                values[name] = np.array(scope.find_var(name).get_tensor())
                noise = (before - values[name]) / 0.5  # sigma / batch_size
                np.testing.assert_allclose(noise, noise.flat[0], atol=1e-4)
                draws[name].append(noise.flat[0])
    if seed is not None:
        assert all(np.ptp(numbers) < 1e-4 for numbers in draws.values())
        return
    numbers = np.array([*draws.values()])
    assert abs(numbers.mean()) < 4 / np.sqrt(numbers.size)
    assert abs(numbers.std() - 1) < 4 / np.sqrt(2 * numbers.size)
    assert 0.6 < (np.abs(numbers) < 1).mean() < 0.76  # 68% of a normal distribution
    apart = np.corrcoef([*numbers, *numbers[:, ::-1]])[np.triu_indices(6, 1)]
    assert np.abs(apart).max() < 0.4


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize("reduces", [False, True])
def test_lars_neither_decays_nor_scales_what_it_excludes(
    places: int, reduces: bool, threads: None
) -> None:
    """As Paddle 3.3.1 computes with ``strategy.lars``; rates lie in the velocity, for they may change."""
    with own_programs() as (main, startup):
        x = fluid.data("x", [None, 4])
        rate = fluid.layers.exponential_decay(0.5, 1, 0.7)
        out = fluid.layers.fc(fluid.layers.fc(x, 3, act="tanh"), 1)
        loss = fluid.layers.mean(fluid.layers.square(out - 2.0))
        fluid.optimizer.LarsMomentumOptimizer(
            rate, 0.9, 0.1, exclude_from_weight_decay=["b_0"]
        ).minimize(loss)
    kind = "Reduce" if reduces else "AllReduce"
    build = BuildStrategy(reduce_strategy=getattr(BuildStrategy.ReduceStrategy, kind))
    program = on_places(main, places, loss, build=build)
    exe, rng = fluid.Executor(fluid.CPUPlace()), np.random.default_rng(0)
    name = "fc_0.b_0"
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        expected, velocity = np.zeros(3, np.float32), np.zeros(3, np.float32)
        for _ in range(4):
            feed = {"x": rng.standard_normal((8, 4)).astype("float32")}
            grad, lr = exe.run(program, feed=feed, fetch_list=[f"{name}@GRAD", rate])
            velocity = 0.9 * velocity + lr[0] * grad[:3]
            expected = expected - velocity
            value = np.array(fluid.global_scope().find_var(name).get_tensor())
            np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)


def dgc(**options: Any) -> Any:
    return fluid.optimizer.DGCMomentumOptimizer(0.05, 0.9, **options)


def dgc_steps(
    optimizer: Any, places: int, steps: int, names: tuple[str, ...] = ("w1", "w2")
) -> list[list[Any]]:
    """Return the loss and parameters after each of some steps; w1 has 16384 elements."""
    main, startup, loss = built(optimizer, width=4096)
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    program = on_places(main, places, loss)
    with fluid.scope_guard(scope):
        exe.run(startup)
        record = []
        for _ in range(steps):
            (value,) = exe.run(program, feed=FEED, fetch_list=[loss])
            arrays = [np.array(scope.find_var(name).get_tensor()) for name in names]
            record.append([value.mean(), *arrays])
    return record


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("places", [1, 2])
def test_dgc_is_momentum_until_it_compresses_and_where_it_keeps_nothing(
    places: int, nesterov: bool, threads: None
) -> None:
    """The gradient of the large parameter is not clipped before."""
    clip = fluid.clip.GradientClipByNorm(1e-3)
    decay = fluid.regularizer.L2Decay(0.1)
    how = {"regularization": decay, "use_nesterov": nesterov}
    late = {"rampup_begin_step": 3, "grad_clip": clip, "num_trainers": places}
    momentum = dgc_steps(fluid.optimizer.Momentum(0.05, 0.9, **how), places, 4)
    clipped = dgc_steps(dgc(**late, **how), places, 1)
    before = dgc_steps(dgc(rampup_begin_step=9, **how), places, 4)
    whole = dgc_steps(dgc(rampup_begin_step=1, sparsity=[0.0], **how), places, 4)
    for name, steps in (("before", before), ("whole", whole)):
        for one, other in zip(steps, momentum, strict=True):
            for array, expected in zip(one, other, strict=True):
                np.testing.assert_allclose(array, expected, rtol=2e-5, atol=1e-7, err_msg=name)
    np.testing.assert_allclose(clipped[0][1], momentum[0][1], rtol=1e-5, atol=1e-7)
    assert np.abs(clipped[0][2] - momentum[0][2]).max() > 1e-4


@pytest.mark.parametrize("reduces", [False, True], ids=["all_reduce", "reduce"])
def test_dgc_lets_the_largest_through_and_keeps_the_rest(reduces: bool, threads: None) -> None:
    """Of 16384 elements 16 a step and place at 0.999; half of them in the first stage of the ramp."""
    main, startup, loss = built(
        dgc(rampup_begin_step=1, rampup_step=2, sparsity=[0.5, 0.999]), width=4096
    )
    scope, exe = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    strategy = fluid.BuildStrategy()
    if reduces:
        strategy.reduce_strategy = fluid.BuildStrategy.ReduceStrategy.Reduce
    program = on_places(main, 2, loss, build=strategy)
    moved = []
    with fluid.scope_guard(scope):
        exe.run(startup)
        for _ in range(4):
            start = np.array(scope.find_var("w1").get_tensor())
            exe.run(program, feed=FEED, fetch_list=[loss])
            moved.append(int((np.array(scope.find_var("w1").get_tensor()) != start).sum()))
    assert moved[0] > 16000
    assert 8192 <= moved[1] <= 16384
    assert all(16 <= count <= 32 for count in moved[2:])


@pytest.mark.cpu
def test_dgc_sends_places_and_values(threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits as dense sums, and 384 bytes a step in place of 65536: 16 pairs from each of two places."""
    sent: list[int] = []
    gather = ThreadGroup.broadcast_parts

    def counted(self: Any, array: Any, *arguments: Any, **settings: Any) -> None:
        sent.append(array.nbytes)
        gather(self, array, *arguments, **settings)

    def optimizer() -> Any:
        return dgc(rampup_begin_step=1, rampup_step=2, sparsity=[0.5, 0.999])

    with monkeypatch.context() as patch:
        patch.setattr(ThreadGroup, "broadcast_parts", counted)
        sparse = dgc_steps(optimizer(), 2, 5)
    monkeypatch.setattr(Bucket, "add_largest", lambda *arguments: None)
    dense = dgc_steps(optimizer(), 2, 5)
    for one, other in zip(sparse, dense, strict=True):
        for array, expected in zip(one, other, strict=True):
            np.testing.assert_array_equal(array, expected)
    both = [2 * 16 * 4] * 6 + [
        2 * 16 * 8
    ] * 6  # values and places; two places, three steps at 0.999
    assert sorted(sent) == both  # half would be more than all


def test_dgc_trains_with_one_element_in_a_thousand(threads: None) -> None:
    sparse = dgc(rampup_begin_step=2, rampup_step=4, sparsity=[0.75, 0.9375, 0.984, 0.999])
    clipped = dgc(rampup_begin_step=0, grad_clip=fluid.clip.GradientClipByNorm(1.0), num_trainers=2)
    plain = fluid.optimizer.Momentum(0.05, 0.9)
    first, last = {}, {}
    for name, optimizer in (("sparse", sparse), ("clipped", clipped), ("plain", plain)):
        losses = [step[0] for step in dgc_steps(optimizer, 2, 40, ())]
        first[name], last[name] = losses[0], np.mean(losses[-5:])
    assert last["sparse"] < 0.5 * first["sparse"] and last["clipped"] < 0.7 * first["clipped"]


def test_dgc_of_small_parameters_is_momentum_for_ever() -> None:
    main, _, _ = built(dgc(rampup_begin_step=0))
    types = {op.type for op in main.global_block().ops}
    assert "momentum" in types
    assert "dgc" not in types


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({"rampup_begin_step": -1}, ValueError, "must not be below 0"),
        ({"rampup_begin_step": 0, "sparsity": []}, ValueError, "sparsity must list ratios"),
        (
            {"rampup_begin_step": 0, "grad_clip": fluid.clip.GradientClipByValue(1.0)},
            TypeError,
            "must be a GradientClipByNorm",
        ),
        (
            {"rampup_begin_step": 0, "grad_clip": fluid.clip.GradientClipByNorm(1.0)},
            ValueError,
            "num_trainers must be an int",
        ),
    ],
)
def test_dgc_refuses(options: dict[str, Any], error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        dgc(**options)


def test_ftrl_zeroes_what_no_gradient_reached() -> None:
    """Rows that no step looked up are 0 afterwards, as in Paddle; they were 0 / 0."""
    with own_programs() as (main, startup):
        words = fluid.data("words", [None, 1], "int64")
        table = fluid.ParamAttr("table", initializer=fluid.initializer.Constant(0.5))
        loss = fluid.layers.reduce_sum(fluid.embedding(words, [4, 2], param_attr=table))
        fluid.optimizer.Ftrl(0.5).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        for _ in range(2):
            exe.run(main, feed={"words": np.array([[1], [3], [3]])}, fetch_list=[])
        rows = fluid.global_scope().find_var("table").get_tensor().numpy()
    assert not rows[[0, 2]].any() and np.isfinite(rows).all() and rows[[1, 3]].all()


def test_a_step_of_ftrl_at_the_rate_0_changes_nothing() -> None:
    """A warmup may begin there; Paddle makes NaN of the parameter, and 0 of it ever after."""
    with own_programs() as (main, startup):
        x = fluid.data("x", [None, 2])
        weight = fluid.ParamAttr("w", initializer=fluid.initializer.Constant(0.5))
        loss = fluid.layers.reduce_sum(fluid.layers.fc(x, 1, param_attr=weight, bias_attr=False))
        rate = fluid.layers.linear_lr_warmup(0.1, 4, 0.0, 0.1)
        fluid.optimizer.Ftrl(rate, l1=0.01).minimize(loss)
    exe, values = fluid.Executor(fluid.CPUPlace()), []
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        for _ in range(3):
            exe.run(main, feed={"x": np.ones((1, 2), "float32")}, fetch_list=[])
            values.append(fluid.global_scope().find_var("w").get_tensor().numpy().ravel())
    np.testing.assert_array_equal(values[0], 0.5)
    assert (values[1] < 0.5).all() and np.isfinite(values).all()


def test_the_rate_of_double_parameters_is_double(threads: None) -> None:
    """As Paddle creates it, so that what Paddle saved loads: a constant, and what a scheduler gives."""
    scheduler = rowlock.optimizer.lr.StepDecay(0.1, 1, 0.1)
    for rate in (0.1, scheduler):
        with own_programs() as (main, startup):
            x = fluid.data("x", [None, 2], "float64")
            weight = fluid.layers.create_parameter(
                [1, 2], "float64", "w", default_initializer=fluid.initializer.Constant(1.0)
            )
            loss = fluid.layers.reduce_sum(fluid.layers.elementwise_mul(x, weight))
            rowlock.optimizer.SGD(rate).minimize(loss)
        assert main.global_block().var("learning_rate_0").dtype == fluid.core.VarDesc.VarType.FP64
        exe, feed = fluid.Executor(fluid.CPUPlace()), {"x": np.ones((1, 2))}
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            expected = 1.0
            for _ in range(2):
                exe.run(main, feed=feed)
                expected -= scheduler() if rate is scheduler else 0.1
                np.testing.assert_allclose(
                    np.array(fluid.global_scope().find_var("w").get_tensor()), expected, rtol=1e-15
                )
                scheduler.step()
