"""Kernels that take every n-th element, or all of them backwards: views made when binding."""

from __future__ import annotations

from functools import partial

from ....graph.ops.operands import Array
from ....graph.ops.strided import Reverse, StridedSlice, StridedSliceGrad, strided_indices
from ...device.device import Device
from ..registry import Step, kernel
from .manipulation import copied


def _taken(x: Array, a: StridedSlice | StridedSliceGrad) -> Array:
    """Return the view of what is taken."""
    index = [slice(None)] * x.ndim
    for axis, start, end, stride in zip(a.axes, a.starts, a.ends, a.strides, strict=True):
        indices = strided_indices(x.shape[axis], start, end, stride)
        if not indices:
            index[axis] = slice(0, 0)
            continue
        stop = indices[-1] + (1 if stride > 0 else -1)
        index[axis] = slice(indices[0], stop if stop >= 0 else None, stride)
    return x[tuple(index)]


@kernel("strided_slice", low=True)
def strided_slice(dev: Device, a: StridedSlice) -> list[Step]:
    """A view of the operand, copied."""
    view = _taken(a.input, a)
    return copied(dev, a.out.reshape(view.shape), view)


@kernel("strided_slice_grad", low=True)
def strided_slice_grad(dev: Device, a: StridedSliceGrad) -> list[Step]:
    """The gradient where the elements came from, zero elsewhere."""
    view = _taken(a.d_input, a)
    return [partial(a.d_input.fill, 0), *copied(dev, view, a.d_out.reshape(view.shape))]


@kernel("reverse", low=True)
def reverse(dev: Device, a: Reverse) -> list[Step]:
    """The operand from the end to the front along some dimensions."""
    return copied(dev, a.out, dev.xp.flip(a.x, tuple(a.axis)))
