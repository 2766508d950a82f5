"""Products with what follows them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .registry import reference


@reference("fc")
def fc(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, w = ins["Input"], ins["W"]
    rows = x.shape[: attrs["in_num_col_dims"]]
    out = x.reshape(math.prod(rows), -1) @ w + ins.get("Bias", 0)
    out = out.clip(0) if attrs["activation_type"] else out
    return {"Out": out.reshape(*rows, w.shape[1])}


@reference("fusion_repeated_fc_relu")
def fusion_repeated_fc_relu(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    outs = [ins["X"]]
    for w, bias in zip(ins["W"], ins["Bias"], strict=True):
        outs.append((outs[-1] @ w + bias).clip(0))
    return {"ReluOut": outs[1:-1], "Out": outs[-1]}


@reference("fusion_squared_mat_sub")
def fusion_squared_mat_sub(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, y = ins["X"], ins["Y"]
    out = np.zeros((len(x), y.shape[1]))
    for i, j in np.ndindex(*out.shape):
        products = x[i] * y[:, j]
        out[i, j] = (products.sum() ** 2 - (products**2).sum()) * attrs["scalar"]
    return {"SquaredX": x**2, "SquaredY": y**2, "SquaredXY": (x @ y) ** 2, "Out": out}
