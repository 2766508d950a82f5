"""Convolutions: direct, with the filter packed as the processor likes it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ....graph.ops.conv import Conv2d, Conv2dGrad, Conv2dOperands, windows
from ....graph.ops.operands import Array
from ...device.device import Device
from ..array.conv import rectified
from ..registry import Step
from .elementwise import slope_at_result
from .primitive import (
    CACHED,
    D_DST,
    D_SRC,
    D_WEIGHTS,
    DST,
    SRC,
    TRAINING,
    WEIGHTS,
    Layout,
    Primitive,
    attributes,
    channels_last,
    last,
    numbers,
)
from .support import onednn

_DIRECT = ctypes.c_int(1)  # dnnl_convolution_direct


@dataclass(frozen=True)
class Convolution:
    """Shapes, windows and precision of one convolution: what its primitives are compiled for."""

    x: Layout
    w: Layout
    out: Layout
    strides: tuple[int, ...]
    gaps: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    math: str

    def primitive(self, direction: str, *operands: Any, hint: Any = ()) -> Primitive:
        """Compile one of its three directions."""
        windows = (self.strides, self.gaps, self.before, self.after)
        what = f"convolution_{direction} of {self.x} with {self.w} to {self.out}"
        return Primitive(
            f"convolution_{direction}",
            *operands,
            *(numbers(each) for each in windows),
            *hint,
            attributes(),
            what=what,
        )

    def factor(self, layout: Layout) -> Layout:
        """Return the layout of an operand that is multiplied."""
        return replace(layout, dtype=self.math)


@lru_cache(CACHED)
def _forward(conv: Convolution) -> Primitive:
    factors = conv.factor(conv.x), conv.factor(conv.w)
    return conv.primitive("forward", TRAINING, _DIRECT, *factors, None, conv.out)


@lru_cache(CACHED)
def _backward_data(conv: Convolution) -> Primitive:
    hint = (_forward(conv).descriptor,)
    factors = conv.factor(conv.w), conv.factor(conv.out)
    return conv.primitive("backward_data", _DIRECT, conv.x, *factors, hint=hint)


@lru_cache(CACHED)
def _backward_weights(conv: Convolution) -> Primitive:
    hint = (_forward(conv).descriptor,)
    x, out = conv.factor(conv.x), conv.factor(conv.out)
    return conv.primitive("backward_weights", _DIRECT, x, conv.w, None, out, hint=hint)


def _convolution(dev: Device, a: Conv2dOperands, w: Array, out: Array) -> Convolution:
    """Describe it: images stay channels last where some are, else the library chooses their order."""
    pads, dilations = windows(vars(a), a.input.shape[2:], w.shape[-2:])
    image = last if channels_last(a.input) or channels_last(out) else Layout
    return Convolution(
        image(a.input.shape),
        Layout(w.shape),
        image(out.shape),
        tuple(a.strides),
        tuple(d - 1 for d in dilations),
        tuple(before for before, _ in pads),
        tuple(after for _, after in pads),
        dev.math,
    )


def _grouped(w: Array, groups: int) -> Any:
    """View filters [O, C / G, kh, kw] as [G, O / G, C / G, kh, kw]."""
    return w if groups == 1 else w.reshape(groups, w.shape[0] // groups, *w.shape[1:])


@onednn("conv2d", "depthwise_conv2d", any_order=True)
def conv2d(dev: Device, a: Conv2d) -> list[Step]:
    w = _grouped(a.filter, a.groups)
    conv = _convolution(dev, a, w, a.output)
    x, steps = rectified(dev, a.input) if a.fuse_relu_before_depthwise_conv else (a.input, [])
    return steps + _forward(conv).bind(dev, {SRC: x, WEIGHTS: w}, {DST: a.output})


@onednn("conv2d_grad", "depthwise_conv2d_grad", any_order=True)
def conv2d_grad(dev: Device, a: Conv2dGrad) -> list[Step]:
    w = _grouped(a.filter, a.groups)
    conv = _convolution(dev, a, w, a.d_output)
    steps: list[Step] = []
    x = a.input
    if a.d_filter is not None and a.fuse_relu_before_depthwise_conv:
        x, steps = rectified(dev, a.input)
    if a.d_filter is not None:
        d_w = _grouped(a.d_filter, a.groups)
        reads = {SRC: x, D_DST: a.d_output}
        steps += _backward_weights(conv).bind(dev, reads, {D_WEIGHTS: d_w})
    if a.d_input is not None:
        reads = {WEIGHTS: w, D_DST: a.d_output}
        steps += _backward_data(conv).bind(dev, reads, {D_SRC: a.d_input})
        if a.fuse_relu_before_depthwise_conv:
            steps += slope_at_result(dev, "relu", a.input, a.d_input, a.d_input)
    return steps
