"""Softmax and losses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...strategies.types import INTEGERS
from . import expr as e
from . import formula as f
from .double_gradient import twice
from .operands import Array, Gradient, Input, Operands, Output, Unary, record_of
from .registry import Inference, Op, Spec, Specs, define, differentiable, slope
from .rules import match, normal_axis, of_shape, same
from .samples import sample
from .second_order import Second
from .shapes import Sized, names_dimensions

# Scores further below the largest of their row count as if they were this far below, as on Paddle's CPUs: no
# probability is 0, so its logarithm is finite, and its gradient is that of the scores.
LEAST_SHIFT = -64.0
FUSED = "softmax_with_cross_entropy"
_LOG_FLOOR = -1e20  # at which Paddle clips the logarithm of a probability of 0
_APART = "X table [0.0 100.0 30.5; -200.0 100.0 100.0; 9.0 -1e4 -80.0]"


class Softmax(Unary):
    axis: int = -1
    data_format: str = "AnyLayout"
    use_cudnn: bool = False
    use_mkldnn: bool = False
    is_test: bool = False


class SoftmaxGrad(Softmax, Gradient, reads="out"): ...


def _powers(x: Array, axis: int) -> tuple[Array, Array, Array]:
    """Return scores less the largest of their row along an axis, their exponentials, and the sums of these."""
    shifted = x - x.max(axis, keepdims=True)
    powers = f.exp(f.maximum(shifted, LEAST_SHIFT))
    return shifted, powers, powers.sum(axis, keepdims=True)


def _softmax(a: Softmax) -> f.Results:
    if not a.x.size:  # nothing has no maximum
        return {"out": a.x}
    _, powers, totals = _powers(a.x, a.axis)
    return {"out": powers / totals}


def _softmax_grad(a: SoftmaxGrad) -> f.Results:
    return {"d_x": (a.d_out - (a.d_out * a.out).sum(a.axis, keepdims=True)) * a.out}


_SOFTMAX_GRAD = Op(
    "softmax_grad",
    SoftmaxGrad,
    same("Out", "X@GRAD"),
    formula=_softmax_grad,
    in_place={"X@GRAD": "Out@GRAD"},
)
_SECOND = Second(
    {"Out": "Out", "DOut": "Out@GRAD", "DDX": "X@GRAD@GRAD"},
    {"DOutNew": "Out@GRAD", "DDOut": "Out@GRAD@GRAD"},
    {"DOutNew": ["Out"], "DDOut": ["Out"]},
)

define(
    "softmax",
    Softmax,
    Sized("X floats -> Out", names_dimensions("axis")),
    formula=_softmax,
    in_place={"Out": "X"},
    samples=(
        sample("X [3 5]"),
        sample("X [2 3 4]", axis=1),
        sample(_APART),
        sample(_APART, axis=0),
    ),
    refuses=(sample("X [3 5]", axis=2),),
    slope=differentiable(
        _SOFTMAX_GRAD, _SECOND, formula=twice(_softmax_grad, _SOFTMAX_GRAD, _SECOND)
    ),
)


def check_labels(
    op: Inference, x: Spec, label: Spec, soft: bool, axis: int = -1
) -> tuple[int, ...]:
    """Refuse labels that do not go with the classes along ``axis``; return the shape of the loss.

    Integer labels may lack the dimension of the classes.
    """
    axis = normal_axis(op, axis, len(x.shape))
    rows = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    shape = x.shape if soft else rows
    if not soft and len(label.shape) == len(x.shape) - 1:
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    match(op, Label=shape)
    if soft:
        op.require(label.dtype == x.dtype, "soft labels must have the dtype of the scores")
    else:
        op.require(label.dtype in INTEGERS, "labels must be integers (or soft_label set)")
    return rows


class Labels(NamedTuple):
    """Integer labels, with the dimension of the classes: those of rows to leave out are 0."""

    numbers: Array
    ignored: Array
    shape: tuple[int, ...]  # of the scores
    axis: int

    @classmethod
    def of(cls, op: str, a: Any, shape: Sequence[int], axis: int = -1) -> Labels:
        """Return the labels of an op for scores of a shape; a step fails if one is no class, naming the op."""
        axis %= len(shape)
        label = a.label.reshape([1 if i == axis else n for i, n in enumerate(shape)])
        ignored = f.equal(label, a.ignore_index)
        numbers = f.checked(f.where(ignored, 0, label), shape[axis], "label", "classes", op)
        return cls(numbers, ignored, tuple(shape), axis)

    @property
    def places(self) -> Array:
        """The index of each label's score among all scores in a row."""
        inner = math.prod(self.shape[self.axis + 1 :])
        outer = np.arange(math.prod(self.shape[: self.axis])) * (self.shape[self.axis] * inner)
        first = outer[:, None] + np.arange(inner)
        return (self.numbers * inner + f.table(first.reshape(self.numbers.shape))).reshape(-1)

    def picked(self, x: Array) -> Array:
        """Return the score of each row's label."""
        return f.take(x.reshape(-1), self.places).reshape(self.numbers.shape)

    def put(self, values: Array) -> Array:
        """Return zeros like the scores, with a value where each row's label is."""
        flat = f.row_sums(
            self.places, f.where(self.ignored, 0, values).reshape(-1), math.prod(self.shape)
        )
        return flat.reshape(self.shape)

    def slope(self, x: Array, d: Array) -> Array:
        """Return scores less 1 at the labels, times a number for each row; 0 in rows to leave out."""
        return f.where(self.ignored, 0, x * d - self.put(d))


