"""Transposes, joins, cuts and other copies: each part is one launch."""

from __future__ import annotations

import math
from typing import Any

from ....graph.ops.padding import image_axis
from ...cuda.runtime import Step
from ...device.device import Device
from ..array.indexing import window
from ..array.manipulation import layers, pieces, tiles
from ..array.padding import middle
from .copies import filled, moved
from .reduction import reduced
from .support import cuda

_VIEWS = ("reshape", "squeeze", "unsqueeze", "flatten")


@cuda(*_VIEWS, *(f"{name}2" for name in _VIEWS))
def reshape(dev: Device, x: Any, out: Any) -> list[Step]:
    """The elements in the order in which they lie."""
    return moved(dev, None if out is None else out.reshape(x.shape), x)


@cuda(*(f"{name}_grad" for name in _VIEWS), *(f"{name}2_grad" for name in _VIEWS))
def reshape_grad(dev: Device, d_out: Any, d_x: Any) -> list[Step]:
    """The elements in the order in which they lie."""
    return moved(dev, None if d_x is None else d_x.reshape(d_out.shape), d_out)


@cuda("transpose", "transpose2")
def transpose(dev: Device, x: Any, out: Any, *, axis: list[int]) -> list[Step]:
    """By tiles where the last dimension moves."""
    return moved(dev, out, x.transpose(axis))


@cuda("transpose_grad", "transpose2_grad")
def transpose_grad(dev: Device, d_out: Any, d_x: Any, *, axis: list[int]) -> list[Step]:
    """The transpose back."""
    return moved(dev, None if d_x is None else d_x.transpose(axis), d_out)


@cuda("transfer_layout")
def transfer_layout(dev: Device, x: Any, out: Any) -> list[Step]:
    """One shape, other strides."""
    return moved(dev, out, x)


@cuda("concat")
def concat(dev: Device, x: list[Any], out: Any, *, axis: int) -> list[Step]:
    """Each part into its place."""
    return [step for view, part in pieces(out, x, axis) for step in moved(dev, view, part)]


@cuda("concat_grad")
def concat_grad(dev: Device, x: list[Any], d_out: Any, d_x: list[Any], *, axis: int) -> list[Step]:
    """Each part out of its place."""
    pairs = zip(pieces(d_out, x, axis), d_x, strict=True)
    return [step for (view, _), target in pairs for step in moved(dev, target, view)]


@cuda("split")
def split(dev: Device, x: Any, out: list[Any], *, axis: int) -> list[Step]:
    """Each part out of its place."""
    return [step for view, part in pieces(x, out, axis) for step in moved(dev, part, view)]


@cuda("stack")
def stack(dev: Device, x: list[Any], y: Any, *, axis: int) -> list[Step]:
    """Each operand into its layer."""
    pairs = zip(layers(y, len(x), axis), x, strict=True)
    return [step for view, part in pairs for step in moved(dev, view, part)]


@cuda("stack_grad")
def stack_grad(dev: Device, d_y: Any, d_x: list[Any], *, axis: int) -> list[Step]:
    """Each layer into a result."""
    pairs = zip(layers(d_y, len(d_x), axis), d_x, strict=True)
    return [step for view, part in pairs for step in moved(dev, part, view)]


@cuda("unstack")
def unstack(dev: Device, x: Any, y: list[Any], *, axis: int) -> list[Step]:
    """Each layer into a result."""
    return stack_grad(dev, x, y, axis=axis)


@cuda("unstack_grad")
def unstack_grad(dev: Device, d_y: list[Any], d_x: Any, *, axis: int) -> list[Step]:
    """Each operand into its layer."""
    return [] if d_x is None else stack(dev, d_y, d_x, axis=axis)


@cuda("expand")
def expand(dev: Device, x: Any, out: Any, *, expand_times: list[int]) -> list[Step]:
    """The operand as often as is asked, along each dimension."""
    small, large = tiles(x, out, expand_times)
    return moved(dev, large, small)


@cuda("expand_grad")
def expand_grad(
    dev: Device, x: Any, d_out: Any, d_x: Any, *, expand_times: list[int]
) -> list[Step]:
    """Each element gets the sum of what went to its copies."""
    if d_x is None or not d_x.size:
        return []
    _, large = tiles(x, d_out, expand_times)
    return reduced(dev, "Sum", large, d_x, tuple(range(0, large.ndim, 2)))


@cuda("slice")
def slice_(
    dev: Device, input: Any, out: Any, *, axes: list[int], starts: list[int], ends: list[int]
) -> list[Step]:
    """A window of the operand."""
    source = window(input, axes, starts, ends)
    return moved(dev, out.reshape(source.shape), source)


@cuda("slice_grad")
def slice_grad(
    dev: Device, d_out: Any, d_input: Any, *, axes: list[int], starts: list[int], ends: list[int]
) -> list[Step]:
    """The gradient in its window, and zeros around it."""
    if d_input is None:
        return []
    target = window(d_input, axes, starts, ends)
    return _framed(dev, d_input, target, d_out.reshape(target.shape), 0)


@cuda("pad")
def pad(dev: Device, x: Any, out: Any, *, paddings: list[int], pad_value: float) -> list[Step]:
    """The operand, and a number around it."""
    return _framed(dev, out, middle(out, x, paddings), x, pad_value)


@cuda("pad_grad")
def pad_grad(dev: Device, d_out: Any, d_x: Any, *, paddings: list[int]) -> list[Step]:
    """What is between the margins."""
    return [] if d_x is None else moved(dev, d_x, middle(d_out, d_x, paddings))


def framed_image(
    dev: Device, x: Any, out: Any, paddings: list[int], value: float, data_format: str
) -> list[Step]:
    """Return the calls that copy images and put a number around them."""
    inside = middle(out, x, paddings, image_axis(data_format))
    return _framed(dev, out, inside, x, value)


def _framed(dev: Device, whole: Any, inside: Any, source: Any, value: float) -> list[Step]:
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
