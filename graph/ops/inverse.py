"""Inverses and triangular factors of square matrices."""

from __future__ import annotations

from . import formula as f
from .operands import Unary, record_of
from .registry import define, slope
from .rules import same
from .samples import sample
from .shapes import Sized

define(
    "inverse",
    record_of("input", "output"),
    Sized("Input [... N N] -> Output as Input"),
    formula=lambda a: {"output": f.inverse(a.input)},
    samples=(sample("Input definite [3 3]"), sample("Input definite [2 2 2]")),
    slope=slope("output d_output", "d_input", shape=same("Output", "Input@GRAD")),
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
    Sized("X [... N N] -> Out as X"),
    formula=cholesky,
    samples=(sample("X definite [3 3]"), sample("X definite [2 2 2]", upper=True)),
    slope=slope("out d_out", "d_x", shape=same("Out", "X@GRAD")),
)
