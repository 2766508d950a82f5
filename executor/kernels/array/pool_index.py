"""Maximum pooling with places, its reverse, and pooling in several sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from ....graph.ops import pool_index as ops
from ....graph.ops.operands import Array
from ...codegen.array_program import look_at
from ...device.device import Device
from ..registry import Step, kernel
from .pool import Windows, padded, pooled, pooled_grad, windows_of


@kernel("max_pool2d_with_index", "max_pool3d_with_index")
def max_pool(dev: Device, a: ops.MaxPool) -> list[Step]:
    """Keep the largest element so far and its place."""
    win, xp = windows_of(a, a.out), dev.xp
    places = win.places()
    if win.uneven:
        numbers = xp.broadcast_to(xp.asarray(places), a.x.shape)
        cells = zip(win.cells(a.x, a.out, a.mask), win.cells(numbers), strict=True)
        return [partial(_first, xp, window, at, out, mask) for (window, out, mask), (at,) in cells]
    source, steps = padded(dev, a.x, win, -np.inf)
    if win.padded:
        room = np.zeros(win.room, np.int32)
        win.interior(room)[...] = places
        places = room
    larger = dev.scratch(a.out.shape, np.bool_)
    steps += [partial(a.out.fill, -np.inf), partial(a.mask.fill, -1)]
    for here, at in zip(win.taps(source), win.taps(xp.asarray(places)), strict=True):
        steps += [
            partial(xp.greater, here, a.out, larger),
            partial(xp.copyto, a.out, here, where=larger),
            partial(xp.copyto, a.mask, at, where=larger),
        ]
    return steps


def _first(xp: Any, window: Any, places: Any, out: Array, mask: Array) -> None:
    """Write the first maximum of each channel of a window, and its place."""
    n, c = window.shape[:2]
    first = window.reshape(n, c, -1).argmax(2)[..., None]
    for source, target in ((window, out), (places, mask)):
        flat = source.reshape(n * c, -1)
        rows = xp.arange(n * c)
        target[...] = flat[rows, first.reshape(-1)].reshape(target.shape)


def _rows(dev: Device, index: Array, room: int) -> tuple[Any, Any]:
    """Return scratch for places among the elements of all channels, and what is added to those of one."""
    channels = math.prod(index.shape[:2])
    starts = dev.xp.arange(channels, dtype=np.int64) * room
    return dev.scratch(index.shape, np.int64), starts.reshape(
        *index.shape[:2], *[1] * (index.ndim - 2)
    )


@kernel("max_pool2d_with_index_grad", "max_pool3d_with_index_grad")
def max_pool_grad(dev: Device, a: ops.MaxPoolGrad) -> list[Step]:
    """Add the gradient of each maximum where it was; a window without one has the place -1."""
    xp = dev.xp
    rows, starts = _rows(dev, a.mask, math.prod(a.x.shape[2:]))
    some = dev.scratch(a.mask.shape, np.bool_)
    share = dev.scratch(a.d_out.shape, a.d_out.dtype)
    flat = a.d_x.reshape(-1)
    return [
        partial(a.d_x.fill, 0),
        partial(xp.maximum, a.mask, 0, out=rows),
        partial(xp.add, rows, starts, rows),
        partial(xp.greater_equal, a.mask, 0, some),
        partial(xp.multiply, a.d_out, some, share),
        partial(xp.add.at, flat, rows.reshape(-1), share.reshape(-1)),
    ]


def outside_channel(sizes: tuple[int, ...]) -> str:
    """Return the sentence for a place, to stand for ``{}``, that is outside of a channel."""
    extent = " x ".join(map(str, sizes))
    return (
        f"unpool: Indices holds {{}}, which is outside the {math.prod(sizes)} elements ({extent}) of a "
        "channel of the result; indices count from 0 in each channel"
    )


@kernel("unpool", "unpool3d")
def unpool(dev: Device, a: ops.Unpool) -> list[Step]:
    xp, sizes = dev.xp, a.out.shape[2:]
    room = math.prod(sizes)
    rows, starts = _rows(dev, a.indices, room)
    flat = a.out.reshape(-1)
    return [
        *look_at(dev, a.indices, room, outside_channel(sizes)),
        partial(a.out.fill, 0),
        partial(xp.add, a.indices, starts, rows),
        lambda: flat.__setitem__(rows.reshape(-1), xp.ascontiguousarray(a.x).reshape(-1)),
    ]


@kernel("unpool_grad", "unpool3d_grad")
def unpool_grad(dev: Device, a: ops.UnpoolGrad) -> list[Step]:
    """Fetch what flows into the places; the forward op has checked them."""
    xp = dev.xp
    rows, starts = _rows(dev, a.indices, math.prod(a.d_out.shape[2:]))
    return [
        partial(xp.add, a.indices, starts, rows),
        lambda: xp.take(a.d_out.reshape(-1), rows, out=a.d_x),
    ]


def levels(x: Array, out: Array, height: int) -> Iterator[tuple[Windows, Any]]:
    """Yield the windows of each level of a pyramid, and its part of the result as [N, C, count, count]."""
    n, c, *size = x.shape
    start = 0
    for level in range(height):
        count = 2**level
        k = [-(-whole // count) for whole in size]
        pads = [(ops.level_padding(whole, level),) * 2 for whole in size]
        part = out[:, start : start + c * count * count].reshape(n, c, count, count)
        yield Windows(k, k, pads, (count, count), tuple(size)), part
        start += c * count * count


@kernel("spp")
def pyramid(dev: Device, a: ops.Pyramid) -> list[Step]:
    average = a.pooling_type == "avg"
    parts = levels(a.x, a.out, a.pyramid_height)
    return [step for win, part in parts for step in pooled(dev, win, a.x, part, average)]


@kernel("spp_grad")
def pyramid_grad(dev: Device, a: ops.PyramidGrad) -> list[Step]:
    """Levels are added up."""
    steps: list[Step] = [partial(a.d_x.fill, 0)]
    share = dev.scratch(a.d_x.shape, a.d_x.dtype)
    grads = levels(a.x, a.d_out, a.pyramid_height)
    for (win, out), (_, d_out) in zip(levels(a.x, a.out, a.pyramid_height), grads, strict=True):
        slopes = (a.x, out, d_out, share)
        steps += pooled_grad(dev, win, slopes, a.pooling_type == "avg")
        steps.append(partial(dev.xp.add, a.d_x, share, a.d_x))
    return steps
