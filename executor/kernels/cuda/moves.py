"""Ops that move elements, on a GPU: each pair of views is one launch; and traces."""

from __future__ import annotations

from ....graph.ops.diagonal import Eye, Trace
from ...cuda.runtime import Step
from ...device.device import Device
from ..array.moves import diagonal_of, register
from .copies import filled, moved
from .reduction import reduced
from .support import cuda

register(cuda, moved, filled)


@cuda("eye")
def eye(dev: Device, a: Eye) -> list[Step]:
    """Zeros, and ones on the diagonal."""
    return [*filled(dev, a.out, 0), *filled(dev, diagonal_of(a.out, 0, 0, 1), 1)]


@cuda("trace")
def trace(dev: Device, a: Trace) -> list[Step]:
    """The diagonals, side by side, are added up."""
    view = diagonal_of(a.input, a.offset, a.dim1, a.dim2)
    rows = dev.scratch(view.shape, view.dtype)
    out = a.out.reshape(view.shape[:-1])
    return [*moved(dev, rows, view), *reduced(dev, "Sum", rows, out, (view.ndim - 1,))]
