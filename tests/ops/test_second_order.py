"""Gradient ops that have gradients of their own, against differences of what they compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rowlock.executor.kernels.registry import KERNELS
from rowlock.graph.ops.registry import OPS, Op
from rowlock.strategies.types import is_float
from tests.conftest import one_of_each
from tests.ops.gpu import gpu
from tests.ops.harness import Arrays, Attrs, copies, draw, gradients, offsets_for, run
from tests.ops.test_conformance import FORWARD, IN_PROGRAMS, seeds_of

# What does not come through results that the gradient op reads: here their gradients are not those that
# differences show.
THROUGH_OUT = {
    "elementwise_div": {"Out@GRAD"},
    **{name: {"Y@GRAD", "Scale"} for name in ("instance_norm", "batch_norm", "layer_norm")},
}
AT_LIMITS = {("soft_relu", 1)}  # where the result is cut off, its gradient op jumps
TWICE = [n for n in FORWARD if OPS[n].grad and OPS[OPS[n].grad.type].grad]  # type: ignore[union-attr]
CASES = [(n, i) for n in TWICE for i in range(len(OPS[n].samples))]
CASES = [case for case in CASES if case not in AT_LIMITS | IN_PROGRAMS]


def backward_of(name: str, index: int, dtype: str = "float64") -> tuple[Op, Arrays, Attrs]:
    """Return the gradient op of a sample's op, with its operands and attributes."""
    op = OPS[name]
    assert op.grad is not None
    inputs, attrs = draw(op, op.samples[index], dtype)
    outputs = run(op, inputs, attrs)
    seeds = seeds_of(op, outputs)
    if not seeds or not any(is_float(a.dtype) for many in inputs.values() for a in many):
        pytest.skip("integers have no slope")
    if attrs.get("fuse_relu_before_depthwise_conv"):
        pytest.skip("has no gradient of second order")
    backward = OPS[op.grad.type]
    operands: Arrays = {}
    for slot, source in op.grad.reads().items():
        arrays = inputs.get(source, outputs.get(source, seeds.get(source.removesuffix("@GRAD"))))
        if arrays:
            operands[slot] = [a.astype(dtype) if is_float(a.dtype) else a for a in arrays]
    operands |= offsets_for(backward, inputs)
    return backward, operands, {**backward.attrs, **op.grad.attributes(attrs)}


def slope(op: Op, inputs: Arrays, attrs: Attrs, seeds: Arrays, array: Any, way: Any) -> float:
    """How sum(output * seed) changes with one operand along a way, by central differences."""

    def total() -> float:
        results = run(op, inputs, attrs)
        pairs = ((a, s) for slot in seeds for a, s in zip(results[slot], seeds[slot], strict=True))
        return sum(float((a * s).sum()) for a, s in pairs)

    middle, h = array.copy(), 1e-6
    array[...] = middle + h * way
    up = total()
    array[...] = middle - h * way
    change = (up - total()) / (2 * h)
    array[...] = middle
    return change


@pytest.mark.parametrize(("name", "index"), CASES)
def test_gradient_of_the_gradient(name: str, index: int) -> None:
    op, inputs, attrs = backward_of(name, index)
    outputs = run(op, inputs, attrs)
    seeds = seeds_of(op, outputs)
    slopes = gradients(op, copies(inputs), outputs, seeds, attrs)
    checked, rng = 0, np.random.default_rng(2)
    for slot, grads in slopes.items():
        if slot not in inputs or slot not in THROUGH_OUT.get(name, {slot}):
            continue
        for array, grad in zip(inputs[slot], grads, strict=True):
            for _ in range(2):
                way = rng.standard_normal(array.shape)
                expected = slope(op, inputs, attrs, seeds, array, way)
                near = 1e-6 * max(1.0, np.abs(grad * way).sum())
                np.testing.assert_allclose(
                    (grad * way).sum(), expected, rtol=1e-5, atol=near, err_msg=slot
                )
            checked += array.size
    assert checked
    for slot in slopes:
        alone = gradients(op, inputs, outputs, seeds, attrs, only=slot)
        for one, other in zip(slopes[slot], alone[slot], strict=True):
            np.testing.assert_array_equal(one, other)
    assert op.grad is not None
    optional = {s.name for s in OPS[op.grad.type].input_slots if s.optional}
    for slot in seeds if len(optional) > 1 else ():  # one that is left out is zero
        part = gradients(op, inputs, outputs, {slot: seeds[slot]}, attrs)
        rest = {s: [np.zeros_like(a) for a in v] if s != slot else v for s, v in seeds.items()}
        for s, arrays in gradients(op, inputs, outputs, rest, attrs).items():
            for one, other in zip(part[s], arrays, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "index"), one_of_each(CASES, 6))
@pytest.mark.parametrize("library", ["llvm", "cuda"])
def test_libraries_agree_with_numpy(library: str, name: str, index: int) -> None:
    op, inputs, attrs = backward_of(name, index)
    assert op.grad is not None
    if (op.grad.type, library) not in KERNELS or op.grad.type == "cast":
        pytest.skip(
            "computed by arrays; a cast only to booleans, which have no gradient, by a loop"
        )
    outputs = run(op, inputs, attrs)
    seeds = seeds_of(op, outputs)
    expected = gradients(op, inputs, outputs, seeds, attrs)
    single = [
        {s: [a.astype("f4") if is_float(a.dtype) else a for a in v] for s, v in arrays.items()}
        for arrays in (inputs, outputs, seeds)
    ]
    dev = gpu() if library == "cuda" else None
    slopes = gradients(op, *single, attrs, dev=dev, back_end=library)
    for slot, arrays in slopes.items():
        for one, other in zip(arrays, expected.get(slot, ()), strict=True):
            size = max(1.0, float(np.abs(other).max(initial=0)))
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5 * size, err_msg=slot)
