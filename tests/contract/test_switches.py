"""Every switch of the compiler, on programs that are hard for it: results are those without switches."""

from __future__ import annotations

import ctypes.util
import gc
import os
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.executor.kernels import capabilities as able
from rowlock.executor.kernels.onednn.library import Library
from rowlock.strategies.build import BuildStrategy
from rowlock.strategies.errors import StrategyError, Unsupported
from tests.conftest import lasting, product
from tests.programs import executor_after, on_places, own_programs

from .nets import assert_close

L = fluid.layers
Build = Callable[[], tuple[Any, list[Any]]]
Feeds = Sequence[Mapping[str, np.ndarray]]
SWITCHES = (
    "fuse_relu_depthwise_conv", "fuse_bn_act_ops", "fuse_bn_add_act_ops", "fuse_gemm_epilogue",
    "fuse_elewise_add_act_ops", "fused_attention", "fused_feedforward", "enable_auto_fusion",
    "fuse_all_optimizer_ops", "enable_addto",
)  # fmt: skip
ON: Mapping[str, Any] = dict.fromkeys(SWITCHES, True)
OFF: Mapping[str, Any] = {
    **dict.fromkeys(SWITCHES, False), "fuse_all_reduce_ops": False, "fuse_broadcast_ops": False,
    "memory_optimize": False, "enable_inplace": False,
}  # fmt: skip
REDUCE = {"reduce_strategy": BuildStrategy.ReduceStrategy.Reduce}
WEIGHTED = {"gradient_scale_strategy": BuildStrategy.GradientScaleStrategy.SampleWeighted}
SETS: Mapping[str, Mapping[str, Any]] = {
    "libraries": {},
    "all": ON,
    "verified": {**ON, "verify_passes": True},
    "no_sharing": {**ON, "memory_optimize": False, "enable_inplace": False},
    "reduce": {**ON, **REDUCE},
    "reduce_verified": {**ON, **REDUCE, "verify_passes": True},
}


@dataclass
class Trained:
    """What was fetched in each step, the persistables afterwards, and what ``explain()`` says."""

    fetched: list[list[np.ndarray]]
    state: dict[str, np.ndarray]
    report: str


def momentum() -> Any:
    """Momentum whose gradients are clipped by their global norm and decayed, at a falling rate."""
    return fluid.optimizer.Momentum(
        L.polynomial_decay(0.1, 5),
        0.9,
        regularization=fluid.regularizer.L2Decay(1e-2),
        grad_clip=fluid.clip.GradientClipByGlobalNorm(0.5),
    )


def trained(
    build: Build,
    feeds: Feeds,
    switches: Mapping[str, Any],
    *,
    optimizer: Callable[[], Any] = momentum,
    every: bool = False,
    tests: bool = False,
    launcher: str = "threads",
    strike: Callable[[int, Any], None] = lambda step, program: None,
    **execution: Any,
) -> Trained:
    """Train on two places; ``every``: fetch every value of the forward pass, ``tests``: test between steps.

    ``strike`` is called before each step.
    """
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    main.random_seed = startup.random_seed = 7
    with lasting(launcher):
        with fluid.program_guard(main, startup), fluid.unique_name.guard():
            loss, outs = build()
            outputs = [n for op in main.global_block().ops for n in op.output_arg_names]
            test = main.clone(for_test=True)
            optimizer().minimize(loss)
        exe, strategy = fluid.Executor(fluid.CPUPlace()), BuildStrategy(**switches)
        exe.run(startup, scope=scope)
        places = fluid.cpu_places(2)
        program = on_places(main, places, loss, build=strategy, execution=execution)
        tested = on_places(test, places, build=strategy, share_vars_from=program)
        fetches = [loss, *outs, *(dict.fromkeys(outputs) if every else ())]
        fetched = []
        for step, feed in enumerate(feeds):
            strike(step, program)
            fetched.append(exe.run(program, feed, fetches, scope=scope))
            if tests:
                fetched.append(exe.run(tested, feed, [loss], scope=scope))
        names = [v.name for v in main.list_vars() if v.persistable]
        state = {name: np.array(scope.find_var(name).get_tensor()) for name in names}
        return Trained(fetched, state, str(program.explain()))


