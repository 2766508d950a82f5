"""What variables do beyond Paddle 1.8: None, '...', matrix products, and what they refuse."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rowlock.fluid as fluid
from rowlock.strategies.errors import Unsupported
from tests.programs import executor_after
from tests.reference.expressions import SHAPES, arrays

Names = dict[str, Any]


pytestmark = pytest.mark.usefixtures("fresh_programs")


def declared() -> Names:
    return {name: fluid.data(name, shape, dtype) for name, (shape, dtype) in SHAPES.items()}


_ALSO_NUMPY: list[Callable[..., Any]] = [
    lambda x, w, i, im: im[..., 0],
    lambda x, w, i, im: im[0, 1:3, :, ::-1],
    lambda x, w, i, im: w[:, None, 1],
    lambda x, w, i, im: w[None],
    lambda x, w, i, im: w[..., None],
    lambda x, w, i, im: x[None, :, ::2],
    lambda x, w, i, im: w[1, ::-1],
    lambda x, w, i, im: w[:, 2::-1],
    lambda x, w, i, im: w[np.int64(1), -3:-1],
    lambda x, w, i, im: im[0, ..., 1:],
    lambda x, w, i, im: w @ w.T,
    lambda x, w, i, im: im.T,
    lambda x, w, i, im: 20 // i,
    lambda x, w, i, im: 20 % i,
    lambda x, w, i, im: np.float32(2) * x,
    lambda x, w, i, im: np.float32(0.5) - x,
    lambda x, w, i, im: np.float64(2) / w,
    lambda x, w, i, im: np.float32(2) ** w,
    lambda x, w, i, im: np.int64(20) // i,
    lambda x, w, i, im: np.int64(20) % i,
    lambda x, w, i, im: np.float32(0.25) > w,
    lambda x, w, i, im: np.int64(2) <= i,
    lambda x, w, i, im: np.int64(2) == i,
    lambda x, w, i, im: x - np.int64(2),
]


def test_indices_and_operators_are_numpys() -> None:
    names, fed = declared(), arrays()
    used = ("x", "w", "i", "im")
    outputs = [one(*(names[name] for name in used)) for one in _ALSO_NUMPY]
    counts = [names["w"].numel(), names["x"].numel()]
    fetched = fluid.Executor(fluid.CPUPlace()).run(feed=fed, fetch_list=outputs + counts)
    for value, one in zip(fetched, _ALSO_NUMPY, strict=False):
        expected = one(*(fed[name] for name in used))
        assert value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert [int(value[0]) for value in fetched[-2:]] == [12, 12]
    assert (names["im"].ndim, outputs[0].shape, outputs[5].shape) == (4, (1, 4, 4), (1, -1, 2))


def test_gradients_flow_through_indices() -> None:
    w = declared()["w"]
    w.stop_gradient = False
    loss = fluid.layers.reduce_sum(w[::2, ::-1] * 3) + fluid.layers.reduce_sum(w[1:, 0])
    (gradient,) = fluid.gradients(loss, w)
    (value,) = fluid.Executor(fluid.CPUPlace()).run(feed=arrays(), fetch_list=[gradient])
    assert value.tolist() == [[3, 3, 3, 3], [1, 0, 0, 0], [4, 3, 3, 3]]


def test_variables_are_told_apart_by_identity() -> None:
    names = declared()
    x, y = names["x"], names["y"]
    assert {x: 1, y: 2}[y] == 2 and len({x, y, x}) == 2
    assert (x == None) is False and (x != "x") is True  # noqa: E711
    before = len(x.block.ops)
    assert x not in {y} and len(x.block.ops) == before
    assert len(list(names["w"])) == 3


@pytest.mark.parametrize(
    ("refused", "error"),
    [
        (lambda x, w, i: w[3], ValueError),
        (lambda x, w, i: w[0, 0, 0], ValueError),
        (lambda x, w, i: w[..., 0, ...], ValueError),
        (lambda x, w, i: w[::0], ValueError),
        (lambda x, w, i: w["0"], TypeError),
        (lambda x, w, i: w[0.5:], TypeError),
        (lambda x, w, i: w[[0.5]], TypeError),
        (lambda x, w, i: w[:, None, [0, 1]], Unsupported),
        (lambda x, w, i: x & 1.5, TypeError),
        (lambda x, w, i: w[w[:2] < 1], ValueError),
        (lambda x, w, i: w[x < 1, 0], Unsupported),
        (lambda x, w, i: x + "1", TypeError),
        (lambda x, w, i: x > None, TypeError),
        (lambda x, w, i: i + 1.5, AssertionError),
        (lambda x, w, i: iter(x), TypeError),
        (lambda x, w, i: 1.0 in w, TypeError),
        (lambda x, w, i: x.astype("text"), ValueError),
        (lambda x, w, i: fluid.layers.less_than(x, 1.0), TypeError),
        (lambda x, w, i: fluid.layers.equal(x, x, cond="c"), TypeError),
        (lambda x, w, i: fluid.layers.less_than(x, x, force_cpu=1), TypeError),
        (lambda x, w, i: fluid.layers.logical_not(x < 1, out=1), TypeError),
        (lambda x, w, i: fluid.layers.reduce_all(x), TypeError),
        (lambda x, w, i: fluid.layers.pad2d(x, mode="round"), ValueError),
        (lambda x, w, i: fluid.layers.uniform_random([2], "int32"), TypeError),
        (lambda x, w, i: fluid.layers.uniform_random(2), TypeError),
        (lambda x, w, i: fluid.layers.argsort([1]), TypeError),
        (lambda x, w, i: fluid.layers.unstack(x), ValueError),
        (lambda x, w, i: fluid.layers.Normal("a", 1.0), TypeError),
        (lambda x, w, i: fluid.layers.Normal(0.0, 1.0).kl_divergence(1), TypeError),
    ],
)
def test_what_makes_no_sense_is_refused(
    refused: Callable[..., Any], error: type[Exception]
) -> None:
    names = declared()
    with pytest.raises(error):
        refused(names["x"], names["w"], names["i"])


def test_samples_and_counters() -> None:
    layers = fluid.layers
    counter = layers.autoincreased_step_counter(begin=5, step=2)
    normal = layers.Normal(1.0, 2.0).sample([2000])
    uniform = layers.Uniform([0.0, 2.0], [1.0, 3.0]).sample([500])
    gaussian = layers.gaussian_random([2000], mean=-1.0, std=0.5)
    scale = np.diag([1.0, 2.0]).astype("float32")
    wide = layers.MultivariateNormalDiag([0.0, 0.0], scale)
    narrow = layers.MultivariateNormalDiag([1.0, 0.0], np.eye(2, dtype="float32"))
    exact = [wide.entropy(), wide.kl_divergence(narrow)]
    exe = executor_after()
    draws = [exe.run(fetch_list=[counter, normal, uniform, gaussian, *exact]) for _ in range(2)]
    assert [int(step[0][0]) for step in draws] == [6, 8]
    first, second = draws[0][1:], draws[1][1:]
    assert abs(first[0].mean() - 1) < 0.25 and abs(first[0].std() - 2) < 0.2
    assert first[1].shape == (500, 2) and (first[1] // 1 == [0, 2]).all()
    assert abs(first[2].mean() + 1) < 0.06
    assert not np.array_equal(first[0], second[0])
    np.testing.assert_allclose(np.ravel(first[3:]), [3.184451, 0.653426], rtol=1e-5)


def test_functions_of_one_tensor_are_methods() -> None:
    import rowlock.static as static

    x = static.data("rows", [None, 2, 3])
    assert x.shape == (-1, 2, 3) and not hasattr(x, "zeros_like")
    results = [
        x.flatten(1),
        x.mean([1, 2]),
        x.transpose([0, 2, 1]).reshape([0, -1]),
        x.unsqueeze(1).squeeze([1]).max(axis=2, keepdim=True),
        x.exp().add(x).cast("float64"),
    ]
    fed = np.arange(12, dtype="float32").reshape(2, 2, 3) / 8
    values = static.Executor().run(feed={"rows": fed}, fetch_list=results)
    expected = [
        fed.reshape(2, 6),
        fed.mean((1, 2)),
        fed.transpose(0, 2, 1).reshape(2, 6),
        fed.max(2, keepdims=True),
        np.exp(fed).astype("float64") + fed,
    ]
    for value, numpys in zip(values, expected, strict=True):
        assert value.shape == numpys.shape and value.dtype == numpys.dtype
        np.testing.assert_allclose(value, numpys, rtol=1e-6)


def test_negatives_and_powers_of_small_integers() -> None:
    small, flags = fluid.data("small", [3], "uint8"), fluid.data("flags", [3], "bool")
    feed = {"small": np.uint8([0, 1, 200])}
    (out,) = fluid.Executor().run(feed=feed, fetch_list=[-small])
    assert out.dtype == np.uint8 and out.tolist() == [0, 255, 56]
    with pytest.raises(TypeError, match=r"-flags: booleans have no opposite number. ~flags"):
        operator.neg(flags)
    for build in (lambda: small**-1, lambda: 256 % small, lambda: small < 256):
        with pytest.raises(
            AssertionError, match=r"'small' holds UINT8, from 0 to 255, and .* outside"
        ):
            build()


def test_what_has_no_gradient_is_named() -> None:
    hidden = fluid.layers.fc(fluid.data("x", [None, 3]), 2)
    loss = fluid.layers.mean(hidden % 2.0)
    with pytest.raises(
        ValueError, match=r"elementwise_mod has no gradient .built at .*variables.py"
    ):
        fluid.optimizer.SGD(0.1).minimize(loss)


@pytest.mark.parametrize(
    ("use", "kind", "cure"),
    [
        (lambda x: setattr(x, "shape", (3, 4)), AttributeError, "layers.reshape.*desc.set_shape"),
        (lambda x: setattr(x, "dtype", "int64"), AttributeError, "layers.cast.*desc.set_dtype"),
        (lambda x: setattr(x, "lod_level", 1), AttributeError, "layers.lod_reset"),
        (lambda x: setattr(x, "type", 7), AttributeError, "desc.set_type"),
        (np.mean, TypeError, r"np\.mean .* compute with layers or operators, or fetch it"),
        (np.sum, TypeError, r"np\.sum .* compute with layers"),
        (np.exp, TypeError, r"np\.exp .* compute with layers"),
        (lambda x: np.maximum(x, 0), TypeError, r"np\.maximum .* compute with layers"),
        (lambda x: np.ones((2, 3)) @ x, TypeError, r"np\.matmul .* compute with layers"),
        (lambda x: np.concatenate([x, x]), TypeError, r"np\.concatenate .* compute with layers"),
        (float, NotImplementedError, "Fetch it, as by exe.run"),
        (int, NotImplementedError, "Fetch it, as by exe.run"),
        (len, TypeError, r"layers\.shape\(variable\)\[0\]"),
        (list, TypeError, "layers.while_loop or StaticRNN"),
        (lambda x: operator.setitem(x, 0, 1.0), TypeError, "layers.scatter"),
        (lambda x: f"{x:.3f}", TypeError, "fetch it, and format the array"),
    ],
)
def test_what_asks_for_elements_says_what_to_do_instead(
    use: Callable[[Any], Any], kind: type[Exception], cure: str
) -> None:
    x = fluid.data("loss", [None, 3])
    with pytest.raises(kind, match=cure) as refusal:
        use(x)
    assert "'loss'" in str(refusal.value)
    assert (x.shape, x.dtype, x.lod_level) == ((-1, 3), fluid.core.VarDesc.VarType.FP32, 0)


def test_declarations_answer_where_sizes_are_known() -> None:
    x = fluid.data("x", [2, 3])
    assert (len(x), [row.shape for row in x]) == (2, [(3,), (3,)])
    assert (np.shape(x), np.ndim(x), f"{x}") == ((2, 3), 2, str(x))
    with pytest.warns(UserWarning, match="Test `is not None`, or compute with layers"):
        assert x
