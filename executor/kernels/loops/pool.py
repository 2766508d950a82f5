"""Compiled loops over pooling windows, forward and backward: each is gone through once.

Images lie in the order of their shape, [N, C, D, H, W]; the depth of flat ones is 1. Where windows begin and
end along a dimension stands in a table, so that those of an adaptive pooling are no special case.
"""

from __future__ import annotations

import math
from functools import partial
from textwrap import indent
from typing import Any

import numpy as np

from ....graph.ops import pool_index as ops
from ....graph.ops.operands import Array
from ....graph.ops.pool import Pool, PoolGrad
from ....strategies.errors import InvalidValue
from ....strategies.types import INTEGERS, VarType
from ...codegen.text_loops import bind_checked, bind_text, named
from ...device.device import Device
from ..array.pool import Windows, windows_of
from ..array.pool_index import levels, outside_channel
from ..registry import Step, kernel, of_types

_WINDOWS = """
    size, fixed = deep * high * wide, np.float32(window)
    for n in range(images):
        for c in range(channels):
            plane, o = (n * channels + c) * size, n * out_image + c * out_channel
            for q in range(out_deep):
                d0, d1 = edges_d[2 * q], edges_d[2 * q + 1]
                for r in range(out_high):
                    h0, h1 = edges_h[2 * r], edges_h[2 * r + 1]
                    for s in range(out_wide):
                        w0, w1 = edges_w[2 * s], edges_w[2 * s + 1]
{each}
                        o += 1
"""
_ELEMENTS = """
for d in range(d0, d1):
    for h in range(h0, h1):
        at = (d * high + h) * wide
        for w in range(w0, w1):
            {each}
"""
_LARGEST = "best, place = np.float32(-np.inf), np.int64(-1)" + _ELEMENTS
# Pools hand nan on; those that tell places pass over it, as Paddle's do.
_KEEP_NAN = _LARGEST.format(
    each="""v = x[plane + at + w]
            if v > best or v != v:
                best, place = v, at + w"""
)
_PASS_NAN = _KEEP_NAN.replace(" or v != v", "")
# Of windows with long lines: the largest of each line as vectors.
_LONG = 8  # elements
_BY_LINES = """
best = np.float32(-np.inf)
for d in range(d0, d1):
    for h in range(h0, h1):
        at = plane + (d * high + h) * wide
        v = np.float32(-np.inf)
        for w in range(w0, w1):
            v = largest(v, x[at + w])
        best = largest(best, v)
"""
# Where the largest lies: known as it is, each element is looked at without a branch. A nan equals none.
_FIRST = """
best, nowhere = largest_of[o], np.int32(0x7fffffff)
place = nowhere
for d in range(d0, d1):
    for h in range(h0, h1):
        at = (d * high + h) * wide
        for w in range(w0, w1):
            here = select(load(x, plane + at + w) == best, np.int32(at + w), nowhere)
            place = select(here < place, here, place)
        {stop}
if place != nowhere:
    d_x[plane + place] += out[o]
"""
_COUNT = """
count = fixed
if fixed == 0:
    count = np.float32(max((d1 - d0) * (h1 - h0) * (w1 - w0), 1))
"""
_FORWARD = {
    "max": _KEEP_NAN + "out[o] = best",
    "place": _PASS_NAN + "out[o] = best\nmask[o] = place",
    "avg": "total = np.float32(0.0)"
    + _ELEMENTS.format(each="total += x[plane + at + w]")
    + _COUNT
    + "out[o] = total / count",
}
_BACKWARD = {
    "max": _FIRST.format(stop="pass"),
    "avg": _COUNT
    + "share = out[o] / count"
    + _ELEMENTS.format(each="d_x[plane + at + w] += share"),
}
_LONG_FORWARD = {**_FORWARD, "max": _BY_LINES + "out[o] = best"}
_LONG_BACKWARD = {**_BACKWARD, "max": _FIRST.format(stop="if place != nowhere: break")}
# The largest of images whose channels lie side by side, over all their places.
_OF_CHANNELS = """
    for n in range(images):
        o = n * channels
        for c in range(channels):
            store(out, o + c, load(x, o * places + c))
        for at in range(o * places + channels, (o + channels) * places, channels):
            for c in range(channels):
                best = largest(load(out, o + c), load(x, at + c))
                store(out, o + c, best)
"""
_OF_CHANNELS_GRAD = """
    none = np.int32(0)
    for n in range(images):
        o = n * channels
        for c in range(channels):
            store(missing, c, np.int32(1))
        for at in range(o * places, (o + channels) * places, channels):
            for c in range(channels):
                wanted = load(missing, c)
                here = (load(x, at + c) == load(out, o + c)) & (wanted != none)
                slope = load(d_out, o + c) + np.float32(0)
                store(d_x, at + c, select(here, slope, np.float32(0)))
                store(missing, c, select(here, none, wanted))
"""
_BY_MASK = """
    for plane in range(planes):
        for o in range(plane * places, (plane + 1) * places):
            if mask[o] >= 0:
                d_x[plane * size + mask[o]] += d_out[o]
"""
_UNPOOL = """
    for plane in range(planes):
        for o in range(plane * places, (plane + 1) * places):
            at = np.int64(index[o])
            if at < 0 or at >= size:
                wrong[0], wrong[1] = 1, at
            else:
                {each}
"""


