"""Batch norm, a sum and a relu that leaves a bit an element."""

from __future__ import annotations

from ....graph.ops.fused_norm import ADD_ACT, MASKED, MaskedBnAddActivation
from ...device.device import Device
from ..registry import Step, kernel
from .formula import ARRAY_MEANS, by_formula


@kernel(MASKED)
def masked_bn_add_activation(dev: Device, a: MaskedBnAddActivation) -> list[Step]:
    images = a.y if a.data_layout == "NHWC" else dev.xp.moveaxis(a.y, 1, -1)

    def pack() -> None:
        a.mask[...] = dev.xp.packbits(images > 0, bitorder="little")

    return [*by_formula(ADD_ACT, dev, a, ARRAY_MEANS), pack]
