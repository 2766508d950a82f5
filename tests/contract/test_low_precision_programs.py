"""Programs in float16 and bfloat16: they train like float32, alike under every switch."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.strategies.errors import FeedError
from rowlock.strategies.types import BFLOAT16, VarType
from tests.conftest import product
from tests.programs import executor_after, own_programs

from .test_switches import OFF, ON, REDUCE, Trained, trained

L = fluid.layers
NEAR = {"float16": 5e-3, "bfloat16": 4e-2}  # of a value's norm, after four steps
low_types = pytest.mark.parametrize("dtype", list(NEAR))


def image_net(dtype: str) -> Callable[[], Any]:
    def build() -> tuple[Any, list[Any]]:
        x = fluid.data("x", [None, 2, 8, 8], dtype)
        label = fluid.data("label", [None, 1], "int64")
        h = L.batch_norm(L.conv2d(x, 6, 3, padding=1, bias_attr=False), act="sigmoid")
        h = L.tanh(L.batch_norm(L.conv2d(h, 6, 1, bias_attr=False)) + h)
        h = L.pool2d(h, 2, pool_type="avg", pool_stride=2)
        scores = L.fc(L.layer_norm(L.fc(h, 16, act="gelu")), 4)
        loss = L.mean(L.softmax_with_cross_entropy(scores, label))
        return loss, [scores, L.accuracy(L.softmax(scores), label)]

    return build


def attention_net(dtype: str) -> Callable[[], Any]:
    def build() -> tuple[Any, list[Any]]:
        x = fluid.data("x", [None, 5, 8], dtype)
        label = fluid.data("label", [None, 5, 1], "int64")
        # Keys without a bias: its gradient is zero, and what is computed is rounding alone.
        q, v = (L.fc(x, 8, num_flatten_dims=2) for _ in range(2))
        k = L.fc(x, 8, num_flatten_dims=2, bias_attr=False)
        scores = L.matmul(q, k, transpose_y=True, alpha=0.35)
        h = L.matmul(L.softmax(scores), v) + x
        hidden = L.fc(L.layer_norm(h, begin_norm_axis=2), 16, num_flatten_dims=2, act="gelu")
        h = L.dropout(L.fc(hidden, 8, num_flatten_dims=2), 0.1) + h
        loss = L.mean(L.softmax_with_cross_entropy(h, label))
        return loss, [h]

    return build


NETS = {"image": (image_net, (2, 8, 8), (1,), 4), "attention": (attention_net, (5, 8), (5, 1), 8)}


def train(net: str, dtype: str, switches: Any = OFF, **how: Any) -> Trained:
    build, shape, labels, classes = NETS[net]
    rng = np.random.default_rng(3)
    feeds = [
        {
            "x": rng.standard_normal((8, *shape)).astype(dtype),
            "label": rng.integers(0, classes, (8, *labels)),
        }
        for _ in range(4)
    ]
    return trained(build(dtype), feeds, switches, **how)


def apart(value: Any, wanted: Any) -> float:
    value, wanted = (np.asarray(a).astype("float64") for a in (value, wanted))
    return float(np.linalg.norm(value - wanted) / max(np.linalg.norm(wanted), 1e-3))


def assert_alike(ours: Trained, wanted: Trained, near: float) -> None:
    for one, other in zip(ours.fetched, wanted.fetched, strict=True):
        for a, b in zip(one[:2], other[:2], strict=True):
            assert apart(a, b) < near
    for name, value in ours.state.items():
        assert apart(value, wanted.state[name]) < 4 * near, name  # velocities are small differences


@product(net=NETS, dtype=NEAR)
def test_low_precision_trains_like_float32(net: str, dtype: str) -> None:
    ours, expected = train(net, dtype), train(net, "float32")
    assert_alike(ours, expected, NEAR[dtype])
    for values in ours.fetched:
        assert (values[0].dtype, values[1].dtype) == ("float32", dtype)  # the loss, the scores
    parameters = re.compile(r"[a-z0-9_]+\.[wb]_\d+")
    kinds = {n: v.dtype for n, v in ours.state.items() if parameters.fullmatch(n)}
    for name, kind in kinds.items():
        assert kind == ("float32" if name.startswith("batch_norm") else dtype), name
    assert kinds


SETS = {
    "all": ON,
    "verified": {**ON, "verify_passes": True},
    "reduce": {**ON, **REDUCE},
    "cinn": {"build_cinn_pass": True},
}


@product(name=SETS, net=NETS, dtype=NEAR)
def test_results_agree_with_and_without_switches(name: str, net: str, dtype: str) -> None:
    switches = SETS[name]
    ours = train(net, dtype, switches)
    assert_alike(ours, train(net, dtype), NEAR[dtype])
    if "fused_attention" in switches:
        fused = {
            "attention": ("fused_attention: 1", "fused_feedforward: 1"),
            "image": ("fuse_bn_act_ops: ",),
        }
        assert all(text in ours.report for text in fused[net])


OPTIMIZERS = {
    "sgd": lambda: fluid.optimizer.SGD(0.1),
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
    "adagrad": lambda: fluid.optimizer.Adagrad(0.05, epsilon=1e-3),
}


@product(rule=OPTIMIZERS, fused=[False, True], dtype=NEAR)
def test_low_parameters_are_updated_by_a_float32_rate(rule: str, fused: bool, dtype: str) -> None:
    switches = {**OFF, "fuse_all_optimizer_ops": fused}
    ours, expected = (
        train("attention", kind, switches, optimizer=OPTIMIZERS[rule])
        for kind in (dtype, "float32")
    )
    assert_alike(ours, expected, 2 * NEAR[dtype])
    losses = [float(np.mean(values[0].astype("f8"))) for values in ours.fetched]
    assert np.isfinite(losses).all()


def ran(build: Callable[[], Any], feed: dict[str, Any]) -> list[np.ndarray]:
    """Run a program that fetches what ``build`` returns."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    startup.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        fetches = build()
    exe = executor_after(startup, scope)
    return exe.run(main, feed, fetches, scope=scope)


