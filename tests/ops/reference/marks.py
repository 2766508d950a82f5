"""Marks of what is alike, and counts of impressions and clicks."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference


@reference("similarity_focus")
def similarity_focus(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = np.moveaxis(ins["X"], attrs["axis"], 1)
    out = np.zeros_like(x)
    for b, index in np.ndindex(len(x), len(attrs["indexes"])):
        matrix = x[b, attrs["indexes"][index]]
        rows, columns = set(), set()
        for place in np.argsort(-matrix, axis=None):
            i, j = divmod(int(place), matrix.shape[1])
            if i not in rows and j not in columns:
                rows.add(i)
                columns.add(j)
                out[b, :, i, j] = 1
    return {"Out": np.moveaxis(out, 1, attrs["axis"])}


@reference("cvm")
def cvm(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = ins["X"].copy()
    x[:, 0] = np.log(x[:, 0] + 1)
    x[:, 1] = np.log(x[:, 1] + 1) - x[:, 0]
    return {"Y": x if attrs["use_cvm"] else x[:, 2:]}
