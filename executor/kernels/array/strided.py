"""Kernels that take every n-th element, or all of them backwards: views made when binding."""

from __future__ import annotations

from functools import partial
from typing import Any

from ....graph.ops.strided import strided_indices
from ...device.device import Device
from ..registry import Step, kernel
from .manipulation import copied


def _taken(x: Any, axes: list[int], starts: list[int], ends: list[int], strides: list[int]) -> Any:
    """Return the view of what is taken."""
    index = [slice(None)] * x.ndim
    for axis, start, end, stride in zip(axes, starts, ends, strides, strict=True):
        indices = strided_indices(x.shape[axis], start, end, stride)
        if not indices:
            index[axis] = slice(0, 0)
            continue
        stop = indices[-1] + (1 if stride > 0 else -1)
        index[axis] = slice(indices[0], stop if stop >= 0 else None, stride)
    return x[tuple(index)]


@kernel("strided_slice", low=True)
def strided_slice(
    dev: Device,
    input: Any,
    out: Any,
    *,
    axes: list[int],
    starts: list[int],
    ends: list[int],
    strides: list[int],
) -> list[Step]:
    """A view of the operand, copied."""
    view = _taken(input, axes, starts, ends, strides)
    return copied(dev, out.reshape(view.shape), view)


@kernel("strided_slice_grad", low=True)
def strided_slice_grad(
    dev: Device,
    d_out: Any,
    d_input: Any,
    *,
    axes: list[int],
    starts: list[int],
    ends: list[int],
    strides: list[int],
) -> list[Step]:
    """The gradient where the elements came from, zero elsewhere."""
    if d_input is None:
        return []
    view = _taken(d_input, axes, starts, ends, strides)
    return [partial(d_input.fill, 0), *copied(dev, view, d_out.reshape(view.shape))]


@kernel("reverse", low=True)
def reverse(dev: Device, x: Any, out: Any, *, axis: list[int]) -> list[Step]:
    """The operand from the end to the front along some dimensions."""
    return copied(dev, out, dev.xp.flip(x, tuple(axis)))
