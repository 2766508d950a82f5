"""Losses of one element and its label, and of pairs: each an expression."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import expr as e
from . import formula as f
from .lod import no_sequences
from .operands import Binary, Gradient, Input, Operands, Output, record_of
from .registry import Grad, Op, Shapes, define, slope
from .rules import product, same
from .samples import sample
from .shapes import Sized, one_element

define(
    "minus",
    Binary,
    Sized("X [...], Y as X [...] -> Out as X"),
    scalar=lambda x, y: x - y,
    in_place={"Out": "X"},
    grad=Grad(
        "elementwise_sub_grad",
        {"X": "X", "Y": "Y", "Out@GRAD": "Out@GRAD"},
        {"X@GRAD": "X@GRAD", "Y@GRAD": "Y@GRAD"},
        attrs=lambda attrs: {"axis": -1},
    ),
    samples=(sample("X [3 4], Y [3 4]"),),
)

_LOG_FLOOR = -100.0  # no logarithm of a probability is below


define(
    "bce_loss",
    record_of("x label", "out"),
    Sized("X [...], Label as X [...] -> Out as X"),
    scalar=lambda x, label: (
        (label - 1) * e.maximum(e.log(1 - x), _LOG_FLOOR) - label * e.maximum(e.log(x), _LOG_FLOOR)
    ),
    in_place={"Out": "X"},
    samples=(sample("X 0.1:0.9 [4 3], Label uniform [4 3]"),),
    slope=slope(
        "x label d_out",
        "d_x",
        scalar=lambda x, label, d_out: d_out * (x - label) / e.maximum((1 - x) * x, 1e-12),
        in_place={"X@GRAD": "Out@GRAD"},
    ),
)


def _margin(logits: e.Expr, labels: e.Expr) -> e.Expr:
    return 1 - logits * (2 * labels - 1)


define(
    "hinge_loss",
    record_of("logits labels", "loss"),
    Sized("Logits [...], Labels as Logits [...] -> Loss as Logits"),
    scalar=lambda logits, labels: e.maximum(_margin(logits, labels), 0),
    in_place={"Loss": "Logits"},
    samples=(sample("Logits [4 1], Labels 0.5:1.0 [4 1]"),),
    slope=slope(
        "logits labels d_loss",
        "d_logits",
        scalar=lambda logits, labels, d_loss: e.where(
            _margin(logits, labels) > 0, d_loss * (1 - 2 * labels), 0
        ),
        in_place={"Logits@GRAD": "Loss@GRAD"},
    ),
)


def _reduced(shapes: Shapes, attrs: Mapping[str, Any]) -> Shapes:
    loss = (1,) * len(shapes["x"])
    return {} if attrs["reduction"] == "none" else {"loss": loss, "d_loss": loss}


def _share(shapes: Shapes, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    size = {"mean": product(shapes["x"]), "batchmean": shapes["x"][0]}.get(attrs["reduction"], 1)
    return {"share": 1 / max(size, 1)}


_REDUCTIONS = ("none", "batchmean", "mean", "sum")
_DIVERGING = "X [4 3], Target distribution [4 3]"


define(
    "kldiv_loss",
    record_of("x target", "loss", reduction="mean"),
    Sized(
        "X [...], Target as X [...] -> Loss [*result]",
        f"reduction in {_REDUCTIONS}; reduction is none of {_REDUCTIONS}",
        "result = X if reduction == 'none' else (1,)",
    ),
    lod=no_sequences,
    scalar=lambda x, target, *, share: e.where(target > 0, share * target * (e.log(target) - x), 0),
    samples=tuple(sample(_DIVERGING, reduction=name) for name in _REDUCTIONS),
    aligned=_reduced,
    counts=_share,
    slope=slope(
        "(x) target d_loss",
        "d_x",
        scalar=lambda x, target, d_loss, *, share: e.where(
            target > 0, -(share * target * d_loss), 0
        ),
        aligned=_reduced,
        counts=_share,
    ),
)


define(
    "margin_rank_loss",
    record_of("x1 x2 label", "activated out", margin=0.0),
    Sized("X1 [...], X2 as X1 [...], Label as X1 [...] -> Activated as X1, Out as X1"),
    scalar=lambda x1, x2, label, *, margin: (
        e.where(label * (x2 - x1) + margin > 0, 1.0, 0.0),
        e.maximum(label * (x2 - x1) + margin, 0),
    ),
    samples=(
        sample("X1 [4 1], X2 [4 1], Label uniform [4 1]"),
        sample("X1 [4 1], X2 [4 1], Label uniform [4 1]", margin=0.3),
    ),
    slope=slope(
        "activated label d_out",
        "d_x1 d_x2",
        shape=same("Label", "X1@GRAD", "X2@GRAD"),
        scalar=lambda activated, label, d_out: (
            -(d_out * activated * label),
            d_out * activated * label,
        ),
    ),
)


def _modified_huber(x: e.Expr, y: e.Expr) -> tuple[e.Expr, e.Expr]:
    agreement = x * (2 * y - 1)
    near = e.where(agreement < 1, e.square(1 - agreement), 0)
    return agreement, e.where(agreement < -1, -4 * agreement, near)


define(
    "modified_huber_loss",  # Zhang, "Solving large scale linear prediction problems", ICML 2004
    record_of("x y", "intermediate_val out"),
    Sized("X [...], Y as X [...] -> IntermediateVal as X, Out as X"),
    scalar=_modified_huber,
    samples=(sample("X -3.0:3.0 [6 1], Y 0.6:1.0 [6 1]"),),
    slope=slope(
        "y intermediate_val d_out",
        "d_x",
        shape=same("IntermediateVal", "X@GRAD"),
        scalar=lambda y, intermediate_val, d_out: e.where(
            intermediate_val < 1,
            d_out * (2 * y - 1) * e.where(intermediate_val < -1, -4.0, 2 * intermediate_val - 2),
            0,
        ),
        in_place={"X@GRAD": "Out@GRAD"},
    ),
)


def _rank_slopes(
    label: e.Expr, left: e.Expr, right: e.Expr, d_out: e.Expr
) -> tuple[e.Expr, e.Expr]:
    slope = d_out * (e.sigmoid(left - right) - label)
    return slope, -slope


_RANKED = "Label uniform [4 1], Left [4 1], Right [4 1]"


define(
    "rank_loss",  # Burges et al., "Learning to rank using gradient descent", ICML 2005
    record_of("label left right", "out"),
    Sized("Left [...], Right as Left [...], Label as Left [...] -> Out as Left"),
    lod=no_sequences,
    scalar=lambda label, left, right: e.softplus(left - right) - label * (left - right),
    samples=(sample(_RANKED),),
    slope=slope("label left right d_out", "d_left d_right", scalar=_rank_slopes),
)


def _by_row(shapes: Shapes, attrs: Mapping[str, Any]) -> Shapes:
    whole = shapes.get("x") or shapes["diff"]
    row = (whole[0], *(1 for _ in whole[1:]))
    return {"out": row, "d_out": row}


def _smooth_l1(
    x: e.Expr,
    y: e.Expr,
    inside_weight: e.Expr | None = None,
    outside_weight: e.Expr | None = None,
    *,
    sigma: float,
) -> tuple[e.Expr, e.Expr]:
    diff = x - y if inside_weight is None else (x - y) * inside_weight
    size, square = e.abs_(diff), sigma * sigma
    loss = e.where(size < 1 / square, 0.5 * square * diff * diff, size - 0.5 / square)
    return diff, loss if outside_weight is None else loss * outside_weight


def _smooth_l1_slopes(
    diff: e.Expr,
    d_out: e.Expr,
    inside_weight: e.Expr | None = None,
    outside_weight: e.Expr | None = None,
    *,
    sigma: float,
) -> tuple[e.Expr, e.Expr]:
    square = sigma * sigma
    slope = e.where(e.abs_(diff) < 1 / square, square * diff, e.sign(diff)) * d_out
    for weight in (inside_weight, outside_weight):
        slope = slope if weight is None else slope * weight
    return slope, -slope


_APART = "X [3 4], Y [3 4]"
_WEIGHTED = f"{_APART}, InsideWeight uniform [3 4], OutsideWeight uniform [3 4]"


define(
    "smooth_l1_loss",  # Girshick, arXiv 1504.08083
    record_of("x y inside_weight? outside_weight?", "diff out", sigma=1.0),
    Sized(
        "X [N ...], Y as X [N ...], InsideWeight as X [N ...], OutsideWeight as X [N ...] "
        "-> Diff as X, Out [N 1]",
        "len(X) > 1; X must have 2 dimensions or more",
        "sigma != 0",
        "(InsideWeight is None) == (OutsideWeight is None); InsideWeight and OutsideWeight go together",
    ),
    lod=no_sequences,
    scalar=_smooth_l1,
    samples=(
        sample(_APART),
        sample(_WEIGHTED, sigma=2.0),
        sample("X [2 3 2], Y [2 3 2]", sigma=0.7),
    ),
    aligned=_by_row,
    slope=slope(
        "inside_weight outside_weight diff d_out",
        "d_x d_y",
        shape=same("Diff", "X@GRAD", "Y@GRAD"),
        scalar=_smooth_l1_slopes,
        aligned=_by_row,
    ),
)


def _teacher_student(x: e.Expr, label: e.Expr) -> e.Expr:
    """Labels below -1 and -1 to 0: no click or a click without a teacher's score; above, with one."""
    clicked = e.where((label < -1) | ((label >= 0) & (label < 1)), 0, x)
    score = e.where(label < 1, label, label - 1)
    taught = e.where(label < 0, 0, e.softplus(x) - x * score)
    return e.softplus(x) - clicked + taught


