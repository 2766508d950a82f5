"""Sums at coordinates."""

from __future__ import annotations

from functools import partial

from ....graph.ops import pick as ops
from ...device.device import Device
from ..registry import Step, kernel
from .indexing import places_of, taken


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
