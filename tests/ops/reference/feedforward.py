"""Two linear layers, all rows at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .registry import reference

_erf = np.vectorize(math.erf)


@reference("fused_feedforward")
def fused_feedforward(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = rows = ins["X"].reshape(math.prod(ins["X"].shape[: attrs["x_num_col_dims"]]), -1)
    statistics: dict[str, Any] = {}
    if attrs["pre_layer_norm"]:
        statistics = {"Ln1Mean": x.mean(1), "Ln1Variance": x.var(1)}
        rows = (x - x.mean(1, keepdims=True)) / np.sqrt(
            x.var(1, keepdims=True) + attrs["ln1_epsilon"]
        )
        rows = rows * ins.get("Ln1Scale", 1.0) + ins.get("Ln1Bias", 0.0)
    z = rows @ ins["Linear1Weight"] + ins.get("Linear1Bias", 0.0)
    inner = (
        np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))
        if attrs["approximate"]
        else _erf(z / math.sqrt(2))
    )
    h = np.maximum(z, 0) if attrs["act_method"] == "relu" else z * 0.5 * (1 + inner)
    h = h * (1 - attrs["dropout1"].get("dropout_prob", 0.0))  # samples are of inference
    out = h @ ins["Linear2Weight"] + ins.get("Linear2Bias", 0.0)
    out = out * (1 - attrs["dropout2"].get("dropout_prob", 0.0))
    out = out.reshape(*ins["X"].shape[: attrs["x_num_col_dims"]], -1)
    return {"Out": out + ins.get("Residual", 0.0), **statistics}