def _teacher_student_slope(
    x: e.Expr, label: e.Expr, d_y: e.Expr, *, soft_max_up_bound: float, soft_max_lower_bound: float
) -> e.Expr:
    chance = e.sigmoid(x)
    slope = e.where(label < -1, chance, e.where(label < 0, chance - 1, 2 * chance - label))
    return e.where((x < soft_max_up_bound) & (x > soft_max_lower_bound), slope * d_y, 0)


define(
    "teacher_student_sigmoid_loss",
    record_of("x label", "y", soft_max_up_bound=15.0, soft_max_lower_bound=-15.0),
    Sized("X [...], Label as X [...] -> Y as X"),
    scalar=_teacher_student,
    in_place={"Y": "X"},
    samples=(sample("X [9 1], Label -2.0:2.0 [9 1]"), sample("X [5 1], Label uniform [5 1]")),
    slope=slope("x label d_y", "d_x", scalar=_teacher_student_slope, in_place={"X@GRAD": "Y@GRAD"}),
)


define(
    "label_smooth",  # Szegedy et al., arXiv 1512.00567
    record_of("x prior_dist?", "out", epsilon=0.0),
    Sized(
        "X floats, PriorDist as X -> Out",
        "prod(PriorDist) == X[-1]; PriorDist has one element for each class",
    ),
    aligned=lambda shapes, attrs: (
        {"prior_dist": (1,) * (len(shapes["x"]) - 1) + shapes["x"][-1:]}
        if "prior_dist" in shapes
        else {}
    ),
    counts=lambda shapes, attrs: {"classes": max(shapes["x"][-1], 1)},
    scalar=lambda x, prior_dist=None, *, epsilon, classes: (
        (1 - epsilon) * x + (epsilon / classes if prior_dist is None else epsilon * prior_dist)
    ),
    in_place={"Out": "X"},
    samples=(
        sample("X uniform [4 3]", epsilon=0.1),
        sample("X uniform [2 4 3], PriorDist distribution [1 3]", epsilon=0.3),
    ),
    slope=slope(
        "d_out",
        "d_x",
        shape=same("Out@GRAD", "X@GRAD"),
        scalar=lambda d_out, *, epsilon: (1 - epsilon) * d_out,
        in_place={"X@GRAD": "Out@GRAD"},
    ),
)


