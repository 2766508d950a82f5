"""Positions added to sequences."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from . import formula as f
from .operands import Input, Operands, Output
from .registry import Inference, Op, Specs, define
from .samples import normal, sample


def add_position_encoding_shape(op: Inference) -> Mapping[str, Specs]:
    """Out like X [N, length, width], with an even width."""
    x = op.spec("X")
    op.require(len(x.shape) == 3, f"X must have 3 dimensions, has {len(x.shape)}")
    op.require(x.shape[2] % 2 == 0 or x.shape[2] < 0, f"the width must be even, is {x.shape[2]}")
    return {"Out": x}


class AddPositionEncodingAttributes(Operands):
    alpha: float = 1.0
    beta: float = 1.0


class AddPositionEncoding(AddPositionEncodingAttributes):
    x: Input
    out: Output


class AddPositionEncodingGrad(AddPositionEncodingAttributes):
    d_out: Input
    d_x: Output | None


def add_position_encoding(a: AddPositionEncoding) -> f.Results:
    """Out = alpha X + beta (sines, then cosines of the position): Vaswani et al., arXiv 1706.03762, 3.5."""
    length, half = a.x.shape[1], a.x.shape[2] // 2
    rate = 10000.0 ** -(np.arange(half) / max(half - 1, 1))
    if half == 1:
        rate = np.full(1, 1e-4)  # Paddle divides by 10000 itself then
    angles = np.arange(length)[:, None] * rate
    waves = np.concatenate([np.sin(angles), np.cos(angles)], 1)
    return {"out": a.x * a.alpha + f.table(waves * a.beta, a.x.dtype)}


define(
    Op(
        type="add_position_encoding",
        record=AddPositionEncoding,
        shape=add_position_encoding_shape,
        formula=add_position_encoding,
        samples=(
            sample({"X": normal(2, 3, 4)}),
            sample({"X": normal(2, 5, 2)}, alpha=0.5, beta=2.0),
        ),
        refuses=(sample({"X": normal(2, 3, 3)}), sample({"X": normal(2, 4)})),
    ),
    Op(
        type="add_position_encoding_grad",
        record=AddPositionEncodingGrad,
        shape=lambda op: {"X@GRAD": op.spec("Out@GRAD")},
        formula=lambda a: {"d_x": a.d_out * a.alpha},
    ),
)
