"""Matrices that a pair of ranks chooses. Legend: N rows, K ranks, D wide, C columns of the result."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...strategies.types import FLOATS, INTEGERS
from . import formula as f
from .lod import no_sequences
from .operands import Input, Operands, Output
from .registry import Inference, Specs, define, slope
from .rules import merge_dims, of_shape
from .samples import integers, normal, sample, table


class RankAttention(Operands):
    x: Input
    rank_offset: Input
    rank_param: Input
    out: Output
    MaxRank: int = 3


def rank_attention_shape(op: Inference) -> Mapping[str, Specs]:
    """[N, C] of X [N, D], RankOffset [N, 1 + 2K] and RankParam [K K D, C]."""
    x, ranks, param = op.spec("X"), op.spec("RankOffset"), op.spec("RankParam")
    count = op.attr("MaxRank")
    op.require(count > 0, f"MaxRank must be above 0, got {count}")
    op.require(x.dtype in FLOATS and len(x.shape) == 2, "X must be [N, D] of floats")
    fits = len(ranks.shape) == 2 and merge_dims(ranks.shape[1], 1 + 2 * count) is not None
    fits = fits and merge_dims(ranks.shape[0], x.shape[0]) is not None
    op.require(
        fits and ranks.dtype in INTEGERS,
        f"RankOffset must be integers [N, {1 + 2 * count}]: a rank, and MaxRank times a rank and a row",
    )
    height = -1 if x.shape[1] < 0 else count * count * x.shape[1]
    fits = len(param.shape) == 2 and merge_dims(param.shape[0], height) is not None
    op.require(
        fits and param.dtype == x.dtype,
        f"RankParam must be [MaxRank * MaxRank * D, C] = [{height}, C], of X's type",
    )
    return {"Out": of_shape((x.shape[0], param.shape[1]), x)}


def rank_attention(a: RankAttention) -> f.Results:
    """Sum over k of X[row k] times the matrix of (the row's rank, rank k); ranks below 1 are none.

    A row of RankOffset has its rank, then a rank and a row of X for each k. What meets one matrix is added up
    before all matrices, as one, multiply it.
    """
    (rows, width), count = a.x.shape, a.MaxRank
    ranks = a.rank_offset.astype(np.int64)
    own, others = ranks[:, :1] - 1, ranks[:, 1::2] - 1
    real = (own >= 0) & (others >= 0)
    pair = f.where(real, own * count + others, 0).reshape(-1)
    pair = f.checked(pair, count * count, "pair of ranks", "pairs of ranks up to MaxRank")
    row = f.checked(f.where(real, ranks[:, 2::2], 0).reshape(-1), rows, "row", "rows of X")
    values = f.where(real.reshape(-1, 1), f.take(a.x, row), 0)
    first = f.table(np.repeat(np.arange(rows), count) * count**2, np.int64)
    met = f.row_sums(first + pair, values, rows * count**2)
    return {"out": met.reshape(rows, count**2 * width) @ a.rank_param}


_RANKS = [[1, 1, 0, 2, 1], [2, 1, 0, 2, 1], [0, 1, 2, 0, 0], [1, 2, 3, 2, 0]]
_RANKED = {"X": normal(4, 3), "RankOffset": table(_RANKS), "RankParam": normal(12, 5)}
define(
    "rank_attention",
    RankAttention,
    rank_attention_shape,
    lod=no_sequences,
    formula=rank_attention,
    samples=(sample(_RANKED, MaxRank=2),),
    refuses=(
        sample(_RANKED),
        sample({**_RANKED, "RankParam": normal(9, 5)}, MaxRank=2),
        sample({**_RANKED, "RankOffset": normal(4, 5)}, MaxRank=2),
        sample({**_RANKED, "RankOffset": integers(3, 5, high=2)}, MaxRank=2),
        sample({**_RANKED, "X": normal(4, 3, 1)}, MaxRank=2),
    ),
    slope=slope(
        "x rank_offset rank_param d_out", "d_rank_param"
    ),  # as in Paddle, X gets no gradient
)
