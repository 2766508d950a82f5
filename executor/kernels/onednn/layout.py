"""Copies between layouts."""

from __future__ import annotations

from ....graph.ops.operands import Unary
from ...device.device import Device
from ..registry import Step
from .primitive import reordered
from .support import onednn


@onednn("transfer_layout")
def transfer_layout(dev: Device, a: Unary) -> list[Step]:
    return reordered(dev, a.x, a.out)
