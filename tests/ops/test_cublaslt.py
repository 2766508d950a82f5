"""Walks the samples of every op that cuBLASLt computes on a GPU, real or simulated, against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.kernels.registry import KERNELS
from rowlock.graph.ops.registry import OPS, Op
from tests.conftest import one_of_each
from tests.ops.cuda_cases import close
from tests.ops.gpu import gpu, needs_compiler
from tests.ops.harness import Arrays, draw, gradients, run
from tests.ops.test_conformance import CASES, reference_of, seeds_of

pytestmark = needs_compiler
SAMPLES = [(name, i) for name, i in CASES if (name, "cublaslt") in KERNELS]
GRADS = [(name, i) for name, i in SAMPLES if OPS[name].grad]
STATISTICS = ("SoftmaxMax", "SoftmaxSum", "Ln1Mean", "Ln1Variance")  # of low precision: float32
LOW = {"float16": 2e-3, "bfloat16": 1.6e-2}


def on(**more: Any) -> dict[str, Any]:
    return {"back_end": "cublaslt", "dev": gpu(), **more}


def drawn(name: str, index: int, kind: str = "float32") -> tuple[Op, Arrays, dict[str, Any]]:
    op = OPS[name]
    return op, *draw(op, op.samples[index], kind)


def rounded(arrays: Arrays, kind: Any) -> Arrays:
    """Round floats."""
    return {
        s: [a if a.dtype.kind in "iub" else a.astype(kind) for a in many]
        for s, many in arrays.items()
    }


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize(("name", "index"), one_of_each(SAMPLES, 3))
def test_kernel_agrees_with_the_reference(name: str, index: int, kind: str) -> None:
    op, inputs, attrs = drawn(name, index, kind)
    outputs = run(op, inputs, attrs, **on())
    for slot, values in reference_of(op, inputs, attrs).items():
        for array, value in zip(outputs[slot], values, strict=True):
            close(array, value, 1e-5 if kind == "float32" else 1e-12, slot)


@pytest.mark.parametrize(("name", "index"), one_of_each(GRADS, 3))
def test_gradients_agree_with_those_in_double_precision(name: str, index: int) -> None:
    op, exact, attrs = drawn(name, index, "float64")
    outputs = run(op, exact, attrs)
    seeds = seeds_of(op, outputs)
    expected = gradients(op, exact, outputs, seeds, attrs)
    single = [rounded(arrays, "f4") for arrays in (exact, outputs, seeds)]
    slopes = gradients(op, *single, attrs, **on())
    for slot, grads in slopes.items():
        alone = gradients(op, *single, attrs, only=slot, **on())[slot]
        for one, other, value in zip(grads, alone, expected[slot], strict=True):
            close(one, value, 2e-5, slot)
            close(other, value, 2e-5, slot)


@pytest.mark.parametrize("kind", LOW)
def test_a_mask_may_be_wider_than_scores(kind: str) -> None:
    name, index = "fused_dot_product_attention", 1
    op, inputs, attrs = drawn(name, index)
    low = rounded(inputs, np.dtype(kind)) | {"Mask": inputs["Mask"]}
    exact = rounded(low, "f8")
    outputs, expected = run(op, low, attrs, **on()), run(op, exact, attrs)
    close(outputs["Out"][0], expected["Out"][0], LOW[kind], "Out")
    seeds = {"Out": seeds_of(op, expected)["Out"]}
    slopes = gradients(op, low, outputs, rounded(seeds, np.dtype(kind)), attrs, **on())
    grads = gradients(op, exact, rounded(outputs, "f8"), seeds, attrs)
    for slot, (value,) in grads.items():
        close(slopes[slot][0], value, 3 * LOW[kind], slot)


@pytest.mark.parametrize(
    ("position", "name", "index"),
    [(i, *case) for i, case in enumerate(c for c in SAMPLES if c[1] in (0, 3))],
)
def test_sixteen_bits_are_rounded_once(position: int, name: str, index: int) -> None:
    """Each sample in one of the types: they share all but how an element is loaded and stored."""
    kind = tuple(LOW)[position % 2]
    number = np.dtype(kind)
    op, inputs, attrs = drawn(name, index)
    low = rounded(inputs, number)
    exact = rounded(low, "f8")
    outputs = run(op, low, attrs, **on())
    expected = run(op, exact, attrs)
    pairs = [(outputs, expected)]
    if op.grad is not None:
        seeds = rounded(seeds_of(op, expected), number)
        slopes = gradients(op, low, outputs, seeds, attrs, **on())
        grads = gradients(op, exact, rounded(outputs, "f8"), rounded(seeds, "f8"), attrs)
        pairs.append((slopes, grads))
    for results, values in pairs:
        for slot, arrays in results.items():
            for one, value in zip(arrays, values[slot], strict=True):
                floats = np.float32 if slot in STATISTICS else number
                assert one.dtype == (value.dtype if value.dtype.kind in "iub" else floats), slot
                error = np.linalg.norm(one.astype("f8") - value)
                assert error <= LOW[kind] * max(np.linalg.norm(value), 0.5), slot
