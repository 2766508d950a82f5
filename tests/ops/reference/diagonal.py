"""Diagonals and triangles."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import REFERENCE, reference, unary

REFERENCE["diag"] = lambda ins, attrs: {"Out": np.diag(ins["Diagonal"])}
REFERENCE["diagonal"] = lambda ins, attrs: {
    "Out": np.diagonal(ins["Input"], attrs["offset"], attrs["axis1"], attrs["axis2"])
}
REFERENCE["trace"] = lambda ins, attrs: {
    "Out": np.atleast_1d(np.trace(ins["Input"], attrs["offset"], attrs["dim1"], attrs["dim2"]))
}
unary("tril_triu", lambda x, a: (np.tril if a["lower"] else np.triu)(x, a["diagonal"]))


@reference("eye")
def eye(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    columns = attrs["num_columns"]
    return {"Out": np.eye(attrs["num_rows"], None if columns < 0 else columns)}


@reference("diag_embed")
def diag_embed(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, offset = ins["Input"], attrs["offset"]
    size = x.shape[-1] + abs(offset)
    out = np.zeros((*x.shape[:-1], size, size))
    for i in range(x.shape[-1]):
        out[..., i + max(-offset, 0), i + max(offset, 0)] = x[..., i]
    rank = out.ndim
    return {"Out": np.moveaxis(out, (-2, -1), (attrs["dim1"] % rank, attrs["dim2"] % rank))}
