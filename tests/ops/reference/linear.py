"""Matrix products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .registry import reference


@reference("mul")
def mul(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, y, m, n = ins["X"], ins["Y"], attrs["x_num_col_dims"], attrs["y_num_col_dims"]
    flat = x.reshape(math.prod(x.shape[:m]), -1) @ y.reshape(math.prod(y.shape[:n]), -1)
    return {"Out": flat.reshape(x.shape[:m] + y.shape[n:])}


@reference("matmul")
def matmul(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    if ins["X"].ndim == ins["Y"].ndim == 1 and attrs["transpose_X"] and attrs["transpose_Y"]:
        return {"Out": np.outer(ins["X"], ins["Y"]) * attrs["alpha"]}  # a column and a row
    x = np.swapaxes(ins["X"], -1, -2) if attrs["transpose_X"] else ins["X"]
    y = np.swapaxes(ins["Y"], -1, -2) if attrs["transpose_Y"] else ins["Y"]
    lead = [a.shape[:-2] if a.ndim > 2 else () for a in (x, y)]
    if all(lead) and np.prod(lead[0]) == np.prod(lead[1]):
        y = y.reshape(*lead[0], *y.shape[-2:])
    return {"Out": np.atleast_1d(x @ y) * attrs["alpha"]}
