"""Positions added to sequences."""

from __future__ import annotations

import numpy as np

from . import formula as f
from .operands import Input, Offsets, Operands, Output
from .registry import define, slope
from .rules import same
from .samples import sample
from .sequence import bounds_of_rows
from .shapes import Sized, rows_or_padded


class AddPositionEncoding(Operands):
    x: Input
    x_lod: Offsets
    out: Output
    alpha: float = 1.0
    beta: float = 1.0


def add_position_encoding(a: AddPositionEncoding) -> f.Results:
    """Out = alpha X + beta (sines, then cosines of the position): Vaswani et al., arXiv 1706.03762, 3.5."""
    length, half = a.x.shape[-2], a.x.shape[-1] // 2
    rate = 10000.0 ** -(np.arange(half) / max(half - 1, 1))
    if half == 1:
        rate = np.full(1, 1e-4)  # Paddle divides by 10000 itself then
    angles = np.arange(length)[:, None] * rate
    waves = np.concatenate([np.sin(angles), np.cos(angles)], 1)
    shift = f.table(waves * a.beta, a.x.dtype)
    if a.x.ndim == 2:
        _, begin, _ = bounds_of_rows(a, length)
        shift = f.take(shift, f.table(range(length), "int64") - begin)
    return {"out": a.x * a.alpha + shift}


define(
    "add_position_encoding",
    AddPositionEncoding,
    Sized("X -> Out", "X[-1] % 2 == 0; the width must be even", rows_or_padded),
    formula=add_position_encoding,
    samples=(
        sample("X [2 3 4]"),
        sample("X [2 5 2]", alpha=0.5, beta=2.0),
        sample("X [5 4], X@LOD [2 0 3]", alpha=0.5, beta=2.0),
    ),
    refuses=(sample("X [2 4]"),),
    slope=slope(
        "d_out",
        "d_x",
        shape=same("Out@GRAD", "X@GRAD"),
        formula=lambda a: {"d_x": a.d_out * a.alpha},
    ),
)
