"""Sizes, axes and factors of layers that are given as Variables, where the program knows what they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
import rowlock.tensor as tensor
from rowlock.strategies.errors import InvalidValue
from tests.programs import own_programs

L = fluid.layers


@pytest.fixture
def program() -> Any:
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        yield main


def run(program: Any, feed: Any, *fetch: Any) -> list[np.ndarray]:
    return fluid.Executor(fluid.CPUPlace()).run(program, feed=feed, fetch_list=list(fetch))


def number(value: int, dtype: str = "int32") -> Any:
    return L.fill_constant([1], dtype, value)


def test_constants_and_what_is_made_of_them_are_numbers(program: Any) -> None:
    x = fluid.data("x", [2, 3, 4])
    x.stop_gradient = False
    rows = L.slice(L.shape(x), [0], [1], [2])  # 3
    twelve = L.cast(L.elementwise_mul(rows, number(4)), "int64")
    joined = L.reshape(x, [2, twelve])
    window = L.slice(joined, [1], [number(-5)], [L.increment(number(8), in_place=False)])
    wide = L.expand(window, [1, L.assign(np.array([2], "int32"))])
    left, right = L.split(wide, [number(1), -1], dim=number(1))
    tall = L.unsqueeze(left, L.assign(np.array([0, 2], "int32")))
    both = L.concat([tall, tall], axis=number(1))
    shapes = [v.shape for v in (joined, window, wide, left, right, tall, both)]
    assert shapes == [(2, 12), (2, 2), (2, 4), (2, 1), (2, 3), (1, 2, 1, 1), (1, 4, 1, 1)]
    (grad,) = fluid.gradients([L.reduce_sum(both)], [x])
    filled = L.fill_constant(L.shape(both), "float32", L.fill_constant([1], "float32", 2.5))
    values = np.arange(24, dtype="f4").reshape(2, 3, 4)
    result, slopes, full = run(program, {"x": values}, both, grad, filled)
    picked = values.reshape(2, 12)[:, 7]
    np.testing.assert_array_equal(result.ravel(), np.tile(picked, 2))
    expected = np.zeros((2, 12), "f4")
    expected[:, 7] = 2
    np.testing.assert_array_equal(slopes.reshape(2, 12), expected)
    np.testing.assert_array_equal(full, np.full((1, 4, 1, 1), 2.5, "f4"))


def test_factors_and_limits_are_numbers(program: Any) -> None:
    x = fluid.data("x", [2, 3])
    half, two = (L.fill_constant([1], "float32", v) for v in (0.5, 2.0))
    results = [L.scale(x, half, 1.0), L.pow(x, two), L.clip(x, half, two), L.clip(x, -1, two)]
    values = np.array([[-3, 0, 1], [2, 3, 4]], "f4")
    arrays = run(program, {"x": values}, *results)
    expected = [values / 2 + 1, values**2, values.clip(0.5, 2), values.clip(-1, 2)]
    for one, other in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(TypeError, match="factor must be a number"):
        L.pow(x, "2")


def test_a_batch_that_is_not_known_may_be_a_size_of_reshape(program: Any) -> None:
    x = fluid.data("x", [None, 6])
    batch = L.slice(L.shape(x), [0], [0], [1])
    out = L.reshape(x, [batch, 2, 3])
    assert out.shape == (-1, 2, 3)
    (values,) = run(program, {"x": np.ones((5, 6), "f4")}, out)
    assert values.shape == (5, 2, 3)


def test_a_slice_ends_where_a_step_says(program: Any) -> None:
    x, n = fluid.data("x", [None, 6]), fluid.data("n", [1], "int32")
    part = L.slice(x, [1], [1], [n])
    assert part.shape == (-1, -1)
    rows = np.arange(12, dtype="f4").reshape(2, 6)
    for end in (3, -1):
        (values,) = run(program, {"x": rows, "n": np.array([end], "i4")}, part)
        np.testing.assert_array_equal(values, rows[:, 1:end])


def test_axes_and_numbers_of_largest_that_a_step_says(program: Any) -> None:
    x, n = fluid.data("x", [None, 3]), fluid.data("n", [1], "int32")
    x.stop_gradient = False
    best, at = L.topk(x, n + 1)
    best.stop_gradient = False
    whole, each = L.unsqueeze(x, L.concat([n, n - 2])), L.unsqueeze(best, [n, 0])
    loss = L.reduce_sum(best * best) + L.reduce_sum(whole) + L.reduce_sum(each)
    (slope,) = fluid.gradients(loss, [x])
    assert best.shape == (-1, -1) and whole.shape == each.shape == (-1, -1, -1, -1)
    rows, largest = np.array([[0, 2, 1], [5, 3, 4]], "f4"), np.array([[0, 1, 1], [1, 0, 1]])
    expected = [[2, 1], [5, 4]], [[1, 2], [0, 2]], rows[:, None, :, None]
    beside = fluid.CompiledProgram(program.clone(for_test=True))
    beside = beside.with_data_parallel(places=fluid.cpu_places(2))
    feed = {"x": rows, "n": np.array([1], "i4")}
    with rowlock.cluster(launcher="threads"):
        alone, on_two = (
            run(program, feed, best, at, whole, slope),
            run(beside, feed, best, at, whole),
        )
    for result, other, each_expected in zip(alone, on_two, expected, strict=False):
        np.testing.assert_array_equal(result, each_expected)
        np.testing.assert_array_equal(other, each_expected)
    np.testing.assert_array_equal(alone[3], (2 * rows + 1) * largest + 1)


def test_repeated_and_counted_as_often_as_there_are_rows(program: Any) -> None:
    x = fluid.data("x", [None, 2])
    batch = L.slice(L.shape(x), [0], [0], [1])
    tiled = L.expand(L.fill_constant([1, 2], "float32", 3.0), [batch, 1])
    rows = L.range(0, batch, 1, "int32")
    assert tiled.shape == (-1, 2) and rows.shape == (-1,)
    for count in (2, 5):
        values = run(program, {"x": np.zeros((count, 2), "f4")}, tiled, rows)
        assert values[0].shape == (count, 2) and values[1].tolist() == list(range(count))


def test_unknown_values_are_named_with_the_line(program: Any) -> None:
    x, n = fluid.data("x", [None, 6]), fluid.data("n", [1], "int32")
    for build in (lambda: L.concat([x, x], n), lambda: L.split(x, 2, n)):
        with pytest.raises(InvalidValue, match=r"must be known.*Built at .*test_known") as e:
            build()
        assert "'n'" in str(e.value) or ".tmp_0" in str(e.value)


def test_what_is_no_number_is_a_type_error(program: Any) -> None:
    x = fluid.data("x", [2, 6])
    for build in (
        lambda: L.fc(x, "8"),
        lambda: L.reshape(x, "8"),
        lambda: L.reshape(x, [2, 1.5]),
        lambda: L.concat([x, x], axis=L.fill_constant([1], "float32", 1)),
        lambda: L.expand(x, 2),
        lambda: L.topk(x, "1"),
    ):
        with pytest.raises(TypeError, match=r"size|shape|axis|expand_times|k must"):
            build()


def test_flatten_keeps_what_is_known(program: Any) -> None:
    x = fluid.data("x", [None, 3, 8, 8])
    assert tensor.flatten(x, 1).shape == L.flatten(x, 1).shape == (-1, 192)
    assert tensor.flatten(x, 1, 2).shape == (-1, 24, 8)
    assert tensor.flatten(x).shape == (-1,)
    with pytest.raises(ValueError, match="start_axis=2 lies behind"):
        tensor.flatten(x, 2, 1)


def test_numbers_stay_known_through_every_view(program: Any) -> None:
    x, sizes = fluid.data("x", [4, 6]), L.assign(np.array([2, 12], "int32"))
    views = [
        L.flatten(sizes, 0),
        L.flatten(sizes, 1),
        L.unsqueeze(sizes, [0]),
        L.squeeze(L.unsqueeze(sizes, [0]), [0]),
        L.reshape(sizes, [2, 1]),
    ]
    for view in views:
        assert L.reshape(x, L.reshape(view, [2])).shape == (2, 12)


def test_only_a_seed_of_its_own_fixes_a_mask(program: Any) -> None:
    """A program's seed makes runs the same, not their steps."""
    program.random_seed = 5
    x = fluid.data("x", [4, 50])
    drawn = [program.global_block().create_var(name=f"drawn{seed}") for seed in (0, 3)]
    for seed, out in zip((0, 3), drawn, strict=True):
        attrs = {"shape": [20], "seed": seed}
        program.global_block().append_op("uniform_random", None, {"Out": out}, attrs)
    frees, fixed = [L.dropout(x, 0.5), drawn[0]], [L.dropout(x, 0.5, seed=3), drawn[1]]
    ones = {"x": np.ones((4, 50), "f4")}

    def steps() -> list[Any]:
        exe = fluid.Executor(fluid.CPUPlace())
        return [exe.run(program, feed=ones, fetch_list=[*frees, *fixed]) for _ in range(3)]

    first, again = steps(), steps()
    for step, other in zip(first, again, strict=True):
        for one, same in zip(step, other, strict=True):
            np.testing.assert_array_equal(one, same)
        for one, same in zip(step[2:], first[0][2:], strict=True):
            np.testing.assert_array_equal(one, same)
    for k in (0, 1):
        assert not np.array_equal(first[0][k], first[1][k])
        assert not np.array_equal(first[1][k], first[2][k])


