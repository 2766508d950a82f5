"""Activations that take more than one pass of array calls, and their gradients."""

from __future__ import annotations

from typing import Any

from ...device.device import Device
from ..registry import Step
from .elementwise import activation, slope_at_operand, slope_at_result
from .support import onednn


def _gelu(approximate: bool) -> str:
    return "gelu_tanh" if approximate else "gelu"


@onednn("gelu")
def gelu(dev: Device, x: Any, out: Any, *, approximate: bool) -> list[Step]:
    return activation(dev, _gelu(approximate), x, out)


@onednn("gelu_grad", yields=True)
def gelu_grad(dev: Device, x: Any, d_out: Any, d_x: Any, *, approximate: bool) -> list[Step]:
    return [] if d_x is None else slope_at_operand(dev, _gelu(approximate), x, d_out, d_x)


@onednn("sigmoid", yields=True)
def sigmoid(dev: Device, x: Any, out: Any) -> list[Step]:
    return activation(dev, "sigmoid", x, out)


@onednn("sigmoid_grad", yields=True)
def sigmoid_grad(dev: Device, out: Any, d_out: Any, d_x: Any) -> list[Step]:
    return [] if d_x is None else slope_at_result(dev, "sigmoid", out, d_out, d_x)


@onednn("tanh")
def tanh(dev: Device, x: Any, out: Any) -> list[Step]:
    return activation(dev, "tanh", x, out)


@onednn("tanh_grad", yields=True)
def tanh_grad(dev: Device, out: Any, d_out: Any, d_x: Any) -> list[Step]:
    return [] if d_x is None else slope_at_result(dev, "tanh", out, d_out, d_x)


@onednn("relu_grad", yields=True)
def relu_grad(dev: Device, out: Any, d_out: Any, d_x: Any) -> list[Step]:
    return [] if d_x is None else slope_at_result(dev, "relu", out, d_out, d_x)
