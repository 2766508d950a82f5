"""What formulas are computed with on any array module: a call for each function of an expression."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ....graph.ops.operands import Array, Operands
from ....graph.ops.registry import Op
from ...codegen.array_calls import bind_expression
from ...codegen.array_program import Means, Outputs, Step, bind_terms, traced
from ...device.device import Device
from .equal_rows import grouped


def formula_steps(dev: Device, op: Op, a: Operands, means: Means) -> list[Step]:
    """Return the calls of an op's formula."""
    results, arrays = traced(op, a)
    roots = [(root, out) for root, out, _ in results]
    return bind_terms(dev, op.type, roots, arrays, means)


def loops_of_calls(dev: Device, outputs: Outputs, arrays: Mapping[str, Any]) -> list[Step]:
    """Return array calls that evaluate each expression into its output, and sum it where that is smaller."""
    steps: list[Step] = []
    for root, out in outputs:
        shape = np.broadcast_shapes(out.shape, *(a.shape for a in arrays.values()))
        axes = tuple(i for i, (n, m) in enumerate(zip(out.shape, shape, strict=True)) if n != m)
        if not axes:
            steps += bind_expression(root, arrays, out, dev)
            continue
        whole = (
            arrays[root.args[0].value]
            if root.fn == "positive" and root.args[0].fn == "arg"
            else None
        )
        if whole is None or whole.shape != shape:
            whole = dev.scratch(shape, out.dtype)
            steps += bind_expression(root, arrays, whole, dev)
        steps.append(partial(dev.xp.add.reduce, whole, axes, None, out, True))
    return steps


def rows(dev: Device, source: Array, index: Array, out: Array) -> list[Step]:
    """Return the call that copies rows, [stack, row, element]; NumPy is faster if told not to check."""
    mode = {"mode": "clip"} if dev.name == "numpy" else {}
    return [lambda: dev.xp.take(source, index, axis=1, out=out, **mode)]


def row_sums(dev: Device, index: Array, values: Array, out: Array) -> list[Step]:
    """Return the calls that add rows of values to the rows of ``out`` that ``index`` names."""
    xp = dev.xp
    if not index.size:
        return [partial(out.fill, 0)]
    if values.shape[0] == values.shape[2] == 1:
        return [partial(out.fill, 0), partial(xp.add.at, out[0, :, 0], index, values[0, :, 0])]

    def add() -> None:
        order, numbers, starts = grouped(xp, index)
        out[:, numbers] = xp.add.reduceat(values[:, order], starts, axis=1)

    return [partial(out.fill, 0), add]


ARRAY_MEANS = Means(loops_of_calls, rows, row_sums, one_pass=False)
