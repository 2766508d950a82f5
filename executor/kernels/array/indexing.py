"""Kernels that pick elements by position."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....graph.ops.indexing import slice_bounds
from ....strategies.errors import InvalidValue
from ...device.device import Device
from ..registry import Step, kernel
from .manipulation import copied


def window(x: Any, axes: list[int], starts: list[int], ends: list[int]) -> Any:
    """Return the view of what a slice takes."""
    index = [slice(None)] * x.ndim
    for axis, start, end in zip(axes, starts, ends, strict=True):
        index[axis] = slice(*slice_bounds(x.shape[axis], start, end))
    return x[tuple(index)]


@kernel("slice", low=True)
def slice_(
    dev: Device, input: Any, out: Any, *, axes: list[int], starts: list[int], ends: list[int]
) -> list[Step]:
    view = window(input, axes, starts, ends)
    return copied(dev, out.reshape(view.shape), view)


@kernel("slice_grad", low=True)
def slice_grad(
    dev: Device, d_out: Any, d_input: Any, *, axes: list[int], starts: list[int], ends: list[int]
) -> list[Step]:
    if d_input is None:
        return []
    view = window(d_input, axes, starts, ends)
    return [partial(d_input.fill, 0), *copied(dev, view, d_out.reshape(view.shape))]


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


def taken(dev: Device, source: Any, rows: Any, out: Any) -> Step:
    """Return the call that copies ``rows`` (checked) of ``source``; NumPy is faster if told not to check."""
    mode = {"mode": "clip"} if dev.name == "numpy" else {}
    return lambda: dev.xp.take(source, rows, axis=0, out=out, **mode)


@kernel("gather", low=True)
def gather(dev: Device, x: Any, index: Any, out: Any) -> list[Step]:
    flat = index.reshape(-1)
    return [checked_rows("gather", flat, x.shape[0]), taken(dev, x, flat, out)]


@kernel("gather_grad")
def gather_grad(
    dev: Device, x: Any, index: Any, d_out: Any, d_x: Any, *, overwrite: bool
) -> list[Step]:
    """Of a row gathered twice the last gradient counts, or (without ``overwrite``) their sum."""
    if d_x is None:
        return []
    flat = index.reshape(-1)
    if overwrite:
        return [partial(d_x.fill, 0), lambda: d_x.__setitem__(flat, d_out)]
    return [partial(d_x.fill, 0), partial(dev.xp.add.at, d_x, flat, d_out)]


@kernel("where", low=True)
def where(dev: Device, condition: Any, x: Any, y: Any, out: Any) -> list[Step]:
    return [partial(dev.xp.copyto, out, y), partial(dev.xp.copyto, out, x, where=condition)]


@kernel("where_grad")
def where_grad(dev: Device, condition: Any, d_out: Any, d_x: Any, d_y: Any) -> list[Step]:
    steps: list[Step] = []
    if d_x is not None:
        steps += [
            partial(dev.xp.copyto, d_x, 0),
            partial(dev.xp.copyto, d_x, d_out, where=condition),
        ]
    if d_y is not None:
        steps += [
            partial(dev.xp.copyto, d_y, d_out),
            partial(dev.xp.copyto, d_y, 0, where=condition),
        ]
    return steps


def _linear(dev: Device, x: Any, index: Any) -> tuple[Any, Any, list[Step]]:
    """View X as rows, one for each place an index can name; and the calls that number those places."""
    depth = index.shape[-1]
    if depth == 0:  # each names all of X
        places = dev.keep(index.shape[:-1], np.int64)
        return x.reshape(1, *x.shape), places.reshape(-1), []
    rows = x.reshape(-1, *x.shape[depth:]) if x.size else x.reshape(0, *x.shape[depth:])
    places, term = (dev.scratch(index.shape[:-1], np.int64) for _ in range(2))
    steps: list[Step] = []
    for i in range(depth):
        column, size = index[..., i], x.shape[i]
        steps.append(checked_rows("gather_nd", column, size))
        if i == 0:
            steps.append(partial(dev.xp.copyto, places, column))
        else:
            steps += [
                partial(dev.xp.multiply, places, size, places),
                partial(dev.xp.copyto, term, column),
                partial(dev.xp.add, places, term, places),
            ]
    return rows, places.reshape(-1), steps


@kernel("gather_nd", low=True)
def gather_nd(dev: Device, x: Any, index: Any, out: Any) -> list[Step]:
    rows, places, steps = _linear(dev, x, index)
    target = out.reshape(places.size, *rows.shape[1:])
    return [*steps, taken(dev, rows, places, target)]


@kernel("gather_nd_grad")
def gather_nd_grad(dev: Device, x: Any, index: Any, d_out: Any, d_x: Any) -> list[Step]:
    if d_x is None:
        return []
    rows, places, steps = _linear(dev, d_x, index)
    source = d_out.reshape(places.size, *rows.shape[1:])
    return [*steps, partial(d_x.fill, 0), partial(dev.xp.add.at, rows, places, source)]


@kernel("scatter")
def scatter(
    dev: Device, x: Any, ids: Any, updates: Any, out: Any, *, overwrite: bool
) -> list[Step]:
    """Of rows named twice the last wins, or (without ``overwrite``) their sum takes the place of X's row."""
    steps: list[Step] = [checked_rows("scatter", ids, x.shape[0])]
    if out is not x:
        steps.append(partial(dev.xp.copyto, out, x))
    if overwrite:
        return [*steps, lambda: out.__setitem__(ids, updates)]
    return [
        *steps,
        lambda: out.__setitem__(ids, 0),
        partial(dev.xp.add.at, out, ids, updates),
    ]


@kernel("scatter_grad", low=True)
def scatter_grad(dev: Device, ids: Any, d_out: Any, d_x: Any, d_updates: Any) -> list[Step]:
    """Rows that were replaced pass nothing on to X."""
    steps: list[Step] = []
    if d_x is not None:
        steps += [partial(dev.xp.copyto, d_x, d_out), lambda: d_x.__setitem__(ids, 0)]
    if d_updates is not None:
        steps.append(taken(dev, d_out, ids, d_updates))
    return steps


@kernel("argsort")
def argsort(
    dev: Device, x: Any, out: Any, indices: Any, *, axis: int, descending: bool
) -> list[Step]:
    """Equal elements keep their order; descending reads the elements from the back for that."""
    xp, last = dev.xp, x.shape[axis] - 1
    source = xp.flip(x, axis) if descending else x

    def run() -> None:
        order = xp.argsort(source, axis=axis, kind="stable")
        xp.copyto(indices, last - xp.flip(order, axis) if descending else order)
        xp.copyto(out, xp.take_along_axis(x, indices, axis=axis))

    return [run]


@kernel("argsort_grad", low=True)
def argsort_grad(dev: Device, indices: Any, d_out: Any, d_x: Any, *, axis: int) -> list[Step]:
    return [lambda: dev.xp.put_along_axis(d_x, indices, d_out, axis=axis)]
