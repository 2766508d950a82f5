"""Copies between layouts."""

from __future__ import annotations

from typing import Any

from ...device.device import Device
from ..registry import Step
from .primitive import reordered
from .support import onednn


@onednn("transfer_layout")
def transfer_layout(dev: Device, x: Any, out: Any) -> list[Step]:
    return reordered(dev, x, out)
