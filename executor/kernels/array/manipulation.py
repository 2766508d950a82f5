"""Kernels that cut and join: views made when binding, one copy for each part in a step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ....graph.ops.manipulation import (
    Concat,
    ConcatGrad,
    Expand,
    ExpandGrad,
    Split,
    Stack,
    StackGrad,
    Unstack,
    UnstackGrad,
)
from ....graph.ops.operands import Array
from ...device.device import Device
from ..registry import Step, kernel


def copied(dev: Device, target: Array | None, source: Array) -> list[Step]:
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
def concat(dev: Device, a: Concat) -> list[Step]:
    return [step for view, part in pieces(a.out, a.x, a.axis) for step in copied(dev, view, part)]


@kernel("concat_grad", low=True)
def concat_grad(dev: Device, a: ConcatGrad) -> list[Step]:
    pairs = zip(pieces(a.d_out, a.x, a.axis), a.d_x, strict=True)
    return [step for (view, _), target in pairs for step in copied(dev, target, view)]


@kernel("split", low=True)
def split(dev: Device, a: Split) -> list[Step]:
    return [step for view, part in pieces(a.x, a.out, a.axis) for step in copied(dev, part, view)]


def layers(whole: Any, count: int, axis: int) -> list[Any]:
    """Return the views of what lies at each index along an axis."""
    axis %= whole.ndim
    return [whole[(slice(None),) * axis + (i,)] for i in range(count)]


@kernel("stack", low=True)
def stack(dev: Device, a: Stack) -> list[Step]:
    return [
        s
        for view, part in zip(layers(a.y, len(a.x), a.axis), a.x, strict=True)
        for s in copied(dev, view, part)
    ]


@kernel("stack_grad", low=True)
def stack_grad(dev: Device, a: StackGrad) -> list[Step]:
    each = layers(a.d_y, len(a.d_x), a.axis)
    return [s for view, part in zip(each, a.d_x, strict=True) for s in copied(dev, part, view)]


@kernel("unstack", low=True)
def unstack(dev: Device, a: Unstack) -> list[Step]:
    each = layers(a.x, len(a.y), a.axis)
    return [s for view, part in zip(each, a.y, strict=True) for s in copied(dev, part, view)]


@kernel("unstack_grad", low=True)
def unstack_grad(dev: Device, a: UnstackGrad) -> list[Step]:
    each = layers(a.d_x, len(a.d_y), a.axis)
    return [s for view, part in zip(each, a.d_y, strict=True) for s in copied(dev, view, part)]


def tiles(small: Array, large: Any, times: Sequence[int]) -> tuple[Any, Any]:
    """View the large array as (times, size) pairs of dimensions, and the small one likewise."""
    pairs = [n for t, d in zip(times, small.shape, strict=True) for n in (t, d)]
    return small.reshape([n for d in small.shape for n in (1, d)]), large.reshape(pairs)


@kernel("expand", low=True)
def expand(dev: Device, a: Expand) -> list[Step]:
    small, large = tiles(a.x, a.out, a.expand_times)
    return copied(dev, large, small)


@kernel("expand_grad")
def expand_grad(dev: Device, a: ExpandGrad) -> list[Step]:
    if a.d_x is None:
        return []
    _, large = tiles(a.x, a.d_out, a.expand_times)
    return [partial(dev.xp.add.reduce, large, tuple(range(0, large.ndim, 2)), None, a.d_x)]