def cross_entropy_shape(op: Inference) -> Mapping[str, Specs]:
    """One loss per row of X."""
    x = op.spec("X")
    soft = bool(op.attrs.get("soft_label", False))
    label = op.spec("Label")
    shape = check_labels(op, x, label, soft)
    rows = of_shape(shape if len(label.shape) == len(shape) else shape[:-1], x)
    return {"Y": rows, "MatchX": rows, "XShape": of_shape((*x.shape, 0), x)}


def _logs(x: Array) -> Array:
    return f.maximum(f.log(x), _LOG_FLOOR)


def _cross_entropy(a: CrossEntropy) -> f.Results:
    if a.soft_label:
        return {"y": -(_logs(a.x) * a.label).sum(-1, keepdims=True)}
    return _of_picked(a)


def _of_picked(a: CrossEntropy | CrossEntropy2) -> f.Results:
    """-log of the probability that the label picks, and this probability."""
    op = "cross_entropy2" if isinstance(a, CrossEntropy2) else "cross_entropy"
    labels = Labels.of(op, a, a.x.shape)
    picked = labels.picked(a.x)
    y, match = f.where(labels.ignored, 0, -_logs(picked)), f.where(labels.ignored, 1, picked)
    shape, none = a.label.shape, f.full((*a.x.shape, 0), 0.0, a.x.dtype)
    return {"y": y.reshape(shape), "match_x": match.reshape(shape), "x_shape": none}


def _cross_entropy_grad(a: CrossEntropyGrad) -> f.Results:
    if a.soft_label:
        return {"d_x": -(a.label / a.x * a.d_y)}
    labels = Labels.of("cross_entropy", a, a.x.shape)
    picked = labels.picked(a.x)
    return {"d_x": labels.put(-(a.d_y.reshape(picked.shape) / picked))}


def _cross_entropy_grad2(a: CrossEntropyGrad2) -> f.Results:
    labels = Labels.of("cross_entropy2", a, a.d_x.shape)
    slope = -(a.d_y / a.match_x)
    return {"d_x": labels.put(slope.reshape(labels.numbers.shape))}


_PROBABILITIES = "X 0.1:0.9 [4 5]"
_LABELLED = f"{_PROBABILITIES}, Label 0:5 [4 1]"


class CrossEntropy(Operands):
    x: Input
    label: Input
    y: Output
    soft_label: bool = False
    ignore_index: int = -100


class CrossEntropyGrad(CrossEntropy, reads="*"):
    d_y: Input
    d_x: Output


define(
    "cross_entropy",
    CrossEntropy,
    cross_entropy_shape,
    formula=_cross_entropy,
    samples=(
        sample(_LABELLED),
        sample(_LABELLED, ignore_index=2),
        sample(_PROBABILITIES, "Label 0:5 [4]", ignore_index=2),
        sample(_PROBABILITIES, "Label uniform [4 5]", soft_label=True),
    ),
    refuses=(sample(_PROBABILITIES, "Label 0:5 [3 1]"),),
    slope=Op("cross_entropy_grad", CrossEntropyGrad, formula=_cross_entropy_grad),
)


class CrossEntropy2(Operands):
    x: Input
    label: Input
    y: Output
    match_x: Output
    x_shape: Output
    ignore_index: int = -100


class CrossEntropyGrad2(Operands):
    label: Input
    match_x: Input
    x_shape: Input
    d_y: Input
    d_x: Output
    ignore_index: int = -100


define(
    "cross_entropy2",
    CrossEntropy2,
    cross_entropy_shape,
    formula=_of_picked,
    samples=(
        sample(_LABELLED),
        sample(_LABELLED, ignore_index=2),
        sample(_PROBABILITIES, "Label 0:5 [4]", ignore_index=2),
    ),
    refuses=(sample(_PROBABILITIES, "Label 0:5 [3 1]"),),
    slope=Op(
        "cross_entropy_grad2",
        CrossEntropyGrad2,
        lambda op: {"X@GRAD": of_shape(op.shape("XShape")[:-1], op.spec("MatchX"))},
        formula=_cross_entropy_grad2,
    ),
)


def fused_shape(op: Inference) -> Mapping[str, Specs]:
    """Softmax like Logits; one loss per row."""
    logits = op.spec("Logits")
    rows = check_labels(op, logits, op.spec("Label"), op.attr("soft_label"), op.attr("axis"))
    return {"Softmax": logits, "Loss": of_shape(rows, logits)}


class SoftmaxWithCrossEntropy(Operands):
    logits: Input
    label: Input
    softmax: Output
    loss: Output
    soft_label: bool = False
    numeric_stable_mode: bool = True
    ignore_index: int = -100
    axis: int = -1


