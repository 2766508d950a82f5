"""Convolutions: direct, with the filter packed as the processor likes it.

Other kernels take the same nodes, and are chosen where they were measured to be faster: one in the library's
own order of images whatever theirs is ("blocked"), one that rounds no factors ("float32": for a channel by
itself there are no instructions in bfloat16), and one of unfolded windows and products ("windows"), which is
taken by rule, too, where convolutions were 2 to 100 times slower: for windows as wide as the image, and for the
gradient of images with one channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ....graph.ir.capabilities import CHANNELS_LAST, Factors
from ....graph.ops.conv import ConvOperands
from ....graph.ops.operands import Array
from ...device.device import Device
from ..array.conv import (
    CONVOLUTIONS,
    Compute,
    Geometry,
    Product,
    by_windows,
    geometry,
    product_kernels,
    rectified,
)
from ..back_ends import EXACT_VARIANT, WINOGRAD
from ..registry import Step
from . import primitive as dnnl
from .elementwise import slope_at_result
from .linear import product
from .support import onednn
from .winograd import by_winograd, takes

_DIRECT = 1  # dnnl_convolution_direct


@dataclass(frozen=True)
class Convolution:
    """Shapes, windows and precision of one convolution: what its primitives are compiled for."""

    x: dnnl.Layout
    w: dnnl.Layout
    out: dnnl.Layout
    strides: tuple[int, ...]
    gaps: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    math: str

    def primitive(
        self, direction: str, *operands: Any, hint: dnnl.Primitive | None = None
    ) -> dnnl.Primitive:
        """Compile one of its three directions."""
        windows = (self.strides, self.gaps, self.before, self.after)
        return dnnl.Primitive(f"convolution_{direction}", *operands, *windows, hint=hint)

    def factor(self, layout: dnnl.Layout) -> dnnl.Layout:
        """Return the layout of an operand that is multiplied."""
        return replace(layout, dtype=self.math)


@dnnl.shared
def _forward(conv: Convolution) -> dnnl.Primitive:
    factors = conv.factor(conv.x), conv.factor(conv.w)
    return conv.primitive("forward", dnnl.TRAINING, _DIRECT, *factors, None, conv.out)


@dnnl.shared
def _backward_data(conv: Convolution) -> dnnl.Primitive:
    factors = conv.factor(conv.w), conv.factor(conv.out)
    return conv.primitive("backward_data", _DIRECT, conv.x, *factors, hint=_forward(conv))


@dnnl.shared
def _backward_weights(conv: Convolution) -> dnnl.Primitive:
    x, out = conv.factor(conv.x), conv.factor(conv.out)
    operands = (_DIRECT, x, conv.w, None, out)
    return conv.primitive("backward_weights", *operands, hint=_forward(conv))


_unfolded = by_windows(product)


def _windows(dev: Device, a: ConvOperands, operands: Product) -> list[Step]:
    geo = geometry(a, operands)
    if _lines_follow(geo) and operands.x.flags.c_contiguous:
        return _by_phase(dev, geo, operands)
    return _unfolded(dev, a, operands)


def _by_phase(dev: Device, geo: Geometry, operands: Product) -> list[Step]:
    """Return a product whose windows are k whole lines of an image: nothing is unfolded.

    What begins k lines after each other, in all images as if they were one, is a matrix [windows, k * W] where
    it lies. There are k such matrices, and as many products, each with every k-th row of a result that has
    a row for each line. The k - 1 last rows of each image belong to no window: they are left behind, or zero.
    """
    result, x, w, y = operands
    (images, _, lines, width), (filters, _, k, _), windows = geo.x, geo.w, geo.out[2]
    rows, factor = x.reshape(-1), w.reshape(filters, -1)
    block = dev.scratch((images, lines, filters), y.dtype)
    inside, beyond = block[:, :windows], block[:, windows:]
    own = y[..., 0].transpose(0, 2, 1)
    count = images * lines
    by_line, turned = block.reshape(count, filters), factor.T
    steps: list[Step] = []
    if result != "y":
        steps += [partial(np.copyto, inside, own), partial(beyond.fill, 0)]
    if result == "x":
        steps.append(partial(rows[count // k * k * width :].fill, 0))
    for phase in range(min(k, count - k + 1)):
        n = (count - phase) // k
        met = rows[phase * width : (phase + n * k) * width].reshape(n, k * width)
        of_met = by_line[phase : phase + n * k : k]
        post_ops = (dnnl.SUM,) if phase else ()
        if result == "y":
            steps += product(dev, met, turned, of_met)
        elif result == "w":
            steps += product(dev, of_met.T, met, factor, post_ops=post_ops)
        else:
            steps += product(dev, of_met, factor, met, post_ops=post_ops)
    return [*steps, partial(np.copyto, own, inside)] if result == "y" else steps


def _direct(blocked: bool) -> Compute:
    """Return the function that computes products by the library's convolutions.

    Images stay channels last where some are, else, or if ``blocked``, the library chooses their order.
    """

    def compute(dev: Device, a: ConvOperands, operands: Product) -> list[Step]:
        result, x, w, y = operands
        geo = geometry(a, operands)
        # The library's gradient of filters is wrong for some windows as wide as the image: oneDNN 3.2, one
        # channel, filters of 2 x 16 over images of 32 x 16.
        full = _full_width(geo) and (not blocked or result == "w")
        if full or (not blocked and result == "x" and geo.x[1] == 1):
            return _windows(dev, a, operands)
        w = w if a.groups == 1 else w.reshape(a.groups, w.shape[0] // a.groups, *w.shape[1:])
        image = (
            dnnl.last
            if not blocked and (dnnl.channels_last(x) or dnnl.channels_last(y))
            else dnnl.Layout
        )
        conv = Convolution(
            image(x.shape),
            dnnl.Layout(w.shape),
            image(y.shape),
            tuple(geo.strides),
            tuple(d - 1 for d in geo.dilations),
            tuple(before for before, _ in geo.pads),
            tuple(after for _, after in geo.pads),
            dev.math,
        )
        if result == "y":
            return _forward(conv).bind(dev, {"src": x, "weights": w}, {"dst": y})
        if result == "x":
            return _backward_data(conv).bind(dev, {"weights": w, "d_dst": y}, {"d_src": x})
        return _backward_weights(conv).bind(dev, {"src": x, "d_dst": y}, {"d_weights": w})

    return compute


def _exact(compute: Compute) -> Compute:
    """Return the function that computes products by ``compute`` and rounds no factors."""

    def exactly(dev: Device, a: ConvOperands, operands: Product) -> list[Step]:
        math, dev.math = dev.math, "float32"
        try:
            return compute(dev, a, operands)
        finally:
            dev.math = math

    return exactly


def _slope(dev: Device, x: Array, d_x: Any) -> list[Step]:
    return slope_at_result(dev, "relu", x, d_x, d_x)


def _lines_follow(geo: Geometry) -> bool:
    """Tell whether windows are whole lines of images with one channel, one line after the other."""
    plain = {*geo.strides, *geo.dilations} == {1} and not any(map(sum, geo.pads))
    return plain and len(geo.w) == 4 and geo.x[1] == 1 and geo.out[-1] == 1 and geo.x[0] > 0


def _full_width(geo: Geometry) -> bool:
    return geo.groups == 1 and geo.out[-1] == 1 and geo.w[-1] > 1


# Filters are packed anyhow in the order that the processor likes, and rounded then.
_FACTORS: Mapping[str, Factors] = {
    "conv2d": {"Input": ("Output",)},
    "conv2d_grad": {"Input": ("Filter@GRAD",), "Output@GRAD": ("Input@GRAD", "Filter@GRAD")},
}
for _name, _compute in (
    ("onednn", _direct(blocked=False)),
    ("blocked", _direct(blocked=True)),
    ("windows", _windows),
    (EXACT_VARIANT, _exact(_direct(blocked=False))),
):
    for _op in CONVOLUTIONS:
        factors = {} if _name == EXACT_VARIANT else _FACTORS.get(_op, {})
        onednn(_op, name=_name, any_order=True, layout=CHANNELS_LAST, factors=factors)(
            product_kernels(_compute, rectified, _slope)
        )
onednn(
    *("conv2d", "conv2d_grad"),
    name=WINOGRAD,
    takes=takes,
    needs=("llvm",),
    any_order=True,
    layout=CHANNELS_LAST,
)(product_kernels(by_winograd, rectified, _slope))
