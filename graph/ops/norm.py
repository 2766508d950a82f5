"""Normalisation over a batch or over the features of each sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .operands import Input, Operands, Output
from .registry import Inference, Op, Spec, Specs, define
from .rules import merge_dims, product, statistic
from .samples import normal, sample, uniform


def batch_norm_shape(op: Inference) -> Mapping[str, Specs]:
    """Y like X; statistics have one element per channel."""
    op.require(not op.attr("fuse_with_relu"), "fuse_with_relu is not built")
    x = op.spec("X")
    op.require(2 <= len(x.shape) <= 5, f"X must have 2 to 5 dimensions, has {len(x.shape)}")
    op.require(
        op.attr("data_layout") in ("NCHW", "NHWC", "AnyLayout"), "data_layout must be NCHW or NHWC"
    )
    channels = x.shape[-1] if op.attr("data_layout") == "NHWC" else x.shape[1]
    for slot in ("Scale", "Bias", "Mean", "Variance"):
        found = op.shape(slot)
        op.require(
            len(found) == 1 and merge_dims(found[0], channels) is not None,
            f"{slot} must have one element for each of the {channels} channels",
        )
    statistic = op.spec("Scale")
    return {
        "Y": x,
        "MeanOut": op.spec("Mean"),
        "VarianceOut": op.spec("Variance"),
        "SavedMean": statistic,
        "SavedVariance": statistic,
        "ReserveSpace": Spec((0,), x.dtype),
    }


def uses_statistics(attrs: Mapping[str, Any]) -> bool:
    """Tell whether a batch norm takes the running statistics instead of adding to them."""
    return bool(attrs["use_global_stats"]) or (
        bool(attrs["is_test"]) and not attrs["trainable_statistics"]
    )


def statistics_need(attrs: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    """Statistics that are taken, not added to, stay as they are."""
    taken = {"MeanOut": ("Mean",), "VarianceOut": ("Variance",)}
    return taken if uses_statistics(attrs) else {}


STATISTICS = {
    "Scale": uniform(3, low=0.5, high=1.5),
    "Bias": normal(3),
    "Mean": normal(3),
    "Variance": uniform(3, low=0.5, high=2.0),
}


class BatchNormAttributes(Operands):
    is_test: bool = False
    momentum: float = 0.9
    epsilon: float = 1e-5
    data_layout: str = "NCHW"
    use_mkldnn: bool = False
    fuse_with_relu: bool = False
    use_global_stats: bool = False
    trainable_statistics: bool = False


class BatchNormOperands(BatchNormAttributes):
    x: Input
    scale: Input
    bias: Input
    mean: Input
    variance: Input
    y: Output
    mean_out: Output
    variance_out: Output
    saved_mean: Output
    saved_variance: Output
    reserve_space: Output | None


class BatchNorm(BatchNormOperands):
    momentum_tensor: Input | None


class BatchNormGrad(BatchNormAttributes):
    x: Input
    scale: Input
    bias: Input
    saved_mean: Input
    saved_variance: Input
    d_y: Input
    d_x: Output | None
    d_scale: Output | None
    d_bias: Output | None


define(
    Op(
        type="batch_norm",
        record=BatchNorm,
        shape=batch_norm_shape,
        numbers={"MomentumTensor": "momentum"},
        in_place={"MeanOut": "Mean", "VarianceOut": "Variance"},
        only_uses=uses_statistics,
        needs=statistics_need,
        samples=(
            sample({"X": normal(4, 3, 2, 2), **STATISTICS}),
            sample({"X": normal(6, 3), **STATISTICS}),
            sample({"X": normal(4, 2, 2, 3), **STATISTICS}, data_layout="NHWC"),
            sample({"X": normal(4, 3, 2, 2), **STATISTICS}, is_test=True),
            sample({"X": normal(4, 3, 2, 2), **STATISTICS}, use_global_stats=True),
        ),
        refuses=(sample({"X": normal(4, 2, 2, 2), **STATISTICS}),),
    ),
    Op(type="batch_norm_grad", record=BatchNormGrad, in_place={"X@GRAD": "Y@GRAD"}),
)


def layer_norm_shape(op: Inference) -> Mapping[str, Specs]:
    """Y like X; Mean and Variance have one element for each row before ``begin_norm_axis``."""
    x = op.spec("X")
    axis = op.attr("begin_norm_axis")
    op.require(
        0 < axis < len(x.shape), f"begin_norm_axis={axis} must lie inside {len(x.shape)} dimensions"
    )
    width = product(x.shape[axis:])
    for slot in ("Scale", "Bias"):
        if op.has(slot):
            found = math.prod(op.shape(slot))
            op.require(
                width < 0 or found == width, f"{slot} has {found} elements for {width} features"
            )
    rows = Spec((product(x.shape[:axis]),), statistic(x.dtype))
    return {"Y": x, "Mean": rows, "Variance": rows}


class LayerNorm(Operands):
    x: Input
    scale: Input | None
    bias: Input | None
    y: Output
    mean: Output
    variance: Output
    begin_norm_axis: int = 1
    epsilon: float = 1e-5


class LayerNormGrad(Operands):
    x: Input
    scale: Input | None
    bias: Input | None
    mean: Input
    variance: Input
    d_y: Input
    d_x: Output | None
    d_scale: Output | None
    d_bias: Output | None
    begin_norm_axis: int = 1
    epsilon: float = 1e-5


define(
    Op(
        type="layer_norm",
        record=LayerNorm,
        shape=layer_norm_shape,
        samples=(
            sample({"X": normal(4, 6), "Scale": normal(6), "Bias": normal(6)}),
            sample(
                {"X": normal(2, 3, 4), "Scale": normal(4), "Bias": normal(4)}, begin_norm_axis=2
            ),
            sample({"X": normal(2, 3, 4)}),
        ),
        refuses=(sample({"X": normal(4, 6), "Scale": normal(5)}),),
    ),
    Op(type="layer_norm_grad", record=LayerNormGrad),
)
