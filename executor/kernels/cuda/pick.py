"""Sums at coordinates, on a GPU; they have one order."""

from __future__ import annotations

from ....graph.ops import expr as e
from ....graph.ops import pick as ops
from ...codegen.cuda_loops import bind_cuda
from ...cuda.runtime import Step
from ...device.device import Device
from .by_index import Sums, picked
from .copies import moved
from .indexing import places_of
from .support import cuda


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
