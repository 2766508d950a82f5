"""Names of Paddle 3.3's; the numbers are those that it computes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rowlock as paddle
import rowlock.fluid as fluid
from rowlock.nn import functional as F
from rowlock.strategies.errors import InvalidArgument, InvalidValue, Unsupported
from tests.programs import executor_after


@pytest.fixture(autouse=True)
def _own_program() -> Iterator[None]:
    programs = fluid.Program(), fluid.Program()
    with (
        fluid.program_guard(*programs),
        fluid.unique_name.guard(),
        fluid.scope_guard(fluid.Scope()),
    ):
        yield


def fetched(*outs: Any, **feed: Any) -> list[np.ndarray]:
    exe = executor_after()
    return exe.run(fluid.default_main_program(), feed=feed, fetch_list=list(outs))


SELF = {True: [[31, 2, 3], [4, 35, 46]], False: [[30, 2, 3], [4, 30, 40]]}
MEAN = {True: [[31 / 3, 2, 3], [4, 17.5, 23]], False: [[15, 2, 3], [4, 30, 40]]}


@pytest.mark.parametrize("include_self", [True, False])
def test_scattered_sums_and_means(include_self: bool) -> None:
    x = paddle.static.data("x", [None, 3])
    src, index = paddle.to_tensor([[10.0, 20.0], [30.0, 40.0]]), paddle.to_tensor([[0, 0], [1, 2]])
    rows = paddle.to_tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    results = [
        paddle.scatter_reduce(rows, 1, index, src, reduce, include_self=include_self)
        for reduce in ("sum", "mean")
    ]
    sums, means = fetched(*results, x=np.zeros((2, 3), "float32"))
    np.testing.assert_allclose(sums, SELF[include_self])
    np.testing.assert_allclose(means, MEAN[include_self], rtol=1e-6)
    (added,) = fetched(paddle.scatter_add(rows, 1, index, src), x=np.zeros((2, 3), "float32"))
    np.testing.assert_allclose(added, SELF[True])
    with pytest.raises(Unsupported, match="scatter_reduce: reduce='prod' is not built"):
        paddle.scatter_reduce(x, 1, index, src, "prod")


def test_windows_along_an_axis() -> None:
    row = paddle.unfold(paddle.arange(0.0, 9.0), 0, 4, 2)
    batch = paddle.static.data("batch", [None, 5, 2])
    windows = paddle.unfold(batch, 1, 3, 2)
    feed = np.arange(30, dtype="float32").reshape(3, 5, 2)
    of_row, of_batch = fetched(row, windows, batch=feed)
    np.testing.assert_array_equal(of_row, [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7]])
    views = np.lib.stride_tricks.sliding_window_view(feed, 3, axis=1)[:, ::2]
    np.testing.assert_array_equal(of_batch, views)
    with pytest.raises(InvalidValue, match="size must be 1 to the 5 elements along axis 1"):
        paddle.unfold(batch, 1, 6, 1)


def test_pools_of_powers() -> None:
    images = paddle.to_tensor(np.linspace(-1, 2, 20).reshape(1, 1, 4, 5).astype("float32"))
    images.stop_gradient = False
    out = F.lp_pool2d(images, 2.0, [2, 3], ceil_mode=True, padding=1)
    with pytest.raises(InvalidValue, match="lp_pool2d: norm_type must not be 0"):
        F.lp_pool2d(images, 0, 2)
    slopes = fluid.gradients(fluid.layers.reduce_sum(out), images)[0]
    rows = paddle.to_tensor(np.linspace(-1.5, 2.2, 15).reshape(1, 3, 5).astype("float32"))
    largest = paddle.nn.LPPool1D(float("inf"), 2)(rows)
    out, slopes, largest = fetched(out, slopes, largest)
    powers = [[1.307341, 0.938556, 0.0], [0.961877, 1.90567, 0.0], [2.049931, 3.198424, 0.0]]
    np.testing.assert_allclose(out[0, 0], powers, rtol=1e-5)
    expected = [-0.764911, -0.644136, -0.729004, -0.560772, -0.39254]
    np.testing.assert_allclose(slopes[0, 0, 0], expected, rtol=1e-4)
    maxima = [[-1.235714, -0.707143], [0.085714, 0.614286], [1.407143, 1.935714]]
    np.testing.assert_allclose(largest[0], maxima, rtol=1e-5)


def test_margins_of_several_labels() -> None:
    x = paddle.static.data("x", [None, 4])
    x.stop_gradient = False
    label = paddle.static.data("label", [None, 4], "int64")
    losses = F.multi_label_margin_loss(x, label, "none")
    mean = paddle.nn.MultiLabelMarginLoss()(x, label)
    slopes = fluid.gradients(mean, x)[0]
    feed = {
        "x": np.array([[0.1, 0.2, 0.4, 0.8], [0.3, 0.1, 0.2, 0.5]], "float32"),
        "label": np.array([[3, 0, -1, 1], [-1, 2, 1, 0]]),
    }
    losses, mean, slopes = fetched(losses, mean, slopes, **feed)
    np.testing.assert_allclose(losses, [0.85, 0.0], rtol=1e-6)
    np.testing.assert_allclose([mean.item(), slopes.sum()], [0.425, 0.0], rtol=1e-6, atol=1e-7)


def _log_softmax(x: np.ndarray) -> np.ndarray:
    x = x - x.max(1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(1, keepdims=True)))


def test_rare_classes_in_clusters() -> None:
    net = paddle.nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3, 6], div_value=2.0, head_bias=True)
    assert [(n, list(p.shape or ())) for n, p in net.named_parameters()] == [
        ("head_weight", [4, 5]), ("head_bias", [5]), ("tail_weight_0_0", [4, 2]),
        ("tail_weight_0_1", [2, 3]), ("tail_weight_1_0", [4, 1]), ("tail_weight_1_1", [1, 4]),
    ]  # fmt: skip
    x = paddle.static.data("x", [None, 4])
    label = paddle.static.data("label", [None], "int64")
    output, loss = net(x, label)
    everything, best = net.log_prob(x), net.predict(x)
    labels = np.array([0, 4, 9, 6, 2])
    feed = {"x": np.random.default_rng(0).normal(size=(5, 4)).astype("float32"), "label": labels}
    weights = [*net.parameters(), output, loss, everything, best]
    *w, output, loss, everything, best = fetched(*weights, **feed)
    first = _log_softmax(feed["x"] @ w[0] + w[1])
    parts = [first[:, :3]]
    for i in (0, 1):
        tail = _log_softmax(feed["x"] @ w[2 + 2 * i] @ w[3 + 2 * i])
        parts.append(tail + first[:, 3 + i : 4 + i])
    expected = np.concatenate(parts, 1)
    np.testing.assert_allclose(everything, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(output, expected[np.arange(5), labels], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(loss, -output.mean(), rtol=1e-5)
    np.testing.assert_allclose(np.exp(everything).sum(1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(best, expected.argmax(1))
    with pytest.raises(InvalidValue, match="cutoffs must rise between 1 and 9"):
        paddle.nn.AdaptiveLogSoftmaxWithLoss(4, 10, [6, 3])


def test_clusters_learn() -> None:
    net = paddle.nn.AdaptiveLogSoftmaxWithLoss(4, 10, [3, 6])
    x, label = paddle.static.data("x", [None, 4]), paddle.static.data("label", [None], "int64")
    _, loss = net(x, label)
    fluid.optimizer.Adam(0.1).minimize(loss)
    feed = {"x": np.eye(4, dtype="float32"), "label": np.array([0, 4, 9, 6])}
    first = fetched(loss, **feed)[0]
    for _ in range(60):
        (last,) = fluid.Executor().run(feed=feed, fetch_list=[loss])
    assert last < first / 4


def test_norms_by_mean_squares() -> None:
    x, weight = paddle.static.data("x", [None, 2, 3]), paddle.to_tensor([1.0, 2.0, 3.0])
    out, inverse = F.rms_norm(x, [3], weight)
    feed = np.random.default_rng(1).normal(size=(2, 2, 3)).astype("float32")
    out, inverse = fetched(out, inverse, x=feed)
    root = 1 / np.sqrt((feed**2).mean(-1) + 1e-5)
    np.testing.assert_allclose(inverse, root, rtol=1e-5)
    np.testing.assert_allclose(out, feed * root[..., None] * [1, 2, 3], rtol=1e-5)
    with pytest.raises(InvalidValue, match="must be the sizes of the last dimensions"):
        F.rms_norm(x, [2])


def test_whole_channels_are_dropped() -> None:
    ones = paddle.to_tensor(np.ones((8, 16, 5), "float32"))
    drops = [F.feature_alpha_dropout(ones, 0.5), F.dropout1d(ones), F.dropout1d(ones[0])]
    alpha, of_batch, of_one = fetched(*drops)
    for numbers in (alpha, of_batch, of_one):
        assert (numbers == numbers[..., :1]).all() and len({*numbers.ravel()}) == 2
    np.testing.assert_allclose(sorted({*alpha.ravel()}), [-0.7791938, 1.6655989], rtol=1e-5)
    assert (of_batch == of_batch[:1]).all() and len({*alpha[:, 0, 0]}) == 2
    assert {*of_batch.ravel()} == {*of_one.ravel()} == {0.0, 2.0}
    assert F.feature_alpha_dropout(ones, 0.5, training=False) is ones
    with pytest.raises(InvalidValue, match=r"dropout1d: input must be \[N, C, L\]"):
        F.dropout1d(paddle.static.data("image", [1, 2, 3, 4]))


def test_samples_in_the_shape_of_a_batch() -> None:
    like = paddle.static.data("like", [None, 2])
    drawn = [
        like.normal_(2.0, 0.5), paddle.log_normal_(like, 0.0, 0.5), paddle.bernoulli_(like, 0.25),
        paddle.geometric_(like, 0.5), paddle.cauchy_(like, 1.0, 2.0),
    ]  # fmt: skip
    numbers = fetched(*drawn, like=np.zeros((4000, 2), "float32"))
    normal, log_normal, coins, tries, cauchy = numbers
    assert all(x.shape == (4000, 2) for x in numbers)
    np.testing.assert_allclose([normal.mean(), normal.std()], [2.0, 0.5], rtol=0.05)
    np.testing.assert_allclose(np.log(log_normal).std(), 0.5, rtol=0.05)
    np.testing.assert_allclose([coins.mean(), tries.mean()], [0.25, 1 / np.log(2)], rtol=0.1)
    np.testing.assert_allclose(np.quantile(cauchy, [0.25, 0.5, 0.75]), [-1, 1, 3], atol=0.25)


def test_second_names() -> None:
    for name in ("Conv2d", "ConstantPad1d", "AdaptiveMaxPool3d", "LPPool2d"):
        assert getattr(paddle.nn, name) is getattr(paddle.nn, f"{name[:-1]}D")
    assert paddle.nn.Module is paddle.nn.Layer and paddle.nn.ModuleList is paddle.nn.LayerList
    assert (paddle.half, paddle.double) == (paddle.float16, paddle.float64)
    assert paddle.float is paddle.float32
    five, two = paddle.from_numpy(np.array([5.0], "float32")), paddle.to_tensor([2.0])
    results = [paddle.div_(five, two), five.sub_(two), paddle.less_(two, five), five.gammaln_()]
    gammas = paddle.multigammaln(paddle.to_tensor([2.5, 4.0]), 2)
    *numbers, gammas = fetched(*results, gammas)
    np.testing.assert_allclose(np.concatenate(numbers), [2.5, 3.0, 1.0, np.log(24)], rtol=1e-6)
    np.testing.assert_allclose(gammas, [0.8570478, 3.5650978], rtol=1e-5)


def test_parameters_by_name() -> None:
    weights = {name: paddle.create_parameter([2, 2], "float32") for name in ("a", "b")}
    parameters = paddle.nn.ParameterDict(weights)
    parameters["c"] = paddle.create_parameter([2, 3], "float32")
    assert [*parameters] == ["a", "b", "c"] and len(parameters.parameters()) == 3
    assert [*paddle.nn.ParameterDict(parameters)] == ["a", "b", "c"]
    with pytest.raises(InvalidArgument, match="ParameterDict holds Parameters"):
        parameters["d"] = paddle.to_tensor([1.0])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 2e-15), ("float32", 1e-6)])
def test_the_inverse_of_the_error_function(dtype: str, tolerance: float) -> None:
    x = paddle.static.data("x", [None], dtype)
    x.stop_gradient = False
    out = paddle.erfinv(x)
    slopes = fluid.gradients(fluid.layers.reduce_sum(out), x)[0]
    roots = np.array([0.0, 1e-6, -0.25, 0.5, 1.0, 1.0184, -1.5, 2.0, 2.5])
    feed = np.array([math.erf(root) for root in roots]).astype(dtype)
    (out, slopes), (ends,) = (
        fetched(out, slopes, x=feed),
        fetched(out, x=np.array([1, -1, 2], dtype)),
    )
    rounding = np.abs(feed) * np.finfo(dtype).eps * math.sqrt(math.pi) / 2 * np.exp(roots**2)
    assert (np.abs(out - roots) <= rounding + tolerance * np.abs(roots)).all()
    np.testing.assert_allclose(slopes, math.sqrt(math.pi) / 2 * np.exp(out**2), rtol=10 * tolerance)
    np.testing.assert_array_equal(ends, [np.inf, -np.inf, np.inf])
    half = fetched(paddle.erfinv(paddle.cast(x, "float16")), x=np.array([0.5], dtype))[0]
    assert half.dtype == np.float16 and abs(half[0] - 0.4769) < 1e-3


def test_one_of_two_variables_by_a_mask() -> None:
    mask = fluid.data("mask", [1], "int32")
    pair = [fluid.layers.fill_constant([2], "float32", value) for value in (3.0, 4.0)]
    chosen = fluid.layers.control_flow.select_input(pair, mask)
    for which, value in enumerate((3.0, 4.0)):
        assert (fetched(chosen, mask=np.array([which], "int32"))[0] == value).all()
