"""Elementwise kernels: what expressions are as array calls, and quotients of integers."""

from __future__ import annotations

from functools import partial

from ....graph.ops.elementwise import Elementwise
from ....graph.ops.operands import Array
from ...codegen.array_calls import bind_calls
from ...device.device import Device
from ..back_ends import BACK_ENDS
from ..loops.elementwise import Loops, register_named
from ..registry import Step, kernel
from .expression import aligned

register_named(Loops(BACK_ENDS, bind_calls, lambda node: True, lambda root: True))


def divided(dev: Device, a: Array, b: Array | int, out: Array) -> list[Step]:
    """Divide integers as C does: what is behind the point is dropped."""
    rest = dev.scratch(out.shape, out.dtype)
    return [
        partial(dev.xp.fmod, a, b, rest),
        partial(dev.xp.subtract, a, rest, rest),
        partial(dev.xp.floor_divide, rest, b, out),
    ]


@kernel("elementwise_div", "elementwise_floordiv")
def divide(dev: Device, a: Elementwise) -> list[Step]:
    x, y = aligned(a.x, a.y, a.axis)
    if a.out.dtype.kind in "iu":
        return divided(dev, x, y, a.out)
    return [partial(dev.xp.divide, x, y, a.out)]


@kernel("elementwise_mod")
def remainder(dev: Device, a: Elementwise) -> list[Step]:
    """The sign is that of X for integers and that of Y for floats, as in Paddle."""
    x, y = aligned(a.x, a.y, a.axis)
    whole = a.out.dtype.kind in "iu"
    return [partial(dev.xp.fmod if whole else dev.xp.remainder, x, y, a.out)]
