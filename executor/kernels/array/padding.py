"""Kernels that put margins around images: the middle is copied, margins come from the middle line by line."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ....graph.ops.operands import Array
from ....graph.ops.padding import Pad2d, Pad2dGrad, image_axis
from ...device.device import Device
from ..registry import Step, kernel
from .manipulation import Copy, copied


def middle(wide: Array, like: Array, paddings: Sequence[int], first: int = 0) -> Any:
    """View what is between the margins; ``paddings`` begin with dimension ``first``."""
    index = [slice(None)] * wide.ndim
    for i in range(len(paddings) // 2):
        start = paddings[2 * i]
        index[first + i] = slice(start, start + like.shape[first + i])
    return wide[tuple(index)]


def _lines(size: int, margins: Sequence[int], mode: str) -> list[tuple[int, int]]:
    """Pair each line of the margins with the line it repeats, both counted in the padded image."""
    low, high = margins
    pairs = []
    for line in (*range(-low, 0), *range(size, size + high)):
        nearest = min(max(line, 0), size - 1)
        source = nearest if mode == "edge" else 2 * nearest - line  # reflected at the nearest line
        pairs.append((line + low, source + low))
    return pairs


def _line(image: Array, axis: int, at: int) -> Any:
    return image[(slice(None),) * axis + (at,)]


def pad2d_parts(dev: Device, a: Pad2d, copied: Copy) -> list[Step]:
    """Return the calls that fill the result, or copy its middle, then each line of its margins."""
    first = image_axis(a.data_format)
    inside = copied(dev, middle(a.out, a.x, a.paddings, first), a.x)
    if a.mode == "constant":
        return [partial(a.out.fill, a.pad_value), *inside]
    steps = [*inside]
    # rows of the middle, columns of the whole width
    band, (tall, wide) = middle(a.out, a.x, a.paddings[:2], first), (first, first + 1)
    for axis, whole, ends in ((wide, band, a.paddings[2:]), (tall, a.out, a.paddings[:2])):
        for line, source in _lines(a.x.shape[axis], ends, a.mode):
            steps += copied(dev, _line(whole, axis, line), _line(whole, axis, source))
    return steps


@kernel("pad2d", low=True)
def pad2d(dev: Device, a: Pad2d) -> list[Step]:
    return pad2d_parts(dev, a, copied)


@kernel("pad2d_grad")
def pad2d_grad(dev: Device, a: Pad2dGrad) -> list[Step]:
    """The way back: margin rows are added to the rows they repeat, then columns."""
    first, xp = image_axis(a.data_format), dev.xp
    if a.mode == "constant":
        return [partial(xp.copyto, a.d_x, middle(a.d_out, a.d_x, a.paddings, first))]
    rows = middle(a.d_out, a.d_x, a.paddings[:2], first)
    band = dev.scratch(rows.shape, rows.dtype)
    steps: list[Step] = [partial(xp.copyto, band, rows)]
    top, left = a.paddings[0], a.paddings[2]
    for line, source in _lines(a.d_x.shape[first], a.paddings[:2], a.mode):
        target = _line(band, first, source - top)
        steps.append(partial(xp.add, target, _line(a.d_out, first, line), target))
    steps.append(partial(xp.copyto, a.d_x, middle(band, a.d_x, a.paddings[2:], first + 1)))
    for line, source in _lines(a.d_x.shape[first + 1], a.paddings[2:], a.mode):
        target = _line(a.d_x, first + 1, source - left)
        steps.append(partial(xp.add, target, _line(band, first + 1, line), target))
    return steps
