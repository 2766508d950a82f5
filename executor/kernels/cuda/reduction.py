"""Reductions over any dimensions: one launch, or two where few results are formed of many elements."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....graph.ir.graph import Node
from ....graph.ops.operands import Array, SlopeOfX, Unary
from ....graph.ops.reduction import Reduce, ReduceGrad, ReduceGradOfOut
from ...codegen import cuda_launches as gpu
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from ..array.reduction import axes_of, one_type
from .rows import accumulator, chunk_of, groups, share_columns, share_rows, size_of, vector
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
    dims = groups(x, axes)
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
        return reduced(dev, op, a.x, a.out, axes_of(a.x, a.dim, a.reduce_all))


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
    axes = axes_of(a.x, a.dim, a.reduce_all)
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


def spread(
    dev: Device,
    expression: str,
    x: Array | None,
    out: Array | None,
    d_out: Array,
    d_x: Any,
    axes: tuple[int, ...],
    factor: float = 1.0,
) -> list[Step]:
    """d_x = an expression of ``x`` and of its row's or column's results (``out``, ``d``).

    ``x`` and ``out`` are None where the expression does without them.
    """
    if d_x is None:
        return []
    index = _Index(groups(d_x, axes))
    kind = c_type(accumulator(d_x.dtype))
    size = vector(dev, index.last, x, d_x, *((out, d_out) if index.last_stays else ()))
    whole = "unsigned" if d_x.size < 1 << 31 else "long long"
    t = c_type(d_x.dtype)
    at = "at + j" if index.last_stays else "at"
    body = f"""\
for ({whole} i = thread_index() * {size}; i < size; i += thread_count() * {size}) {{
  {index.text(whole)}
  {f"const Vec<{t}, {size}> vector = load_vec<{size}>(x + i);" if x is not None else ""}
  Vec<{t}, {size}> result;
  #pragma unroll
  for (int j = 0; j < {size}; j++) {{
    const {kind} d = wide(d_out[{at}]);
    {f"const {kind} v = wide(vector.at[j]);" if x is not None else ""}
    {f"const {kind} o = wide(out[{at}]);" if out is not None else ""}
    result.at[j] = element<{t}>({expression});
  }}
  store_vec<{size}>(d_x + i, result);
}}"""
    arguments = [
        *gpu.read(x=gpu.Maybe(x, d_x), out=gpu.Maybe(out, d_x), d_out=d_out),
        *gpu.written(d_x=d_x),
    ]
    arguments += [(f"{whole} size", d_x.size), (f"{kind} factor", factor)]
    return [gpu.run(dev, "spread", body, arguments, gpu.enough_blocks(dev, d_x.size // size))]


class _Index:
    """The text from an element's index to its result's index; sizes are part of the source."""

    def __init__(self, dims: list[tuple[int, bool]]) -> None:
        self.dims = dims
        self.last = dims[-1][0] if dims else 1
        self.last_stays = bool(dims) and not dims[-1][1]

    def text(self, whole: str) -> str:
        sizes = [size for size, goes in self.dims if not goes]
        if not sizes:
            return f"const {whole} at = 0;"
        lines, step = [f"{whole} rest = i, at = 0;"], 1
        for k in range(len(self.dims) - 1, 0, -1):
            size, goes = self.dims[k]
            if not goes:
                lines.append(f"at += rest % {size} * {step};")
                step *= size
            lines.append(f"rest /= {size};")
        if not self.dims[0][1]:
            lines.append(f"at += rest * {step};")
        return " ".join(lines)


def _sloped(node: Node) -> bool:
    return floating(node) and one_type(node)


def _register_grad(op_type: str, expression: str, *, extreme: bool = False) -> None:
    """Register a gradient that an expression gives; of an ``extreme`` it reads the operand and the result."""

    @cuda(op_type, takes=_sloped)
    def bind(dev: Device, a: ReduceGrad) -> list[Step]:
        x, out = (a.x, a.out) if extreme and isinstance(a, ReduceGradOfOut) else (None, None)
        axes, factor = axes_of(a.x, a.dim, a.reduce_all), a.d_out.size / max(a.x.size, 1)
        return spread(dev, expression, x, out, a.d_out, a.d_x, axes, factor)


_register_grad("reduce_sum_grad", "d")
_register_grad("reduce_mean_grad", "d * factor")
for _name in ("reduce_max_grad", "reduce_min_grad"):
    _register_grad(_name, "v == o ? d : 0 * d", extreme=True)
_register_grad("reduce_prod_grad", "o / v * d", extreme=True)


@cuda("mean_grad", takes=floating)
def mean_grad(dev: Device, a: SlopeOfX) -> list[Step]:
    axes = tuple(range(a.x.ndim))
    return spread(dev, "d * factor", None, None, a.d_out, a.d_x, axes, 1.0 / max(a.x.size, 1))


@cuda("squared_l2_norm_grad", takes=floating)
def squared_l2_norm_grad(dev: Device, a: SlopeOfX) -> list[Step]:
    return spread(dev, "v * d * 2", a.x, None, a.d_out, a.d_x, tuple(range(a.x.ndim)))
