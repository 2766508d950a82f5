"""Transposes, joins, cuts and other copies: each part is one launch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....graph.ops.indexing import Slice, SliceGrad
from ....graph.ops.manipulation import ExpandGrad
from ....graph.ops.operands import Array, Gradient, Unary
from ....graph.ops.padding import Pad, PadGrad, image_axis
from ....graph.ops.ranges import ExpandAsGrad
from ...cuda.runtime import Step
from ...device.device import Device
from ..array.indexing import window
from ..array.manipulation import register, tiles
from ..array.padding import middle
from .copies import filled, moved
from .reduction import reduced
from .support import cuda

_VIEWS = ("reshape", "squeeze", "unsqueeze", "flatten")


@cuda("reshape_at", "unsqueeze_at", *_VIEWS, *(f"{name}2" for name in _VIEWS))
def reshape(dev: Device, a: Unary) -> list[Step]:
    """The elements in the order in which they lie."""
    return moved(dev, None if a.out is None else a.out.reshape(a.x.shape), a.x)


@cuda(*(f"{name}_grad" for name in _VIEWS), *(f"{name}2_grad" for name in _VIEWS))
def reshape_grad(dev: Device, a: Gradient) -> list[Step]:
    """The elements in the order in which they lie."""
    return moved(dev, None if a.d_x is None else a.d_x.reshape(a.d_out.shape), a.d_out)


register(cuda, moved)


@cuda("expand_grad", "expand_as_grad")
def expand_grad(dev: Device, a: ExpandGrad | ExpandAsGrad) -> list[Step]:
    """Each element gets the sum of what went to its copies."""
    if not a.d_x.size:
        return []
    _, large = tiles(a.x, a.d_out)
    return reduced(dev, "Sum", large, a.d_x, tuple(range(0, large.ndim, 2)))


@cuda("slice")
def slice_(dev: Device, a: Slice) -> list[Step]:
    """A window of the operand."""
    source = window(a.input, a)
    return moved(dev, a.out.reshape(source.shape), source)


@cuda("slice_grad")
def slice_grad(dev: Device, a: SliceGrad) -> list[Step]:
    """The gradient in its window, and zeros around it."""
    target = window(a.d_input, a)
    return _framed(dev, a.d_input, target, a.d_out.reshape(target.shape), 0)


@cuda("pad")
def pad(dev: Device, a: Pad) -> list[Step]:
    """The operand, and a number around it."""
    return _framed(dev, a.out, middle(a.out, a.x, a.paddings), a.x, a.pad_value)


@cuda("pad_grad")
def pad_grad(dev: Device, a: PadGrad) -> list[Step]:
    """What is between the margins."""
    return moved(dev, a.d_x, middle(a.d_out, a.d_x, a.paddings))


def framed_image(
    dev: Device, x: Array, out: Array, paddings: Sequence[int], value: float, data_format: str
) -> list[Step]:
    """Return the calls that copy images and put a number around them."""
    inside = middle(out, x, paddings, image_axis(data_format))
    return _framed(dev, out, inside, x, value)


def _framed(dev: Device, whole: Any, inside: Any, source: Array, value: float) -> list[Step]:
    """Copy ``source`` to the view ``inside`` of an array, and fill the rest, each element once."""
    steps = moved(dev, inside, source)
    assert dev.runtime is not None
    ahead = dev.runtime.address(inside) - dev.runtime.address(whole) if inside.size else 0
    if not inside.size:
        return filled(dev, whole, value)
    rest = whole
    for axis in range(whole.ndim):
        stride, size = whole.strides[axis], inside.shape[axis]
        start = ahead // stride if size < whole.shape[axis] else 0
        ahead -= start * stride
        before = (slice(None),) * axis
        for part in (slice(0, start), slice(start + size, None)):
            steps += filled(dev, rest[(*before, part)], value)
        rest = rest[(*before, slice(start, start + size))]
    assert math.prod(rest.shape) == inside.size
    return steps
