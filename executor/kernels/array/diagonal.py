"""Kernels of identity matrices, traces and triangles; ``moves.py`` has the others of the family."""

from __future__ import annotations

from functools import partial
from typing import Any

from ....graph.ops.diagonal import Eye, Trace, TrilTriu, TrilTriuGrad
from ....graph.ops.operands import Array
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


def _triangle(dev: Device, out: Array, x: Array, a: TrilTriu | TrilTriuGrad) -> list[Step]:
    rows, columns = x.shape[-2:]
    lower: Any = dev.xp.tri(rows, columns, a.diagonal - (not a.lower), bool)
    inside = lower if a.lower else ~lower
    return [partial(out.fill, 0), partial(dev.xp.copyto, out, x, where=inside)]


@kernel("tril_triu", low=True)
def tril_triu(dev: Device, a: TrilTriu) -> list[Step]:
    return _triangle(dev, a.out, a.x, a)


@kernel("tril_triu_grad", low=True)
def tril_triu_grad(dev: Device, a: TrilTriuGrad) -> list[Step]:
    return _triangle(dev, a.d_x, a.d_out, a)
