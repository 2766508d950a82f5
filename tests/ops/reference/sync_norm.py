"""Batch norm in parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference


def first(x: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    """[C, elements of the channel]."""
    axis = x.ndim - 1 if attrs["data_layout"] == "NHWC" else 1
    return np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)


def back(rows: np.ndarray, like: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    axis = like.ndim - 1 if attrs["data_layout"] == "NHWC" else 1
    moved = np.moveaxis(like, axis, 0)
    return np.moveaxis(rows.reshape(moved.shape), 0, axis)


@reference("batch_norm_partial")
def batch_norm_partial(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    rows = first(ins["X"], attrs)
    return {"Stats": np.concatenate([[rows.shape[1]], rows.sum(1), (rows**2).sum(1)])}


@reference("batch_norm_apply")
def batch_norm_apply(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    rows, stats = first(ins["X"], attrs), ins["Stats"]
    width = len(rows)
    mean = stats[1 : width + 1] / stats[0]
    variance = np.maximum(stats[width + 1 :] / stats[0] - mean**2, 0)
    inverse = 1 / np.sqrt(variance + attrs["epsilon"])
    y = (rows - mean[:, None]) * (inverse * ins["Scale"])[:, None] + ins["Bias"][:, None]
    m = attrs["momentum"]
    return {
        "Y": back(y, ins["X"], attrs),
        "MeanOut": m * ins["Mean"] + (1 - m) * mean,
        "VarianceOut": m * ins["Variance"] + (1 - m) * variance,
        "SavedMean": mean,
        "SavedVariance": inverse,
    }


@reference("batch_norm_grad_partial")
def batch_norm_grad_partial(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    rows, dy = first(ins["X"], attrs), first(ins["Y@GRAD"], attrs)
    hat = (rows - ins["SavedMean"][:, None]) * ins["SavedVariance"][:, None]
    sums = np.concatenate([dy.sum(1), (dy * hat).sum(1)])
    return {"Local": sums, "Total": sums}


@reference("batch_norm_grad_apply")
def batch_norm_grad_apply(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    rows, dy = first(ins["X"], attrs), first(ins["Y@GRAD"], attrs)
    width, count = len(rows), ins["Stats"][0]
    hat = (rows - ins["SavedMean"][:, None]) * ins["SavedVariance"][:, None]
    means = ins["Total"] / count
    dx = (ins["Scale"] * ins["SavedVariance"])[:, None] * (
        dy - means[:width, None] - hat * means[width:, None]
    )
    return {
        "X@GRAD": back(dx, ins["X"], attrs),
        "Scale@GRAD": ins["Local"][width:],
        "Bias@GRAD": ins["Local"][:width],
    }
