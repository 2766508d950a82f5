"""Elements picked along a dimension, or of one of several tensors, on a GPU; sums have one order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.ops import expr as e
from ....graph.ops import pick as ops
from ....graph.ops.operands import Array
from ...codegen.cuda_loops import bind_cuda
from ...cuda.runtime import Step
from ...device.device import Device
from ..array.pick import row_numbers, shard
from .by_index import Sums, picked, rows_of
from .copies import moved
from .indexing import places_of
from .support import cuda


@cuda("index_select")
def index_select(dev: Device, a: ops.IndexSelect) -> list[Step]:
    """Layers of X, which are rows once their dimension comes first."""
    if not a.out.size:
        return []
    x, out = a.x.swapaxes(0, a.dim), a.out.swapaxes(0, a.dim)
    if a.dim % a.x.ndim == 0:
        return picked(dev, a.x, a.index, a.out, op="index_select")
    rows, layers = dev.scratch(x.shape, x.dtype), dev.scratch(out.shape, out.dtype)
    steps = [*moved(dev, rows, x), *picked(dev, rows, a.index, layers, op="index_select")]
    return [*steps, *moved(dev, out, layers)]


@cuda("index_select_grad")
def index_select_grad(dev: Device, a: ops.IndexSelectGrad) -> list[Step]:
    """Each layer gets the sum of what was picked of it."""
    if not a.d_x.size:
        return []
    sums = Sums(dev, a.index, a.d_x.shape[a.dim])
    if a.dim % a.d_x.ndim == 0:
        return [*sums.steps, *sums.into(a.d_x, a.d_out)]
    d_x, d_out = a.d_x.swapaxes(0, a.dim), a.d_out.swapaxes(0, a.dim)
    rows, layers = dev.scratch(d_x.shape, d_x.dtype), dev.scratch(d_out.shape, d_out.dtype)
    steps = [*moved(dev, layers, d_out), *sums.steps, *sums.into(rows, layers)]
    return [*steps, *moved(dev, d_x, rows)]


def _sampled(dev: Device, x: Array, index: Array) -> tuple[Any, list[Step]]:
    """Number the elements that Index names, row after row; an index outside a row gives -1."""
    rows, width = x.shape
    places = dev.scratch(index.shape, np.int64)
    at, first = e.argument("index"), e.argument("first")
    inside = (at >= 0) & (at < width)
    operands = {"index": index, "first": dev.xp.asarray(row_numbers(rows) * width)}
    steps = bind_cuda(dev, [(e.where(inside, first + at, -1), places)], operands)
    return places.reshape(-1), steps


@cuda("index_sample")
def index_sample(dev: Device, a: ops.IndexSample) -> list[Step]:
    """Elements by row and index."""
    if not a.out.size:
        return []
    places, steps = _sampled(dev, a.x, a.index)
    checks = rows_of(dev, "index_sample", a.index, a.x.shape[1])
    return [*checks, *steps, *picked(dev, a.x.reshape(-1, 1), places, a.out.reshape(-1, 1))]


@cuda("index_sample_grad")
def index_sample_grad(dev: Device, a: ops.IndexSampleGrad) -> list[Step]:
    """Each element gets the sum of what was picked of it."""
    if not a.d_x.size:
        return []
    places, steps = _sampled(dev, a.d_x, a.index)
    sums = Sums(dev, places, a.d_x.size)
    return [
        *steps,
        *sums.steps,
        *sums.into(a.d_x.reshape(-1, 1), a.d_out.reshape(-1, 1)),
    ]


@cuda("multiplex")
def multiplex(dev: Device, a: ops.Multiplex) -> list[Step]:
    """One pass."""
    checks = rows_of(dev, "multiplex", a.ids, len(a.x))
    ids = a.ids.reshape(-1, *[1] * (a.out.ndim - 1))
    operands = {f"x{k}": x for k, x in enumerate(a.x)}
    *others, last = operands
    chosen = e.argument(last)
    for k, name in enumerate(others):
        chosen = e.where(e.equal(e.argument("ids"), k), e.argument(name), chosen)
    return [*checks, *bind_cuda(dev, [(chosen, a.out)], {"ids": ids, **operands})]


@cuda("multiplex_grad")
def multiplex_grad(dev: Device, a: ops.MultiplexGrad) -> list[Step]:
    """The gradient in the rows that were picked, zero in the others."""
    ids = a.ids.reshape(-1, *[1] * (a.d_out.ndim - 1))
    outputs = [
        (e.where(e.equal(e.argument("ids"), k), e.argument("d"), 0), d_x)
        for k, d_x in enumerate(a.d_x)
        if d_x is not None
    ]
    return bind_cuda(dev, outputs, {"ids": ids, "d": a.d_out}) if outputs else []


@cuda("scatter_nd_add")
def scatter_nd_add(dev: Device, a: ops.ScatterNdAdd) -> list[Step]:
    """X, and at each place the sum of what goes there."""
    if not a.out.size:
        return []
    places, rows, steps = places_of(dev, a.x, a.index, "scatter_nd_add")
    if not places.size:
        return moved(dev, a.out, a.x)
    sums, added = Sums(dev, places, rows), dev.scratch(a.x.shape, a.x.dtype)
    steps += [*sums.steps, *sums.into(added, a.updates)]
    total = e.argument("x") + e.argument("added")
    return [*steps, *bind_cuda(dev, [(total, a.out)], {"x": a.x, "added": added})]


@cuda("scatter_nd_add_grad")
def scatter_nd_add_grad(dev: Device, a: ops.ScatterNdAddGrad) -> list[Step]:
    """The gradient itself, and what of it lies at the coordinates."""
    steps = moved(dev, a.d_x, a.d_out)
    if a.d_updates is None or not a.d_updates.size:
        return steps
    places, rows, numbered = places_of(dev, a.d_out, a.index, "scatter_nd_add_grad")
    source, target = a.d_out.reshape(rows, -1), a.d_updates.reshape(places.size, -1)
    return [*steps, *numbered, *picked(dev, source, places, target)]


@cuda("shard_index")
def shard_index(dev: Device, a: ops.ShardIndex) -> list[Step]:
    """One pass."""
    x, (low, high) = e.argument("x"), shard(a)
    chosen = e.where((x >= low) & (x < high), x - low, a.ignore_value)
    checks = rows_of(dev, "shard_index", a.x, a.index_num)
    return [*checks, *bind_cuda(dev, [(chosen, a.out)], {"x": a.x})]
