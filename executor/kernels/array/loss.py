"""Softmax and losses. Legend: rows of scores over classes, moved to the last axis as a view."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ....graph.ops import loss as ops
from ....graph.ops.formula import outside
from ....graph.ops.operands import Array
from ....graph.ops.score_loss import ScoreLoss, ScoreLossGrad
from ....strategies.errors import InvalidValue
from ...device.device import Device
from ..registry import Step, kernel

# Paddle clips log(0) of a probability at this value
_LOG_FLOOR = 1e20


def _softmax(dev: Device, x: Array, out: Array, axis: int) -> list[Step]:
    """exp(max(x - max, LEAST_SHIFT)) / sum, along ``axis``."""
    if not x.size:  # nothing has no maximum
        return []
    xp = dev.xp
    column = dev.scratch(
        tuple(1 if i == axis % x.ndim else n for i, n in enumerate(x.shape)), x.dtype
    )
    return [
        partial(dev.reducer("maximum"), x, axis, None, column, True),
        partial(xp.subtract, x, column, out),
        partial(xp.maximum, out, x.dtype.type(ops.LEAST_SHIFT), out=out),
        partial(xp.exp, out, out),
        partial(xp.add.reduce, out, axis, None, column, True),
        partial(xp.divide, out, column, out),
    ]


@kernel("softmax")
def softmax(dev: Device, a: ops.Softmax) -> list[Step]:
    return _softmax(dev, a.x, a.out, a.axis)


@kernel("softmax_grad")
def softmax_grad(dev: Device, a: ops.SoftmaxGrad) -> list[Step]:
    """out * (d - sum(d * out))."""
    xp = dev.xp
    column = dev.scratch(
        tuple(1 if i == a.axis % a.out.ndim else n for i, n in enumerate(a.out.shape)), a.out.dtype
    )
    product = dev.scratch(a.d_x.shape, a.d_x.dtype) if a.d_x is a.d_out else a.d_x
    return [
        partial(xp.multiply, a.d_out, a.out, product),
        partial(xp.add.reduce, product, a.axis, None, column, True),
        partial(xp.subtract, a.d_out, column, a.d_x),
        partial(xp.multiply, a.d_x, a.out, a.d_x),
    ]


class Labels:
    """Integer labels: which element of each row they pick, and which rows are left out."""

    def __init__(
        self, dev: Device, op: str, scores: Array, label: Array, axis: int, ignore: int
    ) -> None:
        self.xp = dev.xp
        self.op, self.ignore = op, ignore
        self.classes = scores.shape[axis]
        if label.ndim < scores.ndim:
            label = label.reshape(*label.shape[:axis], 1, *label.shape[axis:])
        self.label = np.moveaxis(label, axis, -1) if label.ndim else label
        self.lead = self.label.shape
        self.rows = dev.xp.arange(label.size)
        self.axis = axis

    def pick(self) -> tuple[Any, Any]:
        """Return the labels, one a row, with ignored ones made 0, and the mask of ignored rows.

        Raises:
            InvalidValue: a label is no class.
        """
        flat = self.label.reshape(-1)
        ignored = flat == self.ignore
        classes = self.xp.where(ignored, 0, flat)
        if classes.size and (int(classes.min()) < 0 or int(classes.max()) >= self.classes):
            wrong = classes[(classes < 0) | (classes >= self.classes)][0]
            sentence = outside(self.op, self.classes, "label", "classes")
            raise InvalidValue(sentence.format(int(wrong)))
        return classes, ignored

    def rows_of(self, array: Array) -> Any:
        """View an array with the class axis last, as rows (a copy where the axis is not last already)."""
        moved = np.moveaxis(array, self.axis, -1)
        return moved.reshape(-1, moved.shape[-1])


def _put(target: Array, axis: int, flat: Array) -> None:
    """Write one value a row into a loss whose class axis has size 1, or is missing."""
    if axis < 0:
        target[...] = flat.reshape(target.shape)
        return
    moved = np.moveaxis(target, axis, -1)
    moved[...] = flat.reshape(moved.shape)


@kernel("cross_entropy")
def cross_entropy(dev: Device, a: ops.CrossEntropy) -> list[Step]:
    xp = dev.xp
    if a.soft_label:
        work = dev.scratch(a.x.shape, a.x.dtype)
        return [
            partial(xp.log, a.x, work),
            partial(xp.maximum, work, -_LOG_FLOOR, out=work),
            partial(xp.multiply, work, a.label, work),
            partial(xp.add.reduce, work, -1, None, a.y, True),
            partial(xp.negative, a.y, a.y),
        ]
    return [_at_label(dev, "cross_entropy", a.x, a.label, a.y, None, a.ignore_index)]


def _at_label(
    dev: Device, op: str, x: Array, label: Array, y: Array, match: Array | None, ignore: int
) -> Step:
    """Return the call that writes -log of the element that each label picks, and to ``match`` the element."""
    xp, labels = dev.xp, Labels(dev, op, x, label, x.ndim - 1, ignore)

    def run() -> None:
        classes, ignored = labels.pick()
        picked = labels.rows_of(x)[labels.rows, classes]
        if match is not None:
            _put(match, -1, xp.where(ignored, 1, picked))
        _put(y, -1, xp.where(ignored, 0, -xp.maximum(xp.log(picked), -_LOG_FLOOR)))

    return run


@kernel("cross_entropy_grad")
def cross_entropy_grad(dev: Device, a: ops.CrossEntropyGrad) -> list[Step]:
    xp, d_x = dev.xp, a.d_x
    if a.soft_label:
        return [
            partial(xp.divide, a.label, a.x, d_x),
            partial(xp.multiply, d_x, a.d_y, d_x),
            partial(xp.negative, d_x, d_x),
        ]
    labels = Labels(dev, "cross_entropy", a.x, a.label, a.x.ndim - 1, a.ignore_index)
    return _slope_at_label(
        dev, labels, a.d_y, d_x, lambda classes: labels.rows_of(a.x)[labels.rows, classes]
    )


def _slope_at_label(
    dev: Device, labels: Labels, d_y: Array, d_x: Any, picked: Callable[[Any], Any]
) -> list[Step]:
    """Return the calls for -d / ``picked`` at the labels, and zeros elsewhere."""
    d_rows = d_x.reshape(-1, labels.classes)

    def run() -> None:
        classes, ignored = labels.pick()
        slope = -d_y.reshape(-1) / picked(classes)
        d_rows[labels.rows, classes] = dev.xp.where(ignored, 0, slope)

    return [partial(d_x.fill, 0), run]


@kernel("cross_entropy2")
def cross_entropy2(dev: Device, a: ops.CrossEntropy2) -> Step:
    return _at_label(dev, "cross_entropy2", a.x, a.label, a.y, a.match_x, a.ignore_index)


@kernel("cross_entropy_grad2")
def cross_entropy_grad2(dev: Device, a: ops.CrossEntropyGrad2) -> list[Step]:
    labels = Labels(dev, "cross_entropy2", a.d_x, a.label, a.d_x.ndim - 1, a.ignore_index)
    return _slope_at_label(dev, labels, a.d_y, a.d_x, lambda classes: a.match_x.reshape(-1))


@kernel("softmax_with_cross_entropy")
def softmax_with_cross_entropy(dev: Device, a: ops.SoftmaxWithCrossEntropy) -> list[Step]:
    """Loss = log(sum exp(x - max)) - (x - max)[label], which does not take the log of a rounded softmax."""
    axis = a.axis
    xp = dev.xp
    column = dev.scratch(a.loss.shape, a.logits.dtype)
    shifted = dev.scratch(a.logits.shape, a.logits.dtype)
    steps: list[Step] = [
        partial(dev.reducer("maximum"), a.logits, axis, None, column, True),
        partial(xp.subtract, a.logits, column, shifted),
        partial(xp.maximum, shifted, a.logits.dtype.type(ops.LEAST_SHIFT), out=a.softmax),
        partial(xp.exp, a.softmax, a.softmax),
        partial(xp.add.reduce, a.softmax, axis, None, column, True),
        partial(xp.divide, a.softmax, column, a.softmax),
        partial(xp.log, column, column),
    ]
    if a.soft_label:
        return [
            *steps,
            partial(xp.subtract, column, shifted, shifted),
            partial(xp.multiply, shifted, a.label, shifted),
            partial(xp.add.reduce, shifted, axis, None, a.loss, True),
        ]
    axis %= a.logits.ndim
    labels = Labels(dev, "softmax_with_cross_entropy", a.logits, a.label, axis, a.ignore_index)

    def run() -> None:
        classes, ignored = labels.pick()
        picked = labels.rows_of(shifted)[labels.rows, classes]
        losses = np.moveaxis(column, axis, -1).reshape(-1) - picked
        _put(a.loss, axis, xp.where(ignored, 0, losses))

    return [*steps, run]


@kernel("softmax_with_cross_entropy_grad")
def softmax_with_cross_entropy_grad(dev: Device, a: ops.SoftmaxWithCrossEntropyGrad) -> list[Step]:
    """(softmax - label) * d. Soft labels are taken to sum to 1, as in Paddle."""
    axis = a.axis
    xp = dev.xp
    if a.soft_label:
        return [
            partial(xp.subtract, a.softmax, a.label, a.d_logits),
            partial(xp.multiply, a.d_logits, a.d_loss, a.d_logits),
        ]
    axis %= a.softmax.ndim
    labels = Labels(dev, "softmax_with_cross_entropy", a.softmax, a.label, axis, a.ignore_index)
    rows = np.moveaxis(a.d_logits, axis, -1)

    def run() -> None:
        classes, ignored = labels.pick()
        index = (
            xp.unravel_index(labels.rows, labels.lead[:-1])
            if len(labels.lead) > 1
            else (labels.rows,)
        )
        rows[(*index, classes)] -= 1
        if ignored.any():
            rows[tuple(i[ignored] for i in index)] = 0
        xp.multiply(a.d_logits, a.d_loss, a.d_logits)

    return [partial(xp.copyto, a.d_logits, a.softmax), run]


@kernel("cross_entropy_of_scores")
def cross_entropy_of_scores(dev: Device, a: ScoreLoss) -> list[Step]:
    xp = dev.xp
    shifted = dev.scratch(a.logits.shape, a.logits.dtype)
    most = dev.scratch(a.log_sum.shape, a.logits.dtype)
    labels = Labels(dev, "softmax_with_cross_entropy", a.logits, a.label, -1, a.ignore_index)

    def run() -> None:
        classes, ignored = labels.pick()
        picked = labels.rows_of(a.logits)[labels.rows, classes] - most.reshape(-1)
        a.loss.reshape(-1)[...] = xp.where(ignored, 0, a.log_sum.reshape(-1) - picked)

    return [
        partial(dev.reducer("maximum"), a.logits, -1, None, most, True),
        partial(xp.subtract, a.logits, most, shifted),
        partial(xp.exp, shifted, shifted),
        partial(xp.add.reduce, shifted, -1, None, a.log_sum, True),
        partial(xp.log, a.log_sum, a.log_sum),
        run,
        partial(xp.add, a.log_sum, most, a.log_sum),
    ]


@kernel("cross_entropy_of_scores_grad")
def cross_entropy_of_scores_grad(dev: Device, a: ScoreLossGrad) -> list[Step]:
    """(exp(logits - log_sum) - label) * d."""
    xp, d_logits = dev.xp, a.d_logits
    labels = Labels(dev, "softmax_with_cross_entropy", a.logits, a.label, -1, a.ignore_index)
    rows = d_logits.reshape(-1, labels.classes)

    def run() -> None:
        classes, ignored = labels.pick()
        rows[labels.rows, classes] -= 1
        if ignored.any():
            rows[ignored] = 0
        xp.multiply(d_logits, a.d_loss.reshape(a.log_sum.shape), d_logits)

    return [
        partial(xp.subtract, a.logits, a.log_sum, d_logits),
        partial(xp.exp, d_logits, d_logits),
        run,
    ]
