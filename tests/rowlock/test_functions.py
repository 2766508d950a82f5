"""What functions of paddle 2.x draw, refuse, and take from the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rowlock as paddle
import rowlock.fluid as fluid
from rowlock.nn import functional as F
from rowlock.strategies.errors import Unsupported

pytestmark = pytest.mark.usefixtures("fresh_programs")


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


def test_draws_in_the_shape_of_a_variable_and_of_a_log_normal() -> None:
    like = paddle.static.data("like", [2000, 2], "float64")
    drawn = [
        paddle.rand_like(like),
        paddle.randn_like(like, "float32"),
        paddle.log_normal(0.5, 0.25, [2000]),
    ]
    even, normal, log_normal = fluid.Executor().run(
        feed={"like": np.zeros((2000, 2))}, fetch_list=drawn
    )
    assert even.shape == normal.shape == (2000, 2)
    assert (even.dtype, normal.dtype) == (np.float64, np.float32)
    assert even.min() >= 0 and even.max() < 1 and abs(even.mean() - 0.5) < 0.05
    assert abs(normal.mean()) < 0.1 and abs(normal.std() - 1) < 0.1
    assert (
        abs(np.log(log_normal).mean() - 0.5) < 0.05 and abs(np.log(log_normal).std() - 0.25) < 0.05
    )
    with pytest.raises(ValueError, match=r"rand_like: only one size of a batch may be unknown"):
        paddle.rand_like(paddle.static.data("pixels", [None, None, 2]))


def test_normal_numbers_differ_in_all_rows_of_a_batch() -> None:
    rows = paddle.static.data("rows", [None, 2])
    scales = paddle.static.data("scales", [2])
    drawn = [
        paddle.rand_like(rows),
        paddle.randn_like(rows),
        paddle.normal(rows, scales),
        paddle.normal(scales, rows + 1.0),
        paddle.log_normal(rows, 1.0),
    ]
    feed = {"rows": np.zeros((3, 2), "float32"), "scales": np.ones(2, "float32")}
    for numbers in fluid.Executor().run(feed=feed, fetch_list=drawn):
        assert numbers.shape == (3, 2) and len({*numbers.ravel()}) == 6
    with pytest.raises(
        TypeError, match="log_normal: std must hold floats, and 'count' holds INT64"
    ):
        paddle.log_normal(1.0, paddle.static.data("count", [2], "int64"))


def test_shapes_broadcast_together() -> None:
    assert paddle.broadcast_shapes([5, 1, 3], [4, 1], [1, 1, 3]) == [5, 4, 3]
    assert paddle.broadcast_shapes([2]) == [2] and paddle.broadcast_shapes() == []
    with pytest.raises(ValueError, match="do not fit"):
        paddle.broadcast_shapes([2], [3], [1])
    with pytest.raises(
        ValueError, match=r"broadcast_shapes: .* dimension -1 has the sizes 3 and 5"
    ):
        paddle.broadcast_shapes([2, 3], [2, 1], [1, 5])
    with pytest.raises(TypeError, match=r"broadcast_shapes: shapes\[1\] must be a list"):
        paddle.broadcast_shapes([2], 3)  # type: ignore[arg-type]


def test_the_process_has_a_default_type_a_device_and_a_seed() -> None:
    assert (paddle.get_default_dtype(), paddle.get_device()) == ("float32", "cpu")
    paddle.set_default_dtype("float64")
    try:
        tensors = paddle.ones([2]), paddle.to_tensor([0.1]), paddle.arange(0.0, 1.0, 0.25)
        assert {paddle.get_default_dtype(), *(one.dtype.name for one in tensors)} == {
            "float64",
            "FP64",
        }
        assert fluid.Executor().run(fetch_list=[tensors[1]])[0][0] == 0.1
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


def test_a_range_is_as_long_as_a_step_says() -> None:
    x = paddle.static.data("x", [-1, 2])
    numbers = [paddle.arange(1, paddle.shape(x)[0] + 1), paddle.arange(0.5, paddle.shape(x)[0])]
    whole, halves = fluid.Executor().run(feed={"x": np.zeros((3, 2), "f")}, fetch_list=numbers)
    assert whole.tolist() == [1, 2, 3] and whole.dtype == np.int64
    assert halves.tolist() == [0.5, 1.5, 2.5] and halves.dtype == np.float32


def test_sizes_follow_what_is_fed() -> None:
    x, v = paddle.static.data("x", [-1, 4]), paddle.static.data("v", [4])
    i = paddle.static.data("i", [-1, 4], "int64")
    rows = paddle.shape(x)[0]
    results = [
        paddle.expand(v, [rows, -1]),
        paddle.broadcast_to(v, paddle.shape(x)),
        paddle.tile(v, [rows, 2]),
        *paddle.broadcast_tensors([x, v]),
        paddle.put_along_axis(x, i, 9.0, 1),
        paddle.std(x),
        x.var(0),
    ]
    drawn = [
        paddle.rand([rows, 2]),
        paddle.randn((rows, 2)),
        paddle.uniform([rows, 2], min=3.0, max=4.0),
        paddle.normal(shape=[rows, 2]),
        paddle.randint(3, 5, [rows, 2]),
        F.gumbel_softmax(x[:, :2], hard=True),
    ]
    for count in (3, 5):
        feed: dict[str, Any] = {"x": np.random.default_rng(1).random((count, 4), "float32")}
        feed |= {"v": feed["x"][0] * 2, "i": np.arange(count * 4).reshape(count, 4) // 2 % 4}
        values = fluid.Executor().run(feed=feed, fetch_list=[*results, *drawn])
        whole, put = np.tile(feed["v"], (count, 1)), feed["x"].copy()
        np.put_along_axis(put, feed["i"], 9.0, 1)
        expected = [whole, whole, np.tile(feed["v"], (count, 2)), feed["x"], whole, put]
        expected += [feed["x"].std(ddof=1), feed["x"].var(0, ddof=1)]
        for value, array in zip(values, expected, strict=False):
            np.testing.assert_allclose(value, array, rtol=1e-5)
        assert {value.shape for value in values[len(expected) :]} == {(count, 2)}
        assert set(np.unique(values[-2])) <= {3, 4} and np.all(values[-4] >= 3)
        np.testing.assert_allclose(values[-1].sum(1), np.ones(count), rtol=1e-6)


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
        (lambda x, k: paddle.clip(x, "0"), TypeError),
        (lambda x, k: paddle.arange("3"), TypeError),
        (lambda x, k: paddle.arange(k, dtype="bool"), ValueError),
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


def test_tables_of_a_network_count_what_paddle_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """The network and the numbers of Paddle's documentation of ``flops``."""
    nn = paddle.nn
    pooled = (nn.ReLU(), nn.MaxPool2D(2, 2))
    head = (nn.Flatten(), nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10))
    net = nn.Sequential(nn.Conv2D(1, 6, 3, 1, 1), *pooled, nn.Conv2D(6, 16, 5), *pooled, *head)
    ops = len(paddle.static.default_main_program().global_block().ops)
    assert paddle.flops(net, [1, 1, 28, 28], print_detail=True) == 347560
    assert "Total Flops: 347560     Total Params: 61610" in capsys.readouterr().out
    counts = paddle.summary(net, (-1, 1, 28, 28), "float32")
    assert counts == {"total_params": 61610, "trainable_params": 61610}
    out = capsys.readouterr().out
    assert "[1, 6, 28, 28]" in out and "Trainable params: 61,610" in out
    assert len(paddle.static.default_main_program().global_block().ops) == ops
    assert net.training and net[0].training
    with pytest.raises(TypeError, match=r"of a Program fluid.contrib.model_stat.summary tells"):
        paddle.flops(paddle.static.default_main_program(), [1])
    with pytest.raises(ValueError, match=r"summary: only the batch of .* may be unknown"):
        paddle.summary(net, (1, -1, 28, 28))