def _bound(
    how: str,
    win: Windows,
    x: Array,
    out: Any,
    exclusive: bool = True,
    mask: Any = None,
    d_x: Any = None,
    y: Any = None,
) -> Step:
    """Return the loop over windows; ``out`` is read where there is ``d_x``, which it adds to.

    ``y``: what a pooling gave, of which ``out`` is the gradient.
    """
    flat = 5 - x.ndim
    edges = [np.array([[0, 1]])] * flat + [np.stack(pair, 1) for pair in win.edges()]
    tables = [np.ascontiguousarray(table, np.int64) for table in edges]
    fixed = 0 if exclusive or win.uneven else int(np.prod(win.k))
    steps = [stride // out.itemsize for stride in out.strides[:2]]
    arrays = {"x": x, "out": out, "d_x": d_x, "mask": mask, "largest_of": y}
    arrays |= named("edges_d edges_h edges_w", tables)
    numbers = named("images channels", x.shape[:2]) | named("out_image out_channel", steps)
    numbers |= named("deep high wide", (*[1] * flat, *win.size))
    numbers |= named("out_deep out_high out_wide", (*[1] * flat, *win.out))
    begins, ends = win.edges()[-1]
    forward, backward = (
        (_LONG_FORWARD, _LONG_BACKWARD) if (ends - begins).min() >= _LONG else (_FORWARD, _BACKWARD)
    )
    each = (forward if d_x is None else backward)[how]
    text = _WINDOWS.format(each=indent(each.strip(), " " * 24))
    return bind_text(text, arrays, **numbers, window=fixed)


_in_single = of_types(VarType.FP32, Mask=INTEGERS, Indices=INTEGERS)
_loops = partial(kernel, on=("llvm",), takes=_in_single, gapless=True)


@_loops("pool2d", "pool3d")
def pool(dev: Device, a: Pool) -> list[Step]:
    return [_bound(a.pooling_type, windows_of(a, a.out), a.x, a.out, a.exclusive)]


def largest_of_channels(x: Array, out: Array) -> Step:
    """Return the largest over all places; ``x``: [N, C, 1, places], the channels side by side."""
    images, channels, _, places = x.shape
    arrays = {"x": x, "out": out}
    return bind_text(_OF_CHANNELS, arrays, images=images, channels=channels, places=places)


def largest_of_channels_grad(dev: Device, x: Array, out: Array, d_out: Array, d_x: Array) -> Step:
    """Return the gradient of :func:`largest_of_channels`, at the first place of the largest."""
    images, channels, _, places = x.shape
    arrays = {"x": x, "out": out, "d_out": d_out, "d_x": d_x}
    arrays["missing"] = dev.scratch((channels,), np.int32)
    return bind_text(_OF_CHANNELS_GRAD, arrays, images=images, channels=channels, places=places)


@_loops("pool2d_grad", "pool3d_grad")
def pool_grad(dev: Device, a: PoolGrad) -> list[Step]:
    win = windows_of(a, a.out)
    return [
        partial(a.d_x.fill, 0),
        _bound(a.pooling_type, win, a.x, a.d_out, a.exclusive, d_x=a.d_x, y=a.out),
    ]


@_loops("max_pool2d_with_index", "max_pool3d_with_index")
def max_pool(dev: Device, a: ops.MaxPool) -> list[Step]:
    return [_bound("place", windows_of(a, a.out), a.x, a.out, mask=a.mask)]


@_loops("max_pool2d_with_index_grad", "max_pool3d_with_index_grad")
def max_pool_grad(dev: Device, a: ops.MaxPoolGrad) -> list[Step]:
    arrays = {"d_out": a.d_out, "d_x": a.d_x, "mask": a.mask}
    return [partial(a.d_x.fill, 0), bind_text(_BY_MASK, arrays, **_planes(a.mask, a.x))]


def _planes(index: Array, image: Array) -> dict[str, int]:
    """Return how many channels there are in all, and the elements of one of each array."""
    planes, places = math.prod(index.shape[:2]), math.prod(index.shape[2:])
    return {"planes": planes, "places": places, "size": math.prod(image.shape[2:])}


@_loops("spp")
def pyramid(dev: Device, a: ops.Pyramid) -> list[Step]:
    parts = levels(a.x, a.out, a.pyramid_height)
    return [_bound(a.pooling_type, win, a.x, part) for win, part in parts]


@_loops("spp_grad")
def pyramid_grad(dev: Device, a: ops.PyramidGrad) -> list[Step]:
    parts, grads = (levels(a.x, array, a.pyramid_height) for array in (a.out, a.d_out))
    calls = (
        _bound(a.pooling_type, win, a.x, grad, d_x=a.d_x, y=part)
        for (win, part), (_, grad) in zip(parts, grads, strict=True)
    )
    return [partial(a.d_x.fill, 0), *calls]


@_loops("unpool", "unpool3d")
def unpool(dev: Device, a: ops.Unpool) -> list[Step]:
    """Copy elements to their places; a place outside of a channel is told afterwards."""
    steps = _placed(dev, "out[plane * size + at] = x[o]", a.x, a.out, a.indices)
    return [partial(a.out.fill, 0), *steps]


@_loops("unpool_grad", "unpool3d_grad")
def unpool_grad(dev: Device, a: ops.UnpoolGrad) -> list[Step]:
    return _placed(dev, "x[o] = out[plane * size + at]", a.d_x, a.d_out, a.indices)


def _placed(dev: Device, each: str, x: Array, out: Array, index: Array) -> list[Step]:
    """Return the loop over elements of ``x`` and their places in ``out``, and the check of these."""
    arrays, text = {"x": x, "out": out, "index": index}, _UNPOOL.format(each=each)
    problem = outside_channel(out.shape[2:])

    def error(place: int) -> InvalidValue:
        return InvalidValue(problem.format(place))

    return bind_checked(dev, text, arrays, error, **_planes(index, out))
