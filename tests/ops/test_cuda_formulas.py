"""Ops with a formula on the generated CUDA loops, as C++ on the host: samples and gradients."""

from __future__ import annotations

import pytest

from rowlock.graph.ops.registry import OPS
from tests.conftest import one_of_each
from tests.ops.cuda_cases import cases, check_forward, check_gradients, low_types
from tests.ops.gpu import needs_compiler
from tests.ops.test_conformance import DIFFERENTIABLE

pytestmark = [needs_compiler, pytest.mark.usefixtures("launched")]
SAMPLES = cases(*(name for name, op in OPS.items() if op.formula is not None and op.samples))


@pytest.mark.parametrize(("name", "index"), one_of_each(SAMPLES, 3))
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
