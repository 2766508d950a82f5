"""Kernels that fill, convert and index."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....graph.ops import creation as ops
from ....graph.ops.largest import largest_first
from ....graph.ops.operands import Unary
from ...device.device import Device
from ..registry import Step, kernel


@kernel("fill_constant", "fill_constant_batch_size_like", low=True)
def fill_constant(dev: Device, a: ops.FillConstant | ops.FillConstantBatchSizeLike) -> Step:
    return partial(a.out.fill, filling(a.out.dtype, a.value, a.str_value))


@kernel("fill_constant_at", low=True)
def fill_constant_at(dev: Device, a: ops.FillConstant) -> Step:
    number = a.value_tensor
    if number is None:
        return partial(a.out.fill, filling(a.out.dtype, a.value, a.str_value))
    return partial(dev.xp.copyto, a.out, number.reshape(-1)[:1], casting="unsafe")


def filling(dtype: Any, value: float, str_value: str) -> Any:
    """Return the number to fill with; whole numbers in ``str_value`` keep all their digits."""
    whole = dtype.kind in "iu" and str_value.lstrip("+-").isdigit()
    return dtype.type(int(str_value) if whole else float(str_value) if str_value else value)


@kernel("sample_share", low=True)
def sample_share(dev: Device, a: ops.SampleShare) -> Step:
    clock = dev.clock
    return lambda: a.out.fill(clock.share)


@kernel("fill_zeros_like", "fill_zeros_like2", low=True)
def fill_zeros_like(dev: Device, a: Unary) -> Step:
    return partial(a.out.fill, 0)


@kernel("fill_any_like", low=True)
def fill_any_like(dev: Device, a: ops.FillAnyLike) -> Step:
    return partial(a.out.fill, a.out.dtype.type(a.value))


@kernel("assign_value", low=True)
def assign_value(dev: Device, a: ops.AssignValue) -> Step:
    numbers = a.fp32_values or a.int64_values or a.int32_values or a.bool_values
    value = dev.xp.asarray(np.array(numbers).astype(a.out.dtype).reshape(a.out.shape))
    return partial(dev.xp.copyto, a.out, value)


@kernel("assign", low=True)
def assign(dev: Device, a: ops.Assign) -> list[Step]:
    return [partial(dev.xp.copyto, a.out, a.x)]


@kernel("increment")
def increment(dev: Device, a: ops.Increment) -> Step:
    return partial(dev.xp.add, a.x, a.x.dtype.type(a.step), a.out)


@kernel("cast", low=True)
def cast(dev: Device, a: ops.Cast) -> list[Step]:
    return [partial(dev.xp.copyto, a.out, a.x, casting="unsafe")]


@kernel("shape", low=True)
def shape(dev: Device, a: ops.Shape) -> Step:
    sizes = dev.xp.asarray(np.array(a.input.shape, np.int32))
    return partial(dev.xp.copyto, a.out, sizes)


@kernel("top_k", "top_k_at")
def top_k(dev: Device, a: ops.TopK) -> Step:
    """Largest first; equal elements in the order of their index."""
    xp, k = dev.xp, a.out.shape[-1]

    def run() -> None:
        if k == 1:
            a.indices[..., 0] = a.x.argmax(axis=-1)
        else:
            host = xp is np
            order = largest_first(a.x, k) if host else xp.argsort(-a.x, axis=-1, kind="stable")
            xp.copyto(a.indices, order[..., :k])
        a.out[...] = xp.take_along_axis(a.x, a.indices, axis=-1)

    return run


@kernel("top_k_grad", low=True)
def top_k_grad(dev: Device, a: ops.TopKGrad) -> list[Step]:
    return [
        partial(a.d_x.fill, 0),
        lambda: dev.xp.put_along_axis(a.d_x, a.indices, a.d_out, axis=-1),
    ]


def _place_of(name: str, dev: Device, a: ops.ArgExtreme) -> Step:
    return lambda: a.out.__setitem__(..., getattr(a.x, name)(axis=a.axis).reshape(a.out.shape))


kernel("arg_max")(partial(_place_of, "argmax"))
kernel("arg_min")(partial(_place_of, "argmin"))
