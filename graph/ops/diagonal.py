"""Diagonals and triangles of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...strategies.types import VarType
from . import formula as f
from .operands import Input, Operands, Output, Positive, Unary
from .registry import define, slope
from .samples import sample
from .shapes import Sized


def diagonal_length(rows: int, columns: int, offset: int) -> int:
    """Return how many elements a diagonal has."""
    return max(0, min(rows + min(offset, 0), columns - max(offset, 0)))


def _diagonal(rows: int, columns: int, offset: int) -> tuple[int, int, int]:
    """Return (start, stop, step) of a diagonal that is not empty among the elements of a matrix in a row."""
    start = max(offset, 0) - min(offset, 0) * columns
    last = start + (diagonal_length(rows, columns, offset) - 1) * (columns + 1)
    return start, last + 1, columns + 1


class Eye(Operands):
    out: Output
    num_rows: Positive = 0
    num_columns: int = -1
    dtype: int = int(VarType.FP32)


def eye(a: Eye) -> f.Results:
    """Ones that lie a row and one apart, in zeros."""
    rows, columns = a.out.shape
    ones: Any = f.full((min(rows, columns),), 1, a.out.dtype)
    flat = f.placed(ones, [_diagonal(rows, columns, 0)], (rows * columns,))
    return {"out": flat.reshape(rows, columns)}


define(
    "eye",
    Eye,
    Sized(
        "-> Out dtype [num_rows columns]",
        "num_columns != 0",
        "columns = num_rows if num_columns < 0 else num_columns",
    ),
    formula=eye,
    samples=(sample(num_rows=3), sample(num_rows=2, num_columns=4, dtype=int(VarType.INT64))),
)


class Diag(Operands):
    diagonal: Input
    out: Output


define("diag", Diag, Sized("Diagonal [N] -> Out [N N]"), samples=(sample("Diagonal [4]"),))


class DiagEmbedAttributes(Operands):
    offset: int = 0
    dim1: int = -2
    dim2: int = -1


class DiagEmbed(DiagEmbedAttributes):
    input: Input
    out: Output


define(
    "diag_embed",
    DiagEmbed,
    Sized(
        "Input -> Out [*sizes]",
        "len(Input) > 0; Input must have a dimension",
        "first, second = sorted([front(axis, (1, *Input)) for axis in (dim1, dim2)])",
        "first != second; dim1 and dim2 must be two dimensions",
        "size = Input[-1] + abs(offset)",
        "sizes = [*Input[:first], size, *Input[first : second - 1], size, *Input[second - 1 : -1]]",
    ),
    samples=(
        sample("Input [2 3]"),
        sample("Input [2 3]", offset=-1, dim1=0, dim2=2),
        sample("Input [3]", offset=2),
    ),
    refuses=(sample("Input [2 3]", dim1=3), sample("Input [2 3]", dim1=1, dim2=-2)),
    slope=slope("(input) d_out", "d_input"),
)


def _without_matrices(first: str, second: str) -> tuple[str, ...]:
    """Return what words stand for: sizes besides those of matrices, and the length of their diagonal."""
    return (
        "len(Input) > 1; Input must have two dimensions or more",
        f"row, column = front({first}, Input), front({second}, Input)",
        f"row != column; {first} and {second} must be two dimensions",
        "length = min(Input[row] + min(offset, 0), Input[column] - max(offset, 0))",
        "length > 0; offset lies outside of the matrices",
        "rest = [n for i, n in enumerate(Input) if i not in (row, column)]",
    )


class Diagonal(Operands):
    input: Input
    out: Output
    offset: int = 0
    axis1: int = 0
    axis2: int = 1


define(
    "diagonal",
    Diagonal,
    Sized("Input -> Out [*rest length]", *_without_matrices("axis1", "axis2")),
    samples=(
        sample("Input [3 4]", offset=1),
        sample("Input [3 2 4]", offset=-1, axis1=-1, axis2=0),
    ),
    refuses=(sample("Input [3]"), sample("Input [3 4]", offset=4), sample("Input [3 4]", axis1=1)),
    slope=slope("(input) d_out", "d_input"),
)


class Trace(DiagEmbedAttributes):
    input: Input
    out: Output


def trace(a: Trace) -> f.Results:
    """The sum of elements that lie a row and one apart."""
    axes = [axis % a.input.ndim for axis in (a.dim1, a.dim2)]
    rest = [i for i in range(a.input.ndim) if i not in axes]
    matrices = a.input.transpose([*rest, *axes])
    *lead, rows, columns = matrices.shape
    flat = matrices.reshape(*lead, rows * columns)
    elements = flat[..., slice(*_diagonal(rows, columns, a.offset))]
    return {"out": elements.sum(-1).reshape(a.out.shape)}


define(
    "trace",
    Trace,
    Sized("Input -> Out [*sizes]", *_without_matrices("dim1", "dim2"), "sizes = rest or [1]"),
    formula=trace,
    samples=(sample("Input [3 4]"), sample("Input [3 2 4]", offset=-1, dim1=2, dim2=0)),
    refuses=(sample("Input [3]"), sample("Input [3 4]", dim1=2), sample("Input [3 4]", offset=-3)),
    slope=slope("(input) d_out", "d_input"),
)


class TrilTriu(Unary):
    diagonal: int = 0
    lower: bool = True


def tril_triu(a: TrilTriu) -> f.Results:
    rows, columns = a.x.shape[-2:]
    lower: Any = np.tri(rows, columns, a.diagonal - (not a.lower), bool)
    return {"out": f.where(f.table(lower if a.lower else ~lower), a.x, 0)}


define(
    "tril_triu",
    TrilTriu,
    Sized("X [... rows columns] -> Out"),
    formula=tril_triu,
    samples=(sample("X [3 4]", diagonal=-1), sample("X [2 4 3]", diagonal=1, lower=False)),
    slope=slope("d_out", "d_x", shape=Sized("Out@GRAD [... rows columns] -> X@GRAD")),
)
