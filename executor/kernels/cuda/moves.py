"""Ops that move elements, on a GPU: each pair of views is one launch; and sums of what was moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....graph.ops.manipulation import ExpandGrad
from ....graph.ops.operands import Gradient, Unary
from ....graph.ops.ranges import ExpandAsGrad
from ....graph.ops.view import VIEWS
from ...cuda.runtime import Step
from ...device.device import Device
from ..array.manipulation import tiles
from ..array.moves import register
from .copies import filled, filled_around, moved
from .reduction import reduced
from .support import cuda


@cuda("reshape_at", "unsqueeze_at", *VIEWS)
def reshape(dev: Device, a: Unary) -> list[Step]:
    """The elements in the order in which they lie."""
    return moved(dev, None if a.out is None else a.out.reshape(a.x.shape), a.x)


@cuda(*(f"{name}_grad" for name in VIEWS))
def reshape_grad(dev: Device, a: Gradient) -> list[Step]:
    """The elements in the order in which they lie."""
    return moved(dev, None if a.d_x is None else a.d_x.reshape(a.d_out.shape), a.d_out)


def _rest_filled(dev: Device, array: Any, parts: Sequence[Any], value: Any) -> list[Step]:
    """Return the calls that fill an array, but for its only part where that is a box."""
    if len(parts) == 1 and parts[0].strides == array.strides:
        return filled_around(dev, array, parts[0], value)
    return filled(dev, array, value)


register(cuda, moved, _rest_filled)


@cuda("expand_grad", "expand_as_grad")
def expand_grad(dev: Device, a: ExpandGrad | ExpandAsGrad) -> list[Step]:
    """Each element gets the sum of what went to its copies."""
    if not a.d_x.size:
        return []
    _, large = tiles(a.x, a.d_out)
    return reduced(dev, "Sum", large, a.d_x, tuple(range(0, large.ndim, 2)))
