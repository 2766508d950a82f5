"""Activations that take more than one pass of array calls, and their gradients."""

from __future__ import annotations

from functools import partial

from ....graph.ops.activation import Activation, Gelu
from ....graph.ops.operands import SlopeOfOut, SlopeOfX
from ...device.device import Device
from ..registry import Step
from .elementwise import activation, slope_at_operand, slope_at_result
from .support import onednn


class GeluGrad(SlopeOfX):
    """What a kernel reads of the record of ``gelu_grad``."""

    approximate: bool


def _gelu(approximate: bool) -> str:
    return "gelu_tanh" if approximate else "gelu"


@onednn("gelu")
def gelu(dev: Device, a: Gelu) -> list[Step]:
    return activation(dev, _gelu(a.approximate), a.x, a.out)


@onednn("gelu_grad", prefer_loops=True)
def gelu_grad(dev: Device, a: GeluGrad) -> list[Step]:
    return slope_at_operand(dev, _gelu(a.approximate), a.x, a.d_out, a.d_x)


def _forward(act: str, dev: Device, a: Activation) -> list[Step]:
    return activation(dev, act, a.x, a.out)


def _backward(act: str, dev: Device, a: SlopeOfOut) -> list[Step]:
    return slope_at_result(dev, act, a.out, a.d_out, a.d_x)


onednn("sigmoid", prefer_loops=True)(partial(_forward, "sigmoid"))
onednn("tanh")(partial(_forward, "tanh"))
for _act in ("sigmoid", "tanh", "relu"):
    onednn(f"{_act}_grad", prefer_loops=True)(partial(_backward, _act))
