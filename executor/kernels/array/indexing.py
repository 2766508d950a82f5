"""Kernels that pick elements by position."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ....graph.ops import indexing as ops
from ....graph.ops.formula import outside
from ....graph.ops.largest import smallest_first
from ....graph.ops.operands import Array
from ....strategies.errors import InvalidValue
from ...codegen.array_program import look_at
from ...device.device import Device
from ..registry import Step, each_step, kernel


def window(x: Array, a: ops.Slice | ops.SliceGrad) -> Array:
    """Return the view of what a slice takes."""
    index = [slice(None)] * x.ndim
    for axis, start, end in zip(a.axes, a.starts, a.ends, strict=True):
        index[axis] = slice(*ops.slice_bounds(x.shape[axis], start, end))
    return x[tuple(index)]


def read_window(x: Array, a: ops.Slice | ops.SliceGrad) -> Array:
    """Return the view of what a slice takes whose bounds are read in each step."""

    def bounds(
        several: list[Array] | None, single: Array | None, known: Sequence[int]
    ) -> list[int]:
        arrays = several or ([] if single is None else [single])
        return [int(n) for array in arrays for n in array.reshape(-1)] or list(known)

    starts = bounds(a.starts_tensor_list, a.starts_tensor, a.starts)
    ends = bounds(a.ends_tensor_list, a.ends_tensor, a.ends)
    return window(x, a.replace(starts=starts, ends=ends))


@each_step("slice_at", low=True)
def slice_at(a: ops.Slice) -> None:
    view = read_window(a.input, a)
    a.out.reshape(view.shape)[...] = view


@each_step("slice_at_grad", low=True)
def slice_at_grad(a: ops.SliceGrad) -> None:
    if a.d_input is not None:
        a.d_input.fill(0)
        view = read_window(a.d_input, a)
        view[...] = a.d_out.reshape(view.shape)


def checked_rows(dev: Device, op: str, index: Array, rows: int, of: str = "rows") -> list[Step]:
    """Return the call that refuses an index outside ``rows``, which the error calls ``of``."""
    return look_at(dev, index, rows, outside(op, rows, of=of))


def check_classes(op: str, what: str, labels: Array, classes: int, of: str = "classes") -> None:
    """Refuse what is none of the classes, which the error calls ``of``.

    Raises:
        InvalidValue: naming the first that is none.
    """
    if labels.size and (int(labels.min()) < 0 or int(labels.max()) >= classes):
        wrong = labels[(labels < 0) | (labels >= classes)][0]
        raise InvalidValue(outside(op, classes, what, of).format(int(wrong)))


def taken(dev: Device, source: Array, rows: Array, out: Array) -> Step:
    """Return the call that copies ``rows`` (checked) of ``source``; NumPy is faster if told not to check."""
    mode = {"mode": "clip"} if dev.name == "numpy" else {}
    return partial(dev.xp.take, source, rows, axis=0, out=out, **mode)


@kernel("gather", low=True)
def gather(dev: Device, a: ops.Gather) -> list[Step]:
    flat = a.index.reshape(-1)
    return [*checked_rows(dev, "gather", flat, a.x.shape[0]), taken(dev, a.x, flat, a.out)]


@kernel("gather_grad")
def gather_grad(dev: Device, a: ops.GatherGrad) -> list[Step]:
    """Of a row gathered twice the last gradient counts, or (without ``overwrite``) their sum."""
    flat = a.index.reshape(-1)
    put = partial(
        a.d_x.__setitem__ if a.overwrite else partial(dev.xp.add.at, a.d_x), flat, a.d_out
    )
    return [partial(a.d_x.fill, 0), put]


@kernel("scatter")
def scatter(dev: Device, a: ops.Scatter) -> list[Step]:
    """Of rows named twice the last wins, or (without ``overwrite``) their sum takes the place of X's row."""
    steps = checked_rows(dev, "scatter", a.ids, a.x.shape[0])
    if a.out is not a.x:
        steps.append(partial(dev.xp.copyto, a.out, a.x))
    if a.overwrite:
        return [*steps, partial(a.out.__setitem__, a.ids, a.updates)]
    return [
        *steps,
        partial(a.out.__setitem__, a.ids, 0),
        partial(dev.xp.add.at, a.out, a.ids, a.updates),
    ]


@kernel("scatter_grad", low=True)
def scatter_grad(dev: Device, a: ops.ScatterGrad) -> list[Step]:
    """Rows that were replaced pass nothing on to X."""
    steps: list[Step] = []
    if a.d_x is not None:
        steps += [partial(dev.xp.copyto, a.d_x, a.d_out), partial(a.d_x.__setitem__, a.ids, 0)]
    if a.d_updates is not None:
        steps.append(taken(dev, a.d_out, a.ids, a.d_updates))
    return steps


@kernel("argsort")
def argsort(dev: Device, a: ops.Argsort) -> list[Step]:
    """Equal elements keep their order; descending reads the elements from the back for that."""
    xp, last = dev.xp, a.x.shape[a.axis] - 1
    source = xp.flip(a.x, a.axis) if a.descending else a.x

    def run() -> None:
        if xp is np:
            order = np.moveaxis(smallest_first(np.moveaxis(source, a.axis, -1)), -1, a.axis)
        else:
            order = xp.argsort(source, axis=a.axis, kind="stable")
        xp.copyto(a.indices, last - xp.flip(order, a.axis) if a.descending else order)
        xp.copyto(a.out, xp.take_along_axis(a.x, a.indices, axis=a.axis))

    return [run]


@kernel("argsort_grad", low=True)
def argsort_grad(dev: Device, a: ops.ArgsortGrad) -> list[Step]:
    return [lambda: dev.xp.put_along_axis(a.d_x, a.indices, a.d_out, axis=a.axis)]
