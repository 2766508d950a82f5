"""Normalisation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .registry import reference


@reference("batch_norm", "sync_batch_norm")
def batch_norm(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = np.moveaxis(ins["X"], -1, 1) if attrs["data_layout"] == "NHWC" else ins["X"]
    axes = tuple(i for i in range(x.ndim) if i != 1)
    spread = (1, -1) + (1,) * (x.ndim - 2)
    fixed = attrs["is_test"] or attrs["use_global_stats"]
    mean = ins["Mean"] if fixed else x.mean(axes)
    variance = ins["Variance"] if fixed else x.var(axes)
    inverse = 1 / np.sqrt(variance + attrs["epsilon"])
    y = (x - mean.reshape(spread)) * (inverse * ins["Scale"]).reshape(spread) + ins["Bias"].reshape(
        spread
    )
    m = 1.0 if fixed else attrs["momentum"]
    return {
        "Y": np.moveaxis(y, 1, -1) if attrs["data_layout"] == "NHWC" else y,
        "MeanOut": ins["Mean"] * m + mean * (1 - m),
        "VarianceOut": ins["Variance"] * m + variance * (1 - m),
    }


@reference("layer_norm")
def layer_norm(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = ins["X"]
    rows = x.reshape(math.prod(x.shape[: attrs["begin_norm_axis"]]), -1)
    y = (rows - rows.mean(1, keepdims=True)) / np.sqrt(
        rows.var(1, keepdims=True) + attrs["epsilon"]
    )
    y = y * ins["Scale"] if "Scale" in ins else y
    y = y + ins["Bias"] if "Bias" in ins else y
    return {"Y": y.reshape(x.shape), "Mean": rows.mean(1), "Variance": rows.var(1)}


@reference("add_layer_norm")
def add_layer_norm(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    total = ins["X"] + ins["Z"]
    return {"Out": total, **layer_norm({**ins, "X": total}, attrs)}


@reference("layer_norm_grad_add")
def layer_norm_grad_add(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    rows, slope = (ins[s].reshape(ins["Mean"].size, -1) for s in ("X", "Y@GRAD"))
    deviation = np.sqrt(ins["Variance"] + attrs["epsilon"])[:, None]
    hat = (rows - ins["Mean"][:, None]) / deviation
    scaled = slope * ins.get("Scale", 1)
    along = (scaled * hat).mean(1, keepdims=True)
    d_x = (scaled - scaled.mean(1, keepdims=True) - hat * along) / deviation
    sums = {"Scale@GRAD": (slope * hat).sum(0), "Bias@GRAD": slope.sum(0)}
    slopes = {slot: sums[slot] for slot in sums if slot.partition("@")[0] in ins}
    return {"X@GRAD": d_x.reshape(ins["X"].shape) + ins["Addend"], **slopes}


@reference("inplace_abn")
def inplace_abn(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    norm = batch_norm(ins, attrs)
    y, alpha = norm["Y"], attrs["alpha"]
    below = {"leaky_relu": alpha * y, "elu": alpha * np.expm1(np.minimum(y, 0))}
    return {**norm, "Y": np.where(y > 0, y, below.get(attrs["activation"], y))}
