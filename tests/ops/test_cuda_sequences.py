"""Sequence ops on a GPU, real or simulated: any lengths, offsets that the host does not see, one graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.cuda.runtime import graph_can_hold
from rowlock.executor.device.device import Device
from rowlock.executor.kernels.registry import bind
from rowlock.graph.ops.registry import OPS
from tests.ops.cuda_cases import cases, check_forward
from tests.ops.gpu import assert_compile_for_a_gpu, gpu, needs_compiler
from tests.ops.sequence_cases import KINDS, check_pools, check_softmax

pytestmark = needs_compiler
LENGTHS = [[3, 0, 4, 1], [1], [0, 40, 2, 0, 70, 0]]


def computed(dev: Device, op: str, inputs: Any, outputs: Any, **attrs: Any) -> list[np.ndarray]:
    """Return what an op writes over arrays that are full of sevens; on a GPU a graph could hold all of it."""
    xp, back_end = dev.xp, "cuda" if dev.runtime else "numpy"
    operands = {slot: [xp.asarray(array)] for slot, array in inputs.items()}
    results = {slot: [xp.full(like.shape, 7, like.dtype)] for slot, like in outputs.items()}
    steps = bind(op, operands, results, {**OPS[op].attrs, **attrs}, dev, back_end)
    if dev.runtime is None:
        for step in steps:
            step()
        return [array for (array,) in results.values()]
    assert not [step for step in steps if not graph_can_hold(step, xp)]
    dev.runtime.synchronize()
    dev.runtime.execute(steps)
    dev.runtime.synchronize()
    arrays = [array for (array,) in results.values()]
    return [a if isinstance(a, np.ndarray) else a.get() for a in arrays]


def compare(op: str, inputs: Any, outputs: Any, **attrs: Any) -> list[np.ndarray]:
    on_gpu, on_host = (computed(dev, op, inputs, outputs, **attrs) for dev in (gpu(), Device()))
    for one, other in zip(on_gpu, on_host, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    return on_gpu


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("columns", [1, 3, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_pools(lengths: list[int], columns: int, kind: str) -> None:
    check_pools(compare, lengths, columns, kind)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_softmax(lengths: list[int]) -> None:
    check_softmax(compare, lengths)


@pytest.mark.parametrize(
    ("name", "index"), cases("lod_from_lengths", "lod_offsets", "lod_reshaped")
)
def test_offsets_are_computed_where_they_are_read(name: str, index: int) -> None:
    check_forward(name, index, "float32")


@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize("count", [1, 31, 32, 100])
def test_offsets_of_many_lengths(count: int, kind: str) -> None:
    lengths = np.random.default_rng(count).integers(0, 9, (count, 1)).astype(kind)
    (out,) = compare("lod_from_lengths", {"X": lengths}, {"Out": np.zeros(count + 1, np.int64)})
    np.testing.assert_array_equal(np.diff(out), lengths[:, 0])


def test_sequences_that_do_not_end_with_the_rows_are_refused() -> None:
    dev, rows = gpu(), np.ones((5, 1), "f4")
    inputs, outputs = {"X": rows, "X@LOD": np.array([0, 2, 6])}, {"Out": rows[:2]}
    try:
        computed(dev, "sequence_pool", inputs, outputs, pooltype="SUM")
        error = dev.asserts.failed(None)
        assert "sequence_pool: the sequences of X end at row 6, and it has 5 rows" in str(error)
    finally:
        dev.asserts.reset()


def test_kernels_compile_for_a_gpu(launched: dict[str, Any]) -> None:
    test_softmax(LENGTHS[0])
    assert_compile_for_a_gpu(launched)