class SoftmaxWithCrossEntropyGrad(SoftmaxWithCrossEntropy, reads="label softmax"):
    d_loss: Input
    d_logits: Output


def _fused(a: SoftmaxWithCrossEntropy) -> f.Results:
    """Loss = log(sum exp(x - max)) - (x - max)[label], which does not take the log of a rounded softmax."""
    shifted, powers, totals = _powers(a.logits, a.axis)
    logs, softmax = f.log(totals), powers / totals
    if a.soft_label:
        return {"softmax": softmax, "loss": ((logs - shifted) * a.label).sum(a.axis, keepdims=True)}
    labels = Labels.of(FUSED, a, a.logits.shape, a.axis)
    loss = f.where(labels.ignored, 0, logs - labels.picked(shifted))
    return {"softmax": softmax, "loss": loss}


def _fused_grad(a: SoftmaxWithCrossEntropyGrad) -> f.Results:
    """(softmax - label) * d. Soft labels are taken to sum to 1, as in Paddle."""
    if a.soft_label:
        return {"d_logits": (a.softmax - a.label) * a.d_loss}
    labels = Labels.of(FUSED, a, a.softmax.shape, a.axis)
    return {"d_logits": labels.slope(a.softmax, a.d_loss)}


define(
    FUSED,
    SoftmaxWithCrossEntropy,
    fused_shape,
    formula=_fused,
    in_place={"Softmax": "Logits"},
    samples=(
        sample("Logits [4 5], Label 0:5 [4 1]"),
        sample("Logits [4 5], Label 0:5 [4 1]", ignore_index=1),
        sample("Logits [4 5], Label distribution [4 5]", soft_label=True),
        sample("Logits [2 5 3], Label 0:5 [2 1 3]", axis=1),
        sample("Logits [2 5 3], Label 0:5 [2 3]", axis=1),
        sample("Logits [4 5], Label 0:5 [4]"),
    ),
    refuses=(sample("Logits [4 5], Label 0:5 [3]"), sample("Logits [4 5], Label [4 1]")),
    slope=Op(
        f"{FUSED}_grad",
        SoftmaxWithCrossEntropyGrad,
        same("Softmax", "Logits@GRAD"),
        formula=_fused_grad,
        in_place={"Logits@GRAD": "Softmax"},
    ),
)


class SigmoidCrossEntropyWithLogits(Unary):
    label: Input
    normalize: bool = False
    ignore_index: int = -100


def sigmoid_cross_entropy(a: SigmoidCrossEntropyWithLogits) -> f.Results:
    """log(1 + exp(x)) - x * label, 0 of labels to ignore; ``normalize`` divides by how many are not ignored."""
    counts = f.not_equal(a.label, a.ignore_index)
    value = f.where(counts, f.softplus(a.x) - a.x * a.label, 0)
    return {"out": value / f.maximum(counts.astype(value.dtype).sum(), 1) if a.normalize else value}


define(
    "sigmoid_cross_entropy_with_logits",
    SigmoidCrossEntropyWithLogits,
    Sized("X [...], Label [...] -> Out as X"),
    formula=sigmoid_cross_entropy,
    samples=(
        sample("X [4 3], Label uniform [4 3]"),
        sample("X [4 3], Label uniform [4 3]", normalize=True),
    ),
    slope=slope("x label d_out", "d_x"),
)


define(
    "log_loss",
    record_of("predicted labels", "loss", epsilon=0.0001),
    Sized("Predicted [...], Labels [...] -> Loss as Predicted"),
    scalar=lambda predicted, labels, *, epsilon: (
        -(labels * e.log(predicted + epsilon)) - (1 - labels) * e.log(1 - predicted + epsilon)
    ),
    samples=(sample("Predicted 0.2:0.8 [4 1], Labels uniform [4 1]"),),
    slope=slope(
        "predicted labels d_loss",
        "d_predicted",
        scalar=lambda predicted, labels, d_loss, *, epsilon: (
            d_loss * ((1 - labels) / (1 - predicted + epsilon) - labels / (predicted + epsilon))
        ),
    ),
)


def _huber(x: e.Expr, y: e.Expr, *, delta: float) -> tuple[e.Expr, e.Expr]:
    r = y - x
    size = e.abs_(r)
    return r, e.where(size <= delta, 0.5 * r * r, delta * (size - 0.5 * delta))


def _huber_slopes(residual: e.Expr, d_out: e.Expr, *, delta: float) -> tuple[e.Expr, e.Expr]:
    slope = d_out * e.minimum(e.maximum(residual, -delta), delta)
    return -slope, slope


define(
    "huber_loss",
    record_of("x y", "residual out", delta=1.0),
    Sized("X [...], Y [...] -> Out as X, Residual as X"),
    scalar=_huber,
    samples=(sample("X [4 1], Y [4 1]", delta=0.7),),
    slope=slope(
        "residual d_out",
        "d_x d_y",
        shape=same("Residual", "X@GRAD", "Y@GRAD"),
        scalar=_huber_slopes,
    ),
)
