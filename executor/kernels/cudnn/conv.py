"""Convolutions by cuDNN. Filters lie [O, C, kh, kw]: where a plan wants channels last, it turns them itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....graph.ops.conv import windows
from ...cuda.dnn import Convolution, tensor
from ...device.device import Device
from ..registry import Step
from .support import bound, cudnn, part


def _described(
    dev: Device, x: Any, w: Any, y: Any, result: str, attrs: Mapping[str, Any]
) -> Convolution:
    pads, dilations = windows(attrs, x.shape[2:], w.shape[2:])
    (top, bottom), (left, right) = pads
    return Convolution(
        tensor(x),
        tensor(w),
        tensor(y),
        result,
        (attrs["strides"][0], attrs["strides"][1]),
        (dilations[0], dilations[1]),
        (top, left),
        (bottom, right),
        exact=dev.math != "tf32",
    )


@cudnn("conv2d", "depthwise_conv2d", any_order=True)
def conv2d(
    dev: Device,
    input: Any,
    filter: Any,
    output: Any,
    *,
    strides: list[int],
    paddings: list[int],
    padding_algorithm: str,
    dilations: list[int],
    groups: int,
    fuse_relu_before_depthwise_conv: bool,
) -> list[Step]:
    attrs: dict[str, Any] = locals()
    steps: list[Step] = []
    if fuse_relu_before_depthwise_conv:
        input, steps = rectified(dev, input)
    conv = _described(dev, input, filter, output, "y", attrs)
    return [*steps, *bound(dev, conv, x=input, w=filter, y=output)]


@cudnn("conv2d_grad", "depthwise_conv2d_grad", any_order=True)
def conv2d_grad(
    dev: Device,
    input: Any,
    filter: Any,
    d_output: Any,
    d_input: Any,
    d_filter: Any,
    *,
    strides: list[int],
    paddings: list[int],
    padding_algorithm: str,
    dilations: list[int],
    groups: int,
    fuse_relu_before_depthwise_conv: bool,
) -> list[Step]:
    attrs: dict[str, Any] = locals()
    steps: list[Step] = []
    if d_filter is not None:
        x = input
        if fuse_relu_before_depthwise_conv:
            x, steps = rectified(dev, input)
        conv = _described(dev, x, d_filter, d_output, "w", attrs)
        steps += bound(dev, conv, x=x, w=d_filter, y=d_output)
    if d_input is not None:
        conv = _described(dev, d_input, filter, d_output, "x", attrs)
        steps += bound(dev, conv, x=d_input, w=filter, y=d_output)
        if fuse_relu_before_depthwise_conv:
            reads = {"Out": input, "Out@GRAD": d_input}  # relu(x) > 0 where x is
            steps += part(dev, "relu_grad", reads, {"X@GRAD": d_input})
    return steps


def rectified(dev: Device, x: Any) -> tuple[Any, list[Step]]:
    """Return scratch for relu(x), in the same order in memory, and the calls that fill it."""
    made = dev.scratch_like(x)
    return made, part(dev, "relu", {"X": x}, {"Out": made})
