"""Losses that are functions of elements, divided by a count of labels where that is asked for."""

from __future__ import annotations

from typing import Any

from ....graph.ops.loss import (
    HuberLoss,
    HuberLossGrad,
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
    if a.d_x is None:
        return []
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


@cuda("huber_loss", takes=floating)
def huber_loss(dev: Device, a: HuberLoss) -> list[Step]:
    """r = y - x; r^2 / 2 up to delta, then delta * (|r| - delta / 2)."""
    loss = "fabs(r) <= delta ? half * r * r : delta * (fabs(r) - half * delta)"
    return pointwise(
        dev,
        {"x": a.x, "y": a.y},
        {"r": (a.residual, "y - x"), "out": (a.out, loss)},
        constants={"delta": a.delta, "half": 0.5},
    )


@cuda("huber_loss_grad", takes=floating)
def huber_loss_grad(dev: Device, a: HuberLossGrad) -> list[Step]:
    if a.d_x is None and a.d_y is None:
        return []
    slope = "d * (r > delta ? delta : r < -delta ? -delta : r)"
    return pointwise(
        dev,
        {"r": a.residual, "d": a.d_out},
        {"d_y": (a.d_y, slope), "d_x": (a.d_x, "-d_y")},
        constants={"delta": a.delta},
    )
