"""Activations that take more than one pass of array calls, and their gradients."""

from __future__ import annotations

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


@onednn("sigmoid", prefer_loops=True)
def sigmoid(dev: Device, a: Activation) -> list[Step]:
    return activation(dev, "sigmoid", a.x, a.out)


@onednn("sigmoid_grad", prefer_loops=True)
def sigmoid_grad(dev: Device, a: SlopeOfOut) -> list[Step]:
    return slope_at_result(dev, "sigmoid", a.out, a.d_out, a.d_x)


@onednn("tanh")
def tanh(dev: Device, a: Activation) -> list[Step]:
    return activation(dev, "tanh", a.x, a.out)


@onednn("tanh_grad", prefer_loops=True)
def tanh_grad(dev: Device, a: SlopeOfOut) -> list[Step]:
    return slope_at_result(dev, "tanh", a.out, a.d_out, a.d_x)


@onednn("relu_grad", prefer_loops=True)
def relu_grad(dev: Device, a: SlopeOfOut) -> list[Step]:
    return slope_at_result(dev, "relu", a.out, a.d_out, a.d_x)
