"""Ops that move elements, on a GPU: each pair of views is one launch; and triangles and traces."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.ops import expr as e
from ....graph.ops.diagonal import Eye, Trace, TrilTriu, TrilTriuGrad
from ....graph.ops.operands import Array
from ....graph.ops.window import PartialSum
from ...codegen.cuda_loops import bind_cuda
from ...cuda.runtime import Step
from ...device.device import Device
from ..array.moves import columns, diagonal_of, register
from .copies import filled, moved
from .reduction import reduced
from .support import cuda

register(cuda, moved, filled)


@cuda("partial_sum")
def partial_sum(dev: Device, a: PartialSum) -> list[Step]:
    """All operands in one pass."""
    parts = {f"x{i}": columns(x, a.start_index, a.out.shape[1]) for i, x in enumerate(a.x)}
    terms = [e.argument(name) for name in parts]
    total = e.copy(terms[0])
    for term in terms[1:]:
        total = total + term
    return bind_cuda(dev, [(total, a.out)], parts)


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


def _triangle(dev: Device, out: Array, x: Array, a: TrilTriu | TrilTriuGrad) -> list[Step]:
    rows, columns = x.shape[-2:]
    lower: Any = np.tri(rows, columns, a.diagonal - (not a.lower), bool)
    inside = dev.xp.asarray(lower if a.lower else ~lower)
    chosen = e.where(e.argument("inside"), e.argument("x"), 0)
    return bind_cuda(dev, [(chosen, out)], {"x": x, "inside": inside})


@cuda("tril_triu")
def tril_triu(dev: Device, a: TrilTriu) -> list[Step]:
    """X within the triangle, zero beside it."""
    return _triangle(dev, a.out, a.x, a)


@cuda("tril_triu_grad")
def tril_triu_grad(dev: Device, a: TrilTriuGrad) -> list[Step]:
    """The gradient within the triangle, zero beside it."""
    return _triangle(dev, a.d_x, a.d_out, a)
