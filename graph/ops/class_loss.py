"""Losses of rows and the classes that their labels pick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from . import formula as f
from .operands import Input, Operands, Output, named
from .registry import define, slope
from .samples import sample
from .shapes import Sized


class NllLoss(Operands):
    x: Input
    label: Input
    weight: Input | None
    out: Output
    total_weight: Output = named("Total_weight")
    ignore_index: int = -100
    reduction: Literal["none", "mean", "sum"] = "mean"


def nll_loss(a: NllLoss) -> f.Results:
    """-weight * X at the label, 0 where it is ignored; or their sum, or their mean by weight."""
    classes = a.x.shape[1]
    labels = a.label.reshape(-1)
    counts = f.not_equal(labels, a.ignore_index)
    label = f.checked(f.where(counts, labels, 0), classes, "label", "classes")
    scores = a.x.transpose([0, *range(2, a.x.ndim), 1]).reshape(-1)
    index = label + f.table(range(label.size), "int64") * classes
    weight = counts.astype(a.x.dtype)
    if a.weight is not None:
        weight = weight * f.take(a.weight, label)
    loss = -(f.take(scores, index) * weight)
    total = weight.sum(keepdims=True)
    if a.reduction == "none":
        return {"out": loss.reshape(a.out.shape), "total_weight": total * 0}
    loss = loss.sum(keepdims=True)
    if a.reduction == "mean":
        loss = loss / f.where(f.not_equal(total, 0), total, 1)
    return {"out": loss, "total_weight": total}


_ROWS = "X [4 3], Label 0:3 [4]"
_WEIGHTED = f"{_ROWS}, Weight 0.5:2.0 [3]"
_PIXELS = f"{_WEIGHTED}, X [2 3 2 2], Label 0:3 [2 2 2]"
define(
    "nll_loss",
    NllLoss,
    Sized(
        "X floats, Label integers [*rows 1?], Weight as X [C] -> Out [*result], Total_weight [1]",
        "len(X) in (2, 4); X must have 2 or 4 dimensions",
        "len(X) == 2 or len(Label) == 3; Label must be [N, H, W]",
        "C, rows = X[1], X[:1] + X[2:]",
        "result = rows if reduction == 'none' else (1,)",
    ),
    formula=nll_loss,
    samples=(
        sample(_ROWS),
        sample(_WEIGHTED, reduction="sum", ignore_index=1),
        sample(_PIXELS, reduction="mean", ignore_index=2),
        sample(_PIXELS, reduction="none"),
    ),
    slope=slope("(x) label weight total_weight d_out", "d_x"),
)


class BprLoss(Operands):
    x: Input
    label: Input
    y: Output


def bpr_loss(a: BprLoss) -> f.Results:
    """The mean of log(1 + exp(x - x[label])) over the other classes: Hidasi et al., arXiv 1511.06939."""
    classes = a.x.shape[-1]
    x = a.x.reshape(-1, classes)
    label = f.checked(a.label.reshape(-1), classes, "label", "classes")
    target = f.take(x.reshape(-1), label + f.table(range(x.shape[0]), "int64") * classes)
    gap = x - target.reshape(-1, 1)
    loss = f.softplus(gap)
    others = f.not_equal(f.table([range(classes)], "int64"), label.reshape(-1, 1))
    total = f.where(others, loss, 0).sum(1) * (1 / max(classes - 1, 1))
    return {"y": total.reshape(*a.x.shape[:-1], 1)}


define(
    "bpr_loss",
    BprLoss,
    Sized("X floats [... C], Label integers [... 1] -> Y [... 1]"),
    formula=bpr_loss,
    samples=(sample("X [4 5], Label 0:5 [4 1]"), sample("X [2 3 4], Label 0:4 [2 3 1]")),
    slope=slope("x label d_y", "d_x"),
)


def centers_need(attrs: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    """Centers that are not updated stay as they are."""
    return {} if attrs["need_update"] else {"CentersOut": ("Centers",)}


class CenterLoss(Operands):
    x: Input
    label: Input
    centers: Input
    center_update_rate: Input
    centers_out: Output
    sample_center_diff: Output
    loss: Output
    cluster_num: int
    need_update: bool


def center_loss(a: CenterLoss) -> f.Results:
    """Half the squared distance to the center of the class; centers move to their rows.

    Wen et al., "A discriminative feature learning approach for deep face recognition", ECCV 2016, equations 2
    and 4.
    """
    clusters = a.centers.shape[0]
    label = f.checked(a.label.reshape(-1), clusters, "label", "classes")
    difference = a.x - f.take(a.centers, label)
    centers = a.centers
    if a.need_update:
        total = f.row_sums(label, difference, clusters)
        count = f.row_sums(label, f.full(label.shape, 1, a.x.dtype), clusters)
        centers = centers + total * a.center_update_rate / (1 + count.reshape(-1, 1))
    return {
        "centers_out": centers,
        "sample_center_diff": difference,
        "loss": (difference * difference).sum(1, keepdims=True) * 0.5,
    }


_CLUSTERED = "X [5 3], Label 0:4 [5 1], Centers [4 3], CenterUpdateRate 0.2:1.0 [1]"
define(
    "center_loss",
    CenterLoss,
    Sized(
        "X floats [N D], Centers as X [K D], Label integers [N 1?] "
        "-> CentersOut as Centers, SampleCenterDiff as X, Loss [N 1]"
    ),
    formula=center_loss,
    in_place={"CentersOut": "Centers"},
    only_uses=lambda attrs: not attrs["need_update"],
    needs=centers_need,
    samples=(
        sample(_CLUSTERED, cluster_num=4, need_update=True),
        sample(_CLUSTERED, "Label 0:4 [5]", cluster_num=4, need_update=False),
    ),
    slope=slope(
        "(x) sample_center_diff d_loss",
        "d_x",
        formula=lambda a: {"d_x": a.sample_center_diff * a.d_loss},
    ),
)