def test_second_names_and_constants() -> None:
    x = paddle.static.data("x", [2, 3])
    assert paddle.cat is paddle.concat
    assert paddle.lt is paddle.less_than
    assert x.clamp(0.0, 1.0).shape == (2, 3)
    assert x.eq(x).dtype == paddle.bool
    assert paddle.cast(x, paddle.int64).dtype == paddle.int64
    assert paddle.zeros([2], dtype=paddle.float64).dtype == paddle.float64
    assert (paddle.pi, paddle.newaxis) == (np.pi, None)


@pytest.mark.parametrize(
    "function",
    [
        paddle.cummax,
        paddle.unique_consecutive,
        paddle.nanmedian,
        lambda x, axis: paddle.nanquantile(x, 0.5, axis),
    ],
    ids=["cummax", "unique_consecutive", "nanmedian", "nanquantile"],
)
def test_a_dimension_that_is_not_there_is_refused_by_function(
    function: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id
    with pytest.raises(ValueError, match=f"{name}: axis 5 is outside the 2 dimensions of 'x'"):
        function(paddle.static.data("x", [3, 3]), axis=5)


def test_what_linalg_does_not_know_is_refused() -> None:
    x = paddle.static.data("x", [3, 3])
    with pytest.raises(ValueError, match="matrix_norm: p is 'fro', 'nuc', 1, 2, inf"):
        paddle.linalg.matrix_norm(x, 3)
    with pytest.raises(
        ValueError, match="qr: mode must be 'reduced', 'complete' or 'r', got 'raw'"
    ):
        paddle.linalg.qr(x, "raw")
    with pytest.raises(ValueError, match="eigh: UPLO is 'L' or 'U', got 'l'"):
        paddle.linalg.eigh(x, "l")
    with pytest.raises(Unsupported, match="bitwise_left_shift: shifts keep the sign"):
        paddle.bitwise_left_shift(x, x, False)
    with pytest.raises(
        AttributeError, match=r"linalg.eig is Paddle's, and Rowlock has not built it"
    ):
        _ = paddle.linalg.eig
    with pytest.raises(ValueError, match=r"solve: x must be square matrices"):
        paddle.linalg.solve(x[:, :2], x)
    with pytest.raises(ValueError, match="histogram: bins must be above 0"):
        paddle.histogram(x, 0)
    with pytest.raises(ValueError, match="gaussian_nll_loss: variance"):
        F.gaussian_nll_loss(x, x, x[:2])


def test_gaussian_losses_are_those_of_the_density() -> None:
    x, y, v = (paddle.static.data(name, [4, 3]) for name in "xyv")
    losses = [
        F.gaussian_nll_loss(x, y, v, full=True, reduction="none"),
        F.gaussian_nll_loss(x, y, v[:, 0], reduction="sum"),
        paddle.nn.GaussianNLLLoss(epsilon=0.5)(x, y, v),
    ]
    draw = np.random.default_rng(0)
    rows = {name: draw.uniform(0.1, 2, (4, 3)).astype("f4") for name in "xyv"}
    full, by_row, cut = fluid.Executor().run(feed=rows, fetch_list=losses)
    squares = (rows["x"] - rows["y"]) ** 2

    def loss(variance: Any) -> Any:
        return 0.5 * (np.log(variance) + squares / variance)

    np.testing.assert_allclose(full, loss(rows["v"]) + 0.5 * np.log(2 * np.pi), rtol=1e-5)
    np.testing.assert_allclose(by_row.item(), loss(rows["v"][:, :1]).sum(), rtol=1e-5)
    np.testing.assert_allclose(cut.item(), loss(np.maximum(rows["v"], 0.5)).mean(), rtol=1e-5)


@pytest.mark.parametrize(
    "margins", [(1.0, 0.5, 0.0), (1.35, 0.2, 0.1), (1.0, 0.0, 0.35), (1.0, 0.0, 0.0)]
)
def test_margins_move_the_cosine_of_the_label(margins: tuple[float, float, float]) -> None:
    """Beside NumPy in float64: Paddle 3.3.1 has this loss on GPUs only."""
    rng = np.random.default_rng(5)
    cosines, labels = rng.uniform(-0.9, 0.9, (4, 6)).astype("float32"), rng.integers(0, 6, 4)

    def computed(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores, rows = x.astype(np.float64), np.arange(4)
        angle = margins[0] * np.arccos(scores[rows, labels]) + margins[1]
        scores[rows, labels] = np.cos(angle) - margins[2]
        shares = np.exp(scores * 8.0)
        shares /= shares.sum(1, keepdims=True)
        return -np.log(shares[rows, labels])[:, None], shares

    x, y = paddle.static.data("x", [None, 6]), paddle.static.data("y", [None], "int64")
    x.stop_gradient = False
    loss, shares = F.margin_cross_entropy(x, y, *margins, 8.0, return_softmax=True, reduction=None)
    mean = F.margin_cross_entropy(x, paddle.unsqueeze(y, [1]), *margins, 8.0)
    fetches = [loss, shares, mean, paddle.static.gradients([mean], [x])[0]]
    values = fluid.Executor(fluid.CPUPlace()).run(
        feed={"x": cosines, "y": labels}, fetch_list=fetches
    )
    expected, expected_shares = computed(cosines)
    slopes = np.zeros((4, 6))
    for place in np.ndindex(4, 6):
        step = np.zeros((4, 6))
        step[place] = 1e-5
        ends = [computed(cosines + side * step)[0].mean() for side in (1, -1)]
        slopes[place] = (ends[0] - ends[1]) / 2e-5
    np.testing.assert_allclose(values[0], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(values[1], expected_shares, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(values[2], [expected.mean()], rtol=1e-5)
    np.testing.assert_allclose(values[3], slopes, rtol=1e-4, atol=1e-5)


def test_classes_that_are_dealt_to_trainers_are_refused() -> None:
    x, y = paddle.static.data("x", [None, 6]), paddle.static.data("y", [None], "int64")
    with pytest.raises(
        Unsupported, match="margin_cross_entropy: classes that are dealt to trainers"
    ):
        F.margin_cross_entropy(x, y, group=object())
