"""The scalar expressions of an op, beside the arrays that they are of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ....graph.ops.expr import Expr
from ....graph.ops.operands import Operands
from ....graph.ops.pointwise import arguments
from ....graph.ops.registry import Op
from ...codegen.array_calls import bind_expression, trace
from ...device.device import Device

Written = Sequence[tuple[Expr, Any]]


def expressions_of(op: Op, a: Operands) -> tuple[list[tuple[Expr, Any]], dict[str, Any]]:
    """Return what a record's results are, each beside its array, and the arrays that this reads.

    All are views that broadcast; a result that has one element for several of the others is their sum.
    """
    arrays = {name: array for name, array in op.arrays(a).items() if array is not None}
    settings: Mapping[str, Any] = vars(a)
    if op.aligned is not None or op.counts is not None:
        shapes = {name: array.shape for name, array in arrays.items()}
        settings = op.settings(shapes, settings)
        views = {} if op.aligned is None else op.aligned(shapes, settings)
        arrays |= {name: arrays[name].reshape(views[name]) for name in shapes if name in views}
    assert op.scalar is not None
    unused = [slot.parameter for slot in op.input_slots if slot.parameter not in arrays]
    expressions = trace(op.scalar, settings, unused)
    written = [
        (expression, arrays[slot.parameter])
        for expression, slot in zip(expressions, op.output_slots, strict=True)
        if slot.parameter in arrays
    ]
    used = arguments([expression for expression, _ in written])
    return written, {name: arrays[name] for name in arrays if name in used}


def bind_written(
    dev: Device, written: Written, arrays: Mapping[str, Any]
) -> list[Callable[[], Any]]:
    """Return the array calls that evaluate expressions into their results."""
    steps: list[Callable[[], Any]] = []
    for expression, out in written:
        read = (arrays[name].shape for name in arguments([expression]))
        shape = np.broadcast_shapes(out.shape, *read)
        if out.shape == shape:
            steps += bind_expression(expression, arrays, out, dev)
            continue
        terms = dev.scratch(shape, out.dtype)
        over = tuple(i for i, size in enumerate(out.shape) if size == 1 != shape[i])
        steps += bind_expression(expression, arrays, terms, dev)
        steps.append(partial(dev.xp.add.reduce, terms, over, None, out, True))
    return steps
