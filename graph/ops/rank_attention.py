"""Matrices that a pair of ranks chooses. Legend: N rows, K ranks, D wide, C columns of the result."""

from __future__ import annotations

import numpy as np

from . import formula as f
from .lod import no_sequences
from .operands import Input, Operands, Output, Positive
from .registry import define, slope
from .samples import sample
from .shapes import Sized


class RankAttention(Operands):
    x: Input
    rank_offset: Input
    rank_param: Input
    out: Output
    MaxRank: Positive = 3


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


_RANKED = "X [4 3], RankOffset table [1 1 0 2 1; 2 1 0 2 1; 0 1 2 0 0; 1 2 3 2 0], RankParam [12 5]"
define(
    "rank_attention",
    RankAttention,
    Sized(
        "X floats [N D], RankOffset integers [N 1+2*MaxRank], RankParam as X [MaxRank*MaxRank*D C] "
        "-> Out [N C]"
    ),
    lod=no_sequences,
    formula=rank_attention,
    samples=(sample(_RANKED, MaxRank=2),),
    # as in Paddle, X gets no gradient
    slope=slope("x rank_offset rank_param d_out", "d_rank_param"),
)
