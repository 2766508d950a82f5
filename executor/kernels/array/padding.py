"""Kernels that put margins around a tensor: the middle is copied, margins come from the middle line by line."""

from __future__ import annotations

from functools import partial
from typing import Any

from ....graph.ops.padding import image_axis
from ...device.device import Device
from ..registry import Step, kernel


def middle(wide: Any, like: Any, paddings: list[int], first: int = 0) -> Any:
    """View what is between the margins; ``paddings`` begin with dimension ``first``."""
    index = [slice(None)] * wide.ndim
    for i in range(len(paddings) // 2):
        start = paddings[2 * i]
        index[first + i] = slice(start, start + like.shape[first + i])
    return wide[tuple(index)]


@kernel("pad", low=True)
def pad(dev: Device, x: Any, out: Any, *, paddings: list[int], pad_value: float) -> list[Step]:
    return [partial(out.fill, pad_value), partial(dev.xp.copyto, middle(out, x, paddings), x)]


@kernel("pad_grad", low=True)
def pad_grad(dev: Device, d_out: Any, d_x: Any, *, paddings: list[int]) -> list[Step]:
    return [] if d_x is None else [partial(dev.xp.copyto, d_x, middle(d_out, d_x, paddings))]


def _lines(size: int, margins: list[int], mode: str) -> list[tuple[int, int]]:
    """Pair each line of the margins with the line it repeats, both counted in the padded image."""
    low, high = margins
    pairs = []
    for line in (*range(-low, 0), *range(size, size + high)):
        nearest = min(max(line, 0), size - 1)
        source = nearest if mode == "edge" else 2 * nearest - line  # reflected at the nearest line
        pairs.append((line + low, source + low))
    return pairs


def _line(image: Any, axis: int, at: int) -> Any:
    return image[(slice(None),) * axis + (at,)]


@kernel("pad2d", low=True)
def pad2d(
    dev: Device,
    x: Any,
    out: Any,
    *,
    paddings: list[int],
    pad_value: float,
    mode: str,
    data_format: str,
) -> list[Step]:
    first = image_axis(data_format)
    inside = partial(dev.xp.copyto, middle(out, x, paddings, first), x)
    if mode == "constant":
        return [partial(out.fill, pad_value), inside]
    steps: list[Step] = [inside]
    band = middle(out, x, paddings[:2], first)  # rows of the middle, columns of the whole width
    for axis, whole, ends in ((first + 1, band, paddings[2:]), (first, out, paddings[:2])):
        for line, source in _lines(x.shape[axis], ends, mode):
            target = _line(whole, axis, line)
            steps.append(partial(dev.xp.copyto, target, _line(whole, axis, source)))
    return steps


@kernel("pad2d_grad")
def pad2d_grad(
    dev: Device,
    d_out: Any,
    d_x: Any,
    *,
    paddings: list[int],
    mode: str,
    data_format: str,
) -> list[Step]:
    """The way back: margin rows are added to the rows they repeat, then columns."""
    if d_x is None:
        return []
    first, xp = image_axis(data_format), dev.xp
    if mode == "constant":
        return [partial(xp.copyto, d_x, middle(d_out, d_x, paddings, first))]
    rows = middle(d_out, d_x, paddings[:2], first)
    band = dev.scratch(rows.shape, rows.dtype)
    steps: list[Step] = [partial(xp.copyto, band, rows)]
    top, left = paddings[0], paddings[2]
    for line, source in _lines(d_x.shape[first], paddings[:2], mode):
        target = _line(band, first, source - top)
        steps.append(partial(xp.add, target, _line(d_out, first, line), target))
    steps.append(partial(xp.copyto, d_x, middle(band, d_x, paddings[2:], first + 1)))
    for line, source in _lines(d_x.shape[first + 1], paddings[2:], mode):
        target = _line(d_x, first + 1, source - left)
        steps.append(partial(xp.add, target, _line(band, first + 1, line), target))
    return steps
