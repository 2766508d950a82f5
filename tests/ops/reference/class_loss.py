"""Losses of rows and the classes that their labels pick."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference

Arrays = dict[str, Any]


@reference("nll_loss")
def nll_loss(ins: Arrays, attrs: Arrays) -> Arrays:
    x, label, how = ins["X"], ins["Label"], attrs["reduction"]
    loss, total = np.zeros(label.shape), 0.0
    for at in np.ndindex(label.shape):
        if label[at] != attrs["ignore_index"]:
            weight = ins["Weight"][label[at]] if "Weight" in ins else 1.0
            loss[at] = -weight * x[(at[0], label[at], *at[1:])]
            total += weight
    if how == "none":
        return {"Out": loss, "Total_weight": [0.0]}
    out = loss.sum() / total if how == "mean" else loss.sum()
    return {"Out": [out], "Total_weight": [total]}


@reference("bpr_loss")
def bpr_loss(ins: Arrays, attrs: Arrays) -> Arrays:
    x, label = ins["X"], ins["Label"]
    y = np.zeros(label.shape)
    for at in np.ndindex(x.shape[:-1]):
        own = int(label[at].item())
        others = np.delete(x[at], own)
        y[at] = np.log(1 + np.exp(others - x[at][own])).mean()
    return {"Y": y}


@reference("center_loss")
def center_loss(ins: Arrays, attrs: Arrays) -> Arrays:
    x, centers = ins["X"], ins["Centers"].copy()
    classes = ins["Label"].ravel()
    diff = x - ins["Centers"][classes]
    for k in range(len(centers) if attrs["need_update"] else 0):
        own = diff[classes == k]
        centers[k] += ins["CenterUpdateRate"][0] * own.sum(0) / (1 + len(own))
    return {
        "CentersOut": centers,
        "SampleCenterDiff": diff,
        "Loss": (diff**2).sum(1, keepdims=True) / 2,
    }
