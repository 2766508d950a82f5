"""Losses that are functions of elements, divided by a count of labels where that is asked for."""

from __future__ import annotations

from typing import Any

from ....graph.ops.loss import (
    SigmoidCrossEntropyWithLogits,
    SigmoidCrossEntropyWithLogitsGrad,
)
from ....graph.ops.operands import Array
from ...cuda.runtime import Step
from ...device.device import Device
from .pointwise import pointwise
from .reduction import reduced
from .rows import accumulator
from .support import cuda, floating

_SIGMOID_LOSS = "(x > 0 ? x : 0) - x * label + log1p(exp(-fabs(x)))"
_SIGMOID_SLOPE = "(half * tanh(half * x) + half - label) * d"


@cuda("sigmoid_cross_entropy_with_logits", takes=floating)
def sigmoid_cross_entropy(dev: Device, a: SigmoidCrossEntropyWithLogits) -> list[Step]:
    return _of_labels(
        dev, {"x": a.x, "label": a.label}, a.out, _SIGMOID_LOSS, a.normalize, a.ignore_index
    )


@cuda("sigmoid_cross_entropy_with_logits_grad", takes=floating)
def sigmoid_cross_entropy_grad(dev: Device, a: SigmoidCrossEntropyWithLogitsGrad) -> list[Step]:
    reads = {"x": a.x, "label": a.label, "d": a.d_out}
    return _of_labels(dev, reads, a.d_x, _SIGMOID_SLOPE, a.normalize, a.ignore_index)


def _of_labels(
    dev: Device,
    reads: dict[str, Any],
    out: Array,
    expression: str,
    normalize: bool,
    ignore_index: int,
) -> list[Step]:
    """Compute an expression where labels count, and 0 elsewhere; ``normalize``: by the labels that count."""
    label, constants = reads["label"], {"half": 0.5, "ignored": ignore_index}
    value = f"label == ignored ? 0 : {expression}"
    if not normalize:
        return pointwise(dev, reads, {"out": (out, value)}, constants=constants)
    count = dev.scratch((1,), accumulator(label.dtype))
    every = tuple(range(label.ndim))
    return [
        *reduced(dev, "Sum", label, count, every, of=f"Unlike<{ignore_index}>"),
        *pointwise(
            dev,
            reads,
            {"out": (out, f"({value}) / (count > 1 ? count : 1)")},
            numbers={"count": count},
            constants=constants,
        ),
    ]
