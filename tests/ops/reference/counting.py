"""Counts by value, and products so far."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference


@reference("histogram")
def histogram(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    within = None if attrs["min"] == attrs["max"] else (attrs["min"], attrs["max"])
    out, _ = np.histogram(ins["X"], attrs["bins"], within, attrs["density"], ins.get("Weight"))
    floats = attrs["density"] or "Weight" in ins
    return {"Out": out.astype(float if floats else int)}


@reference("cumprod")
def cumprod(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    return {"Out": np.cumprod(ins["X"], attrs["dim"])}