def test_uint16_feeds_the_bits_of_bfloat16() -> None:
    values = np.array([[1.5, -2.0]]).astype(BFLOAT16)

    def build() -> list[Any]:
        return [L.scale(fluid.data("x", [None, 2], "bfloat16"), 2.0)]

    for fed in (values, values.view(np.uint16)):
        (out,) = ran(build, {"x": fed})
        assert out.dtype == BFLOAT16
        np.testing.assert_array_equal(out.astype("f4"), [[3.0, -4.0]])
    with pytest.raises(FeedError, match="bfloat16"):
        ran(build, {"x": values.astype("float32")})


def test_gradients_have_the_type_of_what_they_are_of() -> None:
    """Through casts down and up again, and through a low-precision parameter."""

    def build() -> list[Any]:
        x = fluid.data("x", [None, 3], "float32")
        x.stop_gradient = False
        low = L.cast(x, "bfloat16")
        w = L.create_parameter([3, 2], "bfloat16", name="w")
        loss = L.reduce_mean(L.cast(L.matmul(low, w), "float32"))
        grads = fluid.gradients(loss, [x, low, w])
        assert [g.dtype for g in grads] == [VarType.FP32, VarType.BF16, VarType.BF16]
        return [loss, *grads, w]

    x = np.random.default_rng(0).standard_normal((4, 3)).astype("float32")
    loss, d_x, d_low, d_w, w = ran(build, {"x": x})
    assert [a.dtype for a in (loss, d_x, d_low, d_w)] == ["float32", "float32", BFLOAT16, BFLOAT16]
    near = x.astype(BFLOAT16).astype("f8")
    np.testing.assert_allclose(loss, (near @ w.astype("f8")).mean(), atol=1e-2)
    assert apart(d_x, np.full((4, 2), 1 / 8) @ w.astype("f8").T) < 1e-2
    assert apart(d_w, near.T @ np.full((4, 2), 1 / 8)) < 1e-2


@low_types
def test_initializers_fill_low_precision(dtype: str) -> None:
    init = fluid.initializer
    numbers = np.array([[1.0, 2.5, -3.0]])
    makers = [
        init.Constant(0.5), init.Uniform(-1, 1, seed=3), init.Normal(0.0, 1.0, seed=3),
        init.TruncatedNormal(0.0, 1.0, seed=3), init.Xavier(seed=3), init.MSRA(seed=3),
        init.NumpyArrayInitializer(numbers),
    ]  # fmt: skip

    def build(kind: str) -> Callable[[], list[Any]]:
        return lambda: [
            L.create_parameter([1, 3], kind, default_initializer=maker) for maker in makers
        ]

    for low, single in zip(ran(build(dtype), {}), ran(build("float32"), {}), strict=True):
        assert low.dtype == dtype
        np.testing.assert_array_equal(low.astype("f4"), single.astype(dtype).astype("f4"))


@low_types
def test_the_scope_holds_low_precision(dtype: str) -> None:
    scope = fluid.Scope()
    with own_programs() as (main, startup):
        w = L.create_parameter([2], dtype, name="w")
        out = L.assign(np.array([1.0, 2.0], dtype)) + w
    exe = executor_after(startup, scope)
    tensor = scope.find_var("w").get_tensor()
    value = np.array([0.5, 3.0], dtype)
    for array in (value, value.view("u2") if dtype == "bfloat16" else value):
        tensor.set(array, fluid.CPUPlace())
        (result,) = exe.run(main, fetch_list=[out], scope=scope)
        assert result.dtype == dtype and np.array(tensor).dtype == dtype
        np.testing.assert_array_equal(result.astype("f4"), [1.5, 5.0])


def test_replicas_in_low_precision_hold_the_same_bits() -> None:
    """Two gradients a third apart: their sum is rounded once, from float32, in the order of ranks."""
    first = train("image", "bfloat16", {})
    again = train("image", "bfloat16", {})
    for name, value in first.state.items():
        assert value.tobytes() == again.state[name].tobytes(), name


@pytest.mark.parametrize("name", ["bfloat16", BFLOAT16, BFLOAT16.type, VarType.BF16], ids=str)
def test_bfloat16_is_an_element_type_by_every_name(name: Any) -> None:
    with fluid.program_guard(fluid.Program()):
        assert fluid.data("x", [1], name).dtype == VarType.BF16
