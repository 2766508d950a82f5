"""Kernels that cut and join: views made when binding, one copy for each part in a step."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..device import Device
from .registry import Step, kernel


def copied(dev: Device, target: Any, source: Any) -> list[Step]:
    """Return the copy, or nothing if nobody wants it."""
    return [] if target is None else [partial(dev.xp.copyto, target, source)]


def _pieces(whole: Any, parts: list[Any], axis: int) -> list[tuple[Any, Any]]:
    """Pair each part with the view of the whole that it stands for."""
    axis %= whole.ndim
    pairs, start = [], 0
    for part in parts:
        stop = start + part.shape[axis]
        pairs.append((whole[(slice(None),) * axis + (slice(start, stop),)], part))
        start = stop
    return pairs


@kernel("concat")
def concat(dev: Device, x: list[Any], out: Any, *, axis: int) -> list[Step]:
    return [step for view, part in _pieces(out, x, axis) for step in copied(dev, view, part)]


@kernel("concat_grad")
def concat_grad(dev: Device, x: list[Any], d_out: Any, d_x: list[Any], *, axis: int) -> list[Step]:
    pairs = zip(_pieces(d_out, x, axis), d_x, strict=True)
    return [step for (view, _), target in pairs for step in copied(dev, target, view)]


@kernel("split")
def split(dev: Device, x: Any, out: list[Any], *, axis: int) -> list[Step]:
    return [step for view, part in _pieces(x, out, axis) for step in copied(dev, part, view)]


def _layers(whole: Any, count: int, axis: int) -> list[Any]:
    axis %= whole.ndim
    return [whole[(slice(None),) * axis + (i,)] for i in range(count)]


@kernel("stack")
def stack(dev: Device, x: list[Any], y: Any, *, axis: int) -> list[Step]:
    return [
        s
        for view, part in zip(_layers(y, len(x), axis), x, strict=True)
        for s in copied(dev, view, part)
    ]


@kernel("stack_grad")
def stack_grad(dev: Device, d_y: Any, d_x: list[Any], *, axis: int) -> list[Step]:
    layers = _layers(d_y, len(d_x), axis)
    return [s for view, part in zip(layers, d_x, strict=True) for s in copied(dev, part, view)]


@kernel("unstack")
def unstack(dev: Device, x: Any, y: list[Any], *, axis: int) -> list[Step]:
    layers = _layers(x, len(y), axis)
    return [s for view, part in zip(layers, y, strict=True) for s in copied(dev, part, view)]


@kernel("unstack_grad")
def unstack_grad(dev: Device, d_y: list[Any], d_x: Any, *, axis: int) -> list[Step]:
    layers = _layers(d_x, len(d_y), axis)
    return [s for view, part in zip(layers, d_y, strict=True) for s in copied(dev, view, part)]


def _tiles(small: Any, large: Any, times: list[int]) -> tuple[Any, Any]:
    """View the large array as (times, size) pairs of dimensions, and the small one likewise."""
    pairs = [n for t, d in zip(times, small.shape, strict=True) for n in (t, d)]
    return small.reshape([n for d in small.shape for n in (1, d)]), large.reshape(pairs)


@kernel("expand")
def expand(dev: Device, x: Any, out: Any, *, expand_times: list[int]) -> list[Step]:
    small, large = _tiles(x, out, expand_times)
    return copied(dev, large, small)


@kernel("expand_grad")
def expand_grad(
    dev: Device, x: Any, d_out: Any, d_x: Any, *, expand_times: list[int]
) -> list[Step]:
    if d_x is None:
        return []
    _, large = _tiles(x, d_out, expand_times)
    return [partial(dev.xp.add.reduce, large, tuple(range(0, large.ndim, 2)), None, d_x)]
