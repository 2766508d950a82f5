"""Copies between host and GPU."""

from __future__ import annotations

from functools import partial

from ....graph.ops.layout import Memcpy
from ...device.device import Device
from ..registry import Step, kernel


@kernel("memcpy", low=True)
def memcpy(dev: Device, a: Memcpy) -> list[Step]:
    if not a.x.size:
        return []
    if dev.runtime is None:
        return [partial(dev.xp.copyto, a.out, a.x)]
    return [dev.runtime.copying(a.out, a.x)]
