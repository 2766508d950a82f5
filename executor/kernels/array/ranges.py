"""Kernels that fill tensors with numbers in a row, repeat tensors to a shape, and compare whole tensors."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....graph.ops import ranges as ops
from ....graph.ops.operands import Array, Unary
from ...device.device import Device
from ..registry import Step, kernel


def written(dev: Device, out: Array, value: Any) -> Step:
    """Return the call that copies numbers which are known when binding."""
    return partial(dev.xp.copyto, out, dev.xp.asarray(np.asarray(value).astype(out.dtype)))


@kernel("fill", low=True)
def fill(dev: Device, a: ops.Fill) -> Step:
    return written(dev, a.out, np.reshape(a.value, a.out.shape))


@kernel("size", low=True)
def size(dev: Device, a: ops.Size) -> Step:
    return partial(a.out.fill, a.input.size)


@kernel("is_empty", low=True)
def is_empty(dev: Device, a: Unary) -> Step:
    return partial(a.out.fill, a.x.size == 0)


@kernel("range", low=True)
def range_(dev: Device, a: ops.Range) -> Step:
    return written(dev, a.out, range_numbers(a))


@kernel("range_at", low=True)
def range_at(dev: Device, a: ops.RangeAt) -> Step:
    assert a.start_tensor is not None and a.step_tensor is not None
    start, step = a.start_tensor.reshape(-1), a.step_tensor.reshape(-1)
    places = dev.xp.arange(a.out.size)

    def run() -> None:
        a.out[...] = start[0].item() + step[0].item() * places

    return run


def range_numbers(a: ops.Range) -> Any:
    """Return start, start + step, ...; the three are exact in float64, and whole numbers are Python's."""
    return a.start + a.step * np.arange(a.out.size)


@kernel("linspace")
def linspace(dev: Device, a: ops.Linspace) -> list[Step]:
    """start + i (stop - start) / (num - 1)."""
    xp, share = dev.xp, dev.xp.asarray(linspace_shares(a.num))
    span, line = dev.scratch((1,), np.float64), dev.scratch((a.num,), np.float64)
    return [
        partial(xp.subtract, a.stop.reshape(1), a.start.reshape(1), span),
        partial(xp.multiply, share, span, line),
        partial(xp.add, line, a.start.reshape(1), line),
        partial(xp.copyto, a.out, line, casting="unsafe"),
    ]


def linspace_shares(num: int) -> Any:
    """Return how far each element is on the way."""
    return np.arange(num) / max(num - 1, 1)


@kernel("allclose")
def allclose(dev: Device, a: ops.Allclose) -> Step:
    how = {"rtol": a.rtol, "atol": a.atol, "equal_nan": a.equal_nan}
    return lambda: a.out.__setitem__(..., dev.xp.allclose(a.input, a.other, **how))


@kernel("equal_reduce")
def equal_reduce(dev: Device, a: ops.EqualReduce) -> Step:
    """Whether shapes and all elements are equal."""
    if a.x.shape != a.y.shape:
        return partial(a.out.fill, False)
    return lambda: a.out.__setitem__(..., (a.x == a.y).all())
