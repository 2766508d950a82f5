"""Sums, means, extremes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .registry import REFERENCE, unary


def reduction(op_type: str, function: Callable[..., Any]) -> None:
    def run(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
        axis = None if attrs["reduce_all"] else tuple(attrs["dim"])
        return {"Out": np.atleast_1d(function(ins["X"], axis=axis, keepdims=attrs["keep_dim"]))}

    REFERENCE[op_type] = run


reduction("reduce_sum", np.sum)
reduction("reduce_mean", np.mean)
reduction("reduce_max", np.max)
reduction("reduce_min", np.min)
reduction("reduce_prod", np.prod)
reduction("reduce_all", np.all)
reduction("reduce_any", np.any)

unary("mean", lambda x, a: np.array([x.mean()]))
unary("squared_l2_norm", lambda x, a: np.array([(x**2).sum()]))
unary("clip_by_norm", lambda x, a: x * min(1.0, a["max_norm"] / np.sqrt((x**2).sum())))

REFERENCE["sum"] = lambda ins, attrs: {"Out": sum(ins["X"])}
unary("isfinite", lambda x, a: np.array([np.isfinite(x).all()]))
unary("isnan", lambda x, a: np.array([np.isnan(x).any()]))
unary("isinf", lambda x, a: np.array([np.isinf(x).any()]))


def running(x: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    lines = np.moveaxis(x, attrs["axis"], 0)
    out = np.zeros_like(lines)
    for i in range(len(lines)):
        if attrs["reverse"]:
            out[i] = lines[i + attrs["exclusive"] :].sum(0)
        else:
            out[i] = lines[: i + 1 - attrs["exclusive"]].sum(0)
    return np.moveaxis(out, 0, attrs["axis"])


unary("cumsum", running)
