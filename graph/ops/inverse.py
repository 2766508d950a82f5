"""Inverses and triangular factors of square matrices."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from . import formula as f
from .operands import Array, Input, Operands, Output, SlopeOfOut, Unary
from .registry import Inference, Op, Specs, define
from .rules import merge_dims
from .samples import normal, sample


def square_matrices(slot: str, result: str) -> object:
    """Return the shape rule of a result like an operand of square matrices [..., N, N]."""

    def rule(op: Inference) -> Mapping[str, Specs]:
        x = op.spec(slot)
        fits = len(x.shape) >= 2 and merge_dims(*x.shape[-2:]) is not None
        op.require(fits, f"{slot} must hold square matrices")
        return {result: x}

    return rule
