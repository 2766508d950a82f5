"""Batch norm with an activation behind it, and with a sum between the two. Slots are those of Paddle 2.x.

Any data layout and element type will do here. The gradients are functions of the result Y, so what stands
between is not kept. Activations are those without attributes whose slope is a function of their result.
"""

from __future__ import annotations

from collections.abc import Mapping

from .norm import BATCH_NORM_ATTRS, STATISTICS, batch_norm_shape, statistics_need, uses_statistics
from .registry import Grad, Inference, Op, Specs, define
from .rules import grads_like, merge_dims
from .samples import normal, sample, uniform

ACT, ADD_ACT = "fused_batch_norm_act", "fused_bn_add_activation"
ACTIVATIONS = ("relu", "sigmoid", "tanh")
_ATTRS = {**BATCH_NORM_ATTRS, "act_type": "relu"}
_OUTPUTS = ("Y", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance", "ReserveSpace?")
_SAVED = ("Scale", "Bias", "SavedMean", "SavedVariance")
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


define(
    Op(
        type=ACT,
        inputs=("X", "Scale", "Bias", "Mean", "Variance"),
        outputs=_OUTPUTS,
        attrs=_ATTRS,
        shape=fused_norm_shape,
        grad=Grad(
            f"{ACT}_grad", ("X", "Y", *_SAVED, "Y@GRAD"), ("X@GRAD", "Scale@GRAD", "Bias@GRAD")
        ),
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
    )
)
define(
    Op(
        type=f"{ACT}_grad",
        inputs=("X", "Y", *_SAVED, "Y@GRAD"),
        outputs=("X@GRAD", "Scale@GRAD", "Bias@GRAD"),
        attrs=_ATTRS,
        shape=grads_like("X", "Scale", "Bias"),
        in_place={"X@GRAD": "Y@GRAD"},
    )
)
define(
    Op(
        type=ADD_ACT,
        inputs=("X", "Z", "Scale", "Bias", "Mean", "Variance"),
        outputs=_OUTPUTS,
        attrs=_ATTRS,
        shape=fused_norm_shape,
        grad=Grad(
            f"{ADD_ACT}_grad",
            ("X", "Z", "Y", *_SAVED, "Y@GRAD"),
            ("X@GRAD", "Z@GRAD", "Scale@GRAD", "Bias@GRAD"),
        ),
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
    )
)
define(
    Op(
        type=f"{ADD_ACT}_grad",
        inputs=("X", "Z?", "Y", *_SAVED, "Y@GRAD"),
        outputs=("X@GRAD", "Z@GRAD", "Scale@GRAD", "Bias@GRAD"),
        attrs=_ATTRS,
        shape=lambda op: {**grads_like("X", "Scale", "Bias")(op), "Z@GRAD": op.spec("X")},
        in_place={"Z@GRAD": "Y@GRAD", "X@GRAD": "Y@GRAD"},  # the first that is wanted
    )
)
