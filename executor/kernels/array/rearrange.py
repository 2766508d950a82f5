"""Kernels that take tensors apart; ``moves.py`` has the others of the family."""

from __future__ import annotations

from ....graph.ops.rearrange import Unbind
from ...device.device import Device
from ..registry import Step, kernel
from .manipulation import copied, layers


@kernel("unbind", low=True)
def unbind(dev: Device, a: Unbind) -> list[Step]:
    pairs = zip(a.out, layers(a.x, len(a.out), a.axis), strict=True)
    return [
        step
        for out, layer in pairs
        if out is not None
        for step in copied(dev, out, layer.reshape(out.shape))
    ]
