"""Batch norm with an activation behind it, and with a sum between the two. Slots are those of Paddle 2.x.

Any data layout and element type will do here. The gradients are functions of the result Y, so what stands
between is not kept. Activations are those without attributes whose slope is a function of their result.
"""

from __future__ import annotations

from typing import Any, Literal

from ...strategies.types import VarType
from . import formula as f
from .fused_activation import slope_of, value_of
from .norm import (
    RUNNING,
    STATISTICS,
    BatchNormGrad,
    BatchNormOperands,
    batch_norm,
    batch_norm_grad,
    batch_norm_shape,
)
from .operands import Input, Output
from .registry import Op, Spec, define
from .rules import product
from .samples import sample
from .shapes import Sized

ACT, ADD_ACT = "fused_batch_norm_act", "fused_bn_add_activation"
MASKED = "masked_bn_add_activation"
ACTIVATIONS = ("relu", "sigmoid", "tanh")
_GRADIENTS = Sized(
    "X, Scale, Bias -> X@GRAD as X, Scale@GRAD as Scale, Bias@GRAD as Bias, Z@GRAD as X"
)
_PARAMETERS = f"{STATISTICS}, Bias 0.1:0.3 [3]"


fused_norm_shape = batch_norm_shape.extended("Z as X [...] ->")


# What is declared again stands behind what is new.
class FusedBatchNormAct(BatchNormOperands):
    act_type: Literal["relu", "sigmoid", "tanh"] = "relu"


class FusedBatchNormActGrad(BatchNormGrad):
    y: Input
    scale: Input
    bias: Input
    saved_mean: Input
    saved_variance: Input
    d_y: Input
    act_type: str = "relu"


def _value(a: Any) -> f.Results:
    """The activation of the norm, or of its sum with Z."""
    results = batch_norm(a)
    total = results["y"] + a.z if isinstance(a, FusedBnAddActivation) else results["y"]
    return {**results, "y": value_of(a.act_type, {})(total)}


def _slopes(a: Any) -> f.Results:
    """What comes through the activation is the gradient of Z, and that of the norm's result."""
    d = slope_of(a.act_type, {})(a.y, a.d_y)
    return {"d_z": d, **batch_norm_grad(a.replace(d_y=d))}


define(
    ACT,
    FusedBatchNormAct,
    fused_norm_shape,
    formula=_value,
    **RUNNING,
    samples=(
        sample("X [4 3 2 2]", _PARAMETERS),
        sample("X [6 3]", _PARAMETERS, act_type="tanh"),
        sample("X [4 2 2 3]", _PARAMETERS, data_layout="NHWC"),
        sample("X [4 3 2 2]", _PARAMETERS, use_global_stats=True),
    ),
    slope=Op(f"{ACT}_grad", FusedBatchNormActGrad, formula=_slopes, in_place={"X@GRAD": "Y@GRAD"}),
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
    ADD_ACT,
    FusedBnAddActivation,
    fused_norm_shape,
    formula=_value,
    **RUNNING,
    samples=(
        sample("X [4 3 2 2], Z [4 3 2 2]", _PARAMETERS),
        sample("X [6 3], Z [6 3]", _PARAMETERS, act_type="sigmoid"),
        sample("X [4 2 2 3], Z [4 2 2 3]", _PARAMETERS, data_layout="NHWC"),
    ),
    slope=Op(
        f"{ADD_ACT}_grad",
        FusedBnAddActivationGrad,
        _GRADIENTS,
        formula=_slopes,
        shapes_of=("Z",),
        # Of the gradients, the first that is wanted; kernels read Y before they write that of X.
        in_place={"Z@GRAD": "Y@GRAD", "X@GRAD": "Y@GRAD"},
        in_place_else={"X@GRAD": "Y"},
    ),
)


class MaskedBnAddActivation(FusedBnAddActivation):
    """A :class:`FusedBnAddActivation` whose relu leaves a bit an element, which tells where Y is positive.

    The bits lie with channels last. Only a gradient by the same library reads them.
    """

    mask: Output


class MaskedBnAddActivationGrad(FusedBnAddActivationGrad):
    mask: Input


def mask_spec(x: Spec) -> Spec:
    """Return what holds a bit for each element of X."""
    elements = product(x.shape)
    return Spec((elements // 8 if elements >= 0 else -1,), VarType.UINT8)


_EIGHT = "Scale 0.5:1.5 [8], Bias [8], Mean 0.5:1.5 [8], Variance 0.5:1.5 [8]"
_IMAGES = "X [4 8 2 2], Z [4 8 2 2]"

define(
    MASKED,
    MaskedBnAddActivation,
    fused_norm_shape.extended(
        "-> Mask uint8 [bytes]",
        "act_type == 'relu'; a mask is that of a relu",
        "Scale[0] % 8 == 0; channels must fill bytes of a mask",
        "bytes = prod(X) // 8",
    ),
    **RUNNING,
    samples=(sample(_IMAGES, _EIGHT),),
    refuses=(sample(_IMAGES, _EIGHT, act_type="tanh"),),
    slope=Op(
        f"{MASKED}_grad",
        MaskedBnAddActivationGrad,
        _GRADIENTS,
        formula=_slopes,
        shapes_of=("Z",),
    ),
)
