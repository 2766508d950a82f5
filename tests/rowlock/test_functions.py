"""What functions of paddle 2.x draw, refuse, and take from the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rowlock as paddle
import rowlock.fluid as fluid
from rowlock.nn import functional as F
from rowlock.strategies.errors import Unsupported


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    with (
        fluid.program_guard(fluid.Program(), fluid.Program()),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        yield


def test_draws_have_the_distributions_asked_for() -> None:
    rows = paddle.static.data("rows", [None, 3, 2])
    half = paddle.full([2000], 0.25)
    drawn = [
        paddle.uniform([2000], min=-1.0, max=3.0),
        paddle.rand([2000]),
        paddle.randn([2000]),
        paddle.normal(1.0, 2.0, [2000]),
        paddle.normal(half, half),
        paddle.bernoulli(half),
        paddle.randint(2, 6, [2000]),
        paddle.randperm(50),
        F.dropout(rows + 1.0, 0.5, axis=[0, 1]),
        F.alpha_dropout(paddle.randn([4000]), 0.3),
        F.dropout(paddle.ones([2000]), 0.25, mode="downscale_in_infer"),
    ]
    feed = {"rows": np.zeros((200, 3, 2), "float32")}
    exe = fluid.Executor()
    first, second = (exe.run(feed=feed, fetch_list=drawn) for _ in range(2))
    means = [value.mean() for value in first]
    expected = [1, 0.5, 0, 1, 0.25, 0.25, 3.5, 24.5, 1, 0, 0.75]
    np.testing.assert_allclose(means, expected, atol=0.15)
    deviations = [value.std() for value in first]
    assert 1.05 < deviations[0] < 1.25 and 1.85 < deviations[3] < 2.15
    assert 0.9 < deviations[9] < 1.1
    assert set(first[6].tolist()) == {2, 3, 4, 5} and first[6].dtype == np.int64
    assert sorted(first[7].tolist()) == list(range(50))
    assert (first[8][..., 0] == first[8][..., 1]).all() and set(np.unique(first[8])) == {0, 2}
    assert set(np.unique(first[10])) == {0, 1}
    assert not np.array_equal(first[0], second[0])


def test_the_process_has_a_default_type_a_device_and_a_seed() -> None:
    assert (paddle.get_default_dtype(), paddle.get_device()) == ("float32", "cpu")
    paddle.set_default_dtype("float64")
    try:
        made = paddle.ones([2]), paddle.to_tensor([0.1]), paddle.arange(0.0, 1.0, 0.25)
        assert {paddle.get_default_dtype(), *(one.dtype.name for one in made)} == {
            "float64",
            "FP64",
        }
        assert fluid.Executor().run(fetch_list=[made[1]])[0][0] == 0.1
    finally:
        paddle.set_default_dtype("float32")
    assert isinstance(paddle.set_device("cpu"), paddle.CPUPlace)
    assert paddle.device.get_device() == "cpu" and not paddle.is_compiled_with_xpu()
    paddle.seed(17)
    assert fluid.default_main_program().random_seed == 17 == fluid.Program().random_seed
    paddle.seed(0)
    x = paddle.static.data("x", [2])
    x.stop_gradient = False
    with paddle.no_grad():
        fixed = x * 2
    (slope,) = paddle.static.gradients(paddle.sum(x * fixed), x)
    (value,) = fluid.Executor().run(feed={"x": np.float32([1, 3])}, fetch_list=[slope])
    assert value.tolist() == [2, 6]


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (lambda x, k: paddle.set_default_dtype("int32"), TypeError),
        (lambda x, k: paddle.set_device("tpu"), ValueError),
        (lambda x, k: paddle.set_device(0), TypeError),
        (lambda x, k: paddle.seed("1"), TypeError),
        (lambda x, k: paddle.argmax(x, axis=0.5), TypeError),
        (lambda x, k: paddle.argmax(x, dtype="float32"), TypeError),
        (lambda x, k: paddle.topk(x, 9, axis=1, largest=False), ValueError),
        (lambda x, k: paddle.sum([1, 2]), TypeError),
        (lambda x, k: paddle.sum(x, axis=1.5), TypeError),
        (lambda x, k: paddle.concat(3), TypeError),
        (lambda x, k: paddle.pow(x, "2"), TypeError),
        (lambda x, k: paddle.round(x, 0.5), TypeError),
        (lambda x, k: paddle.where(k == 1, x), ValueError),
        (lambda x, k: paddle.where(k == 1), Unsupported),
        (lambda x, k: paddle.clip(x, "0"), TypeError),
        (lambda x, k: paddle.arange("3"), TypeError),
        (lambda x, k: paddle.arange(k), Unsupported),
        (lambda x, k: paddle.tril(paddle.ones([2])), ValueError),
        (lambda x, k: paddle.expand(x, [2, 3]), ValueError),
        (lambda x, k: paddle.t(paddle.ones([1, 1, 1])), ValueError),
        (lambda x, k: paddle.norm(x, "nuc"), ValueError),
        (lambda x, k: paddle.randint(3, 3), ValueError),
        (lambda x, k: paddle.shard_index(k, 4, 2, 2), ValueError),
        (lambda x, k: F.cross_entropy(x, k, reduction="total"), ValueError),
        (lambda x, k: F.cross_entropy(x, [1]), TypeError),
        (lambda x, k: F.one_hot(k), Unsupported),
        (lambda x, k: F.one_hot(k, "9"), TypeError),
        (lambda x, k: F.softplus(k), TypeError),
        (lambda x, k: F.dropout(x, "0.5"), TypeError),
        (lambda x, k: F.dropout(x, 1.5), ValueError),
        (lambda x, k: F.dropout(x, mode="half"), ValueError),
        (lambda x, k: F.avg_pool2d(x, 2, data_format="HW"), ValueError),
        (lambda x, k: F.max_unpool2d(x, k, 2), ValueError),
        (lambda x, k: F.layer_norm(x, [5]), ValueError),
        (lambda x, k: F.softshrink(x, -1.0), ValueError),
        (lambda x, k: F.label_smooth(x, epsilon=2.0), ValueError),
    ],
)
def test_what_makes_no_sense_is_refused(
    refused: Callable[..., Any], error: type[Exception]
) -> None:
    x = paddle.static.data("x", [None, 4])
    k = paddle.static.data("k", [None, 1], "int64")
    with pytest.raises(error):
        refused(x, k)


def test_an_activation_fused_with_a_sum_or_product() -> None:
    fused = fluid.contrib.layers.fused_elemwise_activation
    x, y = fluid.data("x", [2, 3]), fluid.data("y", [3])
    outs = [
        fused(x, y, ["elementwise_mul", "scale"], scale=2.0),
        fused(x, y, "relu,elementwise_add", save_intermediate_out=False),
    ]
    feed = {
        "x": np.array([[1, -2, 3], [0, 5, -6]], "float32"),
        "y": np.array([1, 2, -3], "float32"),
    }
    product, total = fluid.Executor().run(feed=feed, fetch_list=outs)
    np.testing.assert_array_equal(product, feed["x"] * feed["y"] * 2)
    np.testing.assert_array_equal(total, np.maximum(feed["x"] + feed["y"], 0))
    with pytest.raises(ValueError, match="list of two op types, such as"):
        fused(x, y, ["relu"])
    with pytest.raises(ValueError, match="elementwise_add or elementwise_mul, and an activation"):
        fused(x, y, ["elementwise_sub", "relu"])
    with pytest.raises(TypeError, match="x must be a Variable"):
        fused(3, y, ["relu", "elementwise_add"])
