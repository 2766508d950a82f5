"""Kernels that pick elements along a dimension, or of one of several tensors, and add at coordinates."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....graph.ops import pick as ops
from ...device.device import Device
from ..registry import Step, kernel
from .indexing import checked_rows, places_of, taken


@kernel("index_select", low=True)
def index_select(dev: Device, a: ops.IndexSelect) -> list[Step]:
    mode: dict[str, Any] = {"mode": "clip"} if dev.name == "numpy" else {}  # which checks no more
    return [
        checked_rows("index_select", a.index, a.x.shape[a.dim]),
        lambda: dev.xp.take(a.x, a.index, axis=a.dim, out=a.out, **mode),
    ]


@kernel("index_select_grad")
def index_select_grad(dev: Device, a: ops.IndexSelectGrad) -> list[Step]:
    """Each layer gets the sum of what was picked of it."""
    layers, picked = (array.swapaxes(0, a.dim) for array in (a.d_x, a.d_out))
    return [partial(a.d_x.fill, 0), partial(dev.xp.add.at, layers, a.index, picked)]


def row_numbers(rows: int) -> Any:
    """Return a column that numbers the rows."""
    return np.arange(rows)[:, None]


@kernel("index_sample", low=True)
def index_sample(dev: Device, a: ops.IndexSample) -> list[Step]:
    rows = dev.xp.asarray(row_numbers(a.x.shape[0]))
    return [
        checked_rows("index_sample", a.index, a.x.shape[1]),
        lambda: a.out.__setitem__(..., a.x[rows, a.index]),
    ]


@kernel("index_sample_grad")
def index_sample_grad(dev: Device, a: ops.IndexSampleGrad) -> list[Step]:
    """Each element gets the sum of what was picked of it."""
    rows = dev.xp.asarray(row_numbers(a.x.shape[0]))
    return [
        partial(a.d_x.fill, 0),
        lambda: dev.xp.add.at(a.d_x, (rows, a.index), a.d_out),
    ]


@kernel("multiplex", low=True)
def multiplex(dev: Device, a: ops.Multiplex) -> list[Step]:
    xp, ids = dev.xp, a.ids.reshape(-1, *[1] * (a.out.ndim - 1))
    named = dev.scratch(ids.shape, np.bool_)
    steps = [checked_rows("multiplex", a.ids, len(a.x))]
    for k, x in enumerate(a.x):
        steps += [partial(xp.equal, ids, k, named), partial(xp.copyto, a.out, x, where=named)]
    return steps


@kernel("multiplex_grad", low=True)
def multiplex_grad(dev: Device, a: ops.MultiplexGrad) -> list[Step]:
    """The gradient in the rows that were picked, zero in the others."""
    xp, ids = dev.xp, a.ids.reshape(-1, *[1] * (a.d_out.ndim - 1))
    named = dev.scratch(ids.shape, np.bool_)
    steps: list[Step] = []
    for k, d_x in enumerate(a.d_x):
        if d_x is not None:
            copy = partial(xp.copyto, d_x, a.d_out, where=named)
            steps += [partial(d_x.fill, 0), partial(xp.equal, ids, k, named), copy]
    return steps


@kernel("scatter_nd_add")
def scatter_nd_add(dev: Device, a: ops.ScatterNdAdd) -> list[Step]:
    """What is named twice gets both."""
    rows, places, steps = places_of(dev, a.out, a.index, "scatter_nd_add")
    if a.out is not a.x:
        steps.append(partial(dev.xp.copyto, a.out, a.x))
    updates = a.updates.reshape(places.size, *rows.shape[1:])
    return [*steps, partial(dev.xp.add.at, rows, places, updates)]


@kernel("scatter_nd_add_grad", low=True)
def scatter_nd_add_grad(dev: Device, a: ops.ScatterNdAddGrad) -> list[Step]:
    steps: list[Step] = []
    if a.d_x is not None:
        steps.append(partial(dev.xp.copyto, a.d_x, a.d_out))
    if a.d_updates is not None:
        rows, places, numbered = places_of(dev, a.d_out, a.index, "scatter_nd_add")
        target = a.d_updates.reshape(places.size, *rows.shape[1:])
        steps += [*numbered, taken(dev, rows, places, target)]
    return steps


@kernel("shard_index")
def shard_index(dev: Device, a: ops.ShardIndex) -> list[Step]:
    xp, (low, high) = dev.xp, shard(a)
    outside, above = (dev.scratch(a.x.shape, np.bool_) for _ in range(2))
    return [
        checked_rows("shard_index", a.x, a.index_num),
        partial(xp.less, a.x, low, outside),
        partial(xp.greater_equal, a.x, high, above),
        partial(xp.logical_or, outside, above, outside),
        partial(xp.subtract, a.x, low, a.out),
        partial(xp.copyto, a.out, a.ignore_value, where=outside),
    ]


def shard(a: ops.ShardIndex) -> tuple[int, int]:
    """Return the first index of the shard, and the first behind it."""
    size = -(-a.index_num // a.nshards)
    return a.shard_id * size, (a.shard_id + 1) * size
