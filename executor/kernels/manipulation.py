"""Kernels that move elements: views made when binding, one copy in a step."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...graph.ops.manipulation import slice_bounds
from ...strategies.errors import InvalidValue
from ..device import Device
from .registry import Step, kernel


def copied(dev: Device, target: Any, source: Any) -> list[Step]:
    """Return the copy, or nothing if nobody wants it."""
    return [] if target is None else [partial(dev.xp.copyto, target, source)]


@kernel("reshape2", "squeeze2", "unsqueeze2", "flatten2")
def reshape(dev: Device, x: Any, out: Any) -> list[Step]:
    if x.flags.c_contiguous:
        return copied(dev, out, x.reshape(out.shape))
    return copied(dev, out.reshape(x.shape), x)


@kernel("reshape2_grad", "squeeze2_grad", "unsqueeze2_grad", "flatten2_grad")
def reshape_grad(dev: Device, d_out: Any, d_x: Any) -> list[Step]:
    return [] if d_x is None else copied(dev, d_x.reshape(d_out.shape), d_out)


@kernel("transpose2")
def transpose(dev: Device, x: Any, out: Any, *, axis: list[int]) -> list[Step]:
    return copied(dev, out, x.transpose(axis))


@kernel("transpose2_grad")
def transpose_grad(dev: Device, d_out: Any, d_x: Any, *, axis: list[int]) -> list[Step]:
    return [] if d_x is None else copied(dev, d_x.transpose(axis), d_out)


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


def _window(x: Any, axes: list[int], starts: list[int], ends: list[int]) -> Any:
    index = [slice(None)] * x.ndim
    for axis, start, end in zip(axes, starts, ends, strict=True):
        index[axis] = slice(*slice_bounds(x.shape[axis], start, end))
    return x[tuple(index)]


@kernel("slice")
def slice_(
    dev: Device, input: Any, out: Any, *, axes: list[int], starts: list[int], ends: list[int]
) -> list[Step]:
    window = _window(input, axes, starts, ends)
    return copied(dev, out.reshape(window.shape), window)


@kernel("slice_grad")
def slice_grad(
    dev: Device, d_out: Any, d_input: Any, *, axes: list[int], starts: list[int], ends: list[int]
) -> list[Step]:
    if d_input is None:
        return []
    window = _window(d_input, axes, starts, ends)
    return [partial(d_input.fill, 0), *copied(dev, window, d_out.reshape(window.shape))]


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


def checked_rows(op: str, index: Any, rows: int) -> Step:
    """Return a call that refuses an index outside ``rows``.

    Raises (when called):
        InvalidValue: names the index and the number of rows.
    """
    if index.size == 0:
        return lambda: None

    def check() -> None:
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= rows:
            raise InvalidValue(f"{op}: index {low if low < 0 else high} is outside the {rows} rows")

    return check


@kernel("gather")
def gather(dev: Device, x: Any, index: Any, out: Any) -> list[Step]:
    flat = index.reshape(-1)
    rows = checked_rows("gather", flat, x.shape[0])
    return [rows, lambda: dev.xp.take(x, flat, axis=0, out=out)]


@kernel("gather_grad")
def gather_grad(dev: Device, x: Any, index: Any, d_out: Any, d_x: Any) -> list[Step]:
    if d_x is None:
        return []
    flat = index.reshape(-1)
    return [partial(d_x.fill, 0), partial(dev.xp.add.at, d_x, flat, d_out)]


@kernel("where")
def where(dev: Device, condition: Any, x: Any, y: Any, out: Any) -> list[Step]:
    return [partial(dev.xp.copyto, out, y), partial(dev.xp.copyto, out, x, where=condition)]


@kernel("where_grad")
def where_grad(dev: Device, condition: Any, d_out: Any, d_x: Any, d_y: Any) -> list[Step]:
    steps: list[Step] = []
    if d_x is not None:
        steps.append(partial(dev.xp.multiply, condition, d_out, d_x))
    if d_y is not None:
        steps += [
            partial(dev.xp.copyto, d_y, d_out),
            partial(dev.xp.copyto, d_y, 0, where=condition),
        ]
    return steps