def agree(ours: Trained, wanted: Trained, tolerance: float = 2e-4) -> None:
    for step, (one, other) in enumerate(zip(ours.fetched, wanted.fetched, strict=True)):
        for a, b in zip(one, other, strict=True):
            assert np.shape(a) == np.shape(b) and a.dtype == b.dtype
            np.testing.assert_allclose(a, b, tolerance, tolerance, err_msg=f"step {step}")
    assert_close(ours.state, wanted.state, tolerance)


@pytest.fixture
def numpy_alone(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Trained]:
    """Train with every switch off and no library."""

    def train(*args: Any, switches: Mapping[str, Any] = OFF, **how: Any) -> Trained:
        with monkeypatch.context() as patch:
            for library in able._VERSIONS:
                patch.setitem(able._VERSIONS, library, lambda: "")
            return trained(*args, switches, **how)

    return train


# -- programs ---------------------------------------------------------------------------------------


def rows(count: int, steps: int, *shape: int, dtype: str = "float32") -> Feeds:
    draw = np.random.default_rng(count)
    return [
        {
            "x": draw.standard_normal((count, *shape)).astype(dtype),
            "y": draw.standard_normal((count, 1)).astype(dtype),
        }
        for _ in range(steps)
    ]


def error(features: Any, dtype: str = "float32") -> Any:
    y = fluid.data("y", [None, 1], dtype)
    return L.mean(L.square_error_cost(L.fc(features, 1), y))


def image(dtype: str = "float32", size: int = 6) -> Build:
    """Norms, a residual, a depthwise convolution, pooling, dropout; one value is fetched twice."""

    def build() -> tuple[Any, list[Any]]:
        x = fluid.data("x", [None, 3, size, size], dtype)
        h = L.batch_norm(L.conv2d(x, 4, 3, padding=1, bias_attr=False), act="relu")
        deep = L.conv2d(L.relu(h), 4, 3, padding=1, groups=4, use_cudnn=False)
        h = L.relu(L.elementwise_add(h, L.batch_norm(deep)))
        h = L.pool2d(L.pool2d(h, min(size, 2), "max"), global_pooling=True, pool_type="avg")
        h = L.dropout(L.fc(L.reshape(h, [-1, 4]), 6, act="tanh"), 0.3, seed=11)
        return error(h, dtype), [h, h]

    return build


def attention() -> tuple[Any, list[Any]]:
    """A block of a transformer, with dropout in both halves."""
    x = fluid.data("x", [None, 5, 8])
    q, k, v = (L.fc(x, 8, num_flatten_dims=2, bias_attr=b) for b in (None, False, None))
    q, k, v = (L.transpose(L.reshape(h, [0, 0, 2, 4]), [0, 2, 1, 3]) for h in (q, k, v))
    weights = L.softmax(L.matmul(q, k, transpose_y=True, alpha=0.5))
    weights = L.dropout(weights, 0.2, seed=3, dropout_implementation="upscale_in_train")
    h = L.transpose(L.matmul(weights, v), [0, 2, 1, 3])
    h = L.layer_norm(x + L.fc(L.reshape(h, [0, 0, 8]), 8, num_flatten_dims=2), begin_norm_axis=2)
    deep = L.fc(L.fc(h, 16, num_flatten_dims=2, act="gelu"), 8, num_flatten_dims=2)
    h = L.layer_norm(h + L.dropout(deep, 0.1, seed=9), begin_norm_axis=2)
    return error(h), [h]


def in_place() -> tuple[Any, list[Any]]:
    """A counter, a running mean that is read before and after it is written, views, a shared layer."""
    x = fluid.data("x", [None, 4])
    count = L.create_global_var([1], 0.0, "float32", persistable=True, name="count")
    mean = L.create_global_var([4], 0.5, "float32", persistable=True, name="mean")
    L.increment(count)
    shared = {"param_attr": fluid.ParamAttr(name="w"), "bias_attr": fluid.ParamAttr(name="b")}
    h = L.fc(L.fc(x, 4, act="relu", **shared), 4, act="tanh", **shared)
    old = L.scale(mean, 1.0)
    L.assign(L.scale(mean, 0.9) + L.scale(L.reduce_mean(h, dim=0), 0.1), mean)
    h = L.elementwise_mul(h, mean)
    view = L.reshape(h, [-1, 2, 2])
    flat = L.reshape(view, [-1, 4])
    return error(flat), [count, old, h, view, flat]


