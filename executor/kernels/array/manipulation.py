"""Kernels that cut and join: views made when binding, one copy for each part in a step."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...device.device import Device
from ..registry import Step, kernel


def copied(dev: Device, target: Any, source: Any) -> list[Step]:
    """Return the copy, or nothing if nobody wants it."""
    return [] if target is None else [partial(dev.xp.copyto, target, source)]


def pieces(whole: Any, parts: list[Any], axis: int) -> list[tuple[Any, Any]]:
    """Pair each part with the view of the whole that it stands for."""
    axis %= whole.ndim
    pairs, start = [], 0
    for part in parts:
        stop = start + part.shape[axis]
        pairs.append((whole[(slice(None),) * axis + (slice(start, stop),)], part))
        start = stop
    return pairs


@kernel("concat", low=True)
def concat(dev: Device, x: list[Any], out: Any, *, axis: int) -> list[Step]:
    return [step for view, part in pieces(out, x, axis) for step in copied(dev, view, part)]


@kernel("concat_grad", low=True)
def concat_grad(dev: Device, x: list[Any], d_out: Any, d_x: list[Any], *, axis: int) -> list[Step]:
    pairs = zip(pieces(d_out, x, axis), d_x, strict=True)
    return [step for (view, _), target in pairs for step in copied(dev, target, view)]


@kernel("split", low=True)
def split(dev: Device, x: Any, out: list[Any], *, axis: int) -> list[Step]:
    return [step for view, part in pieces(x, out, axis) for step in copied(dev, part, view)]


def layers(whole: Any, count: int, axis: int) -> list[Any]:
    """Return the views of what lies at each index along an axis."""
    axis %= whole.ndim
    return [whole[(slice(None),) * axis + (i,)] for i in range(count)]


@kernel("stack", low=True)
def stack(dev: Device, x: list[Any], y: Any, *, axis: int) -> list[Step]:
    return [
        s
        for view, part in zip(layers(y, len(x), axis), x, strict=True)
        for s in copied(dev, view, part)
    ]


@kernel("stack_grad", low=True)
def stack_grad(dev: Device, d_y: Any, d_x: list[Any], *, axis: int) -> list[Step]:
    each = layers(d_y, len(d_x), axis)
    return [s for view, part in zip(each, d_x, strict=True) for s in copied(dev, part, view)]


@kernel("unstack", low=True)
def unstack(dev: Device, x: Any, y: list[Any], *, axis: int) -> list[Step]:
    each = layers(x, len(y), axis)
    return [s for view, part in zip(each, y, strict=True) for s in copied(dev, part, view)]


@kernel("unstack_grad", low=True)
def unstack_grad(dev: Device, d_y: list[Any], d_x: Any, *, axis: int) -> list[Step]:
    each = layers(d_x, len(d_y), axis)
    return [s for view, part in zip(each, d_y, strict=True) for s in copied(dev, view, part)]


def tiles(small: Any, large: Any, times: list[int]) -> tuple[Any, Any]:
    """View the large array as (times, size) pairs of dimensions, and the small one likewise."""
    pairs = [n for t, d in zip(times, small.shape, strict=True) for n in (t, d)]
    return small.reshape([n for d in small.shape for n in (1, d)]), large.reshape(pairs)


@kernel("expand", low=True)
def expand(dev: Device, x: Any, out: Any, *, expand_times: list[int]) -> list[Step]:
    small, large = tiles(x, out, expand_times)
    return copied(dev, large, small)


@kernel("expand_grad")
def expand_grad(
    dev: Device, x: Any, d_out: Any, d_x: Any, *, expand_times: list[int]
) -> list[Step]:
    if d_x is None:
        return []
    _, large = tiles(x, d_out, expand_times)
    return [partial(dev.xp.add.reduce, large, tuple(range(0, large.ndim, 2)), None, d_x)]
