"""Ops that move elements, pick them by index and draw them, on a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from rowlock.executor.cuda.kernel import CudaKernel
from rowlock.executor.kernels.array.moves import MOVES
from rowlock.graph.ops.registry import OPS
from tests.ops.cuda_cases import cases, check_forward, check_gradients, low_types
from tests.ops.gpu import assert_compile_for_a_gpu, needs_compiler

pytestmark = [needs_compiler, pytest.mark.usefixtures("launched")]
Kernels = dict[str, CudaKernel]
MOVING = (
    *MOVES,
    *("expand_as", "fill_zeros_like2", "index_sample", "index_select", "linspace", "meshgrid", "multiplex"),
    *("partial_sum", "scatter_nd_add", "trace", "tril_triu", "unbind", "unfold"),
)  # fmt: skip
CASES = cases(*MOVING, "eye", "fill", "is_empty", "range", "shard_index", "size")


@pytest.mark.parametrize(("name", "index"), CASES)
def test_kernel_agrees_with_the_reference(name: str, index: int) -> None:
    check_forward(name, index, "float32")
    op = OPS[name]
    if op.grad and op.grad.type != "stack":
        check_gradients(name, index)


@pytest.mark.parametrize("dtype", [*low_types(), "float64"])
@pytest.mark.parametrize("name", [name for name in MOVING if OPS[name].samples])
def test_other_element_types(name: str, dtype: Any) -> None:
    check_forward(name, 0, dtype)


def test_every_kernel_compiles_for_a_gpu(launched: Kernels) -> None:
    assert_compile_for_a_gpu(launched)