def two_losses() -> tuple[Any, list[Any]]:
    """The second loss is differentiated behind the update that the first one makes."""
    x = fluid.data("x", [None, 4])
    y = fluid.data("y", [None, 1])
    h = L.fc(x, 4, act="relu")
    loss, other = (L.mean(L.square(L.fc(h, 1) - y)) for _ in range(2))
    fluid.optimizer.SGD(0.1).minimize(other)
    return loss, [other, h]


PROGRAMS: Mapping[str, tuple[Build, Feeds]] = {
    "image": (image(), rows(6, 3, 3, 6, 6)),
    "attention": (attention, rows(4, 3, 5, 8)),
    "in_place": (in_place, rows(6, 3, 4)),
    "two_losses": (two_losses, rows(6, 3, 4)),
}


# -- results ----------------------------------------------------------------------------------------


@product(name=PROGRAMS, switches=SETS)
def test_no_switch_changes_results(
    name: str, switches: str, numpy_alone: Callable[..., Trained]
) -> None:
    agree(trained(*PROGRAMS[name], SETS[switches]), numpy_alone(*PROGRAMS[name]))


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_fetched_is_there(name: str, numpy_alone: Callable[..., Trained]) -> None:
    """Every value of the forward pass, among them those that fusions would leave out."""
    expected = numpy_alone(*PROGRAMS[name], every=True)
    agree(trained(*PROGRAMS[name], SETS["verified"], every=True), expected)


@pytest.mark.parametrize("name", ["image", "in_place"])
def test_with_other_executions(name: str, numpy_alone: Callable[..., Trained]) -> None:
    build, feeds = PROGRAMS[name]
    for how in ({"num_iteration_per_run": 4}, {"num_threads": 4}, {"tests": True}):
        repeated = [*feeds, *feeds]
        agree(trained(build, repeated, ON, **how), numpy_alone(build, repeated, **how))


def test_regions(numpy_alone: Callable[..., Trained]) -> None:
    pytest.importorskip("jax")
    expected = numpy_alone(*PROGRAMS["in_place"])
    switches = {**ON, **random.choice([{}, REDUCE]), "build_cinn_pass": True}
    agree(trained(*PROGRAMS["in_place"], switches), expected)


@pytest.mark.parametrize("more", [{}, REDUCE, {"sync_batch_norm": True}], ids=str)
def test_uneven_batches_and_a_place_without_rows(
    more: Mapping[str, Any], numpy_alone: Callable[..., Trained]
) -> None:
    feeds = [feed for count in (3, 1, 4) for feed in rows(count, 1, 3, 6, 6)]
    sync = {k: v for k, v in more.items() if k == "sync_batch_norm"}
    expected = numpy_alone(image(), feeds, switches={**OFF, **WEIGHTED, **sync})
    agree(trained(image(), feeds, {**ON, **WEIGHTED, **more}), expected)


@pytest.mark.parametrize(("dtype", "size"), [("float64", 6), ("float32", 1)])
def test_double_precision_and_small_images(
    dtype: str, size: int, numpy_alone: Callable[..., Trained]
) -> None:
    feeds = rows(4, 2, 3, size, size, dtype=dtype)
    expected = numpy_alone(image(dtype, size), feeds)
    agree(trained(image(dtype, size), feeds, ON), expected, 1e-9 if dtype == "float64" else 2e-4)


def test_sequences_without_words(numpy_alone: Callable[..., Trained]) -> None:
    """A dimension of zero between rows and features: sums over nothing, and gradients of zero."""

    def build() -> tuple[Any, list[Any]]:
        x = fluid.data("x", [None, None, 4])
        h = L.layer_norm(L.fc(x, 4, num_flatten_dims=2, act="relu"), begin_norm_axis=2)
        h = L.matmul(L.softmax(L.matmul(h, h, transpose_y=True)), h)
        h = L.fc(L.fc(h, 8, num_flatten_dims=2, act="gelu"), 4, num_flatten_dims=2)
        return error(L.reduce_sum(h, dim=1)), [h]

    feeds = [feed for words in (2, 0, 3) for feed in rows(4, 1, words, 4)]
    expected = numpy_alone(build, feeds)
    agree(trained(build, feeds, ON), expected)


