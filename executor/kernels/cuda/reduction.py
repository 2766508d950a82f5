"""Reductions over any dimensions: one launch, or two where few results are formed of many elements."""

from __future__ import annotations

from functools import partial

import numpy as np

from ....graph.ops.operands import Array, Unary
from ....graph.ops.reduction import Reduce, axes_of
from ...codegen import cuda_launches as gpu
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from ..array.reduction import one_type, runs
from .rows import accumulator, chunk_of, share_columns, share_rows, size_of, vector
from .support import cuda, floating

_INCLUDES = ("reduce.cuh",)


def reduced(
    dev: Device,
    op: str,
    x: Array,
    out: Array,
    axes: tuple[int, ...],
    *,
    of: str = "Itself",
    factor: float = 1,
) -> list[Step]:
    """Reduce a dense array; what comes out is multiplied by ``factor`` (whole numbers: divided by it).

    The last dimensions go first, and dimensions that are apart one after the other.
    """
    dims = runs(x.shape, axes)
    steps: list[Step] = []
    while True:
        at = next((i for i in range(len(dims) - 1, -1, -1) if dims[i][1]), None)
        outer = size_of(dims[:at])
        rows, inner = (1, 1) if at is None else (dims[at][0], size_of(dims[at + 1 :]))
        dims = [g for i, g in enumerate(dims) if i != at]
        last = not any(goes for _, goes in dims)
        target = out if last else dev.scratch((outer * inner,), accumulator(x.dtype))
        by = factor if last else 1
        if inner == 1:
            steps += _rows(dev, (op, of), x, target, (outer, rows), by)
        else:
            steps += _columns(dev, (op, of), x, target, (outer, rows, inner), by)
        if last:
            return steps
        x, of = target, "Itself"


def _rows(
    dev: Device, how: tuple[str, str], x: Array, out: Array, sizes: tuple[int, int], factor: float
) -> list[Step]:
    rows, width = sizes
    chunk = chunk_of(rows, width)
    chunks = max(-(-width // chunk), 1)
    target = out if chunks == 1 else dev.scratch((rows * chunks,), accumulator(x.dtype))
    size = vector(dev, width, x)
    sharing = share_rows(rows * chunks, chunk, size)
    if sharing.group != 32:
        sharing = sharing._replace(group=gpu.BLOCK, block=gpu.BLOCK)
    kinds = (*how, *_types(x, target), str(sharing.group), str(size))
    arguments = [*gpu.read(x=x), *gpu.written(out=target)]
    arguments += gpu.longs(rows=rows, width=width, chunks=chunks, chunk=chunk)
    arguments.append(_factor(x, factor if chunks == 1 else 1))
    blocks, block = sharing.blocks, sharing.block
    step = gpu.call(dev, "block_reduce_rows", kinds, arguments, blocks, _INCLUDES, block)
    if chunks == 1:
        return [step]
    return [step, *_rows(dev, (how[0], "Itself"), target, out, (rows, chunks), factor)]


def _columns(
    dev: Device,
    how: tuple[str, str],
    x: Array,
    out: Array,
    sizes: tuple[int, int, int],
    factor: float,
) -> list[Step]:
    outer, rows, width = sizes
    tiles = share_columns(outer, rows, width, vector(dev, width, x), few=True)
    whole = tiles.chunks == 1
    target = out if whole else dev.scratch((outer * tiles.chunks * width,), accumulator(x.dtype))
    kinds = (*how, *_types(x, target), tiles.text)
    arguments = [*gpu.read(x=x), *gpu.written(out=target)]
    arguments += gpu.longs(outer=outer, rows=rows, width=width, chunk=tiles.chunk)
    arguments.append(_factor(x, factor if whole else 1))
    step = gpu.call(dev, "block_reduce_columns", kinds, arguments, tiles.grid, _INCLUDES)
    if whole:
        return [step]
    return [
        step,
        *_columns(dev, (how[0], "Itself"), target, out, (outer, tiles.chunks, width), factor),
    ]


def _types(x: Array, target: Array) -> tuple[str, ...]:
    return c_type(x.dtype), c_type(accumulator(x.dtype)), c_type(target.dtype)


def _factor(x: Array, value: float) -> gpu.Argument:
    return f"{c_type(accumulator(x.dtype))} factor", value


def _count(x: Array, out: Array) -> int:
    return max(x.size // max(out.size, 1), 1)


def _register(op_type: str, op: str) -> None:
    @cuda(op_type, takes=one_type)
    def bind(dev: Device, a: Reduce) -> list[Step]:
        return reduced(dev, op, a.x, a.out, axes_of(a.x.ndim, a.dim, a.reduce_all))


for _op_type, _op in (
    ("reduce_sum", "Sum"),
    ("reduce_max", "Max"),
    ("reduce_min", "Min"),
    ("reduce_prod", "Product"),
    ("reduce_all", "All"),
    ("reduce_any", "Any"),
):
    _register(_op_type, _op)


def _mean_factor(x: Array, out: Array) -> float:
    return _count(x, out) if accumulator(x.dtype) == np.int64 else 1.0 / _count(x, out)


@cuda("reduce_mean", takes=one_type)
def reduce_mean(dev: Device, a: Reduce) -> list[Step]:
    axes = axes_of(a.x.ndim, a.dim, a.reduce_all)
    return reduced(dev, "Sum", a.x, a.out, axes, factor=_mean_factor(a.x, a.out))


@cuda("mean")
def mean(dev: Device, a: Unary) -> list[Step]:
    return reduced(dev, "Sum", a.x, a.out, tuple(range(a.x.ndim)), factor=_mean_factor(a.x, a.out))


def _whole(op: str, of: str, dev: Device, a: Unary) -> list[Step]:
    return reduced(dev, op, a.x, a.out, tuple(range(a.x.ndim)), of=of)


cuda("squared_l2_norm", takes=floating)(partial(_whole, "Sum", "Square"))
cuda("isfinite")(partial(_whole, "All", "Finite"))
cuda("isnan")(partial(_whole, "Any", "NotNumber"))
cuda("isinf")(partial(_whole, "Any", "Infinite"))
