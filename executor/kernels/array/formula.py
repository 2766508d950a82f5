"""What formulas are computed with on any array module: a call for each function of an expression."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....graph.ops.operands import Array, Operands
from ....graph.ops.registry import OPS, Op
from ...codegen.array_calls import bind_calls
from ...codegen.array_program import Means, Step, bind_terms
from ...codegen.formula_trace import traced
from ...device.device import Device
from .equal_rows import grouped


def formula_steps(dev: Device, op: Op, a: Operands, means: Means) -> list[Step]:
    """Return the calls of an op's formula."""
    results, arrays = traced(op, a)
    roots = [(root, out) for root, out, _ in results]
    return bind_terms(dev, op.type, roots, arrays, means)


def by_formula(op_type: str, dev: Device, a: Operands, means: Means) -> list[Step]:
    """Return the calls of an op's formula on a record that has its fields, and perhaps more."""
    op = OPS[op_type]
    known = {name for side in op.parameters for _, name, _ in side} | op.attrs.keys()
    fields = {name: value for name, value in vars(a).items() if name in known}
    return formula_steps(dev, op, op.filled(fields), means)


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


_LONG = 1024  # elements of a sequence for which a call is not too much


def row_of_largest(dev: Device, offsets: Array, x: Array, out: Array) -> list[Step]:
    """Return the call that writes the first row of the largest, by sequence and column; -1 of no rows."""
    return [partial(_segment_argmax, dev.xp, offsets, x, out)]


def _segment_argmax(xp: Any, offsets: Any, values: Any, out: Any) -> None:
    rows, filled = values.shape[0], offsets[1:] > offsets[:-1]
    if xp is np and values.size > _LONG * out.shape[0]:  # faster than ``reduceat`` for all of them
        for row, begin, end in zip(out, offsets[:-1], offsets[1:], strict=True):
            row[...] = values[begin:end].argmax(0) + begin if end > begin else -1
        return
    number = xp.searchsorted(offsets[1:], xp.arange(rows), side="right")
    if xp is np:
        starts = offsets[:-1][filled]
        largest = np.empty(out.shape, values.dtype)
        largest[filled] = np.maximum.reduceat(values, starts, axis=0)
    else:
        largest = xp.full(out.shape, -xp.inf, values.dtype)
        xp.maximum.at(largest, number, values)
    best = (values == largest[number]) | (values != values)  # what is not a number is the largest
    position = xp.where(best, xp.arange(rows)[:, None], rows)
    out.fill(rows)
    if xp is np:
        out[filled] = np.minimum.reduceat(position, starts, axis=0)
    else:
        xp.minimum.at(out, number, position)
    out[~filled] = -1


ARRAY_MEANS = Means(bind_calls, rows, row_sums, row_of_largest, one_pass=False)
