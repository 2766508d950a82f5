"""The scalar expressions of an op, beside the arrays that they are of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....graph.ops.elementwise import placed as shape_placed
from ....graph.ops.expr import Expr
from ....graph.ops.operands import Array, Operands
from ....graph.ops.pointwise import arguments
from ....graph.ops.registry import Op
from ...codegen.array_calls import trace


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


def aligned(x: Array, y: Array, axis: int) -> tuple[Any, Any]:
    """Return X and Y as views of one rank, the one with fewer dimensions placed at ``axis``."""
    rank = max(x.ndim, y.ndim)
    return placed(x, rank, axis), placed(y, rank, axis)


def placed(small: Array, rank: int, axis: int) -> Any:
    """Return an array as a view of ``rank`` dimensions, its own from ``axis`` on (-1: at the end)."""
    return small if small.ndim == rank else small.reshape(shape_placed(small.shape, rank, axis))