def test_images_with_channels_last_train(program: Any) -> None:
    """The same net in both orders has the same loss and gradients."""
    rng = np.random.default_rng(4)
    image = rng.standard_normal((2, 5, 6, 3)).astype("f4")
    results = []
    for order in ("NCHW", "NHWC"):
        with own_programs(9) as (main, startup):
            last = order == "NHWC"
            x = fluid.data("x", [None, 5, 6, 3] if last else [None, 3, 5, 6])
            pads = [[0, 0], [1, 0], [0, 1], [0, 0]] if last else [[0, 0], [0, 0], [1, 0], [0, 1]]
            y = L.conv2d(x, 4, 3, padding=pads, data_format=order)
            y = L.batch_norm(y, act="relu", data_layout=order)
            y = L.conv2d(y, 4, 3, padding="SAME", groups=4, data_format=order, use_cudnn=False)
            y = L.pool2d(y, 2, "avg", 2, "SAME", data_format=order)
            loss = L.reduce_mean(L.square(y))
            pairs = fluid.backward.append_backward(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            fed = image if order == "NHWC" else np.ascontiguousarray(image.transpose(0, 3, 1, 2))
            results.append(
                exe.run(main, feed={"x": fed}, fetch_list=[loss, *(g for _, g in pairs)])
            )
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)
