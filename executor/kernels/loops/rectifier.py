"""Maxout in one loop over all its channels."""

from __future__ import annotations

from ....graph.ops.rectifier import Maxout, MaxoutGrad
from ...device.device import Device
from ..array.rectifier import largest, slopes_of_largest
from ..registry import Step
from .elementwise import NUMBA, Loops


def register(loops: Loops) -> None:
    """Register the op and its gradient."""

    @loops.register("maxout")
    def maxout(dev: Device, a: Maxout) -> list[Step]:
        return loops.bind(dev, *largest(a))

    @loops.register("maxout_grad")
    def maxout_grad(dev: Device, a: MaxoutGrad) -> list[Step]:
        return loops.bind(dev, *slopes_of_largest(a, a.d_x))


register(NUMBA)
