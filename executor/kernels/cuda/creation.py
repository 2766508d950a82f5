"""Kernels that fill, copy and convert."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.ops import creation as ops
from ....graph.ops import expr as e
from ....graph.ops.operands import Array, Unary
from ...codegen.cuda_loops import bind_cuda, fill
from ...device.device import Device
from ..array.creation import filling
from ..registry import Step
from .elementwise import CUDA
from .support import constant


@CUDA.register("fill_constant", "fill_constant_batch_size_like")
def fill_constant(dev: Device, a: ops.FillConstant | ops.FillConstantBatchSizeLike) -> list[Step]:
    return fill(dev, a.out, filling(a.out.dtype, a.value, a.str_value))


@CUDA.register("sample_share")
def sample_share(dev: Device, a: ops.SampleShare) -> list[Step]:
    share = dev.ticks.view(np.float64)[2:]
    return bind_cuda(dev, [(e.copy(e.argument("share")), a.out)], {"share": share})


@CUDA.register("fill_zeros_like", "fill_zeros_like2")
def fill_zeros_like(dev: Device, a: Unary) -> list[Step]:
    return fill(dev, a.out, 0)


@CUDA.register("fill_any_like")
def fill_any_like(dev: Device, a: ops.FillAnyLike) -> list[Step]:
    return fill(dev, a.out, a.value)


@CUDA.register("assign_value")
def assign_value(dev: Device, a: ops.AssignValue) -> list[Step]:
    numbers = a.fp32_values or a.int64_values or a.int32_values or a.bool_values
    return written(dev, a.out, np.reshape(numbers, a.out.shape))


@CUDA.register("shape")
def shape(dev: Device, a: ops.Shape) -> list[Step]:
    return written(dev, a.out, a.input.shape)


def written(dev: Device, out: Array, value: Any) -> list[Step]:
    """Return the calls that copy numbers, which are sent to the GPU now."""
    numbers = constant(dev, np.asarray(value).astype(out.dtype))
    return bind_cuda(dev, [(e.copy(e.argument("x")), out)], {"x": numbers})


@CUDA.register("assign", "cast")
def assign(dev: Device, a: ops.Assign | ops.Cast) -> list[Step]:
    """Copy, and convert: what is behind the point is dropped, what is not 0 is true."""
    return bind_cuda(dev, [(e.copy(e.argument("x")), a.out)], {"x": a.x})


@CUDA.register("increment")
def increment(dev: Device, a: ops.Increment) -> list[Step]:
    by = int(a.step) if a.x.dtype.kind in "iu" else a.step
    return bind_cuda(dev, [(e.argument("x") + by, a.out)], {"x": a.x})
