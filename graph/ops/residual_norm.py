"""Layer norm with the sum of a residual before it, and with another gradient behind its own."""

from __future__ import annotations

from . import formula as f
from .norm import LayerNorm, LayerNormGrad, layer_norm, layer_norm_grad, layer_norm_shape
from .operands import Input, Output
from .registry import define
from .samples import sample
from .shapes import Sized

ADD_NORM, NORM_GRAD_ADD = "add_layer_norm", "layer_norm_grad_add"


class AddLayerNorm(LayerNorm):
    """Out = X + Z, of one shape, and Y is its layer norm."""

    z: Input
    out: Output


class LayerNormGradAdd(LayerNormGrad):
    """X@GRAD = the gradient of a layer norm's X + Addend, which is like it."""

    addend: Input
    d_x: Output


def _add_layer_norm(a: AddLayerNorm) -> f.Results:
    total = a.x + a.z
    return {"out": total, **layer_norm(a.replace(x=total))}


def _layer_norm_grad_add(a: LayerNormGradAdd) -> f.Results:
    results = layer_norm_grad(a)
    return {**results, "d_x": results["d_x"] + a.addend}


_PARAMETERS = "Scale [6], Bias [6]"
_STATISTICS = "Mean [4], Variance 0.5:2.0 [4]"
_SLOPES = f"X [4 6], Y@GRAD [4 6], Addend [4 6], {_STATISTICS}"

define(
    ADD_NORM,
    AddLayerNorm,
    layer_norm_shape.extended("Z as X [...] -> Out as X"),
    formula=_add_layer_norm,
    samples=(
        sample("X [4 6], Z [4 6]", _PARAMETERS),
        sample("X [2 3 4], Z [2 3 4]", begin_norm_axis=2),
    ),
)
define(
    NORM_GRAD_ADD,
    LayerNormGradAdd,
    Sized(
        "X [...], Addend as X [...], Y@GRAD as X [...], Scale, Bias "
        "-> X@GRAD as X, Scale@GRAD as Scale, Bias@GRAD as Bias"
    ),
    formula=_layer_norm_grad_add,
    samples=(sample(_SLOPES, _PARAMETERS), sample(_SLOPES)),
)
