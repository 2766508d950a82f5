"""Ops with a formula on the generated CUDA loops, as C++ on the host: samples and gradients."""

from __future__ import annotations

import pytest

from rowlock.graph.ops.registry import OPS
from tests.conftest import one_of_each
from tests.ops.cuda_cases import cases, check_forward, check_gradients
from tests.ops.gpu import needs_compiler
from tests.ops.test_conformance import DIFFERENTIABLE

pytestmark = [needs_compiler, pytest.mark.usefixtures("launched")]
SAMPLES = cases(*(name for name, op in OPS.items() if op.formula is not None and op.samples))


@pytest.mark.parametrize(("name", "index"), one_of_each(SAMPLES, 3))
def test_kernel_agrees_with_the_reference(name: str, index: int) -> None:
    check_forward(name, index, "float32")
    if (name, index) in DIFFERENTIABLE:
        check_gradients(name, index)
