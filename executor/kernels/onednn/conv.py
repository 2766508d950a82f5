"""Convolutions: direct, with the filter packed as the processor likes it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ....graph.ops.conv import windows
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


def _convolution(dev: Device, x: Any, w: Any, out: Any, attrs: dict[str, Any]) -> Convolution:
    """Describe it: images stay channels last where some are, else the library chooses their order."""
    pads, dilations = windows(attrs, x.shape[2:], w.shape[-2:])
    image = last if channels_last(x) or channels_last(out) else Layout
    return Convolution(
        image(x.shape),
        Layout(w.shape),
        image(out.shape),
        tuple(attrs["strides"]),
        tuple(d - 1 for d in dilations),
        tuple(before for before, _ in pads),
        tuple(after for _, after in pads),
        dev.math,
    )


def _grouped(w: Any, groups: int) -> Any:
    """View filters [O, C / G, kh, kw] as [G, O / G, C / G, kh, kw]."""
    return w if groups == 1 else w.reshape(groups, w.shape[0] // groups, *w.shape[1:])


@onednn("conv2d", "depthwise_conv2d", any_order=True)
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
    w = _grouped(filter, groups)
    conv = _convolution(dev, input, w, output, locals())
    steps: list[Step] = []
    if fuse_relu_before_depthwise_conv:
        input, steps = rectified(dev, input)
    return steps + _forward(conv).bind(dev, {SRC: input, WEIGHTS: w}, {DST: output})


@onednn("conv2d_grad", "depthwise_conv2d_grad", any_order=True)
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
    w = _grouped(filter, groups)
    conv = _convolution(dev, input, w, d_output, locals())
    steps: list[Step] = []
    x = input
    if d_filter is not None and fuse_relu_before_depthwise_conv:
        x, steps = rectified(dev, input)
    if d_filter is not None:
        d_w = _grouped(d_filter, groups)
        reads = {SRC: x, D_DST: d_output}
        steps += _backward_weights(conv).bind(dev, reads, {D_WEIGHTS: d_w})
    if d_input is not None:
        reads = {WEIGHTS: w, D_DST: d_output}
        steps += _backward_data(conv).bind(dev, reads, {D_SRC: d_input})
        if fuse_relu_before_depthwise_conv:
            steps += slope_at_result(dev, "relu", input, d_input, d_input)
    return steps
