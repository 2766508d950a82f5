"""Ops that compute offsets of sequences: no program holds them, they are put in when a graph is read.

Formulas compute them where rows are: a graph of a GPU holds them, whatever the lengths are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial, reduce
from itertools import pairwise
from operator import and_
from typing import Any

import numpy as np

from . import formula as f
from .lod import LodRule, Lods, no_sequences
from .operands import Array, Binary, Input, Operands, Output, Unary, record_of
from .registry import OFFSETS, Inference, Specs, define
from .samples import sample
from .sequence_window import patches
from .shapes import Sized


class OffsetsOfRows(Operands):
    x: Input
    rows: Input
    out: Output


class OffsetsReshaped(Operands):
    x: Input
    rows: Input
    out: Output
    new_dim: int = 1


class OffsetsAlike(Operands):
    """Offsets of the variable in slot ``first`` of the op ``reader``, which those of ``second`` must equal."""

    x: Input
    y: Input
    out: Output
    reader: str = ""
    first: str = ""
    second: str = ""


class OffsetsOfImages(Operands):
    x: Input
    y: Input
    z: Input
    out: Output
    InputChannel: int = 1
    OutputChannel: int = 1
    StrideH: int = 1
    StrideW: int = 1


_AS_MANY = Sized("X integers -> Out int64 [size]", "size = prod(X)")
_TOGETHER = record_of("x*", "out")


def copies_shape(op: Inference) -> Mapping[str, Specs]:
    """Y ends with the number of copies."""
    sequences, counted = (op.shape(slot)[0] - 1 for slot in ("X", "Y"))
    op.require(
        sequences == counted or min(sequences, counted) < 0,
        f"X has {sequences} sequences, and Y tells of {counted} how often they are copied",
    )
    counts = op.value("Y")
    return {"Out": OFFSETS._replace(shape=(-1 if counts is None else int(counts[-1]) + 1,))}


def equally_many(op: Inference) -> Mapping[str, Specs]:
    """As many offsets as each of the operands has."""
    specs = [spec for slot in op.op.input_slots for spec in op.specs(slot.name)]
    sizes = {spec.shape[0] for spec in specs} - {-1}
    counts = " and ".join(str(size - 1) for size in sorted(sizes))
    op.require(
        len(sizes) <= 1, f"the operands must have equally many sequences, got {counts} of them"
    )
    return {"Out": OFFSETS._replace(shape=(max(sizes, default=-1),))}


def absolute(levels: Sequence[Any]) -> Any:
    """Return the offsets of the outermost of some levels, counted in rows."""
    *outer, offsets = levels
    for level in reversed(outer):
        offsets = offsets[level]
    return offsets


def bounds(sequences: Iterable[Collection[Any]]) -> Array:
    """Return the offsets at which sequences begin and end, behind each other."""
    return np.cumsum([0, *map(len, sequences)])


def parts(rows: Array, ends: Array) -> list[Array]:
    """Return the rows of each sequence."""
    return [rows[begin:end] for begin, end in pairwise(ends)]


def of_copies(a: Binary) -> f.Results:
    """Sequence i of X, as many times as sequence i of Y is long."""
    source = f.sequence_of(a.y, a.out.shape[0] - 1, "Y")
    return {"out": f.offsets(f.take(f.lengths(a.x), source))}


def alike_shape(op: Inference) -> Mapping[str, Specs]:
    """As many offsets as X and Y have."""
    first, second = (op.shape(slot)[0] for slot in ("X", "Y"))
    names = [op.attr(name) for name in ("first", "second")]
    op.require(
        first == second or min(first, second) < 0,
        f"{op.attr('reader')}: {names[0]} has {first - 1} sequences, {names[1]} {second - 1}",
    )
    return {"Out": OFFSETS._replace(shape=(max(first, second),))}


def unlike(op: str, first: str, ends: Array, second: str, others: Array) -> str:
    """Return the sentence for two operands of an op whose sequences, by their offsets, have other lengths."""
    lengths = [np.diff(each).tolist() for each in (ends, others)]
    return (
        f"{op}: the sequences of {first} have the lengths {lengths[0]}, those of {second} {lengths[1]}. Feed "
        f"both with the same."
    )


def alike(a: OffsetsAlike) -> f.Results:
    """X, where Y is the same."""
    problem = f"{a.second} has other sequences than {a.first}: one ends at row"
    ends = f.where(f.equal(a.x, a.y), 0, a.y)
    return {"out": a.x + f.checked(ends, 1, problem, of="", op=a.reader)}


def as_of(first: str, second: str, *results: str) -> LodRule:
    """Return the rule that some results have the sequences of ``first``, which ``second`` must have, too.

    ``second`` may be left out, or have no sequences.
    """

    def rule(op: Lods[Any]) -> Mapping[str, tuple[Any, ...]]:
        levels, others = op.of(first), op.of(second)
        if levels and others and levels[-1] != others[-1]:
            named = {"reader": op.type, "first": first, "second": second}
            levels = (
                *levels[:-1],
                op.level("lod_alike", {"X": levels[-1:], "Y": others[-1:]}, named),
            )
        return dict.fromkeys(results, levels)

    return rule


def behind(levels: Sequence[Array]) -> Array:
    """Return the offsets of the sequences of each level behind those of the ones before."""
    parts = [levels[0]]
    for level in levels[1:]:
        parts.append(level[1:] + parts[-1][-1:])
    return f.concatenate(parts)


def without(rows: Array, tokens: Sequence[int]) -> Array:
    """Return 1 for each number that is none of the tokens, else 0."""
    x = rows.reshape(-1)
    others = [f.not_equal(x, token) for token in tokens]
    return reduce(and_, others).astype("int64") if others else f.full(x.shape, 1, "int64")


def collapsed(rows: Array, ends: Array, blank: int, merge_repeated: bool) -> Array:
    """Return 1 for each label that is no blank, and of equal ones in a row of a sequence the first, else 0."""
    labels = rows.reshape(-1)
    stays = f.not_equal(labels, blank)
    if merge_repeated and labels.size:
        number = f.sequence_of(ends, labels.size)
        differs = [f.not_equal(x[1:], x[:-1]) for x in (labels, number)]
        first = f.full((1,), 1, "int64")
        changes = (differs[0] | differs[1]).astype("int64")
        return stays.astype("int64") * f.concatenate([first, changes])
    return stays.astype("int64")


def of_patches(a: Any) -> f.Results:
    """Each image has as many patches."""
    rows, columns = patches(a.x.shape, vars(a))
    return {"out": f.offsets(f.full((a.x.shape[0],), rows * columns, "int64"))}


def of_images(a: OffsetsOfImages) -> f.Results:
    """The numbers of each image's convolution: one for each channel and every stride-th row and column."""
    sizes = ((f.lengths(a.y), a.StrideH), (f.lengths(a.z), a.StrideW))
    rows, columns = (f.floor_divide(size - 1, stride) + 1 for size, stride in sizes)
    return {"out": f.offsets(rows * columns * a.OutputChannel)}


