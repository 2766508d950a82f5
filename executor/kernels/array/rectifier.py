"""Maxout: the largest of several views of an image, as expressions."""

from __future__ import annotations

from functools import reduce
from typing import Any

from ....graph.ops import expr as e
from ....graph.ops.operands import Array
from ....graph.ops.rectifier import Maxout, MaxoutAttributes, MaxoutGrad
from ...device.device import Device
from ..registry import Step, kernel
from .expression import Written, bind_written


def _views(a: MaxoutAttributes, array: Array) -> list[Any]:
    """Return the first channel of each group, the second of each, and so on."""
    axis = a.axis % array.ndim
    shape = array.shape
    grouped = array.reshape(*shape[:axis], shape[axis] // a.groups, a.groups, *shape[axis + 1 :])
    return [grouped[(slice(None),) * (axis + 1) + (k,)] for k in range(a.groups)]


def largest(a: Maxout) -> tuple[Written, dict[str, Any]]:
    """Return the largest of the views, and the views."""
    arrays = {f"x{k}": view for k, view in enumerate(_views(a, a.x))}
    return [(reduce(e.maximum, map(e.argument, arrays)), a.out)], arrays


def slopes_of_largest(a: MaxoutGrad, d_x: Array) -> tuple[Written, dict[str, Any]]:
    """Return the gradients: the first of equal channels has it, as in Paddle."""
    arrays = {f"x{k}": view for k, view in enumerate(_views(a, a.x))}
    out, d_out, taken = e.argument("out"), e.argument("d_out"), None
    written = []
    for name, view in zip(arrays, _views(a, d_x), strict=True):
        hit = e.equal(e.argument(name), out)
        first = hit if taken is None else hit & e.logical_not(taken)
        written.append((e.where(first, d_out, 0), view))
        taken = hit if taken is None else taken | hit
    return written, {**arrays, "out": a.out, "d_out": a.d_out}


@kernel("maxout")
def maxout(dev: Device, a: Maxout) -> list[Step]:
    return bind_written(dev, *largest(a))


@kernel("maxout_grad")
def maxout_grad(dev: Device, a: MaxoutGrad) -> list[Step]:
    return bind_written(dev, *slopes_of_largest(a, a.d_x))
