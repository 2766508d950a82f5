"""Batch norm with an activation behind it, and with a sum between the two. Slots are those of Paddle 2.x.

Any data layout and element type will do here. The gradients are functions of the result Y, so what stands
between is not kept. Activations are those without attributes whose slope is a function of their result.
"""

from __future__ import annotations

from collections.abc import Mapping

from .norm import (
    STATISTICS,
    BatchNormGrad,
    BatchNormOperands,
    batch_norm_shape,
    statistics_need,
    uses_statistics,
)
from .operands import Input, Output
from .registry import Inference, Op, Specs, define
from .rules import grads_like, merge_dims
from .samples import normal, sample, uniform

ACT, ADD_ACT = "fused_batch_norm_act", "fused_bn_add_activation"
ACTIVATIONS = ("relu", "sigmoid", "tanh")
_PARAMETERS = {**STATISTICS, "Bias": uniform(3, low=0.1, high=0.3)}


def fused_norm_shape(op: Inference) -> Mapping[str, Specs]:
    """Like batch_norm; Z is like X."""
    act = op.attr("act_type")
    op.require(act in ACTIVATIONS, f"act_type={act!r} must be one of {', '.join(ACTIVATIONS)}")
    if op.has("Z"):
        x, z = op.spec("X"), op.spec("Z")
        fits = len(x.shape) == len(z.shape) and all(
            merge_dims(a, b) is not None for a, b in zip(x.shape, z.shape, strict=True)
        )
        op.require(fits and x.dtype == z.dtype, "X and Z must have the same shape and dtype")
    return batch_norm_shape(op)


# What is declared again stands behind what is new.
class FusedBatchNormAct(BatchNormOperands):
    act_type: str = "relu"


class FusedBatchNormActGrad(BatchNormGrad):
    y: Input
    scale: Input
    bias: Input
    saved_mean: Input
    saved_variance: Input
    d_y: Input
    act_type: str = "relu"


define(
    Op(
        type=ACT,
        record=FusedBatchNormAct,
        shape=fused_norm_shape,
        in_place={"MeanOut": "Mean", "VarianceOut": "Variance"},
        only_uses=uses_statistics,
        needs=statistics_need,
        samples=(
            sample({"X": normal(4, 3, 2, 2), **_PARAMETERS}),
            sample({"X": normal(6, 3), **_PARAMETERS}, act_type="tanh"),
            sample({"X": normal(4, 2, 2, 3), **_PARAMETERS}, data_layout="NHWC"),
            sample({"X": normal(4, 3, 2, 2), **_PARAMETERS}, use_global_stats=True),
        ),
        refuses=(sample({"X": normal(6, 3), **_PARAMETERS}, act_type="gelu"),),
    ),
    Op(type=f"{ACT}_grad", record=FusedBatchNormActGrad, in_place={"X@GRAD": "Y@GRAD"}),
)


class FusedBnAddActivation(FusedBatchNormAct):
    z: Input
    scale: Input
    bias: Input
    mean: Input
    variance: Input


class FusedBnAddActivationGrad(FusedBatchNormActGrad):
    z: Input | None
    y: Input
    scale: Input
    bias: Input
    saved_mean: Input
    saved_variance: Input
    d_y: Input
    d_z: Output | None
    d_scale: Output | None
    d_bias: Output | None


define(
    Op(
        type=ADD_ACT,
        record=FusedBnAddActivation,
        shape=fused_norm_shape,
        in_place={"MeanOut": "Mean", "VarianceOut": "Variance"},
        only_uses=uses_statistics,
        needs=statistics_need,
        samples=(
            sample({"X": normal(4, 3, 2, 2), "Z": normal(4, 3, 2, 2), **_PARAMETERS}),
            sample({"X": normal(6, 3), "Z": normal(6, 3), **_PARAMETERS}, act_type="sigmoid"),
            sample(
                {"X": normal(4, 2, 2, 3), "Z": normal(4, 2, 2, 3), **_PARAMETERS},
                data_layout="NHWC",
            ),
        ),
        refuses=(sample({"X": normal(6, 3), "Z": normal(3), **_PARAMETERS}),),
    ),
    Op(
        type=f"{ADD_ACT}_grad",
        record=FusedBnAddActivationGrad,
        shape=lambda op: {**grads_like("X", "Scale", "Bias")(op), "Z@GRAD": op.spec("X")},
        in_place={"Z@GRAD": "Y@GRAD", "X@GRAD": "Y@GRAD"},  # the first that is wanted
    ),
)
