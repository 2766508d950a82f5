"""Numbers in a row, on a GPU."""

from __future__ import annotations

import numpy as np

from ....graph.ops import expr as e
from ....graph.ops import ranges as ops
from ....graph.ops.operands import Unary
from ...codegen.cuda_loops import bind_cuda
from ...codegen.cuda_loops import fill as constant
from ...cuda.runtime import Step
from ...device.device import Device
from ..array.ranges import linspace_shares, range_numbers
from .copies import filled
from .creation import written
from .support import cuda


@cuda("fill")
def fill(dev: Device, a: ops.Fill) -> list[Step]:
    """The values in their order."""
    return written(dev, a.out, np.reshape(a.value, a.out.shape))


@cuda("fill_zeros_like2")
def fill_zeros_like2(dev: Device, a: ops.FillZerosLike2) -> list[Step]:
    """Zeros."""
    return constant(dev, a.out, 0)


@cuda("size")
def size(dev: Device, a: ops.Size) -> list[Step]:
    """The number of elements."""
    return constant(dev, a.out, a.input.size)


@cuda("is_empty")
def is_empty(dev: Device, a: Unary) -> list[Step]:
    """Whether there are none."""
    return filled(dev, a.out, a.x.size == 0)


@cuda("range")
def range_(dev: Device, a: ops.Range) -> list[Step]:
    """Numbers that are known now."""
    return written(dev, a.out, range_numbers(a))


@cuda("linspace")
def linspace(dev: Device, a: ops.Linspace) -> list[Step]:
    """start + i (stop - start) / (num - 1)."""
    share = dev.xp.asarray(linspace_shares(a.num))
    start, stop, shares = (e.argument(name) for name in ("start", "stop", "share"))
    operands = {"start": a.start.reshape(1), "stop": a.stop.reshape(1), "share": share}
    return bind_cuda(dev, [(start + shares * (stop - start), a.out)], operands)
