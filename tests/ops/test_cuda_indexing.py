"""Embeddings, gathers and scatters on a GPU: sorted sums, indices that are outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.codegen.cuda_launches import MOST, each
from rowlock.executor.cuda.kernel import CudaKernel
from rowlock.executor.kernels.cuda.by_index import Sums
from rowlock.graph.ops.registry import OPS
from rowlock.strategies.errors import Unsupported
from tests.conftest import one_of_each
from tests.ops.cuda_cases import (
    CUDA,
    cases,
    check_forward,
    check_gradients,
    check_in_place,
    low_types,
)
from tests.ops.gpu import assert_compile_for_a_gpu, gpu, needs_compiler
from tests.ops.harness import run

pytestmark = [needs_compiler, pytest.mark.usefixtures("launched")]
Kernels = dict[str, CudaKernel]
INDEXING = (
    "lookup_table", "lookup_table_v2", "gather", "gather_nd", "scatter", "one_hot", "one_hot_v2", "argsort",
    "merge_rows", "take_rows", "put_rows",
)  # fmt: skip
CASES = cases(*INDEXING)
SLOPES = [(n, i) for n, i in CASES if OPS[n].grad and (n, i) != ("argsort", 2)]  # of integers


@pytest.mark.parametrize(("name", "index"), one_of_each(CASES, 3))
def test_kernel_agrees_with_the_reference(name: str, index: int) -> None:
    check_forward(name, index, "float32")
    if OPS[name].in_place:
        check_in_place(name, index)


@pytest.mark.parametrize(("name", "index"), one_of_each(SLOPES, 3))
def test_gradients_agree_with_those_in_double_precision(name: str, index: int) -> None:
    check_gradients(name, index)


@pytest.mark.parametrize("dtype", [*low_types(), "float64"])
@pytest.mark.parametrize(
    ("name", "index"),
    [
        (name, 0)
        for name in (
            "lookup_table_v2",
            "gather_nd",
            "scatter",
        )
    ],
)
def test_other_element_types(name: str, index: int, dtype: Any) -> None:
    check_forward(name, index, dtype)
    check_gradients(name, index, dtype)


@pytest.mark.parametrize(
    ("rows", "count", "width"), [(3, 2500, 4), (70000, 300, 3), (1, 64, 8), (9, 9000, 1)]
)
def test_rows_are_added_up_in_the_order_of_their_positions(
    rows: int, count: int, width: int
) -> None:
    """Many positions of few rows go through sums of whole runs and are sorted by several blocks; row numbers
    of 17 bits take three passes.
    """
    rng = np.random.default_rng(0)
    index = rng.integers(-1, rows + 1, count)
    source = rng.standard_normal((count, width)).astype("f4")
    expected = np.zeros((rows, width))
    inside = (index >= 0) & (index < rows)
    np.add.at(expected, index[inside], source[inside].astype("f8"))
    dev, target = gpu(), np.full((rows, width), np.nan, "f4")
    sums = _added(dev, index, source, target)
    np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(sums, _added(dev, index, source, target))


def _added(dev: Any, index: Any, source: Any, target: Any) -> Any:
    arrays = [dev.xp.asarray(a) for a in (index, source, target)]
    sums = Sums(dev, arrays[0], target.shape[0])
    dev.runtime.execute([*sums.steps, *sums.into(arrays[2], arrays[1])])
    dev.runtime.synchronize()
    return arrays[2] if dev.xp is np else arrays[2].get()


@pytest.mark.parametrize("dtype", [*low_types(), "float64"])
@pytest.mark.parametrize("name", ["merge_rows", "take_rows", "put_rows"])
def test_rows_of_other_element_types(name: str, dtype: Any) -> None:
    check_forward(name, 0, dtype)


@pytest.mark.parametrize(("rows", "count"), [(3, 2500), (70000, 300), (700, 3000), (2, 1)])
def test_rows_are_merged_behind_each_other(rows: int, count: int) -> None:
    rng = np.random.default_rng(0)
    index = rng.integers(0, rows + 1, count)  # those that are left of an earlier merging among them
    values = rng.standard_normal((count, 4)).astype("f4")
    named = np.unique(index[index < rows])
    left = count - len(named)
    whole = np.zeros((rows + 1, 4))
    np.add.at(whole, index, values.astype("f8"))
    results = run(
        OPS["merge_rows"],
        {"Rows": [index], "Values": [values]},
        {"height": rows},
        dev=gpu(),
        back_end="cuda",
    )
    (numbers,), (sums,) = results["OutRows"], results["OutValues"]
    np.testing.assert_array_equal(numbers, [*named, *[rows] * left])
    np.testing.assert_allclose(sums[: len(named)], whole[named], rtol=1e-5, atol=1e-5)
    assert not sums[len(named) :].any()


IDS = np.array([[0], [9], [3]])
WRONG = {
    "lookup_table_v2": {"W": np.ones((4, 3), "f4"), "Ids": IDS},
    "gather": {"X": np.ones((4, 3), "f4"), "Index": IDS.ravel()},
    "gather_nd": {"X": np.ones((4, 3), "f4"), "Index": IDS},
    "scatter": {"X": np.ones((4, 3), "f4"), "Ids": IDS.ravel(), "Updates": np.ones((3, 3), "f4")},
    "scatter_nd_add": {"X": np.ones((4, 3), "f4"), "Index": IDS, "Updates": np.ones((3, 3), "f4")},
    "one_hot_v2": {"X": IDS.ravel()},
    "index_select": {"X": np.ones((2, 4), "f4"), "Index": IDS.ravel()},
    "index_sample": {"X": np.ones((3, 4), "f4"), "Index": IDS},
    "multiplex": {"X": np.ones((3, 4), "f4"), "Ids": IDS},
    "shard_index": {"X": IDS},
    "cross_entropy": {"X": np.full((3, 4), 0.25, "f4"), "Label": IDS},
    "cross_entropy2": {"X": np.full((3, 4), 0.25, "f4"), "Label": IDS},
    "softmax_with_cross_entropy": {"Logits": np.ones((3, 4), "f4"), "Label": IDS},
    "bpr_loss": {"X": np.full((3, 4), 0.25, "f4"), "Label": IDS},
}
SETTINGS = {
    "one_hot_v2": {"depth": 4},
    "index_select": {"dim": 1},
    "shard_index": {"index_num": 4, "nshards": 2},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_index_is_refused_in_the_words_of_a_cpu(name: str) -> None:
    op, dev = OPS[name], gpu()
    operands = {slot: [array] for slot, array in WRONG[name].items()}
    if name == "multiplex":
        operands["X"] *= 4
    attrs = {**op.attrs, **SETTINGS.get(name, {})}
    with pytest.raises(ValueError) as refused:
        run(op, operands, attrs)
    assert "9 is outside" in str(refused.value)
    dev.next_instruction("out", operands=("x", "ids"), op=name, where="here")
    try:
        run(op, operands, attrs, dev=dev, **CUDA)
        error = dev.asserts.failed(None)
        assert (
            str(error) == f"operator {name} failed: {refused.value} (reads x, ids; built at here)"
        )
    finally:
        dev.asserts.reset()


def test_an_index_outside_the_rows_is_not_followed() -> None:
    how = {"dev": gpu(), **CUDA}
    w, ids = np.ones((4, 3), "f4"), np.array([[0], [4], [-1], [3]])
    op = OPS["lookup_table_v2"]
    results = run(op, {"W": [w], "Ids": [ids]}, dict(op.attrs), **how)["Out"][0]
    np.testing.assert_array_equal(np.isnan(results[:, 0, 0]), [False, True, True, False])
    grad = OPS["lookup_table_v2_grad"]
    operands = {"W": [w], "Ids": [ids], "Out@GRAD": [np.ones((4, 1, 3), "f4")]}
    slope = run(grad, operands, dict(grad.attrs), **how)["W@GRAD"][0]
    np.testing.assert_array_equal(slope[:, 0], [1, 0, 0, 1])


@pytest.mark.parametrize("descending", [False, True])
def test_what_is_not_a_number_is_sorted_as_the_largest(descending: bool) -> None:
    """Several elements a thread, many of them equal."""
    op = OPS["argsort"]
    x = np.random.default_rng(0).integers(0, 9, (2, 300)).astype("f4")
    x[0, ::50] = np.nan
    attrs = {**op.attrs, "descending": descending}
    results, expected = (run(op, {"X": [x]}, attrs, **how) for how in ({"dev": gpu(), **CUDA}, {}))
    for slot in ("Out", "Indices"):
        np.testing.assert_array_equal(results[slot][0], expected[slot][0])


def test_empty_lists_of_indices() -> None:
    how = {"dev": gpu(), **CUDA}
    x, none = np.ones((4, 3), "f4"), np.zeros((0,), "i8")
    op = OPS["gather"]
    assert run(op, {"X": [x], "Index": [none]}, dict(op.attrs), **how)["Out"][0].shape == (0, 3)
    operands = {"X": [x], "Index": [none], "Out@GRAD": [np.zeros((0, 3), "f4")]}
    grad = run(OPS["gather_grad"], operands, dict(op.attrs), **how)["X@GRAD"][0]
    np.testing.assert_array_equal(grad, np.zeros((4, 3)))


def test_a_kernel_whose_indices_are_too_short_is_not_bound() -> None:
    each(gpu(), "few", "", [], MOST - 1)
    each(gpu(), "many", "", [], MOST, index="long long")
    with pytest.raises(Unsupported, match="few is for fewer than 2,147,483,648"):
        each(gpu(), "few", "", [], MOST)


def test_every_kernel_compiles_for_a_gpu(launched: Kernels) -> None:
    assert_compile_for_a_gpu(launched)
