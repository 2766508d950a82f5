"""Holds generated kernels of a GPU to the samples of their ops, in every precision that they take."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np

from rowlock.executor.cuda.runtime import graph_can_hold
from rowlock.executor.kernels.registry import KERNELS, bind
from rowlock.graph.ir.graph import Node, Value
from rowlock.graph.ops.registry import OPS, Op
from rowlock.strategies.types import to_numpy, to_var_type
from tests.ops.gpu import gpu
from tests.ops.harness import Arrays, draw, gradients, infer, run, specs_of
from tests.ops.test_conformance import CASES, reference_of, seeds_of

CUDA: dict[str, Any] = {"back_end": "cuda"}
NEAR = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}


def cases(*op_types: str) -> list[tuple[str, int]]:
    """Return the samples of ops, and check that they have a generated kernel."""
    missing = [name for name in op_types if (name, "cuda") not in KERNELS]
    assert not missing, f"no kernels on cuda: {missing}"
    return [(name, i) for name, i in CASES if name in op_types]


def low_types() -> list[Any]:
    """Return the element types of low precision."""
    types: list[Any] = [np.dtype(np.float16)]
    try:
        to_var_type(ml_dtypes.bfloat16)
    except (ValueError, TypeError):
        return types
    return [*types, np.dtype(ml_dtypes.bfloat16)]


def taken(op: Op, inputs: Arrays, attrs: dict[str, Any], back_end: str = "cuda") -> bool:
    """Tell whether a back end's kernel takes the node that computes this."""
    specs = specs_of(inputs)
    reads = {s: tuple(Value(s, spec) for spec in many) for s, many in specs.items()}
    makes = infer(op, specs, attrs)
    writes = {s: tuple(Value(s, spec) for spec in many) for s, many in makes.items()}
    takes = KERNELS[op.type, back_end].takes
    return takes is None or takes(Node(op.type, reads, writes, attrs))


def assert_near(array: Any, value: Any, what: str, near: float = 0.0) -> None:
    """Hold an array to a value: by the largest of the value's elements, or (low precision) by norms."""
    value = np.asarray(value)
    if array.dtype.kind in "iub":
        np.testing.assert_array_equal(array, value, err_msg=what)
        return
    near = max(near, NEAR[array.dtype.name])
    wide = array.astype(np.float64)
    odd = ~np.isfinite(value)
    np.testing.assert_array_equal(wide[odd], value[odd], err_msg=what)
    wide, value = np.where(odd, 0, wide), np.where(odd, 0, value)
    measure = np.linalg.norm if near > 1e-4 else lambda a: np.abs(a).max(initial=0)
    size, error = measure(value), measure(wide - value)
    assert error <= near * max(size, 1e-3), f"{what}: off by {error:.1e} of {size:.1e}"


def close(array: Any, exact: Any, share: float, slot: str) -> None:
    """Hold an array to a reference: differences are a share of its largest number."""
    assert array.shape == exact.shape, slot
    scale = max(float(np.abs(exact).max(initial=0)), 0.1)
    error = np.abs(array.astype("f8") - exact).max(initial=0)
    assert error <= share * scale, f"{slot}: {error} of {scale}"


def narrowed(arrays: Arrays, dtype: Any) -> Arrays:
    """Round floats."""
    return {
        s: [a.astype(dtype) if a.dtype.kind not in "iub" else a for a in many]
        for s, many in arrays.items()
    }


def steps_of(op: Op, inputs: Arrays, back_end: str, **attrs: Any) -> list[Any]:
    """Return the calls of a kernel on arrays of the GPU."""
    attrs = {**op.attrs, **attrs}
    dev, specs = gpu(), infer(op, specs_of(inputs), attrs, inputs)
    outputs = {
        s: [dev.xp.zeros(v.shape, to_numpy(v.dtype)) for v in many] for s, many in specs.items()
    }
    operands = {s: [dev.xp.asarray(a) for a in many] for s, many in inputs.items()}
    return bind(op.type, operands, outputs, attrs, dev, back_end)


def refusal(op: Op, inputs: Arrays, back_end: str, **attrs: Any) -> str:
    """Return what a kernel says of operands that do not fit. A graph can hold all its calls."""
    dev, steps = gpu(), steps_of(op, inputs, back_end, **attrs)
    assert all(graph_can_hold(step, dev.xp) for step in steps)
    try:
        dev.runtime.execute(steps)
        dev.runtime.synchronize()
        return str(dev.asserts.failed(None))
    finally:
        dev.asserts.reset()


def check_forward(name: str, index: int, dtype: Any, layout: str = "") -> None:
    """Hold a kernel to the reference in double precision."""
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], dtype)
    assert taken(op, inputs, attrs)
    outputs = run(op, inputs, attrs, dev=gpu(), layout=layout, **CUDA)
    for slot, values in reference_of(op, narrowed(inputs, "float64"), attrs).items():
        for array, value in zip(outputs[slot], values, strict=True):
            assert_near(array, value, slot, NEAR[np.dtype(dtype).name])


def check_gradients(name: str, index: int, dtype: Any = "float32", layout: str = "") -> None:
    """Hold gradients to those in double precision; a drawn one alone, and all in place, have the same bits."""
    op = OPS[name]
    assert op.grad is not None
    assert (op.grad.type, "cuda") in KERNELS
    exact, attrs = draw(op, op.samples[index], "float64")
    exact = narrowed(narrowed(exact, dtype), "float64")
    outputs = run(op, exact, attrs)
    seeds = narrowed(seeds_of(op, outputs), dtype)
    expected = gradients(op, exact, outputs, narrowed(seeds, "float64"), attrs)
    operands = (narrowed(exact, dtype), narrowed(outputs, dtype), seeds, attrs)
    how: dict[str, Any] = {"dev": gpu(), "layout": layout, **CUDA}
    slopes = gradients(op, *operands, **how)
    for slot, grads in slopes.items():
        for one, value in zip(grads, expected[slot], strict=True):
            assert_near(one, value, slot, NEAR[np.dtype(dtype).name])
    drawn = random.choice(list(slopes))
    alone = gradients(op, *operands, only=drawn, **how)[drawn]
    for one, other in zip(slopes[drawn], alone, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=drawn)
    if OPS[op.grad.type].in_place:
        instead = gradients(op, *operands, overwrite=True, **how)
        for slot, grads in slopes.items():
            for one, other in zip(grads, instead[slot], strict=True):
                np.testing.assert_array_equal(one, other, err_msg=slot)


def check_in_place(name: str, index: int, layout: str = "") -> None:
    """Outputs in the place of operands have the same bits."""
    op = OPS[name]
    inputs, attrs = draw(op, op.samples[index], "float32")
    beside = run(op, inputs, attrs, dev=gpu(), layout=layout, **CUDA)
    instead = run(op, inputs, attrs, overwrite=True, dev=gpu(), layout=layout, **CUDA)
    for slot, arrays in beside.items():
        for one, other in zip(arrays, instead[slot], strict=True):
            np.testing.assert_array_equal(one, other)
