"""Inverses and triangular factors of square matrices."""

from __future__ import annotations

from collections.abc import Mapping

from . import formula as f
from .operands import Unary, record_of
from .registry import Inference, ShapeRule, Specs, define, slope
from .rules import merge_dims
from .samples import definite, normal, sample


def square_matrices(slot: str, result: str) -> ShapeRule:
    """Return the shape rule of a result like an operand of square matrices [..., N, N]."""

    def rule(op: Inference) -> Mapping[str, Specs]:
        x = op.spec(slot)
        fits = len(x.shape) >= 2 and merge_dims(*x.shape[-2:]) is not None
        op.require(fits, f"{slot} must hold square matrices")
        return {result: x}

    return rule


define(
    "inverse",
    record_of("input", "output"),
    square_matrices("Input", "Output"),
    formula=lambda a: {"output": f.inverse(a.input)},
    samples=(sample({"Input": definite(3, 3)}), sample({"Input": definite(2, 2, 2)})),
    refuses=(sample({"Input": normal(3, 2)}), sample({"Input": normal(3)})),
    slope=slope("output d_output", "d_input", shape=square_matrices("Output", "Input@GRAD")),
)


class Cholesky(Unary):
    upper: bool = False


def cholesky(a: Cholesky) -> f.Results:
    """Out Out^T = X, or Out^T Out = X with ``upper``; of an X that is not symmetric, its symmetric part."""
    lower = f.cholesky((a.x + f.turned(a.x)) * 0.5)
    return {"out": f.turned(lower) if a.upper else lower}


define(
    "cholesky",
    Cholesky,
    square_matrices("X", "Out"),
    formula=cholesky,
    samples=(sample({"X": definite(3, 3)}), sample({"X": definite(2, 2, 2)}, upper=True)),
    refuses=(sample({"X": normal(3, 2)}),),
    slope=slope("out d_out", "d_x", shape=square_matrices("Out", "X@GRAD")),
)
