"""Windows as columns on a GPU: a launch for each element of the window."""

from __future__ import annotations

from ....graph.ops import expr as e
from ....graph.ops.unfold import Unfold, UnfoldGrad
from ...codegen.cuda_loops import bind_cuda
from ...cuda.runtime import Step
from ...device.device import Device
from ..array.unfold import taps
from .copies import filled, moved
from .support import cuda


@cuda("unfold")
def unfold(dev: Device, a: Unfold) -> list[Step]:
    """Copies, and zeros where windows meet the margin."""
    steps = filled(dev, a.y, 0) if any(a.paddings) else []
    return [*steps, *(step for to, image in taps(a.x, a.y, a) for step in moved(dev, to, image))]


@cuda("unfold_grad")
def unfold_grad(dev: Device, a: UnfoldGrad) -> list[Step]:
    """Sums in the order of the window's elements, in single precision where elements are narrower."""
    narrow = a.d_x.dtype.itemsize < 4
    total = dev.scratch(a.d_x.shape, "float32") if narrow else a.d_x
    steps = filled(dev, total, 0)
    both = e.argument("image") + e.argument("columns")
    for columns, image in taps(total, a.d_y, a):
        if image.size:
            steps += bind_cuda(dev, [(both, image)], {"image": image, "columns": columns})
    if narrow:
        steps += bind_cuda(dev, [(e.copy(e.argument("x")), a.d_x)], {"x": total})
    return steps
