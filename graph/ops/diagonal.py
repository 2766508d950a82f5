"""Diagonals and triangles of matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...strategies.types import VarType
from . import formula as f
from .operands import Input, Operands, Output, Positive, Unary
from .registry import Inference, Specs, define, slope
from .rules import normal_axis, of_shape
from .samples import normal, sample
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


define(
    "diag",
    Diag,
    Sized("Diagonal [N] -> Out [N N]"),
    samples=(sample({"Diagonal": normal(4)}),),
)


def two_axes(op: Inference, rank: int, *names: str) -> tuple[int, int]:
    """Return two different dimensions, counted from the front."""
    first, second = (normal_axis(op, op.attr(name), rank) for name in names)
    op.require(first != second, f"{names[0]} and {names[1]} must be two dimensions")
    return first, second


def diag_embed_shape(op: Inference) -> Mapping[str, Specs]:
    """The last dimension goes on a diagonal of ``dim1`` and ``dim2`` of the result."""
    x = op.spec("Input")
    op.require(len(x.shape) > 0, "Input must have a dimension")
    rest, last = list(x.shape[:-1]), x.shape[-1]
    size = last + abs(op.attr("offset")) if last >= 0 else -1
    for axis in sorted(two_axes(op, len(x.shape) + 1, "dim1", "dim2")):
        rest.insert(axis, size)
    return {"Out": of_shape(tuple(rest), x)}


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
    diag_embed_shape,
    samples=(
        sample({"Input": normal(2, 3)}),
        sample({"Input": normal(2, 3)}, offset=-1, dim1=0, dim2=2),
        sample({"Input": normal(3)}, offset=2),
    ),
    refuses=(
        sample({"Input": normal(2, 3)}, dim1=3),
        sample({"Input": normal(2, 3)}, dim1=1, dim2=-2),
    ),
    slope=slope("input d_out", "d_input"),
)


def _cut(op: Inference, first: str, second: str) -> tuple[list[int], int]:
    """Return the sizes besides two dimensions, and that of their diagonal."""
    shape, offset = op.shape("Input"), op.attr("offset")
    op.require(len(shape) > 1, "Input must have two dimensions or more")
    axes = two_axes(op, len(shape), first, second)
    rows, columns = (shape[axis] for axis in axes)
    known = rows >= 0 and columns >= 0
    length = diagonal_length(rows, columns, offset) if known else -1
    op.require(length != 0, f"offset {offset} lies outside [{rows}, {columns}]")
    return [n for i, n in enumerate(shape) if i not in axes], length


def diagonal_shape(op: Inference) -> Mapping[str, Specs]:
    """The diagonal of ``axis1`` and ``axis2`` becomes the last dimension."""
    rest, length = _cut(op, "axis1", "axis2")
    return {"Out": of_shape((*rest, length), op.spec("Input"))}


class Diagonal(Operands):
    input: Input
    out: Output
    offset: int = 0
    axis1: int = 0
    axis2: int = 1


define(
    "diagonal",
    Diagonal,
    diagonal_shape,
    samples=(
        sample({"Input": normal(3, 4)}, offset=1),
        sample({"Input": normal(3, 2, 4)}, offset=-1, axis1=-1, axis2=0),
    ),
    refuses=(
        sample({"Input": normal(3)}),
        sample({"Input": normal(3, 4)}, offset=4),
        sample({"Input": normal(3, 4)}, axis1=1),
    ),
    slope=slope("input d_out", "d_input"),
)


def trace_shape(op: Inference) -> Mapping[str, Specs]:
    """Both dimensions go; of a matrix one element stays."""
    rest, _ = _cut(op, "dim1", "dim2")
    return {"Out": of_shape(tuple(rest) or (1,), op.spec("Input"))}


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
    trace_shape,
    formula=trace,
    samples=(
        sample({"Input": normal(3, 4)}),
        sample({"Input": normal(3, 2, 4)}, offset=-1, dim1=2, dim2=0),
    ),
    refuses=(
        sample({"Input": normal(3)}),
        sample({"Input": normal(3, 4)}, dim1=2),
        sample({"Input": normal(3, 4)}, offset=-3),
    ),
    slope=slope("input d_out", "d_input"),
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
    samples=(
        sample({"X": normal(3, 4)}, diagonal=-1),
        sample({"X": normal(2, 4, 3)}, diagonal=1, lower=False),
    ),
    slope=slope("d_out", "d_x", shape=Sized("Out@GRAD [... rows columns] -> X@GRAD")),
)
