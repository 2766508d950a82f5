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
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...cuda.transfers import device_array, upload
from ...device.device import Device
from .launches import simple, start
from .rows import accumulator
from .support import cuda

_PART = 1 << 14  # elements that a block takes
_INCLUDES = ("amp.cuh",)


def _in_parts(
    dev: Device,
    x: Sequence[Any],
    out: Sequence[Any],
    text: Callable[[Any], str],
    parameters: tuple[str, ...],
    arguments: tuple[Any, ...],
) -> list[Step]:
    """Return the launches of a kernel on all parts of the arrays, one for each element type."""
    assert dev.runtime is not None
    address = dev.runtime.address
    lines: dict[Any, list[tuple[int, int, int]]] = {}
    for read, written in zip(x, out, strict=True):
        target = read if written is None else written
        size = read.dtype.itemsize
        for at in range(0, read.size, _PART):
            places = (address(read) + at * size, address(target) + at * size)
            lines.setdefault(read.dtype, []).append((*places, min(_PART, read.size - at)))
    steps: list[Step] = []
    for dtype, parts in lines.items():
        dev.tied = True
        table = device_array(dev.runtime, (len(parts), 3), np.int64)
        upload(dev.runtime, table, np.array(parts, np.int64))
        kernel = simple(
            "gradients", ("const long long* table", *parameters), text(dtype), _INCLUDES
        )
        steps.append(start(dev, kernel, (len(parts), 1, 1), (table, *arguments)))
    return steps


@cuda("check_finite_and_unscale")
def check_finite_and_unscale(dev: Device, a: CheckFiniteAndUnscale) -> list[Step]:
    """Out = X / Scale; FoundInfinite tells whether any element of any X is infinite or no number."""
    flag = dev.scratch((1,), bool) if a.found_infinite is None else a.found_infinite
    clear = simple("clear", ("bool* found",), "*found = false;", ())
    kind = c_type(a.scale.dtype)

    def text(dtype: Any) -> str:
        kinds = f"{c_type(dtype)}, {c_type(accumulator(dtype))}, {kind}"
        return f"unscale<{kinds}>(table, scale, found);"

    parameters = (f"const {kind}* scale", "bool* found")
    return [
        start(dev, clear, (1, 1, 1), (flag,), 1),
        *_in_parts(dev, a.x, a.out, text, parameters, (a.scale, flag)),
    ]


@cuda("zero_where_infinite")
def zero_where_infinite(dev: Device, a: ZeroWhereInfinite) -> list[Step]:
    """Gradients become 0 where the step is not to count."""

    def text(dtype: Any) -> str:
        return f"zero_where_found<{c_type(dtype)}>(table, found);"

    return _in_parts(dev, a.x, a.out, text, ("const bool* found",), (a.found_infinite,))


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
    """Zero gradients that are not finite; let the scale follow what was found, in this step and before."""
    s, i = c_type(a.prev_loss_scaling.dtype), c_type(a.in_good_steps.dtype)
    reads = (f"const {s}* scale", f"const {i}* good", f"const {i}* bad")
    writes = (f"{s}* new_scale", f"{i}* new_good", f"{i}* new_bad")
    numbers = ("int more_after", "int less_after", f"{s} more", f"{s} less", "int fixed")
    parameters = ("const bool* found", *reads, *writes, *numbers)
    names = ", ".join(text.rpartition(" ")[2] for text in parameters)
    kernel = simple("rescale_loss", parameters, f"rescale<{s}, {i}>({names});", _INCLUDES)
    arrays = (
        a.prev_loss_scaling,
        a.in_good_steps,
        a.in_bad_steps,
        a.loss_scaling,
        a.out_good_steps,
    )
    how = (
        a.incr_every_n_steps,
        a.decr_every_n_nan_or_inf,
        a.incr_ratio,
        a.decr_ratio,
        int(a.stop_update),
    )
    follow = start(dev, kernel, (1, 1, 1), (a.found_infinite, *arrays, a.out_bad_steps, *how), 1)
    zeroed = ZeroWhereInfinite(x=a.x or [], found_infinite=a.found_infinite, out=a.out or [])
    return [*zero_where_infinite(dev, zeroed), follow]
