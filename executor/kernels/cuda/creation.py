"""Kernels that fill, copy and convert."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.ops import expr as e
from ...codegen.cuda_loops import bind_cuda, fill
from ...device.device import Device
from ..registry import Step
from .elementwise import CUDA


@CUDA.register("fill_constant", "fill_constant_batch_size_like")
def fill_constant(dev: Device, out: Any, *, value: float, str_value: str) -> list[Step]:
    return fill(dev, out, float(str_value) if str_value else value)


@CUDA.register("sample_share")
def sample_share(dev: Device, out: Any) -> list[Step]:
    share = dev.ticks.view(np.float64)[2:]
    return bind_cuda(dev, [(e.copy(e.argument("share")), out)], {"share": share})


@CUDA.register("fill_zeros_like")
def fill_zeros_like(dev: Device, out: Any) -> list[Step]:
    return fill(dev, out, 0)


@CUDA.register("fill_any_like")
def fill_any_like(dev: Device, out: Any, *, value: float) -> list[Step]:
    return fill(dev, out, value)


@CUDA.register("assign_value")
def assign_value(
    dev: Device,
    out: Any,
    *,
    bool_values: Any,
    fp32_values: Any,
    int32_values: Any,
    int64_values: Any,
) -> list[Step]:
    given = fp32_values or int64_values or int32_values or bool_values
    return _written(dev, out, np.array(given).astype(out.dtype).reshape(out.shape))


@CUDA.register("shape")
def shape(dev: Device, input: Any, out: Any) -> list[Step]:
    return _written(dev, out, np.array(input.shape, out.dtype))


def _written(dev: Device, out: Any, value: np.ndarray) -> list[Step]:
    """Copy numbers that are sent to the GPU now."""
    return bind_cuda(dev, [(e.copy(e.argument("x")), out)], {"x": dev.xp.asarray(value)})


@CUDA.register("assign", "cast")
def assign(dev: Device, x: Any, out: Any) -> list[Step]:
    """Copy, and convert: what is behind the point is dropped, what is not 0 is true."""
    return [] if out is None else bind_cuda(dev, [(e.copy(e.argument("x")), out)], {"x": x})


@CUDA.register("increment")
def increment(dev: Device, x: Any, out: Any, *, step: float) -> list[Step]:
    by = int(step) if x.dtype.kind in "iu" else step
    return bind_cuda(dev, [(e.argument("x") + by, out)], {"x": x})
