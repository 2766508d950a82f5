"""Normalisation over a batch or over the features of each sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .registry import Grad, Inference, Op, Spec, Specs, define
from .rules import grads_like, merge_dims, product, statistic
from .samples import normal, sample, uniform

BATCH_NORM_ATTRS = {
    "is_test": False,
    "momentum": 0.9,
    "epsilon": 1e-5,
    "data_layout": "NCHW",
    "use_mkldnn": False,
    "fuse_with_relu": False,
    "use_global_stats": False,
    "trainable_statistics": False,
}


def batch_norm_shape(op: Inference) -> Mapping[str, Specs]:
    """Y like X; statistics have one element per channel."""
    op.require(
        not op.has("MomentumTensor"), "MomentumTensor is not built: give momentum as a number"
    )
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
define(
    Op(
        type="batch_norm",
        inputs=("X", "Scale", "Bias", "Mean", "Variance", "MomentumTensor?"),
        outputs=("Y", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance", "ReserveSpace?"),
        attrs=BATCH_NORM_ATTRS,
        shape=batch_norm_shape,
        grad=Grad(
            "batch_norm_grad",
            ("X", "Scale", "Bias", "SavedMean", "SavedVariance", "Y@GRAD"),
            ("X@GRAD", "Scale@GRAD", "Bias@GRAD"),
        ),
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
    )
)
define(
    Op(
        type="batch_norm_grad",
        inputs=("X", "Scale", "Bias", "SavedMean", "SavedVariance", "Y@GRAD"),
        outputs=("X@GRAD", "Scale@GRAD", "Bias@GRAD"),
        attrs=BATCH_NORM_ATTRS,
        in_place={"X@GRAD": "Y@GRAD"},
        shape=grads_like("X", "Scale", "Bias"),
    )
)

_LAYER_NORM = {"begin_norm_axis": 1, "epsilon": 1e-5}


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


define(
    Op(
        type="layer_norm",
        inputs=("X", "Scale?", "Bias?"),
        outputs=("Y", "Mean", "Variance"),
        attrs=_LAYER_NORM,
        shape=layer_norm_shape,
        grad=Grad(
            "layer_norm_grad",
            ("X", "Scale", "Bias", "Mean", "Variance", "Y@GRAD"),
            ("X@GRAD", "Scale@GRAD", "Bias@GRAD"),
        ),
        samples=(
            sample({"X": normal(4, 6), "Scale": normal(6), "Bias": normal(6)}),
            sample(
                {"X": normal(2, 3, 4), "Scale": normal(4), "Bias": normal(4)}, begin_norm_axis=2
            ),
            sample({"X": normal(2, 3, 4)}),
        ),
        refuses=(sample({"X": normal(4, 6), "Scale": normal(5)}),),
    )
)
define(
    Op(
        type="layer_norm_grad",
        inputs=("X", "Scale?", "Bias?", "Mean", "Variance", "Y@GRAD"),
        outputs=("X@GRAD", "Scale@GRAD", "Bias@GRAD"),
        attrs=_LAYER_NORM,
        shape=grads_like("X", "Scale", "Bias"),
    )
)
