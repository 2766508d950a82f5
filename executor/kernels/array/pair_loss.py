"""The focal loss: expressions of an element, its row's label, and its column's class."""

from __future__ import annotations

from typing import Any

from ....graph.ops.expr import argument
from ....graph.ops.pair_loss import SigmoidFocalLoss, SigmoidFocalLossGrad, focal_terms
from ...device.device import Device
from ..registry import Step, kernel
from .expression import Written, bind_written


def focal(dev: Device, a: SigmoidFocalLoss) -> tuple[Written, dict[str, Any]]:
    """Return the loss, and the arrays that it reads."""
    loss, _ = focal_terms(*map(argument, _NAMES), gamma=a.gamma, alpha=a.alpha)
    return [(loss, a.out)], _operands(dev, a)


def focal_slope(dev: Device, a: SigmoidFocalLossGrad) -> tuple[Written, dict[str, Any]]:
    """Return the gradient, and the arrays that it reads."""
    _, slope = focal_terms(*map(argument, _NAMES), gamma=a.gamma, alpha=a.alpha)
    return [(slope * argument("d"), a.d_x)], {**_operands(dev, a), "d": a.d_out}


_NAMES = ("x", "label", "fg_num", "column")


def _operands(dev: Device, a: SigmoidFocalLoss | SigmoidFocalLossGrad) -> dict[str, Any]:
    column = dev.xp.arange(1, a.x.shape[1] + 1, dtype=a.label.dtype)
    return {"x": a.x, "label": a.label, "fg_num": a.fg_num.reshape(1), "column": column}


@kernel("sigmoid_focal_loss")
def sigmoid_focal_loss(dev: Device, a: SigmoidFocalLoss) -> list[Step]:
    return bind_written(dev, *focal(dev, a))


@kernel("sigmoid_focal_loss_grad")
def sigmoid_focal_loss_grad(dev: Device, a: SigmoidFocalLossGrad) -> list[Step]:
    return bind_written(dev, *focal_slope(dev, a))
