"""Kernels that add up parts of tensors."""

from __future__ import annotations

from functools import partial

from ....graph.ops.window import PartialSum
from ...device.device import Device
from ..registry import Step, kernel
from .moves import columns


@kernel("partial_sum")
def partial_sum(dev: Device, a: PartialSum) -> list[Step]:
    first, *rest = (columns(x, a.start_index, a.out.shape[1]) for x in a.x)
    steps: list[Step] = [partial(dev.xp.copyto, a.out, first)]
    return [*steps, *(partial(dev.xp.add, a.out, part, a.out) for part in rest)]
