"""Softmax, and losses of rows of scores or probabilities: one launch each, rows in registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....graph.ops import loss as ops
from ....graph.ops.formula import outside
from ....graph.ops.operands import Array
from ....graph.ops.score_loss import ScoreLoss, ScoreLossGrad
from ....strategies.types import FLOATS, INTEGERS
from ...codegen import cuda_launches as gpu
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from ..registry import of_types
from .rows import Rows, accumulator, share_rows, vector
from .support import cuda, floating

_INCLUDES = ("reduce.cuh", "assert.cuh", "softmax.cuh")
scored = of_types(*FLOATS, *INTEGERS)  # scores and labels


def _launch(
    rows: Rows, function: str, kinds: str, arrays: Sequence[gpu.Argument], *more: int
) -> list[Step]:
    """Return the launch of a function of arrays, rows, width, stride and more."""
    longs = gpu.longs(**{f"more{i}": value for i, value in enumerate(more)})
    return rows.launch(function, (kinds, rows.shared.text), arrays, _INCLUDES, longs)


def _kinds(*arrays: Any) -> str:
    """Return T and A of the first array, and the types of the others."""
    first, *others = arrays
    return ", ".join(
        c_type(d) for d in (first.dtype, accumulator(first.dtype), *(a.dtype for a in others))
    )


@cuda("softmax", takes=floating)
def softmax(dev: Device, a: ops.Softmax) -> list[Step]:
    rows = Rows(dev, a.x, a.axis, a.out)
    return _launch(rows, "block_softmax", _kinds(a.x), [*gpu.read(x=a.x), *gpu.written(out=a.out)])


@cuda("softmax_grad", takes=floating)
def softmax_grad(dev: Device, a: ops.SoftmaxGrad) -> list[Step]:
    rows = Rows(dev, a.out, a.axis, a.d_out, a.d_x, together=2)
    arrays = [*gpu.read(out=a.out, d_out=a.d_out), *gpu.written(d_x=a.d_x)]
    return _launch(rows, "block_softmax_grad", _kinds(a.out), arrays)


@cuda("softmax_with_cross_entropy", takes=scored)
def softmax_with_cross_entropy(dev: Device, a: ops.SoftmaxWithCrossEntropy) -> list[Step]:
    loss = dev.array_or_scratch(a.loss, _ones(a.logits, a.axis), a.logits.dtype)
    weights = a.label if a.soft_label else None
    rows = Rows(dev, a.logits, a.axis, a.softmax, weights, together=1 + a.soft_label)
    operands = gpu.read(x=a.logits, labels=a.label)
    arrays = [*operands, *gpu.written(softmax=gpu.Maybe(a.softmax, a.logits), loss=loss)]
    if a.soft_label:
        kinds = _kinds(a.logits, loss)
        return _launch(rows, "block_soft_cross_entropy_of_scores", kinds, arrays)
    kinds = _kinds(a.logits, a.label, loss)
    arrays += _refusing(dev, "softmax_with_cross_entropy", rows.width)
    return _launch(rows, "block_cross_entropy_of_scores", kinds, arrays, a.ignore_index)


def _refusing(dev: Device, op: str, classes: int) -> list[gpu.Argument]:
    """Return parameters that a loss passes to ``refuse`` for a label outside ``classes``."""
    return gpu.refusal(dev, outside(op, classes, "label", "classes"))


def _ones(x: Array, axis: int) -> tuple[int, ...]:
    return tuple(1 if i == axis % x.ndim else n for i, n in enumerate(x.shape))


@cuda("softmax_with_cross_entropy_grad", takes=scored)
def softmax_with_cross_entropy_grad(dev: Device, a: ops.SoftmaxWithCrossEntropyGrad) -> list[Step]:
    weights = a.label if a.soft_label else None
    rows = Rows(dev, a.softmax, a.axis, a.d_logits, weights, together=0)
    operands = gpu.read(softmax=a.softmax, labels=a.label, d_loss=a.d_loss)
    arrays = [*operands, *gpu.written(d_x=a.d_logits)]
    if a.soft_label:
        kinds = _kinds(a.softmax, a.d_loss)
        return _launch(rows, "soft_cross_entropy_of_scores_grad", kinds, arrays)
    kinds = _kinds(a.softmax, a.label, a.d_loss)
    return _launch(rows, "cross_entropy_of_scores_grad", kinds, arrays, a.ignore_index)


@cuda("cross_entropy_of_scores", takes=scored)
def cross_entropy_of_scores(dev: Device, a: ScoreLoss) -> list[Step]:
    operands = gpu.read(x=a.logits, labels=a.label)
    arrays = [*operands, *gpu.written(loss=a.loss, log_sum=a.log_sum)]
    kinds = _kinds(a.logits, a.label, a.loss)
    rows = Rows(dev, a.logits, -1, together=0)
    arrays += _refusing(dev, "softmax_with_cross_entropy", rows.width)
    return _launch(rows, "block_score_loss", kinds, arrays, a.ignore_index)


@cuda("cross_entropy_of_scores_grad", takes=scored)
def cross_entropy_of_scores_grad(dev: Device, a: ScoreLossGrad) -> list[Step]:
    operands = gpu.read(x=a.logits, labels=a.label, log_sum=a.log_sum, d_loss=a.d_loss)
    arrays = [*operands, *gpu.written(d_x=gpu.Maybe(a.d_logits, a.logits))]
    kinds = _kinds(a.logits, a.label, a.d_loss, a.log_sum)
    rows = Rows(dev, a.logits, -1, a.d_logits, together=0)
    return _launch(rows, "score_loss_grad", kinds, arrays, a.ignore_index)


@cuda("cross_entropy", takes=scored)
def cross_entropy(dev: Device, a: ops.CrossEntropy) -> list[Step]:
    if not a.soft_label:
        return _at_label(dev, "cross_entropy", a.x, a.label, a.y, None, a.ignore_index)
    arrays = [*gpu.read(x=a.x, weights=a.label), *gpu.written(loss=a.y)]
    rows = Rows(dev, a.x, -1, a.label, together=0)
    return _launch(rows, "block_soft_cross_entropy", _kinds(a.x), arrays)


@cuda("cross_entropy2", takes=scored)
def cross_entropy2(dev: Device, a: ops.CrossEntropy2) -> list[Step]:
    return _at_label(dev, "cross_entropy2", a.x, a.label, a.y, a.match_x, a.ignore_index)


def _at_label(
    dev: Device, op: str, x: Array, label: Array, y: Array, match: Any, ignore_index: int
) -> list[Step]:
    width = x.shape[-1]
    arguments = [
        *gpu.read(x=x, labels=label),
        *gpu.written(loss=y, match=gpu.Maybe(match, x)),
        *_refusing(dev, op, width),
        *gpu.longs(rows=label.size),
        *gpu.ints(width=width),
        *gpu.longs(ignored=ignore_index),
    ]
    blocks = gpu.enough_blocks(dev, label.size)
    return [
        gpu.call(dev, "cross_entropy_at_label", (_kinds(x, label),), arguments, blocks, _INCLUDES)
    ]


@cuda("cross_entropy_grad", takes=scored)
def cross_entropy_grad(dev: Device, a: ops.CrossEntropyGrad) -> list[Step]:
    if not a.soft_label:
        return _grad_at_label(dev, a.x, a.label, a.d_y, a.d_x, a.ignore_index, picked=False)
    arrays = [*gpu.read(x=a.x, weights=a.label, d_loss=a.d_y), *gpu.written(d_x=a.d_x)]
    rows = Rows(dev, a.x, -1, a.label, a.d_x, together=0)
    return _launch(rows, "soft_cross_entropy_grad", _kinds(a.x), arrays)


@cuda("cross_entropy_grad2", takes=scored)
def cross_entropy_grad2(dev: Device, a: ops.CrossEntropyGrad2) -> list[Step]:
    return _grad_at_label(dev, a.match_x, a.label, a.d_y, a.d_x, a.ignore_index, picked=True)


def _grad_at_label(
    dev: Device, x: Array, label: Array, d_y: Any, d_x: Any, ignore_index: int, *, picked: bool
) -> list[Step]:
    width, rows = d_x.shape[-1], label.size
    shared = share_rows(rows, width, vector(dev, width, d_x), together=0)
    kinds = (_kinds(x, label), str(picked).lower(), shared.text)
    arguments = [
        *gpu.read(x=x, labels=label, d_loss=d_y),
        *gpu.written(d_x=d_x),
        *gpu.longs(rows=rows),
        *gpu.ints(width=width),
        *gpu.longs(ignored=ignore_index),
    ]
    how = (shared.blocks, _INCLUDES, shared.block)
    return [gpu.call(dev, "cross_entropy_grad", kinds, arguments, *how)]