class SigmoidFocalLoss(Operands):
    x: Input
    label: Input
    fg_num: Input
    out: Output
    gamma: float = 2.0
    alpha: float = 0.25


class SigmoidFocalLossGrad(SigmoidFocalLoss, Gradient, reads="*"): ...


def _focal_terms(a: SigmoidFocalLoss | SigmoidFocalLossGrad) -> tuple[Any, Any]:
    """Return the loss and its slope; the label of a row is the number of the column that is hit, from 1 on."""
    x: Any = a.x
    label = a.label.astype(x.dtype)
    column = f.table(np.arange(1, a.x.shape[1] + 1), a.x.dtype)
    hit = f.equal(label, column)
    miss = f.not_equal(label, -1) & f.not_equal(label, column)
    chance = f.sigmoid(x)
    log_hit = f.maximum(-f.softplus(-x), math.log(np.finfo(np.float32).tiny))
    log_miss = -f.softplus(x)
    total = f.maximum(a.fg_num.reshape(1, 1).astype(a.x.dtype), 1)
    right = (a.alpha * (1 - chance) ** a.gamma) / total
    wrong = ((1 - a.alpha) * chance**a.gamma) / total
    loss = f.where(hit, -(right * log_hit), f.where(miss, -(wrong * log_miss), 0))
    down = right * (chance * a.gamma * log_hit - (1 - chance))
    up = wrong * (chance - log_miss * (1 - chance) * a.gamma)
    return loss, f.where(hit, down, f.where(miss, up, 0))


# of the op, and of its gradient op
_FOCAL = Sized(
    "X floats [N C], Label integers [N 1], FgNum integers -> Out as X, X@GRAD as X",
    one_element("FgNum"),
)
_DETECTED = "X [4 3], Label -1:4 [4 1], FgNum 1:4 [1]"
define(
    "sigmoid_focal_loss",  # Lin et al., arXiv 1708.02002
    SigmoidFocalLoss,
    _FOCAL,
    formula=lambda a: {"out": _focal_terms(a)[0]},
    samples=(sample(_DETECTED), sample(_DETECTED, gamma=1.5, alpha=0.4)),
    slope=Op(
        "sigmoid_focal_loss_grad",
        SigmoidFocalLossGrad,
        _FOCAL,
        formula=lambda a: {"d_x": _focal_terms(a)[1] * a.d_out},
    ),
)
