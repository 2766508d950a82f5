"""Programs that move, pick and draw elements: trained, on several places, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rowlock as paddle
import rowlock.fluid as fluid
from rowlock.nn import functional as F
from rowlock.strategies.errors import ExecutionError, Unsupported
from tests.programs import executor_after, on_places

L = fluid.layers


pytestmark = pytest.mark.usefixtures("fresh_programs")


def test_an_upscaling_network_trains() -> None:
    """Sub-pixel convolution, shuffled channels and random crops, as super-resolution programs have them."""
    images = fluid.data("images", [None, 4, 8, 8])
    crops = L.random_crop(images, [4, 6, 6], seed=3)
    blocks = L.shuffle_channel(L.conv2d(crops, 16, 3, padding=1, act="relu"), 4)
    upscaled = L.pixel_shuffle(L.conv2d(blocks, 12, 3, padding=1), 2)
    low = L.crop_tensor(upscaled, [-1, 3, 6, 6], [0, 0, 3, 3])
    loss = L.mean(L.square(low - L.slice(crops, [1], [0], [3])))
    fluid.optimizer.Adam(0.01).minimize(loss)
    exe = executor_after()
    feed = {"images": np.random.RandomState(0).rand(4, 4, 8, 8).astype("float32")}
    losses = [exe.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(40)]
    assert losses[-1] < 0.3 * losses[0]


def test_a_table_of_rows_trains_by_picks_and_additions() -> None:
    rows = fluid.data("rows", [6, 3])
    table = L.create_parameter([5, 4], "float32")
    columns = L.index_select(table, L.assign(np.array([3, 0, 3])), 1)
    index = L.assign(np.array([[4], [0], [4], [1], [2], [3]]))
    sums = L.scatter_nd_add(columns, index, rows)
    loss = L.mean(L.square(L.tril(sums) - L.triu(sums) + L.eye(5, 3)))
    fluid.optimizer.SGD(1.0).minimize(loss)
    exe = executor_after()
    feed = {"rows": np.ones((6, 3), "float32")}
    losses = [exe.run(feed=feed, fetch_list=[loss])[0].item() for _ in range(20)]
    assert losses[-1] < losses[0]


def test_places_draw_what_one_would() -> None:
    x = fluid.data("x", [None, 5])
    x.stop_gradient = False
    drawn = [
        paddle.bernoulli(x),
        paddle.multinomial(x, 3),
        L.sampling_id(x / L.reduce_sum(x, 1, True)),
        L.random_crop(x, [2]),
        L.uniform_random_batch_size_like(x, [-1, 3]),
        L.gaussian_random_batch_size_like(x, [-1, 3]),
    ]
    fluid.default_main_program().random_seed = 11
    feed = {"x": np.random.RandomState(1).rand(6, 5).astype("float32")}
    compiled = on_places(fluid.default_main_program(), 2)
    with paddle.cluster(launcher="threads"):
        both = fluid.Executor().run(compiled, feed=feed, fetch_list=drawn)
    one = fluid.Executor().run(feed=feed, fetch_list=drawn)
    for alone, together in zip(one, both, strict=True):
        np.testing.assert_array_equal(alone, together)


def fetch(out: Any, **feed: Any) -> Any:
    return fluid.Executor().run(feed=feed, fetch_list=[out])[0]


@pytest.mark.parametrize(
    ("text", "build"),
    [
        ("index_select: index 7 is outside the 4 rows", lambda x, k: L.index_select(x, k[:, 0], 1)),
        ("scatter_nd_add: index 7 is outside the 3 rows", lambda x, k: L.scatter_nd_add(x, k, x[:1])),
        ("shard_index: index 7 is outside the 6 rows", lambda x, k: L.shard_index(k, 6, 2, 0)),
        ("multiplex: index 7 is outside the 2 rows", lambda x, k: L.multiplex([x[:1], x[:1]], k)),
        ("index_sample: index 7 is outside the 4 rows", lambda x, k: L.index_sample(x[:1], k)),
    ],
)  # fmt: skip
def test_an_index_outside_is_named_when_it_comes(text: str, build: Callable[..., Any]) -> None:
    out = build(paddle.ones([3, 4]), fluid.data("k", [1, 1], "int64"))
    with pytest.raises(ExecutionError, match=text):
        fetch(out, k=np.array([[7]]))


def test_ranges_of_variables_whose_values_are_known() -> None:
    n = L.shape(paddle.ones([4, 3]))[0]
    np.testing.assert_array_equal(fetch(L.range(0, n, 1, "int64")), np.arange(4))
    np.testing.assert_allclose(fetch(L.linspace(0, 1, n, "float32")), np.linspace(0, 1, 4))
    np.testing.assert_array_equal(fetch(L.reshape(paddle.ones([2, 3]), [L.size(n) * 6])), [1] * 6)


def test_sizes_are_drawn_from_variables_too() -> None:
    n = L.fill_constant([1], "int32", 40)
    values = fetch(L.randint(3, 5, [n, 2], dtype="int32"))
    assert values.shape == (40, 2) and values.dtype == np.int32 and set(np.unique(values)) == {3, 4}


Refused = Callable[[Any, Any], Any]


@pytest.mark.parametrize(
    ("refused", "error", "text"),
    [
        (lambda x, k: L.crop(x, [2, 2], [2, 0]), ValueError, "do not fit the 3"),
        (lambda x, k: L.crop(x, 2), TypeError, "shape must be a list"),
        (lambda x, k: L.crop_tensor(x, [0, 2]), ValueError, r"shape\[0\] must be above 0, or -1"),
        (lambda x, k: L.crop_tensor(x, [1, 2], [-1, 0]), ValueError, r"offsets\[0\] must be 0 or"),
        (lambda x, k: L.flip(x, 2), ValueError, "axis 2 is outside"),
        (lambda x, k: L.roll(x, [1, 2], [0]), ValueError, "2 shifts do not fit 1"),
        (lambda x, k: L.space_to_depth(x, 2), ValueError, r"X must be \[N, C, H, W\]"),
        (lambda x, k: L.shuffle_channel(x, 1.5), TypeError, "group must be an int"),
        (lambda x, k: L.temporal_shift(x, 2, 1), TypeError, "shift_ratio must be a float"),
        (lambda x, k: L.unfold(x, 2, paddings=[1, 1, 1]), ValueError, "1, 2 or 4 numbers"),
        (lambda x, k: L.eye(0), ValueError, "num_rows must be above 0"),
        (lambda x, k: L.eye(2, batch_shape=3), TypeError, "batch_shape must be a list"),
        (lambda x, k: L.diag(x), ValueError, "must be a vector"),
        (lambda x, k: L.trace(x, 0, 1, 1), ValueError, "two dimensions"),
        (lambda x, k: L.linspace(0, 1, 3, "int32"), ValueError, "float32 or float64"),
        (lambda x, k: L.range(0, 3, -1, "int64"), ValueError, "nothing from 0 to 3 by -1"),
        (lambda x, k: L.index_select(x, x, 0), TypeError, "index must hold integers"),
        (lambda x, k: L.multiplex([x], k), TypeError, "two Variables or more"),
        (lambda x, k: L.scatter_nd_add(x, k, k), ValueError, "one element type"),
        (lambda x, k: L.shard_index(k, 4, 2, 2), ValueError, "shard 2 is not one of 2"),
        (lambda x, k: L.random_crop(x, [9]), ValueError, "does not fit"),
        (lambda x, k: L.random_crop(x, [2], seed="1"), ValueError, "seed must be an int"),
        (lambda x, k: L.sampling_id(k), TypeError, "must hold floats"),
        (lambda x, k: L.randint(3, 3), ValueError, "no integer from 3"),
        (lambda x, k: L.randperm(0), ValueError, "above 0"),
        (lambda x, k: paddle.multinomial(x, 9), ValueError, "without replacement"),
        (lambda x, k: paddle.moveaxis(x, 0, 2), ValueError, "axis 2 is outside"),
        (lambda x, k: paddle.moveaxis(x, [0, 0], [0, 1]), ValueError, "none twice"),
        (lambda x, k: paddle.tensor_split(x, 5), ValueError, "do not make 5 parts"),
        (lambda x, k: paddle.repeat_interleave(x, k), Unsupported, "depend on values"),
        (lambda x, k: paddle.put_along_axis(x, k, 1.0, 0, "mul"), Unsupported, "reduce='mul'"),
        (lambda x, k: paddle.take_along_axis(x, k[:, 0], 0), ValueError, "as many dimensions"),
        (lambda x, k: F.pixel_unshuffle(paddle.ones([1, 1, 3, 4]), 2), ValueError, "by 2"),
    ],
)
def test_what_makes_no_sense_is_refused(refused: Refused, error: type, text: str) -> None:
    x, k = fluid.data("x", [3, 4]), fluid.data("k", [3, 1], "int64")
    with pytest.raises(error, match=text):
        refused(x, k)
