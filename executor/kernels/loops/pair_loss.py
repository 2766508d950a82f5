"""The focal loss in one loop."""

from __future__ import annotations

from dataclasses import replace

from ....graph.ir.graph import Node
from ....graph.ops.pair_loss import SigmoidFocalLoss, SigmoidFocalLossGrad
from ....strategies.types import INTEGERS
from ...device.device import Device
from ..array.pair_loss import focal, focal_slope
from ..registry import Step
from .elementwise import NUMBA, Loops


def register(loops: Loops) -> None:
    """Register the op and its gradient."""

    def takes(node: Node) -> bool:
        """Look at the floats alone: labels are read as numbers."""
        floats = {
            slot: tuple(v for v in values if v and v.spec.dtype not in INTEGERS)
            for slot, values in node.inputs.items()
        }
        return loops.takes(replace(node, inputs=floats))

    @loops.register("sigmoid_focal_loss", takes=takes)
    def sigmoid_focal_loss(dev: Device, a: SigmoidFocalLoss) -> list[Step]:
        return loops.bind(dev, *focal(dev, a))

    @loops.register("sigmoid_focal_loss_grad", takes=takes)
    def sigmoid_focal_loss_grad(dev: Device, a: SigmoidFocalLossGrad) -> list[Step]:
        return loops.bind(dev, *focal_slope(dev, a))


register(NUMBA)
