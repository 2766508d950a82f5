"""Layer norm: a row is read once, and its gradient adds up those of scale and shift on the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from .launches import Argument, call, read, written
from .rows import accumulator, share_rows, vector
from .support import cuda, floating
from .tiles import INCLUDES, PER_BLOCK, columns

_BLOCKS = 256  # of which each adds up the gradients of scale and shift over its rows


def _given(array: Any, like: Any) -> Any:
    """Return an array of the type that scale and shift have, or would have."""
    return like if array is None else array


@cuda("layer_norm", takes=floating)
def layer_norm(
    dev: Device,
    x: Any,
    scale: Any,
    bias: Any,
    y: Any,
    mean: Any,
    variance: Any,
    *,
    begin_norm_axis: int,
    epsilon: float,
) -> list[Step]:
    statistic = next((s for s in (mean, variance) if s is not None), x)
    rows, width = _sizes(x, begin_norm_axis)
    parameter = _given(scale, _given(bias, x))
    kind = c_type(accumulator(x.dtype))
    shared = share_rows(rows, width, vector(dev, width, x, y, scale, bias))
    given = [
        read("x", x),
        read("scale", scale, parameter),
        read("shift", bias, parameter),
        written("y", y, x),
        written("means", mean, statistic),
        written("variances", variance, statistic),
        ("long long rows", rows),
        ("int width", width),
        (f"{kind} epsilon", epsilon),
    ]
    kinds = (*(c_type(a.dtype) for a in (x, parameter, statistic)), kind, shared.text)
    return [call(dev, "block_layer_norm", kinds, given, shared.blocks, INCLUDES, shared.block)]


def _sizes(x: Any, axis: int) -> tuple[int, int]:
    """Return how many rows there are, and how long they are."""
    return math.prod(x.shape[:axis]), math.prod(x.shape[axis:])


@cuda("layer_norm_grad", takes=floating)
def layer_norm_grad(
    dev: Device,
    x: Any,
    scale: Any,
    mean: Any,
    variance: Any,
    d_y: Any,
    d_x: Any,
    d_scale: Any,
    d_bias: Any,
    *,
    begin_norm_axis: int,
    epsilon: float,
) -> list[Step]:
    rows, width = _sizes(x, begin_norm_axis)
    sums = d_scale is not None or d_bias is not None
    size = vector(dev, width, x, d_y, d_x, scale)
    shared = share_rows(rows, width, size, together=2, most_blocks=_BLOCKS if sums else 1 << 16)
    inside = sums and shared.held > 0 and (shared.block < 1024 or shared.held * size <= 8)
    tile = columns(dev, rows, width, x, d_y)
    chunks = 0 if not sums else shared.blocks if inside else tile.cut.chunks
    parts = [dev.scratch((chunks * width,), accumulator(x.dtype)) for _ in range(2)]
    operands = [
        read("x", x), read("d_y", d_y), read("means", mean), read("variances", variance),
    ]  # fmt: skip
    steps: list[Step] = []
    if sums and not inside:
        given = [
            *operands,
            *_parts(parts, written),
            ("int channels", width),
            (f"{c_type(parts[0].dtype)} epsilon", epsilon),
        ]
        kinds = _types(x, mean, parts[0])
        steps.append(tile.launch(dev, "block_row_slopes", kinds, given))
    if inside or d_x is not None:
        parameter = _given(scale, next((d for d in (d_scale, d_bias) if d is not None), x))
        given = [
            *operands,
            read("scale", scale, parameter),
            written("d_x", d_x, x),
            *_parts(parts, written),
            ("long long rows", rows),
            ("int width", width),
            (f"{c_type(parts[0].dtype)} epsilon", epsilon),
        ]
        kinds = (*_types(x, parameter, mean, parts[0]), str(inside).lower(), shared.text)
        how = (shared.blocks, INCLUDES, shared.block)
        steps.append(call(dev, "block_layer_norm_grad", kinds, given, *how))
    return [*steps, *_added(dev, parts, chunks, d_scale, d_bias)]


def _parts(parts: list[Any], how: Callable[[str, Any], Argument]) -> list[Argument]:
    return [how("plain", parts[0]), how("along", parts[1])]


def _types(*arrays: Any) -> tuple[str, ...]:
    return tuple(c_type(a.dtype) for a in arrays)


def _added(dev: Device, parts: list[Any], chunks: int, d_scale: Any, d_bias: Any) -> list[Step]:
    """Add up what blocks have of the gradients of scale and shift."""
    if not chunks:
        return []
    parameter = _given(d_scale, d_bias)
    given = [
        *_parts(parts, read),
        ("int chunks", chunks),
        ("int channels", parameter.size),
        written("d_shift", d_bias, parameter),
        written("d_scale", d_scale, parameter),
    ]
    blocks = -(-parameter.size // PER_BLOCK)
    kinds = _types(parts[0], parameter)
    return [call(dev, "block_add_rows", kinds, given, blocks, INCLUDES)]
