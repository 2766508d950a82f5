"""Kernels that add up parts of tensors."""

from __future__ import annotations

from functools import partial

from ....graph.ops.window import PartialSum, PartialSumGrad
from ...device.device import Device
from ..registry import Step, kernel
from .moves import columns


@kernel("partial_sum")
def partial_sum(dev: Device, a: PartialSum) -> list[Step]:
    first, *rest = (columns(x, a.start_index, a.out.shape[1]) for x in a.x)
    steps: list[Step] = [partial(dev.xp.copyto, a.out, first)]
    return [*steps, *(partial(dev.xp.add, a.out, part, a.out) for part in rest)]


@kernel("partial_sum_grad", low=True)
def partial_sum_grad(dev: Device, a: PartialSumGrad) -> list[Step]:
    """The gradient in the columns that were taken, zero beside them."""
    steps: list[Step] = []
    for d_x in a.d_x:
        if d_x is not None:
            part = columns(d_x, a.start_index, a.d_out.shape[1])
            steps += [partial(d_x.fill, 0), partial(dev.xp.copyto, part, a.d_out)]
    return steps
