"""Convolutions by cuDNN. Filters lie [O, C, kh, kw]: where a plan wants channels last, it turns them itself."""

from __future__ import annotations

from typing import Any

from ....graph.ops.conv import Conv2d, Conv2dGrad, Conv2dOperands, windows
from ....graph.ops.operands import Array
from ...cuda.dnn import Convolution, tensor
from ...device.device import Device
from ..registry import Step
from .support import bound, cudnn, part


def _described(
    dev: Device, a: Conv2dOperands, x: Array, w: Array, y: Array, result: str
) -> Convolution:
    pads, dilations = windows(vars(a), x.shape[2:], w.shape[2:])
    (top, bottom), (left, right) = pads
    return Convolution(
        tensor(x),
        tensor(w),
        tensor(y),
        result,
        (a.strides[0], a.strides[1]),
        (dilations[0], dilations[1]),
        (top, left),
        (bottom, right),
        exact=dev.math != "tf32",
    )


@cudnn("conv2d", "depthwise_conv2d", any_order=True)
def conv2d(dev: Device, a: Conv2d) -> list[Step]:
    x, steps = rectified(dev, a.input) if a.fuse_relu_before_depthwise_conv else (a.input, [])
    conv = _described(dev, a, x, a.filter, a.output, "y")
    return [*steps, *bound(dev, conv, x=x, w=a.filter, y=a.output)]


@cudnn("conv2d_grad", "depthwise_conv2d_grad", any_order=True)
def conv2d_grad(dev: Device, a: Conv2dGrad) -> list[Step]:
    steps: list[Step] = []
    if a.d_filter is not None:
        x = a.input
        if a.fuse_relu_before_depthwise_conv:
            x, steps = rectified(dev, a.input)
        conv = _described(dev, a, x, a.d_filter, a.d_output, "w")
        steps += bound(dev, conv, x=x, w=a.d_filter, y=a.d_output)
    if a.d_input is not None:
        conv = _described(dev, a, a.d_input, a.filter, a.d_output, "x")
        steps += bound(dev, conv, x=a.d_input, w=a.filter, y=a.d_output)
        if a.fuse_relu_before_depthwise_conv:
            reads = {"Out": a.input, "Out@GRAD": a.d_input}  # relu(x) > 0 where x is
            steps += part(dev, "relu_grad", reads, {"X@GRAD": a.d_input})
    return steps


def rectified(dev: Device, x: Array) -> tuple[Any, list[Step]]:
    """Return scratch for relu(x), in the same order in memory, and the calls that fill it."""
    made = dev.scratch_like(x)
    return made, part(dev, "relu", {"X": x}, {"Out": made})
