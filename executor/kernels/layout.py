"""Copies between layouts: both arrays have one shape, their strides differ."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..device import Device
from .registry import Step, kernel


@kernel("transfer_layout")
def transfer_layout(dev: Device, x: Any, out: Any) -> Step:
    return partial(dev.xp.copyto, out, x)
