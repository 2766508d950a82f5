"""Normalisation of each channel of each sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference


@reference("instance_norm")
def instance_norm(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = ins["X"]
    axes = tuple(range(2, x.ndim))
    spread = (1, -1) + (1,) * len(axes)
    mean = x.mean(axes, keepdims=True)
    inverse = 1 / np.sqrt(x.var(axes, keepdims=True) + attrs["epsilon"])
    y = (x - mean) * inverse
    y = y * ins["Scale"].reshape(spread) if "Scale" in ins else y
    y = y + ins["Bias"].reshape(spread) if "Bias" in ins else y
    return {"Y": y, "SavedMean": mean.reshape(-1), "SavedVariance": inverse.reshape(-1)}
