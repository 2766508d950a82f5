"""Copies between layouts (both arrays have one shape, their strides differ), and between host and GPU."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...device.device import Device
from ..registry import Step, kernel


@kernel("transfer_layout", low=True)
def transfer_layout(dev: Device, x: Any, out: Any) -> Step:
    return partial(dev.xp.copyto, out, x)


@kernel("memcpy", low=True)
def memcpy(dev: Device, x: Any, out: Any, *, dst_place_type: int) -> list[Step]:
    if not x.size:
        return []
    if dev.runtime is None:
        return [partial(dev.xp.copyto, out, x)]
    return [dev.runtime.copying(out, x)]