def test_what_is_not_a_number_reaches_the_loss() -> None:
    def build() -> tuple[Any, list[Any]]:
        x = fluid.data("x", [None, 4])
        label = L.cast(L.scale(fluid.data("y", [None, 1]), 0.0), "int64")
        shares = L.softmax(L.scale(x, 2.0))
        return L.mean(L.cross_entropy(shares, label)) + error(x) * 0.0, [shares]

    (feed,) = rows(4, 1, 4)
    feed["x"][:, 2] = np.nan
    ((loss, shares),) = trained(build, [feed], {}).fetched
    assert np.isnan(loss).all() and np.isnan(shares).all()


@pytest.mark.parametrize(("lost", "more"), [(False, {}), (False, REDUCE), (True, {})])
def test_processes_compute_what_threads_do(
    ray_cluster: None, lost: bool, more: Mapping[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The same bits, also where a replica is killed and replaced."""

    def strike(step: int, program: Any) -> None:
        if lost and step == 2:
            os.kill(program._parallel.gang.delivery.where[1]["pid"], signal.SIGKILL)

    caplog.set_level("ERROR", "rowlock")
    gc.collect()  # values of one place, that tests before left on the gang, would be missed
    ours = trained(*PROGRAMS["image"], {**ON, **more}, launcher="ray", strike=strike)
    agree(ours, trained(*PROGRAMS["image"], {**ON, **more}), 0.0)


def test_the_gradient_of_a_variable_that_is_written_again() -> None:
    """Its name has that of the value before; Paddle 1.8.5 adds those of both (``docs/differences.md``)."""
    scope = fluid.Scope()
    with own_programs() as (main, startup):
        x = fluid.data("x", [3, 4])
        filled = fluid.initializer.Constant(2.0)
        w = L.create_parameter([4], "float32", name="w", default_initializer=filled)
        total = L.create_global_var([4], 1.5, "float32", persistable=True, name="kept")
        assert total.stop_gradient
        total.stop_gradient = False
        L.assign(L.elementwise_mul(L.scale(total, 0.9), w), total)
        loss = L.mean(L.elementwise_mul(x, total))
        fluid.optimizer.SGD(0.1).minimize(loss)
    exe = executor_after(startup, scope)
    feed = {"x": np.arange(12, dtype="float32").reshape(3, 4)}
    d_w, d_kept = exe.run(main, feed, ["w@GRAD", "kept@GRAD"], scope=scope)
    np.testing.assert_allclose(d_w, [1.35, 1.6875, 2.025, 2.3625], 1e-6)
    np.testing.assert_allclose(d_kept, [1.8, 2.25, 2.7, 3.15], 1e-6)


# -- what users get wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cpu_math", "bf16"),
        ("gpu_math", "bfloat16"),
        ("memory_optimize", "yes"),
        ("enable_inplace", "on"),
        ("onednn_enabled_op_types", "conv2d"),
        ("onednn_enabled_op_types", {1}),
        ("fused_attention", 3),
    ],
)
def test_a_value_that_is_none_is_refused(field: str, value: Any) -> None:
    with pytest.raises(StrategyError, match=rf"BuildStrategy\.{field}: .*got"):
        BuildStrategy(**{field: value})


@pytest.mark.cpu
def test_what_is_asked_of_onednn_in_vain_is_told(numpy_alone: Callable[..., Trained]) -> None:
    build, feeds = PROGRAMS["two_losses"]
    typed = trained(build, feeds, {"onednn_enabled_op_types": {"conv2", "mul"}})
    assert "no operator 'conv2'. Did you mean 'conv2d'?" in typed.report
    with pytest.raises(Unsupported, match="oneDNN alone rounds factors"):
        numpy_alone(build, feeds, switches={"cpu_math": "bfloat16"})


def test_another_library_is_not_taken_for_onednn() -> None:
    other = ctypes.util.find_library("m")
    if other is None:
        pytest.skip("no library to try")
    with pytest.raises(OSError, match="is not oneDNN"):
        Library(other)
