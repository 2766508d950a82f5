"""Softmax and losses."""

from __future__ import annotations

from collections.abc import Mapping

from ...strategies.types import INTEGERS
from . import expr as e
from . import formula as f
from .double_gradient import twice
from .operands import Gradient, Input, Operands, Output, Unary, record_of
from .registry import Inference, Op, Spec, Specs, define, differentiable, slope
from .rules import match, normal_axis, of_shape, same
from .samples import distribution, integers, normal, sample, table, uniform
from .second_order import Second
from .shapes import Sized

# Scores further below the largest of their row count as if they were this far below, as on Paddle's CPUs: no
# probability is 0, so its logarithm is finite, and its gradient is that of the scores.
LEAST_SHIFT = -64.0
_APART = [[0.0, 100.0, 30.5], [-200.0, 100.0, 100.0], [9.0, -1e4, -80.0]]


def softmax_shape(op: Inference) -> Mapping[str, Specs]:
    """Like X; ``axis`` must be one of its dimensions."""
    normal_axis(op, op.attr("axis"), len(op.shape("X")))
    return {"Out": op.spec("X")}


class Softmax(Unary):
    axis: int = -1
    data_format: str = "AnyLayout"
    use_cudnn: bool = False
    use_mkldnn: bool = False
    is_test: bool = False


class SoftmaxGrad(Softmax, Gradient, reads="out"): ...


def _softmax_grad(a: SoftmaxGrad) -> f.Results:
    return {"d_x": (a.d_out - (a.d_out * a.out).sum(a.axis, keepdims=True)) * a.out}


_SOFTMAX_GRAD = Op(
    "softmax_grad", SoftmaxGrad, same("Out", "X@GRAD"), in_place={"X@GRAD": "Out@GRAD"}
)
_SECOND = Second(
    {"Out": "Out", "DOut": "Out@GRAD", "DDX": "X@GRAD@GRAD"},
    {"DOutNew": "Out@GRAD", "DDOut": "Out@GRAD@GRAD"},
    {"DOutNew": ["Out"], "DDOut": ["Out"]},
)

define(
    "softmax",
    Softmax,
    softmax_shape,
    in_place={"Out": "X"},
    samples=(
        sample({"X": normal(3, 5)}),
        sample({"X": normal(2, 3, 4)}, axis=1),
        sample({"X": table(_APART)}),
        sample({"X": table(_APART)}, axis=0),
    ),
    refuses=(sample({"X": normal(3, 5)}, axis=2),),
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


def cross_entropy_shape(op: Inference) -> Mapping[str, Specs]:
    """One loss per row of X."""
    x = op.spec("X")
    soft = bool(op.attrs.get("soft_label", False))
    label = op.spec("Label")
    shape = check_labels(op, x, label, soft)
    rows = of_shape(shape if len(label.shape) == len(shape) else shape[:-1], x)
    return {"Y": rows, "MatchX": rows, "XShape": of_shape((*x.shape, 0), x)}


_PROBABILITIES = uniform(4, 5, low=0.1, high=0.9)


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
    samples=(
        sample({"X": _PROBABILITIES, "Label": integers(4, 1, high=5)}),
        sample({"X": _PROBABILITIES, "Label": integers(4, 1, high=5)}, ignore_index=2),
        sample({"X": _PROBABILITIES, "Label": integers(4, high=5)}, ignore_index=2),
        sample({"X": _PROBABILITIES, "Label": uniform(4, 5)}, soft_label=True),
    ),
    refuses=(sample({"X": _PROBABILITIES, "Label": integers(3, 1, high=5)}),),
    slope=Op("cross_entropy_grad", CrossEntropyGrad),
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
    samples=(
        sample({"X": _PROBABILITIES, "Label": integers(4, 1, high=5)}),
        sample({"X": _PROBABILITIES, "Label": integers(4, 1, high=5)}, ignore_index=2),
        sample({"X": _PROBABILITIES, "Label": integers(4, high=5)}, ignore_index=2),
    ),
    refuses=(sample({"X": _PROBABILITIES, "Label": integers(3, 1, high=5)}),),
    slope=Op(
        "cross_entropy_grad2",
        CrossEntropyGrad2,
        lambda op: {"X@GRAD": of_shape(op.shape("XShape")[:-1], op.spec("MatchX"))},
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


define(
    "softmax_with_cross_entropy",
    SoftmaxWithCrossEntropy,
    fused_shape,
    in_place={"Softmax": "Logits"},
    samples=(
        sample({"Logits": normal(4, 5), "Label": integers(4, 1, high=5)}),
        sample({"Logits": normal(4, 5), "Label": integers(4, 1, high=5)}, ignore_index=1),
        sample({"Logits": normal(4, 5), "Label": distribution(4, 5)}, soft_label=True),
        sample({"Logits": normal(2, 5, 3), "Label": integers(2, 1, 3, high=5)}, axis=1),
        sample({"Logits": normal(2, 5, 3), "Label": integers(2, 3, high=5)}, axis=1),
        sample({"Logits": normal(4, 5), "Label": integers(4, high=5)}),
    ),
    refuses=(
        sample({"Logits": normal(4, 5), "Label": integers(3, high=5)}),
        sample({"Logits": normal(4, 5), "Label": normal(4, 1)}),
    ),
    slope=Op(
        "softmax_with_cross_entropy_grad",
        SoftmaxWithCrossEntropyGrad,
        same("Softmax", "Logits@GRAD"),
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
        sample({"X": normal(4, 3), "Label": uniform(4, 3)}),
        sample({"X": normal(4, 3), "Label": uniform(4, 3)}, normalize=True),
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
    samples=(sample({"Predicted": uniform(4, 1, low=0.2, high=0.8), "Labels": uniform(4, 1)}),),
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
    samples=(sample({"X": normal(4, 1), "Y": normal(4, 1)}, delta=0.7),),
    slope=slope(
        "residual d_out",
        "d_x d_y",
        shape=same("Residual", "X@GRAD", "Y@GRAD"),
        scalar=_huber_slopes,
    ),
)
