"""Unary kernels that a measured override beats: fewer passes over memory than the expression."""

from __future__ import annotations

from functools import partial

from ....graph.ops.activation import Scale
from ....graph.ops.operands import Gradient, SlopeOfOut
from ....strategies.types import whole
from ...device.device import Device
from ..registry import Step, kernel


@kernel("scale")
def scale(dev: Device, a: Scale) -> list[Step]:
    bias, scale = a.bias, a.scale
    if a.x.dtype.kind in "iu":
        scale, bias = whole(scale, a.x.dtype), whole(bias, a.x.dtype)
        bias = bias if a.bias_after_scale else whole(bias * scale, a.x.dtype)
    elif not a.bias_after_scale:
        bias *= scale
    if scale == 1:
        return [partial(dev.xp.add, a.x, bias, a.out)]
    steps: list[Step] = [partial(dev.xp.multiply, a.x, scale, a.out)]
    return [*steps, partial(dev.xp.add, a.out, bias, a.out)] if bias else steps


@kernel("floor_grad", "ceil_grad", "round_grad", "trunc_grad", low=True)
def step_grad(dev: Device, a: Gradient) -> list[Step]:
    """A step function is flat, whatever comes down: not 0 * d, which would be nan for an infinity."""
    return [partial(a.d_x.fill, 0)]


@kernel("relu_grad")
def relu_grad(dev: Device, a: SlopeOfOut) -> list[Step]:
    """Copy, then zero where the output is not positive: inf and nan must not leak through a product."""
    mask = dev.scratch_like(a.out, bool)
    if a.d_x is a.d_out:
        return [
            partial(dev.xp.less_equal, a.out, 0, mask),
            partial(dev.xp.copyto, a.d_x, 0, where=mask),
        ]
    return [
        partial(dev.xp.copyto, a.d_x, a.d_out),
        partial(dev.xp.less_equal, a.out, 0, mask),
        partial(dev.xp.copyto, a.d_x, 0, where=mask),
    ]
