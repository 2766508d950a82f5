"""Kernels that copy elements into another shape: views made when binding, one copy in a step."""

from __future__ import annotations

from ....graph.ops.operands import Gradient, Operands, Unary
from ....graph.ops.view import VIEWS
from ...device.device import Device
from ..registry import Step, kernel
from .manipulation import copied


@kernel("reshape_at", "unsqueeze_at", *VIEWS, low=True)
def reshape(dev: Device, a: Unary) -> list[Step]:
    if a.x.flags.c_contiguous:
        return copied(dev, a.out, a.x.reshape(a.out.shape))
    return copied(dev, a.out.reshape(a.x.shape), a.x)


@kernel(*(f"{name}_grad" for name in VIEWS), low=True)
def reshape_grad(dev: Device, a: Gradient) -> list[Step]:
    return [] if a.d_x is None else copied(dev, a.d_x.reshape(a.d_out.shape), a.d_out)


@kernel(*(f"{name}_grad_grad" for name in VIEWS), low=True)
def second_order(dev: Device, a: Operands) -> list[Step]:
    ddx, dd_out = vars(a)["ddx"], vars(a)["dd_out"]
    return [] if dd_out is None else copied(dev, dd_out.reshape(ddx.shape), ddx)
