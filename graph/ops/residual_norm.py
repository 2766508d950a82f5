"""Layer norm with the sum of a residual before it, and with another gradient behind its own."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

from . import formula as f
from .norm import LayerNorm, LayerNormGrad, layer_norm, layer_norm_grad, layer_norm_shape
from .operands import Input, Output
from .registry import Inference, Specs, define
from .rules import grads_like, merge_dims
from .samples import normal, sample, uniform

ADD_NORM, NORM_GRAD_ADD = "add_layer_norm", "layer_norm_grad_add"


class AddLayerNorm(LayerNorm):
    """Out = X + Z, of one shape, and Y is its layer norm."""

    z: Input
    out: Output


class LayerNormGradAdd(LayerNormGrad):
    """X@GRAD = the gradient of a layer norm's X + Addend, which is like it."""

    addend: Input
    d_x: Output


def _like_x(op: Inference, *slots: str) -> None:
    x = op.spec("X")
    for slot in slots:
        pairs = zip_longest(op.shape(slot), x.shape)
        fits = all(None not in (a, b) and merge_dims(a, b) is not None for a, b in pairs)
        op.require(fits and op.spec(slot).dtype == x.dtype, f"{slot} must be {x}")


def _add_norm_shape(op: Inference) -> Mapping[str, Specs]:
    _like_x(op, "Z")
    return {"Out": op.spec("X"), **layer_norm_shape(op)}


def _grad_add_shape(op: Inference) -> Mapping[str, Specs]:
    _like_x(op, "Addend", "Y@GRAD")
    return grads_like("X", "Scale", "Bias")(op)


def _add_layer_norm(a: AddLayerNorm) -> f.Results:
    total = a.x + a.z
    return {"out": total, **layer_norm(a.replace(x=total))}


def _layer_norm_grad_add(a: LayerNormGradAdd) -> f.Results:
    results = layer_norm_grad(a)
    return {**results, "d_x": results["d_x"] + a.addend}


_ROWS, _LONE = normal(4, 6), normal(6)
_PARAMETERS = {"Scale": _LONE, "Bias": _LONE}
_STATISTICS = {"Mean": normal(4), "Variance": uniform(4, low=0.5, high=2.0)}
_SLOPES = {"X": _ROWS, "Y@GRAD": _ROWS, "Addend": _ROWS, **_STATISTICS}

define(
    ADD_NORM,
    AddLayerNorm,
    _add_norm_shape,
    formula=_add_layer_norm,
    samples=(
        sample({"X": _ROWS, "Z": _ROWS, **_PARAMETERS}),
        sample({"X": normal(2, 3, 4), "Z": normal(2, 3, 4)}, begin_norm_axis=2),
    ),
    refuses=(sample({"X": _ROWS, "Z": _LONE, **_PARAMETERS}),),
)
define(
    NORM_GRAD_ADD,
    LayerNormGradAdd,
    _grad_add_shape,
    formula=_layer_norm_grad_add,
    samples=(sample({**_SLOPES, **_PARAMETERS}), sample(_SLOPES)),
    refuses=(sample({**_SLOPES, "Addend": _LONE}),),
)
