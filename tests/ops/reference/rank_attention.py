"""Matrices that ranks choose, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import reference


@reference("rank_attention")
def rank_attention(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, ranks = ins["X"], attrs["MaxRank"]
    matrices = ins["RankParam"].reshape(ranks, ranks, x.shape[1], -1)
    out = np.zeros((len(x), matrices.shape[-1]))
    for n, (own, *others) in enumerate(ins["RankOffset"].tolist()):
        for rank, row in zip(others[::2], others[1::2], strict=True):
            if own > 0 and rank > 0:
                out[n] += x[row] @ matrices[own - 1, rank - 1]
    return {"Out": out}
