"""Losses of rows and the classes that their labels pick. Legend: N rows, C classes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....graph.ops.class_loss import (
    BprLoss,
    BprLossGrad,
    CenterLoss,
    CenterLossGrad,
    NllLoss,
    NllLossGrad,
)
from ...device.device import Device
from ..registry import Step, kernel
from .embedding import sum_rows
from .loss import Labels


def _weights(xp: Any, a: NllLoss | NllLossGrad, kept_N: Any, ignored_N: Any) -> Any:
    chosen_N = 1.0 if a.weight is None else a.weight[kept_N]
    return xp.where(ignored_N, 0, chosen_N).astype(a.x.dtype)


@kernel("nll_loss")
def nll_loss(dev: Device, a: NllLoss) -> Step:
    """-weight * x at the label; the mean is over the weights of the labels that count."""
    xp, labels = dev.xp, Labels(dev, "nll_loss", a.x, a.label, 1, a.ignore_index)

    def run() -> None:
        kept_N, ignored_N = labels.pick()
        weights_N = _weights(xp, a, kept_N, ignored_N)
        picked_N = labels.rows_of(a.x)[labels.rows, kept_N]
        loss_N = xp.where(ignored_N, 0, -picked_N * weights_N)
        whole = a.reduction == "none"
        total = weights_N.sum()
        if whole:
            a.out[...] = loss_N.reshape(a.out.shape)
        else:
            divisor = xp.where(total == 0, 1, total) if a.reduction == "mean" else 1
            a.out[...] = loss_N.sum() / divisor
        if a.total_weight is not None:
            a.total_weight[...] = 0 if whole else total

    return run


@kernel("nll_loss_grad")
def nll_loss_grad(dev: Device, a: NllLossGrad) -> list[Step]:
    if a.d_x is None:
        return []
    xp, labels = dev.xp, Labels(dev, "nll_loss", a.x, a.label, 1, a.ignore_index)
    rows = np.moveaxis(a.d_x, 1, -1)

    def run() -> None:
        kept_N, ignored_N = labels.pick()
        slopes_N = -_weights(xp, a, kept_N, ignored_N) * a.d_out.reshape(-1)
        if a.reduction == "mean":
            slopes_N = slopes_N / xp.where(a.total_weight == 0, 1, a.total_weight)
        rows[(*xp.unravel_index(labels.rows, rows.shape[:-1]), kept_N)] = slopes_N

    return [partial(a.d_x.fill, 0), run]


def _bpr_labels(dev: Device, a: BprLoss | BprLossGrad) -> Labels:
    return Labels(dev, "bpr_loss", a.x, a.label, a.x.ndim - 1, -1 - 2**62)  # none is ignored


@kernel("bpr_loss")
def bpr_loss(dev: Device, a: BprLoss) -> Step:
    """The mean of log(1 + exp(x - x[label])) over the other classes."""
    xp, labels = dev.xp, _bpr_labels(dev, a)

    def run() -> None:
        kept_N, _ = labels.pick()
        x_NC = labels.rows_of(a.x)
        terms_NC = xp.logaddexp(0, x_NC - x_NC[labels.rows, kept_N][:, None])
        terms_NC[labels.rows, kept_N] = 0
        a.y[...] = (terms_NC.sum(1) / max(labels.classes - 1, 1)).reshape(a.y.shape)

    return run


@kernel("bpr_loss_grad")
def bpr_loss_grad(dev: Device, a: BprLossGrad) -> list[Step]:
    """d * logistic(x - x[label]) / (C - 1) for the other classes, and less their sum at the label."""
    if a.d_x is None:
        return []
    xp, labels, d_x = dev.xp, _bpr_labels(dev, a), a.d_x

    def run() -> None:
        kept_N, _ = labels.pick()
        x_NC = labels.rows_of(a.x)
        half_NC = (x_NC - x_NC[labels.rows, kept_N][:, None]) * 0.5
        d_N1 = a.d_y.reshape(-1, 1) / max(labels.classes - 1, 1)
        slopes_NC = (0.5 + 0.5 * xp.tanh(half_NC)) * d_N1
        slopes_NC[labels.rows, kept_N] = 0
        slopes_NC[labels.rows, kept_N] = -slopes_NC.sum(1)
        d_x[...] = slopes_NC.reshape(d_x.shape)

    return [run]


@kernel("center_loss")
def center_loss(dev: Device, a: CenterLoss) -> Step:
    """|x - center|^2 / 2; a center moves by rate * sum(x - center) / (1 + count) of its rows."""
    xp = dev.xp
    labels = Labels(dev, "center_loss", a.centers.T, a.label.reshape(-1, 1), 1, -1 - 2**62)

    def run() -> None:
        kept_N, _ = labels.pick()
        difference = a.x - a.centers[kept_N]
        a.sample_center_diff[...] = difference
        a.loss[...] = 0.5 * (difference * difference).sum(1, keepdims=True)
        if a.centers_out is not a.centers:
            a.centers_out[...] = a.centers
        if a.need_update:
            sums = xp.zeros_like(a.centers)
            sum_rows(xp, kept_N, difference, sums)
            counts = 1 + xp.bincount(kept_N, minlength=labels.classes)[:, None]
            a.centers_out[...] += a.center_update_rate.reshape(-1)[0] * sums / counts

    return run


@kernel("center_loss_grad")
def center_loss_grad(dev: Device, a: CenterLossGrad) -> list[Step]:
    if a.d_x is None:
        return []
    return [partial(dev.xp.multiply, a.sample_center_diff, a.d_loss, a.d_x)]
