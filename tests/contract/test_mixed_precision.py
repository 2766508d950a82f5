"""Training in mixed precision: near float32, safe from overflow, the same on every replica."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rowlock as paddle
import rowlock.fluid as fluid
from rowlock.graph.ops.registry import OPS
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.errors import InvalidArgument, InvalidState, InvalidType, InvalidValue
from rowlock.strategies.types import BFLOAT16
from tests.contract.nets import device_copies
from tests.ops.harness import run
from tests.programs import executor_after, on_places, own_programs

amp = paddle.static.amp
FILES = Path(__file__).parents[1] / "reference"
PADDLE, OLD = (json.loads((FILES / f"{name}.json").read_text()) for name in ("amp", "amp185"))
Wrap = Callable[[Any], Any]


def mlp() -> Any:
    hidden = fluid.layers.fc(fluid.data("x", [None, 1, 8, 8]), 32, act="relu")
    return fluid.layers.fc(hidden, 4)


def conv() -> Any:
    image = fluid.layers.conv2d(fluid.data("x", [None, 1, 8, 8]), 6, 3, bias_attr=False)
    image = fluid.layers.pool2d(fluid.layers.relu(fluid.layers.batch_norm(image)), 2, pool_stride=2)
    return fluid.layers.fc(image, 4)


class Job:
    """A net that tells which quarter of an image is bright, in programs and a scope of its own."""

    def __init__(
        self, wrap: Wrap | None = None, net: Callable[[], Any] = mlp, optimizer: Any = None
    ) -> None:
        self.scope = fluid.Scope()
        with own_programs(7) as (self.main, self.startup):
            y = fluid.data("y", [None, 1], "int64")
            self.logits = net()
            cost = fluid.layers.softmax_with_cross_entropy(self.logits, y)
            self.loss = fluid.layers.mean(cost)
            self.test = self.main.clone(for_test=True)
            plain = (optimizer or (lambda: paddle.optimizer.Momentum(0.1, 0.9)))()
            self.optimizer = wrap(plain) if wrap else plain
            self.optimizer.minimize(self.loss)
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.exe.run(self.startup, scope=self.scope)
        if wrap:
            self.optimizer.amp_init(fluid.CPUPlace(), self.scope)

    def compiled(self, places: int, **build: Any) -> Any:
        return on_places(self.main, places, self.loss, build=build)

    def step(self, feed: Mapping[str, Any], program: Any = None) -> float:
        (loss,) = self.exe.run(program or self.main, feed, [self.loss], scope=self.scope)
        return float(np.mean(loss.astype("float32")))

    def value(self, name: str) -> np.ndarray:
        return self.scope.find_var(name).get_tensor().numpy()

    def scale(self) -> float:
        return float(self.value(self.optimizer.get_loss_scaling().name)[0])

    def lasting(self) -> list[str]:
        return sorted(v.name for v in self.main.list_vars() if v.persistable)


def images(step: int = 0, rows: int = 32) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(step)
    y = draw.integers(0, 4, (rows, 1))
    x = draw.uniform(0, 0.5, (rows, 1, 8, 8))
    for row, quarter in enumerate(y[:, 0]):
        i, j = 4 * (quarter // 2), 4 * (quarter % 2)
        x[row, 0, i : i + 4, j : j + 4] += 0.5
    return {"x": x.astype("float32"), "y": y}


def wrapped(level: str = "O1", dtype: str = "float16", **settings: Any) -> Wrap:
    return lambda optimizer: amp.decorate(optimizer, level=level, dtype=dtype, **settings)


def near(values: Any, wanted: Any, tolerance: float) -> None:
    """By relative norm."""
    values, wanted = np.asarray(values, "float64"), np.asarray(wanted, "float64")
    assert np.linalg.norm(values - wanted) <= tolerance * np.linalg.norm(wanted)


TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2}
KINDS = [(level, dtype) for level in ("O1", "O2", "OD") for dtype in TOLERANCE]


@pytest.fixture(scope="module")
def in_float32() -> dict[str, list[float]]:
    losses = {}
    for net in (mlp, conv):
        job = Job(net=net)
        losses[net.__name__] = [job.step(images(i)) for i in range(12)]
    return losses


@pytest.mark.parametrize(("level", "dtype"), KINDS)
@pytest.mark.parametrize("net", [mlp, conv])
def test_training_follows_float32(
    net: Any, level: str, dtype: str, in_float32: dict[str, list[float]]
) -> None:
    job = Job(wrapped(level, dtype, init_loss_scaling=256.0, incr_every_n_steps=4), net)
    losses = [job.step(images(i)) for i in range(12)]
    assert losses[-1] < 0.7 * losses[0]
    near(losses, in_float32[net.__name__], TOLERANCE[dtype])
    assert job.scale() == (2048.0 if dtype == "float16" else 1.0)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_every_method_with_masters_follows_float32(name: str) -> None:
    def make() -> Any:
        return getattr(paddle.optimizer, name)(0.02)

    plain, low = Job(optimizer=make), Job(wrapped("O2", "bfloat16"), optimizer=make)
    near([low.step(images(i)) for i in range(8)], [plain.step(images(i)) for i in range(8)], 3e-2)
    for parameter in plain.main.all_parameters():
        master = low.value(f"{parameter.name}_fp32_master_0")
        near(master, plain.value(parameter.name), 0.1)
        np.testing.assert_array_equal(low.value(parameter.name), master.astype(BFLOAT16))


def test_masters_keep_steps_that_low_precision_loses() -> None:
    def make() -> Any:
        return paddle.optimizer.SGD(1e-4)

    exact = Job(wrapped("O2", "bfloat16"), optimizer=make)
    lost = Job(wrapped("O2", "bfloat16", master_weight=False), optimizer=make)
    assert not any("master" in name for name in lost.lasting())
    start = lost.value("fc_0.w_0")
    for _ in range(5):
        exact.step(images())
        lost.step(images())
    stays = (lost.value("fc_0.w_0") == start).mean()
    moved = exact.value("fc_0.w_0_fp32_master_0") - start.astype("float32")
    assert stays > 0.9 and (moved != 0).mean() > 0.9


def test_losses_in_bfloat16_are_those_of_paddle() -> None:
    initial, feed = PADDLE["losses"]["initial"], PADDLE["losses"]["feed"]
    _, loss, exe, main, scope = _small(initial, lambda: paddle.optimizer.Momentum(0.1, 0.9),
                                       wrapped(dtype="bfloat16"))  # fmt: skip
    arrays = {"x": np.array(feed["x"], "float32"), "y": np.array(feed["y"])}
    losses = [float(exe.run(main, arrays, [loss], scope=scope)[0][0]) for _ in range(8)]
    near(losses, PADDLE["losses"]["bfloat16"], 5e-3)


def _small(initial: Mapping[str, Any], optimizer: Callable[[], Any], wrap: Wrap) -> tuple[Any, ...]:
    """The net of ``generate_amp.py``."""

    def layer(x: Any, size: int, k: int) -> Any:
        weight, bias = (
            fluid.ParamAttr(
                name, fluid.initializer.NumpyArrayInitializer(np.array(initial[name], "float32"))
            )
            for name in (f"w{k}", f"b{k}")
        )
        return fluid.layers.fc(x, size, param_attr=weight, bias_attr=bias)

    scope = fluid.Scope()
    with own_programs() as (main, startup):
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1], "int64")
        out = layer(fluid.layers.relu(layer(x, 3, 1)), 2, 2)
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(out, y))
        mixed = wrap(optimizer())
        mixed.minimize(loss)
    exe = executor_after(startup, scope)
    return mixed, loss, exe, main, scope


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_gradients_that_are_not_finite_do_what_they_do_in_paddle_1_8(name: str) -> None:
    """Paddle 1.8.5 counts one step more than its documents say: 1 there is 2 here."""
    settings = {**OLD["settings"], "decr_every_n_nan_or_inf": 2}
    mp = fluid.contrib.mixed_precision
    lists = mp.AutoMixedPrecisionLists(custom_black_list={"mul"})
    make = {"sgd": fluid.optimizer.SGD, "adam": fluid.optimizer.Adam,
            "momentum": lambda rate: fluid.optimizer.Momentum(rate, 0.9)}[name]  # fmt: skip
    mixed, _, exe, main, scope = _small(
        OLD["initial"], lambda: make(0.1), lambda plain: mp.decorate(plain, lists, **settings)
    )
    x, y = np.array(OLD["feed"]["x"], "float32"), np.array(OLD["feed"]["y"])
    for step, expected in enumerate(OLD["steps"][name]):
        fed = x.copy()
        if step in (1, 2):
            fed[0, 0] = np.inf
        with np.errstate(all="ignore"):
            (scale,) = exe.run(main, {"x": fed, "y": y}, [mixed.get_loss_scaling()], scope=scope)
        assert scale[0] == expected["scale"]
        for parameter, value in expected["values"].items():
            array = scope.find_var(parameter).get_tensor().numpy()
            np.testing.assert_allclose(array, value, rtol=2e-5, atol=2e-6, err_msg=parameter)


@pytest.mark.parametrize("case", PADDLE["scaling"], ids=lambda case: str(case["start"]))
def test_the_scale_is_paddles_step_by_step(case: dict[str, Any]) -> None:
    op = OPS["update_loss_scaling"]
    state = [np.array([case["start"]], "float32"), np.zeros(1, "int32"), np.zeros(1, "int32")]
    for odd, after in zip(case["found"], case["after"], strict=True):
        operands = dict(zip(("PrevLossScaling", "InGoodSteps", "InBadSteps"), state, strict=True))
        inputs = {"X": [np.ones(3, BFLOAT16)], "FoundInfinite": [np.array([odd])]}
        inputs |= {slot: [array] for slot, array in operands.items()}
        results = run(op, inputs, {**op.attrs, **case["attrs"]})
        state = [results[slot][0] for slot in ("LossScaling", "OutGoodSteps", "OutBadSteps")]
        np.testing.assert_allclose([a[0] for a in state], after, rtol=1e-6)
        assert (results["Out"][0] == (0 if odd else 1)).all()


METHODS = {
    "SGD": lambda: paddle.optimizer.SGD(0.1),
    "Adam": lambda: paddle.optimizer.Adam(0.01),
    "AdamW": lambda: paddle.optimizer.AdamW(0.01),
}


@pytest.mark.parametrize("level", ["O1", "O2"])
@pytest.mark.parametrize("method", METHODS)
def test_an_overflow_changes_nothing_but_the_scale(level: str, method: str) -> None:
    job = Job(wrapped(level, init_loss_scaling=512.0), optimizer=METHODS[method])
    job.step(images())
    before = {name: job.value(name) for name in job.lasting()}
    bad = images()
    bad["x"][3] = 7e4  # infinite in float16
    with np.errstate(all="ignore"):
        job.step(bad)
    changed = {name for name in before if not np.array_equal(before[name], job.value(name))}
    assert changed == {"loss_scaling_0", "num_good_steps_0"}
    assert job.scale() == 256.0
    assert np.isfinite(job.step(images()))


@pytest.mark.parametrize("reduces", ["AllReduce", "Reduce"])
@pytest.mark.parametrize("level", ["O1", "O2"])
def test_replicas_agree_on_an_overflow_of_one(level: str, reduces: str, threads: None) -> None:
    job = Job(wrapped(level, init_loss_scaling=512.0))
    strategy = getattr(BuildStrategy.ReduceStrategy, reduces)
    compiled = job.compiled(2, reduce_strategy=strategy)
    job.step(images(), compiled)
    names = [p.name for p in job.main.all_parameters()]
    bad = images(1)
    bad["x"][-1] = 7e4  # a row of the second replica
    with np.errstate(all="ignore"):
        job.step(bad, compiled)
    assert job.scale() == 256.0
    job.step(images(2), compiled)
    for name in [*names, "loss_scaling_0", "num_good_steps_0", "num_bad_steps_0"]:
        one, other = device_copies(compiled, name)
        np.testing.assert_array_equal(one, other, err_msg=name)
        assert np.isfinite(one.astype("float32")).all(), name


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_two_replicas_train_like_one(dtype: str, threads: None) -> None:
    one, two = (Job(wrapped("O2", dtype, init_loss_scaling=256.0)) for _ in range(2))
    compiled = two.compiled(2, fuse_all_optimizer_ops=True)
    alone = [one.step(images(i)) for i in range(6)]
    near([two.step(images(i), compiled) for i in range(6)], alone, TOLERANCE[dtype])
    assert "updates in one" in str(compiled.explain())  # masters and all


def test_persistables_are_all_that_training_goes_on_from() -> None:
    def make() -> Any:
        return paddle.optimizer.Adam(0.01)

    settings = {"init_loss_scaling": 64.0, "incr_every_n_steps": 2}
    first = Job(wrapped("O2", **settings), conv, make)
    for i in range(3):
        first.step(images(i))
    values = {name: first.value(name) for name in first.lasting()}
    assert {"loss_scaling_0", "fc_0.w_0", "fc_0.w_0_fp32_master_0"} <= set(values)
    again = Job(wrapped("O2", **settings), conv, make)
    for name, value in values.items():
        again.scope.find_var(name).get_tensor().set(value)
    for i in range(3, 6):
        assert first.step(images(i)) == again.step(images(i))
    for name in values:
        np.testing.assert_array_equal(first.value(name), again.value(name), err_msg=name)


def test_master_gradients_are_clipped_in_float32() -> None:
    def make() -> Any:
        return paddle.optimizer.SGD(0.1, grad_clip=paddle.nn.ClipGradByGlobalNorm(0.5))

    plain, low = (
        Job(optimizer=make),
        Job(wrapped("O2", master_grad=True, init_loss_scaling=128.0), optimizer=make),
    )
    updates = [op for op in low.main.global_block().ops if op.type == "sgd"]
    assert all("fp32" in str(low.main.global_block().var(op.input("Grad")[0])).lower()
               for op in updates)  # fmt: skip
    near([low.step(images(i)) for i in range(6)], [plain.step(images(i)) for i in range(6)], 4e-3)


def test_forgotten_amp_init_is_told() -> None:
    job = Job()
    with fluid.program_guard(job.main, job.startup):
        low = job.main.clone(for_test=True)
        names = amp.cast_model_to_fp16(low, use_fp16_guard=False)
    with pytest.raises(InvalidState, match=r"holds float32, but the program has it as float16"):
        job.exe.run(low, images(), [job.loss], scope=job.scope)
    amp.cast_parameters_to_fp16(fluid.CPUPlace(), low, job.scope, names)
    (logits,) = job.exe.run(low, images(), [job.logits], scope=job.scope)
    assert logits.dtype == np.float16
    job.exe.run(job.startup, scope=job.scope)  # begins again, in float32
    assert job.value("fc_0.w_0").dtype == np.float32


def test_a_test_program_is_rewritten_too() -> None:
    job = Job(wrapped("O2", "bfloat16"))
    job.optimizer.amp_init(fluid.CPUPlace(), job.scope, job.test)
    (logits,) = job.exe.run(job.test, images(), [job.logits], scope=job.scope)
    assert logits.dtype == BFLOAT16
    for wanted, expected in ((False, np.float32), (True, np.float16)):
        job = Job(wrapped("O1"))
        job.optimizer.amp_init(fluid.CPUPlace(), job.scope, job.test, use_fp16_test=wanted)
        (logits,) = job.exe.run(job.test, images(), [job.logits], scope=job.scope)
        assert logits.dtype == expected


@pytest.mark.parametrize("mode", ["AllReduce", "Reduce"])
def test_lamb_takes_the_norms_of_masters(mode: str, threads: None) -> None:
    """Fused, on two places; a step whose gradients are not finite changes neither state nor powers."""
    strategy = getattr(BuildStrategy.ReduceStrategy, mode)
    how = {"fuse_all_optimizer_ops": True, "reduce_strategy": strategy}
    exact = Job(None, optimizer=lambda: paddle.optimizer.Lamb(0.02, 0.1))
    low = Job(
        wrapped("O2", "float16"),
        optimizer=lambda: paddle.optimizer.Lamb(0.02, 0.1, multi_precision=True),
    )
    program = low.compiled(2, **how)
    for step in range(6):
        exact.step(images(step))
        low.step(images(step), program)
    master, weight = low.value("fc_0.w_0_fp32_master_0"), low.value("fc_0.w_0")
    near(master, exact.value("fc_0.w_0"), 4e-3)
    np.testing.assert_array_equal(weight, master.astype("float16"))
    power = "fc_0.w_0_fp32_master_0_beta1_pow_acc_0"
    assert low.value(power) == pytest.approx(0.9**7)
    broken = images(9)
    broken["x"][0] = np.inf
    with np.errstate(all="ignore"):
        low.step(broken, program)
    np.testing.assert_array_equal(low.value("fc_0.w_0_fp32_master_0"), master)
    assert low.value(power) == pytest.approx(0.9**7)


def test_masters_may_be_rounded_like_parameters() -> None:
    job = Job(wrapped("O2", "bfloat16"))
    master = "fc_0.w_0_fp32_master_0"
    assert (job.value(master) != job.value("fc_0.w_0").astype("float32")).any()
    job.optimizer.amp_init(fluid.CPUPlace(), job.scope, rewrite_master_weight=True)
    np.testing.assert_array_equal(job.value(master), job.value("fc_0.w_0").astype("float32"))


def test_decorate_by_flags() -> None:
    pure = Job(lambda o: amp.decorate(o, None, 128.0, use_pure_fp16=True, use_fp16_guard=False))
    assert pure.scale() == 128.0 and pure.value("fc_0.w_0").dtype == np.float16
    both = Job(lambda o: amp.decorate(o, use_bf16=True))
    assert both.scale() == 1.0 and "cast" in {op.type for op in both.main.global_block().ops}
    static = Job(lambda o: amp.decorate(o, None, 64.0, use_dynamic_loss_scaling=False))
    assert not any(op.type == "update_loss_scaling" for op in static.main.global_block().ops)
    for job in (pure, both, static):
        assert job.step(images()) > job.step(images())


def test_pure_float16_is_bounded_by_the_guard() -> None:
    def net() -> Any:
        with amp.fp16_guard():
            hidden = fluid.layers.fc(fluid.data("x", [None, 1, 8, 8]), 8, name="inside")
        return fluid.layers.fc(hidden, 4, name="outside")

    job = Job(lambda o: amp.decorate(o, use_pure_fp16=True), net)
    assert job.value("inside.w_0").dtype == np.float16
    assert job.value("outside.w_0").dtype == np.float32


def test_a_gradient_that_is_looked_at_stays_where_it_is() -> None:
    scope = fluid.Scope()
    with own_programs() as (main, startup):
        y = fluid.data("y", [None, 1], "int64")
        loss = fluid.layers.mean(fluid.layers.softmax_with_cross_entropy(mlp(), y))
        optimizer = amp.decorate(paddle.optimizer.SGD(0.1), init_loss_scaling=4.0)
        pairs = optimizer.backward(loss)
        sizes = [fluid.layers.reduce_sum(fluid.layers.abs(grad)) for _, grad in pairs]
        optimizer.apply_gradients(pairs)
    exe = executor_after(startup, scope)
    for _ in range(2):
        assert all(size[0] > 0 for size in exe.run(main, images(), sizes, scope=scope))


def test_the_bf16_front() -> None:
    job = Job(lambda o: amp.bf16.decorate_bf16(o, use_pure_bf16=True, use_bf16_guard=False))
    job.optimizer.amp_init(fluid.CPUPlace(), job.scope, use_bf16_test=True)
    assert job.value("fc_0.w_0").dtype == BFLOAT16
    lists = amp.bf16.AutoMixedPrecisionListsBF16({"relu"}, {"mul"}, {"x"})
    assert "relu" in lists.bf16_list and "mul" in lists.fp32_list and lists.fp32_varnames == {"x"}
    plain = Job(lambda o: amp.bf16.decorate_bf16(o, lists))
    assert job.step(images()) == pytest.approx(plain.step(images()), rel=1e-2)


def test_level_0_is_float32() -> None:
    plain, job = Job(), Job(wrapped("O0"))
    assert not any(op.type == "cast" for op in job.main.global_block().ops)
    assert [job.step(images(i)) for i in range(3)] == [plain.step(images(i)) for i in range(3)]


def test_what_is_refused() -> None:
    sgd = paddle.optimizer.SGD(0.1)
    for error, text, call in (
        (InvalidValue, "level must be one of O0, OD, O1, O2, got 'O3'", {"level": "O3"}),
        (
            InvalidValue,
            "dtype must be 'float16' or 'bfloat16', got 'float32'",
            {"dtype": "float32"},
        ),
        (InvalidValue, "init_loss_scaling must be a number above 0", {"init_loss_scaling": 0.0}),
        (InvalidValue, "incr_every_n_steps must be an int above 0", {"incr_every_n_steps": 0}),
        (InvalidValue, "incr_ratio must be a number above 1", {"incr_ratio": 0.5}),
        (InvalidValue, "decr_ratio must be a number between 0 and 1", {"decr_ratio": 2}),
        (InvalidType, "use_dynamic_loss_scaling must be a bool", {"use_dynamic_loss_scaling": 1}),
        (InvalidType, "no argument 'levle'.*Did you mean 'level'", {"levle": "O1"}),
        (InvalidType, "'level' beside", {"level": "O2", "use_bf16": True}),
        (InvalidType, "amp_lists must be static.amp.CustomOpLists", {"amp_lists": {"mul"}}),
    ):
        with pytest.raises(error, match=text):
            amp.decorate(sgd, **call)
    with pytest.raises(InvalidType, match="decorate takes an optimizer, got str"):
        amp.decorate("sgd")
    with pytest.raises(InvalidArgument, match="decorated for mixed precision already"):
        amp.decorate(amp.decorate(sgd))
    with pytest.raises(InvalidState, match="amp_init: call minimize first"):
        amp.decorate(sgd).amp_init(fluid.CPUPlace())


@pytest.mark.parametrize("decorate", [fluid.contrib.mixed_precision.decorate, amp.decorate])
def test_the_scale_may_be_asked_for_before_minimize(decorate: Any) -> None:
    """As programs of 1.x do, whose ``decorate`` creates it; one of another program is no scale of this."""
    with own_programs() as (main, startup):
        optimizer = decorate(fluid.optimizer.SGD(0.1), init_loss_scaling=64.0)
        scale = optimizer.get_loss_scaling()
        loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 3]), 2))
        optimizer.minimize(loss)
    assert optimizer.get_loss_scaling() is scale
    exe, scope = fluid.Executor(), fluid.Scope()
    exe.run(startup, scope=scope)
    feed = {"x": np.ones((2, 3), "float32")}
    assert exe.run(main, feed, [scale], scope=scope)[0].tolist() == [64.0]
    with own_programs() as (other, _):
        optimizer.minimize(fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 3]), 2)))
    assert optimizer.get_loss_scaling().block.program is other


def test_every_listed_name_is_there() -> None:
    for module in (amp, amp.bf16, fluid.contrib, fluid.contrib.mixed_precision):
        for name in module.__all__:
            assert getattr(module, name) is not None, f"{module.__name__}.{name}"


SWITCHES = {
    "fused": {
        "fuse_all_optimizer_ops": True,
        "fuse_elewise_add_act_ops": True,
        "fuse_gemm_epilogue": True,
        "enable_auto_fusion": True,
        "fuse_bn_act_ops": True,
    },
    "apart": {"memory_optimize": False, "enable_inplace": False, "fuse_all_reduce_ops": False},
    "added": {"enable_addto": True, "enable_sequential_execution": True},
    "checked": {"verify_passes": True, "sync_batch_norm": True},
}


@pytest.mark.parametrize("switches", SWITCHES)
@pytest.mark.parametrize(("level", "dtype"), [("O1", "float16"), ("O2", "bfloat16")])
def test_switches_change_no_result(level: str, dtype: str, switches: str, threads: None) -> None:
    net = mlp if switches == "checked" else conv  # statistics of all places are other statistics
    plain, other = (Job(wrapped(level, dtype, init_loss_scaling=64.0), net) for _ in range(2))
    how, changed = plain.compiled(2), other.compiled(2, **SWITCHES[switches])
    losses = [plain.step(images(i), how) for i in range(4)]
    near([other.step(images(i), changed) for i in range(4)], losses, TOLERANCE[dtype])


def test_the_examples_of_the_page_run() -> None:
    page = (Path(__file__).parents[2] / "docs" / "mixed_precision.md").read_text()
    names = {}
    with own_programs() as (main, _), fluid.scope_guard(fluid.Scope()):
        for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
            exec(code, names)
        feed = {"x": np.ones((4, 8), "float32"), "y": np.ones((4, 1), "int64")}
        first, *_, last = [names["exe"].run(main, feed, [names["loss"]])[0] for _ in range(5)]
        (logits,) = names["exe"].run(names["test"], feed, [names["logits"]])
    assert last < first
    assert logits.dtype == BFLOAT16


@pytest.mark.parametrize(("level", "net"), [("O1", mlp), ("O2", conv)])
def test_owners_keep_their_gradients_and_send_what_they_found(
    level: str, net: Any, threads: None
) -> None:
    """In Reduce mode parameters are broadcast, and a boolean from each owner; gradients are not."""
    everywhere, owned = (
        Job(wrapped(level, init_loss_scaling=2.0**20, incr_every_n_steps=3), net) for _ in range(2)
    )
    reduces = BuildStrategy.ReduceStrategy.Reduce
    programs = (everywhere.compiled(2), owned.compiled(2, reduce_strategy=reduces))
    with np.errstate(all="ignore"):
        for i in range(8):
            one, other = everywhere.step(images(i), programs[0]), owned.step(images(i), programs[1])
            np.testing.assert_allclose(other, one, rtol=1e-3)
            assert everywhere.scale() == owned.scale()
    assert owned.scale() < 2.0**20  # some steps were skipped
    checks = [op for op in owned.main.global_block().ops if op.type == "check_finite_and_unscale"]
    founds = [op.output("FoundInfinite")[0] for op in checks]
    flags = owned.exe.run(programs[1], images(), founds, scope=owned.scope)
    assert not np.concatenate(flags).any()
    run = programs[1]._parallel
    variant, *_ = run.variants.values()
    sent = [
        variant.program.values[i].name
        for node in variant.program.nodes
        if node.op == "fused_broadcast"
        for i in node.inputs["X"]
    ]
    assert sent and not any("@GRAD" in name for name in sent)
    zeroed = [node.at for node in variant.program.nodes if node.op == "zero_where_infinite"]
    assert set(zeroed) == {0, 1}
