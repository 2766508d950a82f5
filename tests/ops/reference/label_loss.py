"""Losses that read scores, or centres, at the rows' labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference

Arrays = dict[str, Any]


@reference("nll_loss")
def nll_loss(ins: Arrays, attrs: Arrays) -> Arrays:
    label = ins["Label"]
    weight = ins.get("Weight", np.ones(ins["X"].shape[1]))[label] * (label != attrs["ignore_index"])
    loss = -np.take_along_axis(ins["X"], label[:, None], 1)[:, 0] * weight
    total = weight.sum().reshape(1)
    if attrs["reduction"] == "none":
        return {"Out": loss, "Total_weight": total * 0}
    out = loss.sum().reshape(1)
    return {"Out": out / total if attrs["reduction"] == "mean" else out, "Total_weight": total}


@reference("bpr_loss")
def bpr_loss(ins: Arrays, attrs: Arrays) -> Arrays:
    x, label = ins["X"], ins["Label"]
    gap = x - np.take_along_axis(x, label, -1)
    loss = np.log(1 + np.exp(gap))
    np.put_along_axis(loss, label, 0, -1)
    return {"Y": loss.sum(-1, keepdims=True) / (x.shape[-1] - 1)}


@reference("center_loss")
def center_loss(ins: Arrays, attrs: Arrays) -> Arrays:
    label, centers = ins["Label"].ravel(), ins["Centers"].copy()
    difference = ins["X"] - ins["Centers"][label]
    if attrs["need_update"]:
        for k in set(label):
            rows = difference[label == k]
            centers[k] += ins["CenterUpdateRate"] * rows.sum(0) / (1 + len(rows))
    return {
        "CentersOut": centers,
        "SampleCenterDiff": difference,
        "Loss": 0.5 * (difference**2).sum(1, keepdims=True),
    }
