"""Batch norm and an activation, from whose result alone the gradient follows.

Rota Bulò, Porzi and Kontschieder, "In-place activated batch norm", arXiv 1712.02616.
"""

from __future__ import annotations

from typing import Literal

from . import formula as f
from .norm import (
    STATISTICS,
    BatchNorm,
    BatchNormAttributes,
    batch_norm_shape,
    by_channel,
    slope_of_batch,
    statistics_need,
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
    """Y = activation((X - mean) / sqrt(variance + epsilon) * Scale + Bias), by channel."""
    axes, spread = by_channel(a.x, a.data_layout)
    if uses_statistics(vars(a)):
        mean, variance = a.mean, a.variance
        stats = {"mean_out": a.mean, "variance_out": a.variance}
    else:
        mean = a.x.mean(axes)
        centred = a.x - mean.reshape(spread)
        variance = (centred * centred).mean(axes)
        stats = {
            "mean_out": a.mean * a.momentum + mean * (1 - a.momentum),
            "variance_out": a.variance * a.momentum + variance * (1 - a.momentum),
        }
    inverse = 1 / f.sqrt(variance + a.epsilon)
    normed = (a.x - mean.reshape(spread)) * inverse.reshape(spread)
    y = normed * a.scale.reshape(spread) + a.bias.reshape(spread)
    if a.activation == "leaky_relu":
        y = f.where(y > 0, y, y * a.alpha)
    elif a.activation == "elu":
        y = f.where(y > 0, y, (f.exp(f.minimum(y, 0)) - 1) * a.alpha)
    space = f.full((0,), 0, a.x.dtype)
    return {"y": y, "saved_mean": mean, "saved_variance": inverse, "reserve_space": space, **stats}


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


_SAMPLES = (
    sample("X [4 3 2 2]", STATISTICS),
    sample("X [6 3]", STATISTICS, activation="identity"),
    sample("X [4 2 2 3]", STATISTICS, data_layout="NHWC", activation="leaky_relu"),
    sample("X [4 3 2 2]", STATISTICS, activation="elu", alpha=0.7),
    sample("X [4 3 2]", STATISTICS, activation="elu", use_global_stats=True),
)

define(
    "inplace_abn",
    InplaceAbn,
    batch_norm_shape.extended(
        "->", "not use_sync_bn; use_sync_bn is not built: use sync_batch_norm"
    ),
    numbers={"MomentumTensor": "momentum"},
    in_place={"Y": "X", "MeanOut": "Mean", "VarianceOut": "Variance"},
    only_uses=uses_statistics,
    needs=statistics_need,
    formula=inplace_abn,
    samples=_SAMPLES,
    slope=Op(
        "inplace_abn_grad",
        InplaceAbnGrad,
        Sized("Y, Scale -> X@GRAD as Y, Scale@GRAD as Scale, Bias@GRAD as Scale"),
        formula=inplace_abn_grad,
        in_place={"X@GRAD": "Y@GRAD"},
    ),
)
