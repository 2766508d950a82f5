"""Normalisation of groups of channels, by nearby channels, by a matrix's size, by sums over the data."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference

Arrays = dict[str, Any]


@reference("group_norm")
def group_norm(ins: Arrays, attrs: Arrays) -> Arrays:
    last = attrs["data_layout"] == "NHWC"
    x = np.moveaxis(ins["X"], -1, 1) if last else ins["X"]
    rows = x.reshape(len(x), attrs["groups"], -1)
    normed = (rows - rows.mean(2, keepdims=True)) / np.sqrt(
        rows.var(2, keepdims=True) + attrs["epsilon"]
    )
    spread = (1, -1) + (1,) * (x.ndim - 2)
    y = normed.reshape(x.shape)
    y = y * ins["Scale"].reshape(spread) if "Scale" in ins else y
    y = y + ins["Bias"].reshape(spread) if "Bias" in ins else y
    return {
        "Y": np.moveaxis(y, 1, -1) if last else y,
        "Mean": rows.mean(2),
        "Variance": rows.var(2),
    }


@reference("lrn")
def lrn(ins: Arrays, attrs: Arrays) -> Arrays:
    last = attrs["data_format"] == "NHWC"
    x = np.moveaxis(ins["X"], -1, 1) if last else ins["X"]
    reach = attrs["n"] // 2
    middle = np.stack(
        [
            attrs["k"] + attrs["alpha"] * (x[:, max(c - reach, 0) : c + reach + 1] ** 2).sum(1)
            for c in range(x.shape[1])
        ],
        1,
    )
    results = {"Out": x / middle ** attrs["beta"], "MidOut": middle}
    return {slot: np.moveaxis(v, 1, -1) if last else v for slot, v in results.items()}


@reference("spectral_norm")
def spectral_norm(ins: Arrays, attrs: Arrays) -> Arrays:
    w, u, v = np.moveaxis(ins["Weight"], attrs["dim"], 0), ins["U"], ins["V"]
    matrix = w.reshape(len(w), -1)
    for _ in range(attrs["power_iters"]):
        v = matrix.T @ u
        v = v / (np.linalg.norm(v) + attrs["eps"])
        u = matrix @ v
        u = u / (np.linalg.norm(u) + attrs["eps"])
    return {"Out": ins["Weight"] / (u @ matrix @ v)}


@reference("data_norm")
def data_norm(ins: Arrays, attrs: Arrays) -> Arrays:
    x = ins["X"]
    means = ins["BatchSum"] / ins["BatchSize"]
    scales = np.sqrt(ins["BatchSize"] / ins["BatchSquareSum"])
    y = (x - means) * scales * ins.get("scale_w", 1) + ins.get("bias", 0)
    if attrs["slot_dim"] > 0:
        for start in range(0, x.shape[1], attrs["slot_dim"]):
            y[np.abs(x[:, start]) < 1e-7, start : start + attrs["slot_dim"]] = 0
    return {"Y": y, "Means": means, "Scales": scales}
