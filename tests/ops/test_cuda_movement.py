"""Copies, cuts, joins, margins and pooling on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.codegen.cuda_launches import divisor
from rowlock.executor.cuda.kernel import CudaKernel
from rowlock.executor.kernels.cuda.copies import filled, moved
from rowlock.graph.ops.registry import OPS
from rowlock.strategies.types import VarType
from tests.conftest import one_of_each
from tests.ops.cuda_cases import (
    CUDA,
    cases,
    check_forward,
    check_gradients,
    check_in_place,
    low_types,
    taken,
)
from tests.ops.gpu import assert_compile_for_a_gpu, gpu, needs_compiler
from tests.ops.harness import draw, gradients, run

pytestmark = [needs_compiler, pytest.mark.usefixtures("launched")]
Kernels = dict[str, CudaKernel]
MOVING = (
    *(f"{name}{form}" for name in ("reshape", "squeeze", "unsqueeze", "flatten", "transpose")
      for form in ("", "2")),
    *("max_pool2d_with_index", "max_pool3d_with_index"),
    *("concat", "split", "stack", "unstack", "expand", "slice", "pad", "pad2d", "transfer_layout"),
)  # fmt: skip
CASES = cases(*MOVING)
SLOPES = [(n, i) for n, i in CASES if OPS[n].grad]


@pytest.mark.parametrize(("name", "index"), one_of_each(CASES, 3))
def test_kernel_agrees_with_the_reference(name: str, index: int) -> None:
    check_forward(name, index, "float32")
    if OPS[name].in_place:
        check_in_place(name, index)


@pytest.mark.parametrize(("name", "index"), one_of_each(SLOPES, 3))
def test_gradients_agree_with_those_in_double_precision(name: str, index: int) -> None:
    check_gradients(name, index)


@pytest.mark.parametrize("dtype", [*low_types(), "float64"])
@pytest.mark.parametrize(("name", "index"), [(name, 0) for name in MOVING])
def test_other_element_types(name: str, index: int, dtype: Any) -> None:
    check_forward(name, index, dtype)
    if OPS[name].grad:
        check_gradients(name, index, dtype)


@pytest.mark.parametrize("layout", ["", "NHWC"])
@pytest.mark.parametrize(("name", "index"), cases("pool2d", "pool3d"))
def test_pooling_in_either_order(name: str, index: int, layout: str) -> None:
    op = OPS[name]
    if not taken(op, *draw(op, op.samples[index], "float32")):
        pytest.skip("windows that differ are left to CuPy")
    check_forward(name, index, "float32", layout)
    check_gradients(name, index, layout=layout)


def test_copies_between_any_strides() -> None:
    """Permutations by tiles, runs that stay together as vectors, gaps, ones that stand for any size."""
    rng, dev = np.random.default_rng(0), gpu()
    for dtype in ("float32", "uint8", "float64"):
        array = rng.integers(0, 99, (2, 9, 17, 8)).astype(dtype)
        pairs = [(array.transpose(axes).shape, array.transpose(axes)) for axes in PERMUTED]
        gaps = array[:, ::4, :, 2:6]
        pairs += [(gaps.shape, gaps), ((5, *array.shape), array[None]), ((), array[0, 0, 0, 0])]
        for shape, source in pairs:
            target = np.zeros(shape, dtype)
            on_device = dev.xp.asarray(source), dev.xp.asarray(target)
            work(moved(dev, on_device[1], on_device[0]))
            assert (on_device[1] == on_device[0]).all(), (dtype, shape)


PERMUTED = [(0, 3, 1, 2), (0, 2, 3, 1), (0, 2, 1, 3), (3, 2, 1, 0)]


def test_a_view_is_filled_and_nothing_beside_it() -> None:
    whole = gpu().xp.zeros((6, 20, 34), "i2")
    work(filled(gpu(), whole[::2, 3:9, 1:], -7))
    assert int((whole == -7).sum()) == 3 * 6 * 33 == int((whole[::2, 3:9, 1:] == -7).sum())


def test_whole_numbers_are_filled_with_all_their_digits() -> None:
    op = OPS["fill_constant"]
    number = 2**62 + 1
    attrs = {**op.attrs, "shape": [3], "dtype": int(VarType.INT64), "str_value": str(number)}
    (result,) = run(op, {}, attrs, dev=gpu(), **CUDA)["Out"]
    assert result.tolist() == [number] * 3


def test_what_lies_in_one_piece_is_copied_as_such() -> None:
    """One copy, not a kernel; heads of attention change places in units of 16 bytes."""
    dev, x = gpu(), gpu().xp.zeros((4, 6, 8, 16), "f4")
    (copy,) = moved(dev, dev.xp.empty_like(x), x)
    assert not hasattr(copy, "kernel")
    (swap,) = moved(dev, dev.xp.zeros((4, 8, 6, 16), "f4"), x.transpose(0, 2, 1, 3))
    if dev.runtime is not None and dev.runtime.name == "simulated":
        assert swap.kernel.name == "copy_16_4"  # type: ignore[attr-defined]


def work(steps: list[Any]) -> None:
    runtime = gpu().runtime
    assert runtime is not None
    runtime.execute(steps)
    runtime.synchronize()


def test_division_by_what_is_known_before() -> None:
    rng = np.random.default_rng(0)
    for d in (*range(1, 40), 768, 50257, 1 << 30, (1 << 31) - 1, *rng.integers(1, 1 << 31, 50)):
        magic, shift = divisor(int(d))
        for n in (
            0,
            1,
            int(d) - 1,
            int(d),
            2 * int(d) - 1,
            (1 << 31) - 1,
            *rng.integers(1 << 31, size=9),
        ):
            if n < 1 << 31:
                assert ((int(n) * magic >> 32) + int(n)) >> shift == int(n) // int(d)


def test_large_images_are_pooled_as_vectors_of_channels() -> None:
    """Overlapping windows with margins on images of eight channels, ties and what is not a number."""
    op, on_gpu = OPS["pool2d"], {"dev": gpu(), "layout": "NHWC", **CUDA}
    x = np.random.default_rng(0).integers(-3, 3, (2, 8, 9, 9)).astype("f4")
    x[0, 3, 4, 4] = np.nan
    attrs = {**op.attrs, "ksize": [3, 3], "strides": [2, 2], "paddings": [1, 1]}
    results, expected = (run(op, {"X": [x]}, attrs, **how)["Out"][0] for how in (on_gpu, {}))
    np.testing.assert_array_equal(results, expected)
    x[0, 3, 4, 4] = 0
    outputs = run(op, {"X": [x]}, attrs)
    seeds = {"Out": [np.random.default_rng(1).standard_normal(results.shape).astype("f4")]}
    slopes, exact = (gradients(op, {"X": [x]}, outputs, seeds, attrs, **how)["X"][0]
                    for how in (on_gpu, {}))  # fmt: skip
    np.testing.assert_allclose(slopes, exact, rtol=1e-6, atol=1e-6)


def test_every_kernel_compiles_for_a_gpu(launched: Kernels) -> None:
    assert_compile_for_a_gpu(launched)
