"""Kernels that fill, convert and index."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ...device.device import Device
from ..registry import Step, kernel
from .indexing import checked_rows


@kernel("fill_constant", "fill_constant_batch_size_like", low=True)
def fill_constant(dev: Device, out: Any, *, value: float, str_value: str) -> Step:
    return partial(out.fill, filling(out.dtype, value, str_value))


def filling(dtype: Any, value: float, str_value: str) -> Any:
    """Return the number to fill with; whole numbers in ``str_value`` keep all their digits."""
    whole = dtype.kind in "iu" and str_value.lstrip("+-").isdigit()
    return dtype.type(int(str_value) if whole else float(str_value) if str_value else value)


@kernel("sample_share", low=True)
def sample_share(dev: Device, out: Any) -> Step:
    clock = dev.clock
    return lambda: out.fill(clock.share)


@kernel("fill_zeros_like", low=True)
def fill_zeros_like(dev: Device, out: Any) -> Step:
    return partial(out.fill, 0)


@kernel("fill_any_like", low=True)
def fill_any_like(dev: Device, out: Any, *, value: float) -> Step:
    return partial(out.fill, out.dtype.type(value))


@kernel("assign_value", low=True)
def assign_value(
    dev: Device,
    out: Any,
    *,
    bool_values: Any,
    fp32_values: Any,
    int32_values: Any,
    int64_values: Any,
) -> Step:
    given = fp32_values or int64_values or int32_values or bool_values
    value = dev.xp.asarray(np.array(given).astype(out.dtype).reshape(out.shape))
    return partial(dev.xp.copyto, out, value)


@kernel("assign", low=True)
def assign(dev: Device, x: Any, out: Any) -> list[Step]:
    return [] if out is None else [partial(dev.xp.copyto, out, x)]


@kernel("increment")
def increment(dev: Device, x: Any, out: Any, *, step: float) -> Step:
    return partial(dev.xp.add, x, x.dtype.type(step), out)


@kernel("cast", low=True)
def cast(dev: Device, x: Any, out: Any) -> list[Step]:
    return [] if out is None else [partial(dev.xp.copyto, out, x, casting="unsafe")]


@kernel("shape", low=True)
def shape(dev: Device, input: Any, out: Any) -> Step:
    sizes = dev.xp.asarray(np.array(input.shape, np.int32))
    return partial(dev.xp.copyto, out, sizes)


@kernel("one_hot", "one_hot_v2", low=True)
def one_hot(dev: Device, x: Any, out: Any, *, depth: int, allow_out_of_range: bool) -> list[Step]:
    """1 at the index, 0 elsewhere; a row of 0 for an index outside ``depth``, if that is allowed."""
    flat = x.reshape(-1, 1)
    classes = dev.xp.arange(depth)
    mask = out.reshape(-1, depth)
    hit = dev.scratch(mask.shape, np.bool_)
    checks = [] if allow_out_of_range else [checked_rows("one_hot", flat, depth)]
    return [
        *checks,
        partial(dev.xp.equal, flat, classes, hit),
        partial(dev.xp.copyto, mask, hit),
    ]


@kernel("top_k")
def top_k(dev: Device, x: Any, out: Any, indices: Any, *, k: int) -> Step:
    """Largest first; equal elements in the order of their index."""
    xp = dev.xp

    def run() -> None:
        if k == 1:
            indices[..., 0] = x.argmax(axis=-1)
        else:
            xp.copyto(indices, xp.argsort(-x, axis=-1, kind="stable")[..., :k])
        out[...] = xp.take_along_axis(x, indices, axis=-1)

    return run


@kernel("top_k_grad", low=True)
def top_k_grad(dev: Device, x: Any, indices: Any, d_out: Any, d_x: Any) -> list[Step]:
    if d_x is None:
        return []
    return [partial(d_x.fill, 0), lambda: dev.xp.put_along_axis(d_x, indices, d_out, axis=-1)]


@kernel("arg_max")
def arg_max(dev: Device, x: Any, out: Any, *, axis: int) -> Step:
    return lambda: out.__setitem__(..., x.argmax(axis=axis).reshape(out.shape))


@kernel("arg_min")
def arg_min(dev: Device, x: Any, out: Any, *, axis: int) -> Step:
    return lambda: out.__setitem__(..., x.argmin(axis=axis).reshape(out.shape))
