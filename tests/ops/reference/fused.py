"""Fused ops, made of the references of their parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from .linear import matmul
from .norm import batch_norm
from .registry import REFERENCE, reference


def act(name: str, x: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    return REFERENCE[name]({"X": x}, attrs)["Out"]


@reference("fused_elemwise_activation")
def fused_elemwise_activation(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    outer, inner = attrs["functor_list"]
    settings = attrs["act_attrs"] or {"scale": attrs["scale"], "bias": 0, "bias_after_scale": True}
    if outer.startswith("elementwise"):
        middle = act(inner, ins["Y"], settings)
        return {
            "Out": REFERENCE[outer]({**ins, "Y": middle}, attrs)["Out"],
            "IntermediateOut": middle,
        }
    middle = REFERENCE[inner](ins, attrs)["Out"]
    return {
        "Out": act(outer, middle, {"approximate": False, **settings}),
        "IntermediateOut": middle,
    }


@reference("fused_batch_norm_act", "fused_bn_add_activation", "masked_bn_add_activation")
def fused_norm(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    norm = batch_norm(ins, attrs)
    return {**norm, "Y": act(attrs["act_type"], norm["Y"] + ins.get("Z", 0), attrs)}


@reference("fused_gemm_epilogue")
def fused_gemm_epilogue(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = ins["X"]
    if attrs["x_num_col_dims"] != -1:
        x = x.reshape(*x.shape[: attrs["x_num_col_dims"]], -1)
    how = {"transpose_X": attrs["trans_x"], "transpose_Y": attrs["trans_y"], "alpha": 1.0}
    middle = matmul({"X": x, "Y": ins["Y"]}, how)["Out"] + ins["Bias"]
    if attrs["activation"] == "none":
        return {"Out": middle}
    out = act(attrs["activation"], middle, attrs)
    return {"Out": out} | ({"ReserveSpace": middle} if attrs["activation"] == "gelu" else {})
