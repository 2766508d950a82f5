"""Generated reductions, softmax, losses and metrics: samples, long and wide shapes, the same bits always."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.cuda.kernel import CudaKernel
from rowlock.executor.cuda.runtime import Properties
from rowlock.executor.kernels.cuda.rows import share_rows
from rowlock.executor.kernels.registry import bind
from rowlock.graph.ops.registry import OPS
from tests.conftest import one_in, one_of_each
from tests.ops.cuda_cases import (
    CUDA,
    assert_near,
    cases,
    check_forward,
    check_gradients,
    check_in_place,
    low_types,
    narrowed,
)
from tests.ops.gpu import assert_compile_for_a_gpu, gpu, needs_compiler
from tests.ops.harness import gradients, run

pytestmark = [needs_compiler, pytest.mark.usefixtures("launched")]
REDUCTIONS = (
    "mean", "reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "reduce_all",
    "reduce_any", "isfinite", "isnan", "isinf", "squared_l2_norm", "clip_by_norm",
)  # fmt: skip
LOSSES = (
    "softmax", "softmax_with_cross_entropy", "cross_entropy", "cross_entropy2", "cross_entropy_of_scores",
    "sigmoid_cross_entropy_with_logits", "huber_loss",
)  # fmt: skip
METRICS = ("accuracy", "top_k", "arg_max", "arg_min", "cumsum")
SAMPLES = cases(*REDUCTIONS, *LOSSES, *METRICS)
FIRST = [name for name, i in SAMPLES if i == 0 and name not in ("reduce_all", "reduce_any")]
LOW = low_types()
SLOPED = [(name, i) for name, i in SAMPLES if OPS[name].grad and name != "cumsum"]
rng = np.random.default_rng(0)


@pytest.mark.parametrize(("name", "index"), one_of_each(SAMPLES, 3))
def test_kernel_agrees_with_the_reference(name: str, index: int) -> None:
    check_forward(name, index, "float32")


@pytest.mark.parametrize(
    "name", ["reduce_mean", "clip_by_norm", "softmax", "cross_entropy", "top_k"]
)
def test_double_precision_is_kept(name: str) -> None:
    check_forward(name, 0, "float64")


@pytest.mark.parametrize(("position", "name"), one_in(3, enumerate(FIRST)))
def test_low_precision_is_computed_in_single(position: int, name: str) -> None:
    """Each op in one of the types: they share all but how an element is loaded and stored."""
    dtype = LOW[position % len(LOW)]
    check_forward(name, 0, dtype)
    if OPS[name].grad and name != "cumsum":
        check_gradients(name, 0, dtype)


@pytest.mark.parametrize(("name", "index"), one_of_each(SLOPED, 3))
def test_gradients_agree_with_those_in_double_precision(name: str, index: int) -> None:
    check_gradients(name, index)


@pytest.mark.parametrize(("name", "index"), [(n, i) for n, i in SAMPLES if OPS[n].in_place])
def test_outputs_may_take_the_place_of_operands(name: str, index: int) -> None:
    check_in_place(name, index)


SHAPES = [
    ((3, 70_000), [1]),  # few long rows: parts, then their sum
    ((5000, 12), [0]),
    ((4, 700, 33), [1]),
    ((2, 3, 500, 8), [0, 2]),  # dimensions apart
    ((3, 2050), [1]),
    ((3, 1, 5), [1]),
]


def reduce(op: str, x: Any, dim: list[int]) -> Any:
    attrs = {**OPS[op].attrs, "dim": dim}
    return run(OPS[op], {"X": [x]}, attrs, dev=gpu(), **CUDA)["Out"][0]


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_any_shape_is_reduced(shape: tuple[int, ...], dim: list[int]) -> None:
    x = rng.standard_normal(shape).astype("f4")
    exact = x.astype("f8")
    scale = np.abs(exact).sum(tuple(dim)).max()
    total = reduce("reduce_sum", x, dim)
    np.testing.assert_allclose(total, exact.sum(tuple(dim)), atol=2e-7 * scale)
    np.testing.assert_array_equal(reduce("reduce_max", x, dim), x.max(tuple(dim)))


def test_whole_numbers_are_summed_as_such() -> None:
    x = rng.integers(-9, 9, (40, 7)).astype("i4")
    for dim in (0, 1):
        np.testing.assert_array_equal(reduce("reduce_sum", x, [dim]), x.sum(dim))
        mean = np.trunc(x.sum(dim) / x.shape[dim])
        np.testing.assert_array_equal(reduce("reduce_mean", x, [dim]), mean)


def test_nothing_sums_to_zero() -> None:
    np.testing.assert_array_equal(reduce("reduce_sum", np.zeros((0, 4), "f4"), [0]), np.zeros(4))
    np.testing.assert_array_equal(reduce("reduce_sum", np.zeros((4, 0), "f4"), [1]), np.zeros(4))
    assert reduce("reduce_sum", np.zeros((0, 4), "f4"), [1]).shape == (0,)


def test_what_is_not_a_number_stays_so() -> None:
    x = rng.standard_normal((3, 40)).astype("f4")
    x[1, 2] = np.nan
    for op in ("reduce_max", "reduce_min", "reduce_sum"):
        for dim in (0, 1):
            assert np.isnan(reduce(op, x, [dim])).sum() == 1
    results = run(OPS["softmax"], {"X": [x]}, OPS["softmax"].attrs, dev=gpu(), **CUDA)["Out"][0]
    np.testing.assert_array_equal(np.isnan(results).any(1), np.isnan(x).any(1))


@pytest.mark.parametrize(("rows", "width"), [(9, 33), (2, 1024), (3, 1030), (2, 4100), (2, 40_000)])
def test_rows_of_any_length_have_a_loss(rows: int, width: int) -> None:
    x = (rng.standard_normal((rows, width)) * 3).astype("f4")
    labels = rng.integers(0, width, (rows, 1))
    labels[0] = width - 1
    op = OPS["softmax_with_cross_entropy"]
    inputs = {"Logits": [x], "Label": [labels]}
    exact = run(op, narrowed(inputs, "f8"), dict(op.attrs))
    results = run(op, inputs, dict(op.attrs), dev=gpu(), **CUDA)
    for slot, (array,) in results.items():
        assert_near(array, exact[slot][0], slot)
    seeds = {"Loss": [rng.standard_normal((rows, 1))]}
    expected = gradients(op, inputs, exact, seeds, dict(op.attrs))
    operands = (inputs, narrowed(exact, "f4"), narrowed(seeds, "f4"), dict(op.attrs))
    slopes = gradients(op, *operands, dev=gpu(), **CUDA)
    assert_near(slopes["Logits"][0], expected["Logits"][0], "Logits")


def test_long_rows_that_are_read_once_are_not_kept() -> None:
    """Many take few threads each, so that blocks lie side by side; few take as many as there can be."""
    assert share_rows(16_384, 50_304, 8, together=0) == (256, 8, 0, 16_384, 256)
    assert share_rows(16, 50_304, 8, together=0) == (1024, 8, 0, 16, 1024)
    assert share_rows(16_384, 768, 8, together=0).vectors == 3  # a warp has room for them


@pytest.mark.parametrize("name", ["softmax_with_cross_entropy", "cross_entropy_of_scores"])
def test_a_long_row_that_is_read_once_has_its_loss(name: str) -> None:
    """Scores that grow along the row, such as are masked, and one that is not a number."""
    x = np.linspace(-500, 300, 4 * 3000).reshape(4, 3000).astype("f4")
    x[1, :2990] = x[2, 1:] = -np.inf
    x[3, 1700] = np.nan
    labels = np.array([[2999], [2995], [0], [7]])
    op = OPS[name]
    inputs = {"Logits": [x], "Label": [labels]}
    exact = run(op, narrowed(inputs, "f8"), dict(op.attrs))
    results = run(op, inputs, dict(op.attrs), dev=gpu(), **CUDA)
    for slot in {"Loss", "LogSum"} & results.keys():
        np.testing.assert_allclose(results[slot][0], exact[slot][0], rtol=2e-6)
    assert np.isnan(results["Loss"][0]).tolist() == [[False], [False], [False], [True]]


def test_the_best_are_found_in_long_rows_and_across() -> None:
    x = rng.integers(0, 50, (3, 5000)).astype("f4")  # many are equal: the first wins
    (best,) = run(OPS["arg_max"], {"X": [x]}, dict(OPS["arg_max"].attrs), dev=gpu(), **CUDA)["Out"]
    np.testing.assert_array_equal(best, x.argmax(1))
    attrs = {**OPS["arg_min"].attrs, "axis": 0}
    (least,) = run(OPS["arg_min"], {"X": [x]}, attrs, dev=gpu(), **CUDA)["Out"]
    np.testing.assert_array_equal(least, x.argmin(0))
    results = run(OPS["top_k"], {"X": [x]}, {**OPS["top_k"].attrs, "k": 7}, dev=gpu(), **CUDA)
    order = np.argsort(-x, axis=1, kind="stable")[:, :7]
    np.testing.assert_array_equal(results["Indices"][0], order)
    np.testing.assert_array_equal(results["Out"][0], np.take_along_axis(x, order, 1))


def test_sums_have_the_same_bits_on_every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """How work is cut depends on shapes, never on how many multiprocessors there are."""
    x = rng.standard_normal((3000, 24)).astype("f4")
    before = [reduce("reduce_sum", x, dim) for dim in ([0], [1], [0, 1])]
    runtime = gpu().runtime
    small = Properties("small", (9, 0), 1, 1 << 30)
    monkeypatch.setattr(runtime, "properties", small)
    for one, dim in zip(before, ([0], [1], [0, 1]), strict=True):
        np.testing.assert_array_equal(one, reduce("reduce_sum", x, dim))


def test_a_loss_and_its_gradient_are_one_launch_each() -> None:
    op, xp = OPS["softmax_with_cross_entropy"], gpu().xp
    x, labels, loss = xp.zeros((4, 8), "f4"), xp.zeros((4, 1), "i8"), xp.zeros((4, 1), "f4")
    forward = ({"Logits": [x], "Label": [labels]}, {"Softmax": [x], "Loss": [loss]})
    assert len(bind(op.type, *forward, dict(op.attrs), gpu(), "cuda")) == 1
    back = ({"Label": [labels], "Softmax": [x], "Loss@GRAD": [loss]}, {"Logits@GRAD": [x]})
    assert len(bind(f"{op.type}_grad", *back, dict(op.attrs), gpu(), "cuda")) == 1


def test_every_kernel_compiles_for_a_gpu(launched: dict[str, CudaKernel]) -> None:
    assert_compile_for_a_gpu(launched)