_define = partial(define, lod=no_sequences)
_define(
    "lod_offsets",
    OffsetsOfRows,
    _AS_MANY,
    needs=lambda attrs: {"Out": ("X",)},
    samples=(sample("X offsets [2 0 3], Rows [5 2]"),),
)
_define(
    "lod_from_lengths",
    Unary,
    Sized("X integers -> Out int64 [size+1]", "size = prod(X)"),
    formula=lambda a: {"out": f.offsets(a.x)},
    samples=(sample("X 0:5 [4]"), sample("X 0:5 [3 1]")),
)
_define(
    "lod_of_copies",
    Binary,
    copies_shape,
    reads_values=lambda attrs: ("Y",),
    formula=of_copies,
    samples=(sample("X offsets [2 0 3], Y offsets [1 2 3]"),),
)
_define(
    "lod_together",
    _TOGETHER,
    equally_many,
    formula=lambda a: {"out": sum(a.x[1:], a.x[0])},
    samples=(sample("X* offsets [2 0 3] [1 1 0]"),),
)
_define(
    "lod_joined",
    _TOGETHER,
    Sized("X -> Out int64 [size]", "size = 1 + sum(n - 1 for (n,) in X)"),
    formula=lambda a: {"out": behind(a.x)},
    samples=(sample("X* offsets [2 0 3] [1 1]"),),
)
_define(
    "lod_absolute",
    _TOGETHER,
    Sized("X -> Out int64 [size]", "size = X[0][0]"),
    formula=lambda a: {"out": reduce(f.take, reversed(a.x))},
    samples=(sample("X* offsets [1 2] [2 0 3]"),),
)
_define(
    "lod_reshaped",
    OffsetsReshaped,
    _AS_MANY,
    needs=lambda attrs: {"Out": ("X",)},
    samples=(sample("X offsets [2 0 4], Rows [6 3]", new_dim=6),),
)
_define(
    "lod_erased",
    record_of("x rows", "out", tokens=[]),
    _AS_MANY,
    formula=lambda a: {"out": f.take(f.offsets(without(a.rows, a.tokens)), a.x)},
    samples=(
        sample("X offsets [2 0 3], Rows 0:3 [5 1]", tokens=[1]),
        sample("X offsets [2 0 3], Rows 0:3 [5]", tokens=[0, 2]),
    ),
)
_define(
    "lod_aligned",
    record_of("x rows", "out", blank=0, merge_repeated=True),
    _AS_MANY,
    formula=lambda a: {
        "out": f.take(f.offsets(collapsed(a.rows, a.x, a.blank, a.merge_repeated)), a.x)
    },
    samples=(
        sample("X offsets [5 0 4], Rows 0:2 [9 1]"),
        sample("X offsets [5 0 4], Rows 0:3 [9 1]", merge_repeated=False),
    ),
)
_define(
    "lod_of_patches",
    record_of("x", "out", kernels=[1, 1], strides=[1, 1], paddings=[0, 0, 0, 0]),
    Sized("X [images ...] -> Out int64 [images+1]"),
    needs=lambda attrs: {"Out": ()},
    formula=of_patches,
    samples=(sample("X [2 3 4 5]", kernels=[2, 2], strides=[1, 2]),),
)
_define(
    "lod_of_pairs",
    record_of("x y", "out", dim_t=1),
    equally_many,
    formula=lambda a: {"out": f.offsets(f.lengths(a.x) * f.lengths(a.y) * a.dim_t)},
    samples=(sample("X offsets [2 0 3], Y offsets [3 1 2]", dim_t=2),),
)
_define(
    "lod_alike",
    OffsetsAlike,
    alike_shape,
    formula=alike,
    samples=(sample("X offsets [2 0 3], Y offsets [2 0 3]"),),
    refuses=(sample("X offsets [2 0 3], Y offsets [2 3]"),),
)
_define(
    "lod_of_images",
    OffsetsOfImages,
    equally_many,
    formula=of_images,
    samples=(
        sample(
            "X offsets [24 0 20], Y offsets [4 1 2], Z offsets [3 0 5]",
            InputChannel=2,
            OutputChannel=3,
            StrideH=2,
        ),
    ),
)
