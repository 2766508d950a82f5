"""Copies between layouts (both arrays have one shape, their strides differ), and between host and GPU."""

from __future__ import annotations

from functools import partial

from ....graph.ops.layout import Memcpy
from ....graph.ops.operands import Unary
from ...device.device import Device
from ..registry import Step, kernel


@kernel("transfer_layout", low=True)
def transfer_layout(dev: Device, a: Unary) -> Step:
    return partial(dev.xp.copyto, a.out, a.x)


@kernel("memcpy", low=True)
def memcpy(dev: Device, a: Memcpy) -> list[Step]:
    if not a.x.size:
        return []
    if dev.runtime is None:
        return [partial(dev.xp.copyto, a.out, a.x)]
    return [dev.runtime.copying(a.out, a.x)]
