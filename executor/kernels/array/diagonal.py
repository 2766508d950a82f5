"""Kernels of identity matrices and traces; ``moves.py`` has the others of the family."""

from __future__ import annotations

from functools import partial

from ....graph.ops.diagonal import Eye, Trace
from ...device.device import Device
from ..registry import Step, kernel
from .moves import diagonal_of


@kernel("eye", low=True)
def eye(dev: Device, a: Eye) -> list[Step]:
    return [partial(a.out.fill, 0), partial(diagonal_of(a.out, 0, 0, 1).fill, 1)]


@kernel("trace")
def trace(dev: Device, a: Trace) -> list[Step]:
    view = diagonal_of(a.input, a.offset, a.dim1, a.dim2)
    return [partial(dev.xp.add.reduce, view, -1, None, a.out.reshape(view.shape[:-1]))]
