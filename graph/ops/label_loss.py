"""Losses that read scores, or centres, at the rows' labels."""

from __future__ import annotations

from collections.abc import Mapping

from ...strategies.types import INTEGERS
from . import formula as f
from .operands import Input, Operands, Output, named
from .registry import Inference, Op, Spec, Specs, define
from .rules import merge_dims, of_shape
from .samples import integers, normal, sample, uniform

_REDUCTIONS = ("none", "mean", "sum")


def check_labels(op: Inference, shape: tuple[int, ...], label: Spec) -> None:
    """Refuse labels that are no integers, or not one for each row."""
    op.require(label.dtype in INTEGERS, "Label must hold integers")
    fits = len(label.shape) == len(shape) and all(
        merge_dims(n, m) is not None for n, m in zip(shape, label.shape, strict=True)
    )
    op.require(fits, f"Label must have shape {list(shape)}")


def nll_loss_shape(op: Inference) -> Mapping[str, Specs]:
    """X is [N, C] or [N, C, H, W], Label has no dimension of classes."""
    x = op.spec("X")
    op.require(len(x.shape) in (2, 4), f"X must have 2 or 4 dimensions, has {len(x.shape)}")
    rows = (x.shape[0], *x.shape[2:])
    check_labels(op, rows, op.spec("Label"))
    op.require(
        op.attr("reduction") in _REDUCTIONS, f"reduction must be one of {', '.join(_REDUCTIONS)}"
    )
    if op.has("Weight"):
        shape = op.shape("Weight")
        fits = len(shape) == 1 and merge_dims(shape[0], x.shape[1]) is not None
        op.require(fits, f"Weight must have one element for each of the {x.shape[1]} classes")
    out = rows if op.attr("reduction") == "none" else (1,)
    return {"Out": of_shape(out, x), "Total_weight": of_shape((1,), x)}


class NllLossAttributes(Operands):
    ignore_index: int = -100
    reduction: str = "mean"


class NllLoss(NllLossAttributes):
    x: Input
    label: Input
    weight: Input | None
    out: Output
    total_weight: Output = named("Total_weight")


class NllLossGrad(NllLossAttributes):
    x: Input
    label: Input
    weight: Input | None
    total_weight: Input = named("Total_weight")
    d_out: Input
    d_x: Output | None


def nll_loss(a: NllLoss) -> f.Results:
    """Out = -w X[label], w the label's weight, 0 if it is ignored; or their sum, or weighted mean."""
    classes = a.x.shape[1]
    label = a.label.reshape(-1)
    used = f.not_equal(label, a.ignore_index)
    label = f.checked(f.where(used, label, 0), classes, "Label")
    rows = a.x.transpose([0, *range(2, a.x.ndim), 1]).reshape(-1)
    index = label + f.table(range(label.size)) * classes
    weight = f.full(label.shape, 1, a.x.dtype) if a.weight is None else f.take(a.weight, label)
    weight = weight * used.astype(a.x.dtype)
    loss = -(f.take(rows, index) * weight)
    total = weight.sum(keepdims=True)
    if a.reduction == "none":
        return {"out": loss.reshape(a.label.shape), "total_weight": total * 0}
    loss = loss.sum(keepdims=True)
    if a.reduction == "mean":
        loss = loss / f.where(f.not_equal(total, 0), total, 1)
    return {"out": loss, "total_weight": total}


_LABELS = {"X": normal(4, 3), "Label": integers(4, high=3)}

define(
    Op(
        type="nll_loss",
        record=NllLoss,
        shape=nll_loss_shape,
        formula=nll_loss,
        samples=(
            sample({**_LABELS, "Weight": uniform(3)}),
            sample(_LABELS, reduction="sum", ignore_index=1),
            sample({"X": normal(2, 3, 2, 2), "Label": integers(2, 2, 2, high=3)}, reduction="none"),
        ),
        refuses=(
            sample({"X": normal(4, 3), "Label": integers(3, high=3)}),
            sample({**_LABELS, "Weight": uniform(4)}),
            sample(_LABELS, reduction="max"),
        ),
    ),
    Op(type="nll_loss_grad", record=NllLossGrad),
)


def bpr_loss_shape(op: Inference) -> Mapping[str, Specs]:
    """One loss for each row of X [..., C]."""
    x = op.spec("X")
    rows = (*x.shape[:-1], 1)
    label = op.spec("Label")
    op.require(len(x.shape) >= 2, f"X must have 2 dimensions or more, has {len(x.shape)}")
    op.require(x.shape[-1] != 1, "X must have 2 classes or more")
    check_labels(op, rows if len(label.shape) == len(x.shape) else rows[:-1], label)
    return {"Y": of_shape(rows, x)}


