"""Inverses and triangular factors of matrices; positions of sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference
from .sequence import parts

Arrays = dict[str, Any]


@reference("inverse")
def inverse(ins: Arrays, attrs: Arrays) -> Arrays:
    return {
        "Output": np.linalg.solve(
            ins["Input"], np.broadcast_to(np.eye(ins["Input"].shape[-1]), ins["Input"].shape)
        )
    }


@reference("cholesky")
def cholesky(ins: Arrays, attrs: Arrays) -> Arrays:
    lower = np.linalg.cholesky((ins["X"] + ins["X"].swapaxes(-1, -2)) / 2)
    return {"Out": lower.swapaxes(-1, -2) if attrs["upper"] else lower}


@reference("add_position_encoding")
def add_position_encoding(ins: Arrays, attrs: Arrays) -> Arrays:
    if "X@LOD" in ins:
        rows = [part[None] for part in parts(ins["X"], ins["X@LOD"][-1]) if len(part)]
        each = [add_position_encoding({"X": x}, attrs)["Out"][0] for x in rows]
        return {"Out": np.concatenate(each)}
    _, length, width = ins["X"].shape
    half = width // 2
    waves = np.zeros((length, width))
    for j in range(length):
        for k in range(half):
            angle = j / 10000 ** (k / (half - 1)) if half > 1 else j / 10000
            waves[j, k], waves[j, half + k] = np.sin(angle), np.cos(angle)
    return {"Out": attrs["alpha"] * ins["X"] + attrs["beta"] * waves}
