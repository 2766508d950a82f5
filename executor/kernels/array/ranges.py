"""Kernels that write numbers in a row, and compare whole tensors."""

from __future__ import annotations

from functools import partial

from ....graph.ops import ranges as ops
from ...device.device import Device
from ..registry import Step, kernel


@kernel("range_at", low=True)
def range_at(dev: Device, a: ops.Range) -> Step:
    assert a.start_tensor is not None and a.step_tensor is not None
    start, step = a.start_tensor.reshape(-1), a.step_tensor.reshape(-1)
    places = dev.xp.arange(a.out.size)

    def run() -> None:
        a.out[...] = start[0].item() + step[0].item() * places

    return run


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
