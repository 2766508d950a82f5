"""Ops that compute offsets of sequences: no program holds them, they are put in when a graph is read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ...strategies.types import INTEGERS
from .lod import no_sequences
from .operands import Array, Input, Inputs, Operands, Output
from .registry import OFFSETS, Inference, Specs, define
from .rules import product
from .samples import integers, normal, offsets, sample
from .shapes import Sized


class Offsets(Operands):
    x: Input
    out: Output


class OffsetsOfRows(Operands):
    x: Input
    rows: Input
    out: Output


class OffsetsOfCopies(Operands):
    x: Input
    y: Input
    out: Output


class OffsetsTogether(Operands):
    x: Inputs
    out: Output


class OffsetsReshaped(Operands):
    x: Input
    rows: Input
    out: Output
    new_dim: int = 1


class OffsetsErased(Operands):
    x: Input
    rows: Input
    out: Output
    tokens: Sequence[int] = []


class OffsetsAligned(Operands):
    x: Input
    rows: Input
    out: Output
    blank: int = 0
    merge_repeated: bool = True


class OffsetsOfPairs(Operands):
    x: Input
    y: Input
    out: Output
    dim_t: int = 1


class OffsetsOfImages(Operands):
    x: Input
    y: Input
    z: Input
    out: Output
    InputChannel: int = 1
    OutputChannel: int = 1
    StrideH: int = 1
    StrideW: int = 1


class OffsetsOfPatches(Operands):
    x: Input
    out: Output
    kernels: Sequence[int] = [1, 1]
    strides: Sequence[int] = [1, 1]
    paddings: Sequence[int] = [0, 0, 0, 0]


def offsets_shape(op: Inference) -> Mapping[str, Specs]:
    """As many offsets as X has elements."""
    x = op.spec("X")
    op.require(x.dtype in INTEGERS, "offsets must be integers")
    return {"Out": OFFSETS._replace(shape=(product(x.shape),))}


def lengths_shape(op: Inference) -> Mapping[str, Specs]:
    """One more offset than X has lengths."""
    size = product(op.shape("X"))
    op.require(op.spec("X").dtype in INTEGERS, "lengths must be integers")
    return {"Out": OFFSETS._replace(shape=(size + 1 if size >= 0 else -1,))}


def copies_shape(op: Inference) -> Mapping[str, Specs]:
    """Y ends with the number of copies."""
    sequences, counted = (op.shape(slot)[0] - 1 for slot in ("X", "Y"))
    op.require(
        sequences == counted or min(sequences, counted) < 0,
        f"X has {sequences} sequences, and Y tells of {counted} how often they are copied",
    )
    counts = op.value("Y")
    return {"Out": OFFSETS._replace(shape=(-1 if counts is None else int(counts[-1]) + 1,))}


def _require_equal(op: Inference, sizes: Collection[int]) -> None:
    """Refuse operands with other numbers of offsets than each other."""
    counts = " and ".join(str(size - 1) for size in sorted(sizes))
    op.require(
        len(sizes) <= 1, f"the operands must have equally many sequences, got {counts} of them"
    )


def together_shape(op: Inference) -> Mapping[str, Specs]:
    """As many offsets as each operand has."""
    sizes = {spec.shape[0] for spec in op.specs("X")} - {-1}
    _require_equal(op, sizes)
    return {"Out": OFFSETS._replace(shape=(max(sizes, default=-1),))}


def joined_shape(op: Inference) -> Mapping[str, Specs]:
    """One offset, and as many as each operand has sequences."""
    sizes = [spec.shape[0] for spec in op.specs("X")]
    size = sum(sizes) - len(sizes) + 1 if min(sizes) >= 0 else -1
    return {"Out": OFFSETS._replace(shape=(size,))}


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


def outermost_shape(op: Inference) -> Mapping[str, Specs]:
    """As many offsets as the first operand has."""
    return {"Out": op.specs("X")[0]}


def equally_many(op: Inference) -> Mapping[str, Specs]:
    """As many offsets as each of the operands has."""
    sizes = {op.shape(slot.name)[0] for slot in op.op.input_slots} - {-1}
    _require_equal(op, sizes)
    return {"Out": OFFSETS._replace(shape=(max(sizes, default=-1),))}


define(
    "lod_offsets",
    OffsetsOfRows,
    offsets_shape,
    needs=lambda attrs: {"Out": ("X",)},
    lod=no_sequences,
    samples=(sample({"X": offsets(2, 0, 3), "Rows": normal(5, 2)}),),
)
define(
    "lod_from_lengths",
    Offsets,
    lengths_shape,
    lod=no_sequences,
    samples=(sample({"X": integers(4, high=5)}), sample({"X": integers(3, 1, high=5)})),
)
define(
    "lod_of_copies",
    OffsetsOfCopies,
    copies_shape,
    reads_values=lambda attrs: ("Y",),
    lod=no_sequences,
    samples=(sample({"X": offsets(2, 0, 3), "Y": offsets(1, 2, 3)}),),
)
define(
    "lod_together",
    OffsetsTogether,
    together_shape,
    lod=no_sequences,
    samples=(sample({"X": [offsets(2, 0, 3), offsets(1, 1, 0)]}),),
)
define(
    "lod_joined",
    OffsetsTogether,
    joined_shape,
    lod=no_sequences,
    samples=(sample({"X": [offsets(2, 0, 3), offsets(1, 1)]}),),
)
define(
    "lod_absolute",
    OffsetsTogether,
    outermost_shape,
    lod=no_sequences,
    samples=(sample({"X": [offsets(1, 2), offsets(2, 0, 3)]}),),
)
define(
    "lod_reshaped",
    OffsetsReshaped,
    offsets_shape,
    needs=lambda attrs: {"Out": ("X",)},
    lod=no_sequences,
    samples=(sample({"X": offsets(2, 0, 4), "Rows": normal(6, 3)}, new_dim=6),),
)
define(
    "lod_erased",
    OffsetsErased,
    offsets_shape,
    lod=no_sequences,
    samples=(
        sample({"X": offsets(2, 0, 3), "Rows": integers(5, 1, high=3)}, tokens=[1]),
        sample({"X": offsets(2, 0, 3), "Rows": integers(5, high=3)}, tokens=[0, 2]),
    ),
)
define(
    "lod_aligned",
    OffsetsAligned,
    offsets_shape,
    lod=no_sequences,
    samples=(
        sample({"X": offsets(5, 0, 4), "Rows": integers(9, 1, high=2)}),
        sample({"X": offsets(5, 0, 4), "Rows": integers(9, 1, high=3)}, merge_repeated=False),
    ),
)
define(
    "lod_of_patches",
    OffsetsOfPatches,
    Sized("X [images ...] -> Out int64 [images+1]"),
    needs=lambda attrs: {"Out": ()},
    lod=no_sequences,
    samples=(sample({"X": normal(2, 3, 4, 5)}, kernels=[2, 2], strides=[1, 2]),),
)
define(
    "lod_of_pairs",
    OffsetsOfPairs,
    equally_many,
    lod=no_sequences,
    samples=(sample({"X": offsets(2, 0, 3), "Y": offsets(3, 1, 2)}, dim_t=2),),
)
define(
    "lod_of_images",
    OffsetsOfImages,
    equally_many,
    lod=no_sequences,
    samples=(
        sample(
            {"X": offsets(24, 0, 20), "Y": offsets(4, 1, 2), "Z": offsets(3, 0, 5)},
            InputChannel=2,
            OutputChannel=3,
            StrideH=2,
        ),
    ),
)
