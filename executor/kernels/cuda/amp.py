"""Loss scaling without leaving the device: all gradients of a type in one launch.

Micikevicius et al., arXiv 1710.03740, section 3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....graph.ir.graph import Node
from ....graph.ops.amp import CheckFiniteAndUnscale, UpdateLossScaling, ZeroWhereInfinite
from ....strategies.types import VarType
from ...codegen.cuda_launches import Argument, call, ints, numbers, read, run, written
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from .rows import accumulator
from .support import constant, cuda

_PART = 1 << 14  # elements that a block takes
_INCLUDES = ("amp.cuh",)


def _in_parts(
    dev: Device,
    x: Sequence[Any],
    out: Sequence[Any],
    text: Callable[[Any], str],
    arguments: Sequence[Argument],
) -> list[Step]:
    """Return the launches of a kernel on all parts of the arrays, one for each element type."""
    address = dev.cuda.address
    lines: dict[Any, list[tuple[int, int, int]]] = {}
    for source, result in zip(x, out, strict=True):
        target = source if result is None else result
        size = source.dtype.itemsize
        for at in range(0, source.size, _PART):
            places = (address(source) + at * size, address(target) + at * size)
            lines.setdefault(source.dtype, []).append((*places, min(_PART, source.size - at)))
    steps: list[Step] = []
    for dtype, parts in lines.items():
        own = [*read(table=constant(dev, np.array(parts, np.int64))), *arguments]
        steps.append(run(dev, "gradients", text(dtype), own, len(parts), _INCLUDES))
    return steps


@cuda("check_finite_and_unscale")
def check_finite_and_unscale(dev: Device, a: CheckFiniteAndUnscale) -> list[Step]:
    """Out = X / Scale; FoundInfinite tells whether any element of any X is infinite or no number."""
    flag = dev.array_or_scratch(a.found_infinite, (1,), bool)
    kind = c_type(a.scale.dtype)

    def text(dtype: Any) -> str:
        kinds = f"{c_type(dtype)}, {c_type(accumulator(dtype))}, {kind}"
        return f"unscale<{kinds}>(table, scale, found);"

    clear = run(dev, "clear", "*found = false;", written(found=flag), 1, block=1)
    return [clear, *_in_parts(dev, a.x, a.out, text, [*read(scale=a.scale), *written(found=flag)])]


@cuda("zero_where_infinite")
def zero_where_infinite(dev: Device, a: ZeroWhereInfinite) -> list[Step]:
    """Gradients become 0 where the step is not to count."""

    def text(dtype: Any) -> str:
        return f"zero_where_found<{c_type(dtype)}>(table, found);"

    return _in_parts(dev, a.x, a.out, text, read(found=a.found_infinite))


def _counted(node: Node) -> bool:
    """Tell whether both counters are whole numbers of one type, and the scale is a float."""
    good, bad = (node.inputs[slot][0] for slot in ("InGoodSteps", "InBadSteps"))
    scale = node.inputs["PrevLossScaling"][0]
    assert good is not None
    assert bad is not None
    assert scale is not None
    whole = good.spec.dtype in (VarType.INT32, VarType.INT64)
    return (
        whole
        and good.spec.dtype == bad.spec.dtype
        and scale.spec.dtype in (VarType.FP32, VarType.FP64)
    )


@cuda("update_loss_scaling", takes=_counted)
def update_loss_scaling(dev: Device, a: UpdateLossScaling) -> list[Step]:
    """Zero gradients that are not finite; the scale follows how many steps were finite, or not."""
    scale = a.prev_loss_scaling
    arguments = [
        *read(found=a.found_infinite, scale=scale, good=a.in_good_steps, bad=a.in_bad_steps),
        *written(new_scale=a.loss_scaling, new_good=a.out_good_steps, new_bad=a.out_bad_steps),
        *ints(more_after=a.incr_every_n_steps, less_after=a.decr_every_n_nan_or_inf),
        *numbers(scale, more=a.incr_ratio, less=a.decr_ratio),
        *ints(fixed=a.stop_update),
    ]
    kinds = (c_type(scale.dtype), c_type(a.in_good_steps.dtype))
    follow = call(dev, "rescale", kinds, arguments, 1, _INCLUDES, block=1)
    zeroed = ZeroWhereInfinite(x=a.x or [], found_infinite=a.found_infinite, out=a.out or [])
    return [*zero_where_infinite(dev, zeroed), follow]
