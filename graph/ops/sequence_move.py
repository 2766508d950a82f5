"""Ops that cut, join and fill sequences (LoD) of rows. Legend: N rows, B sequences, D elements of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import formula as f
from .levels import level_from
from .lod import Lods, no_sequences
from .lod_levels import without
from .operands import Input, Inputs, Offsets, Operands, Output, Positive, Unary
from .registry import Inference, Specs, define, slope
from .rules import hold_integers, match, of_shape, one_level
from .samples import sample
from .sequence import result
from .shapes import Sized, counted, in_sequences

# -- sequence_slice ---------------------------------------------------------------------------------


class SequenceSlice(Operands):
    x: Input
    offset: Input
    length: Input
    x_lod: Offsets
    out_lod: Offsets
    out: Output


def slice_shape(op: Inference) -> Mapping[str, Specs]:
    """[sum of Length, ...]: Length rows of each sequence from Offset on."""
    x, count = op.spec("X"), op.sequences("X")
    one_level(op, "X")
    hold_integers(op, "Offset", "Length")
    match(op, {"sequences": count}, Offset="sequences 1?", Length="sequences 1?")
    ends, first, length = op.offsets("X"), op.value("Offset"), op.value("Length")
    if ends is None or first is None or length is None:
        return {"Out": of_shape((-1, *x.shape[1:]), x)}
    first, length, sizes = first.reshape(-1), length.reshape(-1), np.diff(ends)
    wrong = np.flatnonzero((first < 0) | (length < 0) | (first + length > sizes))
    for i in wrong[:1]:
        op.fail(
            f"rows {first[i]} to {first[i] + length[i]} are outside sequence {i} of X, which has {sizes[i]}"
        )
    return {"Out": of_shape((int(length.sum()), *x.shape[1:]), x)}


def sequence_slice(a: SequenceSlice) -> f.Results:
    """Row r of sequence b of the result is row Offset[b] + r of that of X."""
    rows = result(a).shape[0]
    number = f.sequence_of(a.out_lod[-1], rows, "Out")
    position = f.table(range(rows), "int64") - f.take(a.out_lod[-1], number)
    first = f.take(a.x_lod[-1], number) + f.take(a.offset.reshape(-1).astype("int64"), number)
    return {"out": f.take(a.x, first + position)}


def _cut(first: str, length: str) -> str:
    numbers = f"Offset lengths [{first}], Length lengths [{length}], Out@LOD [{length}]"
    return f"X [5 2], X@LOD [2 0 3], {numbers}"


define(
    "sequence_slice",
    SequenceSlice,
    slice_shape,
    reads_values=lambda attrs: ("Length", "Offset", "X@LOD"),
    lod=level_from("lod_from_lengths", X="Length"),
    formula=sequence_slice,
    samples=(sample(_cut("1 0 0", "1 0 2")), sample(_cut("0 0 1", "0 0 2"))),
    refuses=(
        sample(_cut("1 0 0", "2 0 2")),
        sample(_cut("-1 0 0", "1 0 2")),
        sample(_cut("1 0", "1 0")),
    ),
    slope=slope("(x) offset length d_out x_lod out_lod", "d_x"),
)


# -- sequence_concat --------------------------------------------------------------------------------


class SequenceConcat(Operands):
    x: Inputs
    x_lod: Offsets
    out: Output


def concat_shape(op: Inference) -> Mapping[str, Specs]:
    """All rows of all operands, which have equally many sequences."""
    specs = op.specs("X")
    first = specs[0]
    same = {(spec.shape[1:], spec.dtype) for spec in specs}
    op.require(len(same) == 1, "the operands must have rows of one shape and type")
    op.sequences("X")
    levels = op.specs("X@LOD") if op.has("X@LOD") else []
    if op.exact:
        op.require(len(levels) == len(specs), "each operand must hold sequences")
    counts = {level.shape[0] for level in levels} - {-1}
    op.require(len(counts) <= 1, "the operands must have equally many sequences")
    rows = [spec.shape[0] for spec in specs]
    return {"Out": of_shape((sum(rows) if min(rows) >= 0 else -1, *first.shape[1:]), first)}


def concat_lod(op: Lods[Any]) -> Mapping[str, tuple[Any, ...]]:
    """A sequence is as long as those of all operands together."""
    levels = [op.of("X", k)[-1:] for k in range(op.uses("X"))]
    if not all(levels):
        return {}
    return {"Out": (op.level("lod_together", {"X": [level for (level,) in levels]}),)}


def sequence_concat(a: SequenceConcat) -> f.Results:
    """Sequence i of each operand behind each other."""
    rows = sum(x.shape[0] for x in a.x)
    number = f.sequence_of(sum(a.x_lod[1:], a.x_lod[0]), rows, "Out")
    bounds = [(f.take(lod, number), f.take(lod[1:], number)) for lod in a.x_lod]
    position = f.table(range(rows), "int64") - sum(begin for begin, _ in bounds)
    at, above = position, 0
    for x, (begin, end) in zip(a.x, bounds, strict=True):
        # A row is of the last operand behind whose predecessors' rows it stands.
        at = f.where(position < 0, at, position + begin + above)
        position, above = position - (end - begin), above + x.shape[0]
    return {"out": f.take(f.concatenate(a.x), at)}


define(
    "sequence_concat",
    SequenceConcat,
    concat_shape,
    lod=concat_lod,
    formula=sequence_concat,
    samples=(
        sample("X* [5 2] [4 2] [2 2], X@LOD [2 0 3] [1 3 0] [0 1 1]"),
        sample("X* 0:4 [5 1], X@LOD [2 0 3]"),
    ),
    refuses=(
        sample("X* [5 2] [4 3], X@LOD [2 0 3] [1 3 0]"),
        sample("X* [5 2] [4 2], X@LOD [2 0 3] [1 3]"),
        sample("X* [5 2] [4 2], X@LOD [2 0 3]"),
    ),
    slope=slope("(x) d_out x_lod", "d_x"),
)


# -- sequence_reshape -------------------------------------------------------------------------------


class SequenceReshape(Unary):
    new_dim: Positive = 1


define(
    "sequence_reshape",
    SequenceReshape,
    Sized("X [N D] -> Out [N*D/new_dim new_dim]"),
    lod=level_from("lod_reshaped", X="X@LOD", Rows="X"),
    formula=lambda a: {"out": a.x.reshape(-1, a.new_dim)},
    samples=(sample("X [4 6]", new_dim=3), sample("X [4 3]", new_dim=6)),
    refuses=(sample("X [4 6]", new_dim=5),),
    slope=slope("(x) d_out", "d_x"),
)


# -- sequence_scatter -------------------------------------------------------------------------------


class SequenceScatter(Operands):
    x: Input
    ids: Input
    updates: Input
    ids_lod: Offsets
    out: Output


def sequence_scatter(a: SequenceScatter) -> f.Results:
    """X, and in row i the updates of sequence i; equal ids add up."""
    rows, width = result(a).shape
    number = f.sequence_of(a.ids_lod[-1], a.ids.shape[0], "Ids")
    column = f.checked(a.ids.reshape(-1).astype("int64"), width, "id", "columns of X")
    sums = f.row_sums(number * width + column, a.updates.reshape(-1, 1), rows * width)
    return {"out": a.x + sums.reshape(rows, width)}


_SCATTER = "X [4 3], Ids 0:3 [5 1], Ids@LOD [2 0 3]"
define(
    "sequence_scatter",
    SequenceScatter,
    Sized(
        "X [rows width], Updates as X [N 1?], Ids integers [N 1?] -> Out as X",
        in_sequences("Ids"),
        "sequences(Ids) <= rows; Ids has more sequences than X rows",
    ),
    formula=sequence_scatter,
    samples=(sample(_SCATTER, "Updates [5 1]"),),
    slope=slope(
        "ids (updates) d_out ids_lod",
        "d_updates d_x",
        shape=lambda op: {"X@GRAD": op.spec("Out@GRAD"), "Updates@GRAD": op.spec("Updates")},
        lod=no_sequences,
    ),
)


# -- sequence_erase ---------------------------------------------------------------------------------


class SequenceErase(Operands):
    x: Input
    out: Output
    tokens: Sequence[int] = []


def erased(a: SequenceErase) -> f.Results:
    """Take the numbers that are none of ``tokens``: each is a sequence of one row, the others are empty."""
    source = f.sequence_of(f.offsets(without(a.x, a.tokens)), a.out.shape[0], "Out")
    return {"out": f.take(a.x, source)}


def erase_lod(op: Lods[Any]) -> Mapping[str, tuple[Any, ...]]:
    """The last level is of what is left."""
    levels = op.of("X")
    if not levels:
        return {}
    operands = {"X": levels[-1:], "Rows": [op.value("X")]}
    last = op.level("lod_erased", operands, {"tokens": op.attrs["tokens"]})
    return {"Out": (*levels[:-1], last)}


define(
    "sequence_erase",
    SequenceErase,
    Sized(
        "X integers [N 1?] -> Out [K *rest]",
        "rest = X[1:]",
        counted(SequenceErase, lambda a: {"K": int((~np.isin(a.x, a.tokens)).sum())}),
    ),
    lod=erase_lod,
    formula=erased,
    samples=(
        sample("X 0:4 [6 1]", tokens=[1, 3]),
        sample("X 0:4 [6]", tokens=[0]),
        sample("X 0:4 [4 1]"),
    ),
)
