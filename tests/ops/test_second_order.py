"""Gradient ops that have gradients of their own, against differences of what they compute."""

from __future__ import annotations

import numpy as np
import pytest

from rowlock.graph.ops.registry import OPS, Op
from rowlock.strategies.types import is_float
from tests.ops.harness import Arrays, Attrs, copies, draw, gradients, run
from tests.ops.test_conformance import FORWARD, seeds_of, slopes

# Paddle's op is told how the result depends on Out; its gradient op is computed from X and Y.
THROUGH_OUT = {"elementwise_div"}
TWICE = [n for n in FORWARD if OPS[n].grad and OPS[OPS[n].grad.type].grad]  # type: ignore[union-attr]
CASES = [(n, i) for n in TWICE for i in range(len(OPS[n].samples))]


def backward_of(name: str, index: int, dtype: str = "float64") -> tuple[Op, Arrays, Attrs]:
    """Return the gradient op of a sample's op, with its operands and attributes."""
    op = OPS[name]
    assert op.grad is not None
    inputs, attrs = draw(op, op.samples[index], dtype)
    outputs = run(op, inputs, attrs)
    seeds = seeds_of(op, outputs)
    backward = OPS[op.grad.type]
    operands: Arrays = {}
    for slot, source in op.grad.reads().items():
        found = inputs.get(source, outputs.get(source, seeds.get(source.removesuffix("@GRAD"))))
        if found:
            operands[slot] = [a.astype(dtype) if is_float(a.dtype) else a for a in found]
    return backward, operands, {**backward.attrs, **op.grad.attributes(attrs)}


@pytest.mark.parametrize(("name", "index"), CASES)
def test_gradient_of_the_gradient(name: str, index: int) -> None:
    op, inputs, attrs = backward_of(name, index)
    outputs = run(op, inputs, attrs)
    seeds = seeds_of(op, outputs)
    found = gradients(op, copies(inputs), outputs, seeds, attrs)
    checked = 0
    for slot, grads in found.items():
        if name in THROUGH_OUT and slot != "Out@GRAD":
            continue
        for array, grad in zip(inputs[slot], grads, strict=True):
            expected = slopes(op, inputs, attrs, seeds, array)
            np.testing.assert_allclose(grad, expected, rtol=1e-4, atol=1e-5, err_msg=slot)
            checked += array.size
    assert checked
    for slot in found:
        alone = gradients(op, inputs, outputs, seeds, attrs, only=slot)
        for one, other in zip(found[slot], alone[slot], strict=True):
            np.testing.assert_array_equal(one, other)
    for slot in seeds if len(seeds) > 1 else ():  # one that nobody computed is zero
        part = gradients(op, inputs, outputs, {slot: seeds[slot]}, attrs)
        rest = {s: [np.zeros_like(a) for a in v] if s != slot else v for s, v in seeds.items()}
        for s, arrays in gradients(op, inputs, outputs, rest, attrs).items():
            for one, other in zip(part[s], arrays, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
