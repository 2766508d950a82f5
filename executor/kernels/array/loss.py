"""Softmax and losses. Legend: rows of scores over classes, moved to the last axis as a view."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....graph.ops import expr as e
from ....strategies.errors import InvalidValue
from ...codegen.array_calls import bind_scalar
from ...device.device import Device
from ..registry import Step, kernel

# Paddle clips log(0) of a probability at this value
_LOG_FLOOR = 1e20


def _softmax(dev: Device, x: Any, out: Any, axis: int) -> list[Step]:
    """exp(x - max) / sum, along ``axis``."""
    if not x.size:  # nothing has no maximum
        return []
    xp = dev.xp
    column = dev.scratch(
        tuple(1 if i == axis % x.ndim else n for i, n in enumerate(x.shape)), x.dtype
    )
    return [
        partial(dev.reducer("maximum"), x, axis, None, column, True),
        partial(xp.subtract, x, column, out),
        partial(xp.exp, out, out),
        partial(xp.add.reduce, out, axis, None, column, True),
        partial(xp.divide, out, column, out),
    ]


@kernel("softmax")
def softmax(dev: Device, x: Any, out: Any, *, axis: int) -> list[Step]:
    return _softmax(dev, x, out, axis)


@kernel("softmax_grad")
def softmax_grad(dev: Device, out: Any, d_out: Any, d_x: Any, *, axis: int) -> list[Step]:
    """out * (d - sum(d * out))."""
    if d_x is None:
        return []
    xp = dev.xp
    column = dev.scratch(
        tuple(1 if i == axis % out.ndim else n for i, n in enumerate(out.shape)), out.dtype
    )
    product = dev.scratch(d_x.shape, d_x.dtype) if d_x is d_out else d_x
    return [
        partial(xp.multiply, d_out, out, product),
        partial(xp.add.reduce, product, axis, None, column, True),
        partial(xp.subtract, d_out, column, d_x),
        partial(xp.multiply, d_x, out, d_x),
    ]


class _Labels:
    """Integer labels: which element of each row they pick, and which rows are left out."""

    def __init__(
        self, dev: Device, op: str, scores: Any, label: Any, axis: int, ignore: int
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
        kept = self.xp.where(ignored, 0, flat)
        if kept.size and (int(kept.min()) < 0 or int(kept.max()) >= self.classes):
            wrong = kept[(kept < 0) | (kept >= self.classes)][0]
            raise InvalidValue(
                f"{self.op}: label {int(wrong)} is outside the {self.classes} classes (0 to {self.classes - 1})"
            )
        return kept, ignored

    def rows_of(self, array: Any) -> Any:
        """View an array with the class axis last, as rows (a copy where the axis is not last already)."""
        moved = np.moveaxis(array, self.axis, -1)
        return moved.reshape(-1, moved.shape[-1])


def _put(target: Any, axis: int, flat: Any) -> None:
    """Write one value a row into a loss whose class axis has size 1, or is missing."""
    if axis < 0:
        target[...] = flat.reshape(target.shape)
        return
    moved = np.moveaxis(target, axis, -1)
    moved[...] = flat.reshape(moved.shape)


@kernel("cross_entropy")
def cross_entropy(
    dev: Device, x: Any, label: Any, y: Any, *, soft_label: bool, ignore_index: int
) -> list[Step]:
    xp = dev.xp
    if soft_label:
        work = dev.scratch(x.shape, x.dtype)
        return [
            partial(xp.log, x, work),
            partial(xp.maximum, work, -_LOG_FLOOR, out=work),
            partial(xp.multiply, work, label, work),
            partial(xp.add.reduce, work, -1, None, y, True),
            partial(xp.negative, y, y),
        ]
    labels = _Labels(dev, "cross_entropy", x, label, x.ndim - 1, ignore_index)

    def run() -> None:
        kept, ignored = labels.pick()
        picked = xp.maximum(xp.log(labels.rows_of(x)[labels.rows, kept]), -_LOG_FLOOR)
        _put(y, -1, xp.where(ignored, 0, -picked))

    return [run]


@kernel("cross_entropy_grad")
def cross_entropy_grad(
    dev: Device, x: Any, label: Any, d_y: Any, d_x: Any, *, soft_label: bool, ignore_index: int
) -> list[Step]:
    if d_x is None:
        return []
    xp = dev.xp
    if soft_label:
        return [
            partial(xp.divide, label, x, d_x),
            partial(xp.multiply, d_x, d_y, d_x),
            partial(xp.negative, d_x, d_x),
        ]
    labels = _Labels(dev, "cross_entropy", x, label, x.ndim - 1, ignore_index)

    def run() -> None:
        kept, ignored = labels.pick()
        slope = -d_y.reshape(-1) / labels.rows_of(x)[labels.rows, kept]
        d_x.reshape(-1, labels.classes)[labels.rows, kept] = xp.where(ignored, 0, slope)

    return [partial(d_x.fill, 0), run]


@kernel("cross_entropy2")
def cross_entropy2(
    dev: Device, x: Any, label: Any, y: Any, match_x: Any, *, ignore_index: int
) -> Step:
    xp = dev.xp
    labels = _Labels(dev, "cross_entropy2", x, label, x.ndim - 1, ignore_index)

    def run() -> None:
        kept, ignored = labels.pick()
        picked = labels.rows_of(x)[labels.rows, kept]
        if match_x is not None:
            _put(match_x, -1, xp.where(ignored, 1, picked))
        _put(y, -1, xp.where(ignored, 0, -xp.maximum(xp.log(picked), -_LOG_FLOOR)))

    return run


@kernel("cross_entropy_grad2")
def cross_entropy_grad2(
    dev: Device, label: Any, match_x: Any, d_y: Any, d_x: Any, *, ignore_index: int
) -> list[Step]:
    if d_x is None:
        return []
    labels = _Labels(dev, "cross_entropy2", d_x, label, d_x.ndim - 1, ignore_index)

    def run() -> None:
        kept, ignored = labels.pick()
        slope = -d_y.reshape(-1) / match_x.reshape(-1)
        d_x.reshape(-1, labels.classes)[labels.rows, kept] = dev.xp.where(ignored, 0, slope)

    return [partial(d_x.fill, 0), run]


@kernel("softmax_with_cross_entropy")
def softmax_with_cross_entropy(
    dev: Device,
    logits: Any,
    label: Any,
    softmax: Any,
    loss: Any,
    *,
    soft_label: bool,
    ignore_index: int,
    axis: int,
) -> list[Step]:
    """Loss = log(sum exp(x - max)) - (x - max)[label], which does not take the log of a rounded softmax."""
    xp = dev.xp
    column = dev.scratch(loss.shape, logits.dtype)
    shifted = dev.scratch(logits.shape, logits.dtype)
    steps: list[Step] = [
        partial(dev.reducer("maximum"), logits, axis, None, column, True),
        partial(xp.subtract, logits, column, shifted),
        partial(xp.exp, shifted, softmax),
        partial(xp.add.reduce, softmax, axis, None, column, True),
        partial(xp.divide, softmax, column, softmax),
        partial(xp.log, column, column),
    ]
    if soft_label:
        return [
            *steps,
            partial(xp.subtract, column, shifted, shifted),
            partial(xp.multiply, shifted, label, shifted),
            partial(xp.add.reduce, shifted, axis, None, loss, True),
        ]
    axis %= logits.ndim
    labels = _Labels(dev, "softmax_with_cross_entropy", logits, label, axis, ignore_index)

    def run() -> None:
        kept, ignored = labels.pick()
        picked = labels.rows_of(shifted)[labels.rows, kept]
        losses = np.moveaxis(column, axis, -1).reshape(-1) - picked
        _put(loss, axis, xp.where(ignored, 0, losses))

    return [*steps, run]


@kernel("softmax_with_cross_entropy_grad")
def softmax_with_cross_entropy_grad(
    dev: Device,
    label: Any,
    softmax: Any,
    d_loss: Any,
    d_logits: Any,
    *,
    soft_label: bool,
    ignore_index: int,
    axis: int,
) -> list[Step]:
    """(softmax - label) * d. Soft labels are taken to sum to 1, as in Paddle."""
    if d_logits is None:
        return []
    xp = dev.xp
    if soft_label:
        return [
            partial(xp.subtract, softmax, label, d_logits),
            partial(xp.multiply, d_logits, d_loss, d_logits),
        ]
    axis %= softmax.ndim
    labels = _Labels(dev, "softmax_with_cross_entropy", softmax, label, axis, ignore_index)
    rows = np.moveaxis(d_logits, axis, -1)

    def run() -> None:
        kept, ignored = labels.pick()
        index = (
            xp.unravel_index(labels.rows, labels.lead[:-1])
            if len(labels.lead) > 1
            else (labels.rows,)
        )
        rows[(*index, kept)] -= 1
        if ignored.any():
            rows[tuple(i[ignored] for i in index)] = 0
        xp.multiply(d_logits, d_loss, d_logits)

    return [partial(xp.copyto, d_logits, softmax), run]


@kernel("sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy(
    dev: Device, x: Any, label: Any, out: Any, *, normalize: bool, ignore_index: int
) -> list[Step]:
    """max(x, 0) - x * label + log(1 + exp(-|x|)); ``normalize`` divides by the labels not ignored."""

    def loss(x: e.Expr, label: e.Expr) -> e.Expr:
        value = e.maximum(x, 0) - x * label + e.log1p(e.exp(-e.abs_(x)))
        return e.where(e.equal(label, ignore_index), 0, value)

    steps = bind_scalar(loss, {"x": x, "label": label}, {}, out, dev)
    return steps + _normalized(dev, label, out, normalize, ignore_index)


@kernel("sigmoid_cross_entropy_with_logits_grad")
def sigmoid_cross_entropy_grad(
    dev: Device, x: Any, label: Any, d_out: Any, d_x: Any, *, normalize: bool, ignore_index: int
) -> list[Step]:
    if d_x is None:
        return []

    def slope(x: e.Expr, label: e.Expr, d: e.Expr) -> e.Expr:
        value = (0.5 * e.tanh(0.5 * x) + 0.5 - label) * d
        return e.where(e.equal(label, ignore_index), 0, value)

    steps = bind_scalar(slope, {"x": x, "label": label, "d": d_out}, {}, d_x, dev)
    return steps + _normalized(dev, label, d_x, normalize, ignore_index)


def _normalized(
    dev: Device, label: Any, out: Any, normalize: bool, ignore_index: int
) -> list[Step]:
    if not normalize:
        return []

    def run() -> None:
        count = max(int((label != ignore_index).sum()), 1)
        dev.xp.multiply(out, 1.0 / count, out)

    return [run]


@kernel("huber_loss")
def huber_loss(dev: Device, x: Any, y: Any, residual: Any, out: Any, *, delta: float) -> list[Step]:
    """r = y - x; r^2 / 2 up to delta, then delta * (|r| - delta / 2)."""

    def loss(r: e.Expr) -> e.Expr:
        size = e.abs_(r)
        return e.where(size <= delta, 0.5 * r * r, delta * (size - 0.5 * delta))

    return [
        partial(dev.xp.subtract, y, x, residual),
        *bind_scalar(loss, {"r": residual}, {}, out, dev),
    ]


@kernel("huber_loss_grad")
def huber_loss_grad(
    dev: Device, residual: Any, d_out: Any, d_x: Any, d_y: Any, *, delta: float
) -> list[Step]:
    operands = {"r": residual, "d": d_out}

    def slope(r: e.Expr, d: e.Expr) -> e.Expr:
        return d * e.minimum(e.maximum(r, -delta), delta)

    def negative(r: e.Expr, d: e.Expr) -> e.Expr:
        return -slope(r, d)

    steps: list[Step] = []
    for scalar, target in ((negative, d_x), (slope, d_y)):
        if target is not None:
            steps += bind_scalar(scalar, operands, {}, target, dev)
    return steps
