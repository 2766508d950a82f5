"""Ops with a formula on the generated CUDA loops, as C++ on the host: samples and gradients."""

from __future__ import annotations

import pytest

from rowlock.executor.cuda.kernel import CudaKernel
from rowlock.executor.cuda.runtime import graph_can_hold
from rowlock.graph.ops.registry import OPS
from tests.conftest import one_of_each
from tests.ops.cuda_cases import cases, check_forward, check_gradients, low_types, steps_of
from tests.ops.gpu import assert_compile_for_a_gpu, gpu, needs_compiler
from tests.ops.harness import draw
from tests.ops.test_conformance import DIFFERENTIABLE

pytestmark = [needs_compiler, pytest.mark.usefixtures("launched")]
SAMPLES = cases(*(name for name, op in OPS.items() if op.formula is not None and op.samples))


@pytest.mark.parametrize(("name", "index"), one_of_each(SAMPLES, 6))
def test_kernel_agrees_with_the_reference(name: str, index: int) -> None:
    check_forward(name, index, "float32")
    if (name, index) in DIFFERENTIABLE:
        check_gradients(name, index)


# Of these, statistics are in double precision whatever the images are in.
WIDE = {"batch_norm_apply", "batch_norm_grad_apply"}
LOW = [(name, index) for name, index in SAMPLES if name not in WIDE]


@pytest.mark.parametrize(("name", "index"), one_of_each(LOW, 6))
def test_low_precision_is_rounded_once(name: str, index: int) -> None:
    for dtype in low_types():
        check_forward(name, index, dtype)


def test_the_largest_difference_has_a_slope_in_low_precision() -> None:
    for dtype in low_types():
        check_gradients("dist", 2, dtype)


HOST_LOOKS = {"cholesky", "inverse"}  # whether a matrix has one
CAPTURED = [(name, index) for name, index in SAMPLES if name not in HOST_LOOKS]


@pytest.mark.parametrize(("name", "index"), one_of_each(CAPTURED, 6))
def test_a_graph_can_hold_every_step(name: str, index: int) -> None:
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], "float32")
    steps = steps_of(op, inputs, "cuda", **attrs)
    assert all(graph_can_hold(step, gpu().xp) for step in steps)


def test_kernels_compile_for_a_gpu(launched: dict[str, CudaKernel]) -> None:
    check_forward("dist", 0, "float32")
    assert_compile_for_a_gpu(launched)