class BprLoss(Operands):
    x: Input
    label: Input
    y: Output


class BprLossGrad(Operands):
    x: Input
    label: Input
    d_y: Input
    d_x: Output | None


def bpr_loss(a: BprLoss) -> f.Results:
    """Y = the mean of log(1 + exp(x - x[label])) over other classes: Hidasi et al., arXiv 1511.06939."""
    classes = a.x.shape[-1]
    x = a.x.reshape(-1, classes)
    label = f.checked(a.label.reshape(-1), classes, "Label")
    first = f.table(range(x.shape[0])) * classes
    right = f.take(x.reshape(-1), label + first).reshape(-1, 1)
    gap = x - right
    loss = f.log1p(f.exp(-f.absolute(gap))) + f.maximum(gap, 0)
    others = f.not_equal(f.table([range(classes)]), label.reshape(-1, 1)).astype(a.x.dtype)
    total = (loss * others).sum(1) * (1 / (classes - 1))
    return {"y": total.reshape(*a.x.shape[:-1], 1)}


define(
    Op(
        type="bpr_loss",
        record=BprLoss,
        shape=bpr_loss_shape,
        formula=bpr_loss,
        samples=(
            sample({"X": normal(4, 3), "Label": integers(4, 1, high=3)}),
            sample({"X": normal(2, 2, 3), "Label": integers(2, 2, 1, high=3)}),
        ),
        refuses=(sample({"X": normal(4, 3), "Label": integers(3, 1, high=3)}),),
    ),
    Op(type="bpr_loss_grad", record=BprLossGrad),
)


def center_loss_shape(op: Inference) -> Mapping[str, Specs]:
    """X [N, D], one label a row, Centers [cluster_num, D]."""
    x, centers, label = op.spec("X"), op.spec("Centers"), op.spec("Label")
    op.require(len(x.shape) == len(centers.shape) == 2, "X and Centers must be matrices")
    fits = merge_dims(x.shape[1], centers.shape[1]) is not None
    op.require(fits, "the rows of X and Centers must be of one size")
    op.require(centers.shape[0] == op.attr("cluster_num"), "Centers must have cluster_num rows")
    rows = x.shape[:1]
    check_labels(op, (*rows, 1) if len(label.shape) == 2 else rows, label)
    return {
        "CentersOut": centers,
        "SampleCenterDiff": x,
        "Loss": of_shape((x.shape[0], 1), x),
    }


class CenterLossAttributes(Operands):
    cluster_num: int = 0
    need_update: bool = False


class CenterLoss(CenterLossAttributes):
    x: Input
    label: Input
    centers: Input
    center_update_rate: Input
    centers_out: Output
    sample_center_diff: Output
    loss: Output


class CenterLossGrad(CenterLossAttributes):
    x: Input
    sample_center_diff: Input
    d_loss: Input
    d_x: Output | None


def center_loss(a: CenterLoss) -> f.Results:
    """Loss = |X - centre|^2 / 2; centres move to their rows: Wen et al., ECCV 2016, equations 2 and 4."""
    label = f.checked(a.label.reshape(-1), a.cluster_num, "Label")
    difference = a.x - f.take(a.centers, label)
    centers = a.centers
    if a.need_update:
        moved = f.row_sums(label, difference, a.cluster_num)
        count = f.row_sums(label, f.full(label.shape, 1, a.x.dtype), a.cluster_num)
        centers = centers + moved * a.center_update_rate / (1 + count.reshape(-1, 1))
    return {
        "centers_out": centers,
        "sample_center_diff": difference,
        "loss": (difference * difference).sum(1, keepdims=True) * 0.5,
    }


_CENTERS = {"X": normal(4, 3), "Centers": normal(5, 3), "CenterUpdateRate": uniform(1)}

define(
    Op(
        type="center_loss",
        record=CenterLoss,
        shape=center_loss_shape,
        formula=center_loss,
        in_place={"CentersOut": "Centers"},
        samples=(
            sample({**_CENTERS, "Label": integers(4, 1, high=5)}, cluster_num=5, need_update=True),
            sample({**_CENTERS, "Label": integers(4, high=5)}, cluster_num=5),
        ),
        refuses=(
            sample({**_CENTERS, "Label": integers(4, 1, high=5)}, cluster_num=4),
            sample({**_CENTERS, "Label": integers(3, 1, high=5)}, cluster_num=5),
        ),
    ),
    Op(
        type="center_loss_grad",
        record=CenterLossGrad,
        formula=lambda a: {"d_x": a.sample_center_diff * a.d_loss},
    ),
)
