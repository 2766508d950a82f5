"""Layer norm: a row is read once; the backward pass sums the gradients of scale and shift on the way."""

from __future__ import annotations

import math
from typing import Any

from ....graph.ops.norm import LayerNorm, LayerNormGrad
from ....graph.ops.operands import Array
from ....graph.ops.residual_norm import ADD_NORM, NORM_GRAD_ADD, AddLayerNorm, LayerNormGradAdd
from ...codegen.cuda_launches import Maybe, call, ints, longs, numbers, read, written
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from .rows import accumulator, share_rows, vector
from .support import cuda, floating
from .tiles import INCLUDES, PER_BLOCK, columns

_BLOCKS = 256  # of which each adds up the gradients of scale and shift over its rows


def _given(array: Array | None, like: Array) -> Any:
    """Return an array of the type that scale and shift have, or would have."""
    return like if array is None else array


@cuda("layer_norm", ADD_NORM, takes=floating)
def layer_norm(dev: Device, a: LayerNorm) -> list[Step]:
    statistic = next((s for s in (a.mean, a.variance) if s is not None), a.x)
    rows, width = _sizes(a.x, a.begin_norm_axis)
    parameter = _given(a.scale, _given(a.bias, a.x))
    kind = c_type(accumulator(a.x.dtype))
    z, total = (a.z, a.out) if isinstance(a, AddLayerNorm) else (None, None)
    shared = share_rows(rows, width, vector(dev, width, a.x, z, total, a.y, a.scale, a.bias))
    arguments = [
        *read(x=a.x, z=Maybe(z, a.x)),
        *written(sum=Maybe(total, a.x)),
        *read(scale=Maybe(a.scale, parameter), shift=Maybe(a.bias, parameter)),
        *written(y=Maybe(a.y, a.x)),
        *written(means=Maybe(a.mean, statistic), variances=Maybe(a.variance, statistic)),
        *longs(rows=rows),
        *ints(width=width),
        (f"{kind} epsilon", a.epsilon),
    ]
    kinds = (*(c_type(array.dtype) for array in (a.x, parameter, statistic)), kind, shared.text)
    return [call(dev, "block_layer_norm", kinds, arguments, shared.blocks, INCLUDES, shared.block)]


def _sizes(x: Array, axis: int) -> tuple[int, int]:
    """Return how many rows there are, and how long they are."""
    return math.prod(x.shape[:axis]), math.prod(x.shape[axis:])


@cuda("layer_norm_grad", NORM_GRAD_ADD, takes=floating)
def layer_norm_grad(dev: Device, a: LayerNormGrad) -> list[Step]:
    rows, width = _sizes(a.x, a.begin_norm_axis)
    sums = a.d_scale is not None or a.d_bias is not None
    addend = a.addend if isinstance(a, LayerNormGradAdd) else None
    size = vector(dev, width, a.x, a.d_y, a.d_x, addend, a.scale)
    shared = share_rows(rows, width, size, together=2, most_blocks=_BLOCKS if sums else 1 << 16)
    inside = sums and shared.vectors > 0 and (shared.block < 1024 or shared.vectors * size <= 8)
    tile = columns(dev, rows, width, a.x, a.d_y)
    chunks = 0 if not sums else shared.blocks if inside else tile.cut.chunks
    parts = [dev.scratch((chunks * width,), accumulator(a.x.dtype)) for _ in range(2)]
    operands = read(x=a.x, d_y=a.d_y, means=a.mean, variances=a.variance)
    sums_of = {"plain": parts[0], "along": parts[1]}
    epsilon = numbers(parts[0], epsilon=a.epsilon)
    steps: list[Step] = []
    if sums and not inside:
        arguments = [*operands, *written(**sums_of), *ints(channels=width), *epsilon]
        kinds = _types(a.x, a.mean, parts[0])
        steps.append(tile.launch(dev, "block_row_slopes", kinds, arguments))
    if inside or a.d_x is not None:
        parameter = _given(a.scale, next((d for d in (a.d_scale, a.d_bias) if d is not None), a.x))
        arguments = [
            *operands,
            *read(scale=Maybe(a.scale, parameter), addend=Maybe(addend, a.x)),
            *written(d_x=Maybe(a.d_x, a.x), **sums_of),
            *longs(rows=rows),
            *ints(width=width),
            *epsilon,
        ]
        kinds = (*_types(a.x, parameter, a.mean, parts[0]), str(inside).lower(), shared.text)
        how = (shared.blocks, INCLUDES, shared.block)
        steps.append(call(dev, "block_layer_norm_grad", kinds, arguments, *how))
    return [*steps, *_added(dev, sums_of, chunks, a.d_scale, a.d_bias)]


def _types(*arrays: Any) -> tuple[str, ...]:
    return tuple(c_type(a.dtype) for a in arrays)


def _added(
    dev: Device, sums_of: dict[str, Any], chunks: int, d_scale: Any, d_bias: Any
) -> list[Step]:
    """Add up what blocks have of the gradients of scale and shift."""
    if not chunks:
        return []
    parameter = _given(d_scale, d_bias)
    arguments = [
        *read(**sums_of),
        *ints(chunks=chunks, channels=parameter.size),
        *written(d_shift=Maybe(d_bias, parameter), d_scale=Maybe(d_scale, parameter)),
    ]
    blocks = -(-parameter.size // PER_BLOCK)
    kinds = _types(sums_of["plain"], parameter)
    return [call(dev, "block_add_rows", kinds, arguments, blocks, INCLUDES)]
