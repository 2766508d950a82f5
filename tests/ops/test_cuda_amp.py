"""Generated loss scaling: samples, gradients of several types and sizes, what is found in any of them."""

from __future__ import annotations

import numpy as np
import pytest

from rowlock.executor.cuda.kernel import CudaKernel
from rowlock.executor.kernels.registry import bind
from rowlock.graph.ops.registry import OPS
from tests.ops.cuda_cases import (
    CUDA,
    cases,
    check_forward,
    check_in_place,
    low_types,
)
from tests.ops.gpu import assert_compile_for_a_gpu, gpu, needs_compiler
from tests.ops.harness import run

pytestmark = [needs_compiler, pytest.mark.usefixtures("launched")]
SAMPLES = cases("check_finite_and_unscale", "update_loss_scaling", "zero_where_infinite")


@pytest.mark.parametrize(("name", "index"), SAMPLES)
def test_kernel_agrees_with_the_reference(name: str, index: int) -> None:
    check_forward(name, index, "float32")
    check_in_place(name, index)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 1.0])
def test_one_odd_element_of_many_gradients_is_found(odd: float) -> None:
    rng = np.random.default_rng(0)
    kinds = [np.dtype("f4"), *low_types(), np.dtype("f4")]
    grads = [
        rng.standard_normal(n).astype(t) for n, t in zip((40_000, 9, 17, 3), kinds, strict=False)
    ]
    grads[0][33_333] = odd
    op = OPS["check_finite_and_unscale"]
    inputs = {"X": grads, "Scale": [np.array([4], "f4")]}
    results = run(op, inputs, dict(op.attrs), dev=gpu(), **CUDA)
    assert results["FoundInfinite"][0][0] == (not np.isfinite(odd))
    for one, grad in zip(results["Out"], grads, strict=True):
        np.testing.assert_array_equal(one.astype("f8"), grad.astype("f8") / 4)


def test_all_gradients_of_a_type_are_one_launch() -> None:
    op = OPS["check_finite_and_unscale"]
    xp = gpu().xp
    grads = [xp.zeros(n, "f4") for n in (100_000, 3, 50)]
    flag = [xp.zeros(1, bool)]
    inputs = {"X": grads, "Scale": [xp.ones(1, "f4")]}
    steps = bind(op.type, inputs, {"Out": grads, "FoundInfinite": flag}, {}, gpu(), "cuda")
    assert len(steps) == 2  # the first forgets what was found before


def test_every_kernel_compiles_for_a_gpu(launched: dict[str, CudaKernel]) -> None:
    assert_compile_for_a_gpu(launched)
