"""Connectionist temporal classification on a GPU, a block for each sequence (``graph/ops/ctc.py``)."""

from __future__ import annotations

from functools import partial

import numpy as np

from ....graph.ops.ctc import WarpCtc, WarpCtcGrad
from ....graph.ops.formula import outside
from ....graph.ops.operands import Array
from ...codegen.cuda_launches import Argument, Maybe, call, ints, read, refusal, written
from ...codegen.cuda_source import c_type
from ...device.device import Device
from ..array import ctc as arrays
from ..registry import Step, kernel
from .sequences import refusing
from .support import of_same_float

_INCLUDES = ("reduce.cuh", "assert.cuh", "stretch.cuh", "ctc.cuh")
_MOST_THREADS = 256
# Of all paths: more is left to the array module, which knows how long labels are
MOST_BYTES = 1 << 30

_on = partial(kernel, on=("cuda",), takes=of_same_float, nonempty=True)


def _refusing(
    dev: Device, slot: str, array: Array, padded: bool, time: int
) -> tuple[int, list[Argument]]:
    """Return the rows of a slot (``padded``: of each sequence), and the parameters for ``refuse``."""
    if not padded:
        return len(array), refusing(dev, "warpctc", slot, len(array))
    steps = array.shape[time]
    problem = f"warpctc: {slot}Length {{}} is outside the {steps} steps of {slot}"
    return steps, refusal(dev, problem)


def _ends(lod: list[Array], length: Array | None) -> Array:
    """Return where sequences end, as offsets, or by their lengths in a batch."""
    return lod[-1] if length is None else length.reshape(-1)


@_on("warpctc")
def warpctc(dev: Device, a: WarpCtc) -> Step | list[Step]:
    x, padded, classes = a.logits, a.logits_length is not None, a.logits.shape[-1]
    rows, refuse = _refusing(dev, "Logits", x, padded, 0)
    labels, refuse_labels = _refusing(dev, "Label", a.label, padded, 1)
    ends, label_ends = _ends(a.logits_lod, a.logits_length), _ends(a.label_lod, a.label_length)
    count, most = a.loss.size, 2 * min(labels, rows) + 1
    if 8 * most * (x.size // classes + 2 * count) > MOST_BYTES:
        return arrays.warpctc(dev, a)
    wrong_label = dev.assertion(outside("warpctc", classes, "label", "classes of Logits"))[2]
    arguments = [
        *read(x=x, label=a.label, ends=ends, label_ends=label_ends),
        *written(
            logs=dev.scratch((x.size // classes,), np.float64),
            alpha=dev.scratch((x.size // classes, most), np.float64),
            beta=dev.scratch((count, 2, most), np.float64),
            gradient=Maybe(a.warp_ctc_grad, x),
            loss=a.loss,
        ),
        *refuse,
        *ints(of_labels=refuse_labels[-1][1], of_label=wrong_label),
        *ints(all=rows, all_labels=labels, most=most, classes=classes, blank=a.blank),
    ]
    kinds = [c_type(each.dtype) for each in (x, a.label, ends, label_ends)]
    block = min(-(-max(most, classes) // 32) * 32, _MOST_THREADS)
    kinds.append(str(padded).lower())
    return [call(dev, "block_ctc", kinds, arguments, count, _INCLUDES, block)]


@_on("warpctc_grad")
def warpctc_grad(dev: Device, a: WarpCtcGrad) -> list[Step]:
    x, padded, classes = a.logits, a.logits_length is not None, a.logits.shape[-1]
    rows, refuse = _refusing(dev, "Logits", x, padded, 0)
    ends = _ends(a.logits_lod, a.logits_length)
    arguments = [
        *read(gradient=a.warp_ctc_grad, d_loss=a.d_loss, ends=ends),
        *written(d_x=a.d_logits),
        *refuse,
        *ints(all=rows, classes=classes, by_times=a.norm_by_times),
    ]
    kinds = [c_type(x.dtype), c_type(ends.dtype), str(padded).lower()]
    block = min(-(-classes // 32) * 32, _MOST_THREADS)
    return [call(dev, "block_ctc_grad", kinds, arguments, a.d_loss.size, _INCLUDES, block)]
