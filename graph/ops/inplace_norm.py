"""Batch norm and an activation, from whose result alone the gradient follows.

Rota Bulò, Porzi and Kontschieder, "In-place activated batch norm", arXiv 1712.02616.
"""

from __future__ import annotations

from typing import Literal

from . import formula as f
from .norm import (
    RUNNING,
    STATISTICS,
    BatchNorm,
    BatchNormAttributes,
    batch_norm,
    batch_norm_shape,
    by_channel,
    slope_of_batch,
    uses_statistics,
)
from .operands import Input, Output
from .registry import Op, define
from .samples import sample
from .shapes import Sized


class InplaceAbn(BatchNorm, BatchNormAttributes):
    activation: Literal["", "identity", "leaky_relu", "elu"] = ""
    alpha: float = 0.1
    use_sync_bn: bool = False


class InplaceAbnGrad(InplaceAbn, reads="y scale bias saved_mean saved_variance"):
    d_y: Input
    d_x: Output | None
    d_scale: Output | None
    d_bias: Output | None


def inplace_abn(a: InplaceAbn) -> f.Results:
    """The activation of a batch norm."""
    results = batch_norm(a)
    y = results["y"]
    if a.activation == "leaky_relu":
        y = f.where(y > 0, y, y * a.alpha)
    elif a.activation == "elu":
        y = f.where(y > 0, y, (f.exp(f.minimum(y, 0)) - 1) * a.alpha)
    return {**results, "y": y}


def inplace_abn_grad(a: InplaceAbnGrad) -> f.Results:
    """What was normalised follows from Y: the activation, the shift and the scale are undone."""
    _, spread = by_channel(a.y, a.data_layout)
    before, d = a.y, a.d_y
    if a.activation == "leaky_relu":
        before = f.where(a.y > 0, a.y, a.y / a.alpha)
        d = f.where(a.y > 0, d, d * a.alpha)
    elif a.activation == "elu":
        before = f.where(a.y > 0, a.y, f.log1p(f.minimum(a.y, 0) / a.alpha))
        d = f.where(a.y > 0, d, d * (a.y + a.alpha))
    normed = (before - a.bias.reshape(spread)) / a.scale.reshape(spread)
    fixed = uses_statistics(vars(a))
    return slope_of_batch(normed, d, a.scale, a.saved_variance, a.data_layout, fixed)


define(
    "inplace_abn",
    InplaceAbn,
    batch_norm_shape.extended(
        "->", "not use_sync_bn; use_sync_bn is not built: use sync_batch_norm"
    ),
    numbers={"MomentumTensor": "momentum"},
    **{**RUNNING, "in_place": {"Y": "X", **RUNNING["in_place"]}},
    formula=inplace_abn,
    samples=(
        sample("X [4 3 2 2]", STATISTICS),
        sample("X [6 3]", STATISTICS, activation="identity"),
        sample("X [4 2 2 3]", STATISTICS, data_layout="NHWC", activation="leaky_relu"),
        sample("X [4 3 2 2]", STATISTICS, activation="elu", alpha=0.7),
        sample("X [4 3 2]", STATISTICS, activation="elu", use_global_stats=True),
    ),
    slope=Op(
        "inplace_abn_grad",
        InplaceAbnGrad,
        Sized("Y, Scale -> X@GRAD as Y, Scale@GRAD as Scale, Bias@GRAD as Scale"),
        formula=inplace_abn_grad,
        in_place={"X@GRAD": "Y@GRAD"},
    ),
)
