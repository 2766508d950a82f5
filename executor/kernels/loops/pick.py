"""Sums at coordinates and one-hot rows, in compiled loops."""

from __future__ import annotations

from functools import partial

import numpy as np

from ....graph.ir.graph import Node
from ....graph.ops import pick as ops
from ....graph.ops.creation import OneHot
from ....graph.ops.indexing import GatherGrad
from ....graph.ops.operands import Array
from ....strategies.types import VarType
from ...codegen.text_loops import bind_text
from ...device.device import Device
from ..array.indexing import checked_rows
from ..registry import Step, kernel, of_types
from .by_index import add_rows, row_sums

_TYPES = {VarType.FP32, VarType.INT32, VarType.INT64}


def _in_single(node: Node) -> bool:
    types = {value.spec.dtype for value in (*node.reads(), *node.writes())}
    return (
        VarType.FP32 in types
        and types <= _TYPES
        and all(value.spec.dtype == VarType.FP32 for value in node.writes())
    )


_loop = partial(kernel, on=("llvm",), takes=_in_single, gapless=True)


def _sums_at(dev: Device, places: Array, values: Array, rows: Array) -> list[Step]:
    size = rows[0].size
    return row_sums(
        dev, places, values.reshape(1, places.size, size), rows.reshape(1, len(rows), size)
    )


@_loop("gather_grad", takes=lambda n: _in_single(n) and not n.attrs["overwrite"])
def gather_grad(dev: Device, a: GatherGrad) -> list[Step]:
    """Each row gets the sum of the gradients of its copies."""
    return _sums_at(dev, a.index.reshape(-1), a.d_out, a.d_x)


def _places_of(dev: Device, x: Array, index: Array) -> tuple[Array, Array, list[Step]]:
    """View X as rows, one for each place an index can name; and the calls that number those places."""
    depth = index.shape[-1]
    if depth == 0:  # each names all of X
        places = dev.keep(index.shape[:-1], np.int64)
        return x.reshape(1, *x.shape), places.reshape(-1), []
    rows = x.reshape(-1, *x.shape[depth:]) if x.size else x.reshape(0, *x.shape[depth:])
    places, term = (dev.scratch(index.shape[:-1], np.int64) for _ in range(2))
    steps: list[Step] = []
    for i in range(depth):
        column, size = index[..., i], x.shape[i]
        steps += checked_rows(dev, "scatter_nd_add", column, size)
        if i == 0:
            steps.append(partial(np.copyto, places, column))
        else:
            steps += [
                partial(np.multiply, places, size, places),
                partial(np.copyto, term, column),
                partial(np.add, places, term, places),
            ]
    return rows, places.reshape(-1), steps


@_loop("scatter_nd_add")
def scatter_nd_add(dev: Device, a: ops.ScatterNdAdd) -> list[Step]:
    """What is named twice gets both."""
    target, places, steps = _places_of(dev, a.out, a.index)
    if a.out is not a.x:
        steps.append(partial(np.copyto, a.out, a.x))
    size = target[0].size
    updates, sums = a.updates.reshape(1, places.size, size), target.reshape(1, len(target), size)
    return [*steps, *add_rows(places, updates, sums)]


# As many rows at a time as stay in cache: cleared together, then marked.
_MARK = """
    for begin in range(0, count, many):
        end = min(begin + many, count)
        for i in range(begin * depth, end * depth):
            store(out, i, np.float32(0.0))
        for r in range(begin, end):
            at = np.int64(load(index, r))
            if 0 <= at < depth:
                store(out, r * depth + at, np.float32(1.0))
"""
_IN_CACHE = 4096  # elements


_WHOLE = (VarType.INT32, VarType.INT64)


@_loop("one_hot", "one_hot_v2", takes=of_types(*_WHOLE, Out=[VarType.FP32]))
def one_hot(dev: Device, a: OneHot) -> list[Step]:
    """1 at the index, 0 elsewhere; a row of 0 for an index outside ``depth``, if that is allowed."""
    checks = [] if a.allow_out_of_range else checked_rows(dev, "one_hot", a.x, a.depth, "classes")
    sizes = {"count": a.x.size, "depth": a.depth, "many": max(_IN_CACHE // a.depth, 1)}
    return [*checks, bind_text(_MARK, {"index": a.x, "out": a.out}, **sizes)]
