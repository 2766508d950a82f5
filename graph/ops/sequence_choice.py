"""Ops that choose and order whole sequences (LoD): by their lengths, and by a mask. Legend: B sequences.

A sequence is one of the outermost level, with all levels within; without levels, each row is a sequence.
A rank table is an int64 tensor [B, 2]: number and length of each sequence of a level, the longest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from ...strategies.types import INTEGERS, VarType
from . import formula as f
from .lod import LodRule, Lods, no_sequences
from .lod_levels import behind
from .operands import Array, Input, Inputs, Offsets, Operands, Output
from .registry import OFFSETS, Elements, Grad, Inference, Spec, Specs, define
from .rules import merge_dims, of_shape, product
from .samples import sample

Levels = Sequence[np.ndarray]
RANK, UNRANK, LONGER = "rank", "unrank", "longer"
TRUE, FALSE, MERGED = "true", "false", "merged"


def chosen(by: str, y: np.ndarray) -> np.ndarray:
    """Return the numbers of sequences in the order in which a result has them.

    ``y`` is a rank table (``rank``: all sequences, the longest first; ``unrank``: back in the original order)
    or a mask (``true``, ``false``: the sequences with this mark; ``merged``: all, from an operand that holds
    the marked sequences before the others, in the order of the mask).
    """
    if by == RANK:
        return y[:, 0]
    if by == UNRANK:
        return np.argsort(y[:, 0])
    mask = y.reshape(-1).astype(bool)
    if by == MERGED:
        return np.argsort(np.argsort(~mask, kind="stable"))
    return np.flatnonzero(mask == (by == TRUE))


def longer(table: np.ndarray, i: np.ndarray) -> int:
    """Return how many of the ranked sequences are longer than ``i``: they are the first."""
    return len(table) - int(table[::-1, 1].searchsorted(i.item(), "right"))


def within(level: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets of some sequences behind each other, and the numbers of what lies in them."""
    lengths = np.diff(level)[numbers]
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return ends, np.arange(ends[-1]) + np.repeat(level[:-1][numbers] - ends[:-1], lengths)


def rows_of(levels: Levels, numbers: np.ndarray) -> np.ndarray:
    """Return the numbers of the rows of some sequences, in order."""
    for level in levels:
        _, numbers = within(level, numbers)
    return numbers


def first_rows(levels: Levels, count: int) -> int:
    """Return how many rows the first sequences have, which end where the next one begins (-1: too few)."""
    for level in levels:
        if not 0 <= count < len(level):
            return -1
        count = int(level[count])
    return count


class RankTable(Operands):
    x: Input
    x_lod: Offsets
    out: Output
    level: int = 0


class MaxSequenceLen(Operands):
    rank_table: Input
    out: Output


class ShrinkRnnMemory(Operands):
    x: Input
    x_lod: Offsets
    rank_table: Input
    i: Input
    out: Output


class ShrinkRnnMemoryGrad(Operands):
    x: Input
    d_out: Input
    d_x: Output


class ReorderByRank(Operands):
    x: Input
    x_lod: Offsets
    rank_table: Input
    out: Output


class ReorderByRankGrad(Operands):
    x: Input  # the gradient of the result
    x_lod: Offsets
    rank_table: Input
    out: Output


class SplitLodTensor(Operands):
    x: Input
    x_lod: Offsets
    mask: Input
    out_true: Output
    out_false: Output
    level: int = 0


class MergeLodTensor(Operands):
    x: Input
    mask: Input
    in_true: Input
    in_true_lod: Offsets
    in_false: Input
    in_false_lod: Offsets
    out: Output
    level: int = 0


class OffsetsPicked(Operands):
    x: Inputs
    y: Input
    i: Input | None
    out: Output
    by: str = RANK


def ranked(a: RankTable) -> f.Results:
    """Number and length of each sequence stand behind those of all that are longer, or come first of equals."""
    length = f.lengths(a.x_lod[a.level])
    number = f.table(range(length.shape[0]), "int64")
    own, own_number, other, other_number = (
        x.reshape(shape) for shape in ((-1, 1), (1, -1)) for x in (length, number)
    )
    ahead = (other > own) | (f.equal(other, own) & (other_number < own_number))
    place = f.where(ahead, 1, 0).sum(1)
    rows = f.concatenate([own_number, own], 1)
    return {"out": f.row_sums(place, rows, length.shape[0])}


def rows_chosen(by: str, levels: Sequence[Array], y: Array, rows: int, of: int) -> Array:
    """Return what ``rows_of(levels, chosen(by, y))`` does: ``rows`` of ``of`` rows, as a formula."""
    ends = reduce(f.take, reversed(levels)) if levels else None
    if by in (RANK, UNRANK):
        numbers = y[:, 0]
        if by == UNRANK:
            numbers = f.row_sums(numbers, f.table(range(y.shape[0]), "int64"), y.shape[0])
    else:
        named = f.not_equal(y.reshape(-1), 0).astype("int64")
        if by == MERGED:
            before = f.offsets(named)
            others = before[-1:] + f.table(range(y.size), "int64") - before[:-1]
            numbers = f.where(f.equal(named, 1), before[:-1], others)
        else:
            named = named if by == TRUE else 1 - named
            named = named if ends is None else f.take(named, f.sequence_of(ends, of))
            # Each that is chosen is a sequence of one row, and the others are empty.
            return f.sequence_of(f.offsets(named), rows)
    if ends is None:
        return numbers
    begins, own = f.take(ends, numbers), f.offsets(f.take(f.lengths(ends), numbers))
    return f.take(begins - own[:-1], f.sequence_of(own, rows)) + f.table(range(rows), "int64")


def _reordered(by: str) -> f.Formula:
    def formula(a: ReorderByRank | ReorderByRankGrad) -> f.Results:
        rows = a.x.shape[0]
        return {"out": f.take(a.x, rows_chosen(by, a.x_lod, a.rank_table, rows, rows))}

    return formula


def split(a: SplitLodTensor) -> f.Results:
    """The rows of the sequences that the mask names, and those of the others."""
    return {
        field: f.take(a.x, rows_chosen(by, a.x_lod[a.level :], a.mask, out.shape[0], a.x.shape[0]))
        for field, by, out in (("out_true", TRUE, a.out_true), ("out_false", FALSE, a.out_false))
        if out is not None
    }


def merged(a: MergeLodTensor) -> f.Results:
    """Sequences that the mask names, with the others behind them, are put in their places."""
    pairs = zip(a.in_true_lod, a.in_false_lod, strict=True)
    levels = [behind(pair) for pair in pairs]
    rows = f.concatenate([a.in_true, a.in_false])
    count = rows.shape[0]
    return {"out": f.take(rows, rows_chosen(MERGED, levels, a.mask, count, count))}


def picked(a: OffsetsPicked) -> f.Results:
    """The offsets of what lies in the sequences that are chosen, of the last level."""
    *outer, last = a.x
    count = a.out.shape[0] - 1
    if a.by == LONGER:
        return {"out": last[: count + 1]}
    chosen_rows = rows_chosen(a.by, outer, a.y, count, last.shape[0] - 1)
    return {"out": f.offsets(f.take(f.lengths(last), chosen_rows))}


def _levels(op: Inference, slot: str) -> Levels | None:
    """Return the levels of a slot, none if it has no sequences; None: they are not known yet."""
    known = op.values(slot) if op.has(slot) else ()
    levels = [level for level in known if level is not None]
    return levels if len(levels) == op.count(slot) else None


def _count(op: Inference, slot: str, level: int = 0) -> int:
    """Return how many sequences a slot has at a level (its rows without any); -1: not known yet."""
    lod = f"{slot}@LOD"
    if not op.has(lod):
        return op.shape(slot)[0] if op.exact else -1
    levels = op.specs(lod)
    if not -1 < level < len(levels):
        op.fail(f"{slot} has {len(levels)} level(s), none is {level}")
    return max(levels[level].shape[0] - 1, -1)


def _check_table(op: Inference, count: int) -> None:
    table = op.spec("RankTable")
    fits = len(table.shape) == 2 and merge_dims(table.shape[1], 2) and table.dtype in INTEGERS
    op.require(bool(fits), "RankTable must be what lod_rank_table returns")
    if merge_dims(table.shape[0], count) is None:
        op.fail(f"RankTable ranks {table.shape[0]} sequences, X has {count}")


def table_shape(op: Inference) -> Mapping[str, Specs]:
    """[B, 2], int64."""
    op.sequences("X")
    count = _count(op, "X", op.attr("level")) if op.has("X@LOD") else -1
    return {"Out": Spec((count, 2), VarType.INT64)}


def reordered_shape(op: Inference) -> Mapping[str, Specs]:
    """Like X, of which the table ranks all sequences."""
    _check_table(op, _count(op, "X"))
    return {"Out": op.spec("X")}


def shrunk_shape(op: Inference) -> Mapping[str, Specs]:
    """The rows of the first sequences of X, as many as are longer than I."""
    x = op.spec("X")
    _check_table(op, -1)
    op.require(product(op.shape("I")) in (1, -1), "I must have one element")
    if op.sizes is None:
        return {"Out": of_shape((-1, *x.shape[1:]), x)}
    (sequences, rows), count = op.sizes, _count(op, "X")
    if sequences > count:
        op.fail(f"{sequences} sequences are longer than I, X has {count}")
    return {"Out": of_shape((rows, *x.shape[1:]), x)}


def _shrunk_sizes(read: Elements, attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """Return how many sequences are longer than I, and their rows."""
    (table,), (i,) = read["RankTable"], read["I"]
    count = longer(table, i)
    return count, first_rows(read.get("X@LOD", ()), count)


def split_shape(op: Inference) -> Mapping[str, Specs]:
    """The rows of the sequences that Mask names, and those of the others."""
    x, mask, levels = op.spec("X"), op.value("Mask"), _levels(op, "X@LOD")
    count, size = _count(op, "X", op.attr("level")), product(op.shape("Mask"))
    op.require(
        merge_dims(size, count) is not None, f"Mask has {size} elements, X has {count} sequences"
    )
    if mask is None or levels is None:
        return dict.fromkeys(("OutTrue", "OutFalse"), of_shape((-1, *x.shape[1:]), x))
    inner = levels[op.attr("level") :]
    return {
        out: of_shape((len(rows_of(inner, chosen(by, mask))), *x.shape[1:]), x)
        for out, by in (("OutTrue", TRUE), ("OutFalse", FALSE))
    }


def merged_shape(op: Inference) -> Mapping[str, Specs]:
    """The rows of both, which are of one shape and type."""
    yes, no = op.spec("InTrue"), op.spec("InFalse")
    same = yes.dtype == no.dtype and len(yes.shape) == len(no.shape) > 0
    same = same and None not in map(merge_dims, yes.shape[1:], no.shape[1:])
    op.require(same, "InTrue and InFalse must have rows of one shape and type")
    levels = [len(op.specs(s)) if op.has(s) else 0 for s in ("InTrue@LOD", "InFalse@LOD")]
    op.require(
        not op.exact or levels[0] == levels[1],
        f"InTrue has {levels[0]} levels of sequences, InFalse {levels[1]}: make them alike",
    )
    mask, count = op.value("Mask"), _count(op, "InTrue")
    if mask is not None:
        named_rows = int(np.count_nonzero(mask))
        op.require(
            (named_rows, mask.size - named_rows) == (count, _count(op, "InFalse")),
            f"Mask names {named_rows} of {mask.size} sequences, InTrue has {count} and InFalse "
            f"{_count(op, 'InFalse')}",
        )
    rows = -1 if min(yes.shape[0], no.shape[0]) < 0 else yes.shape[0] + no.shape[0]
    return {"Out": of_shape((rows, *yes.shape[1:]), yes)}


def picked_shape(op: Inference) -> Mapping[str, Specs]:
    """One more offset than there are sequences of the last level of X in those chosen."""
    if op.sizes is None:
        return {"Out": OFFSETS}
    (count,) = op.sizes
    named = "are longer than I" if op.attr("by") == LONGER else "Y names"
    op.require(count >= 0, f"X has fewer sequences than {named}: feed as many sequences of both")
    return {"Out": of_shape((count + 1,), OFFSETS)}


def _picked_sizes(read: Elements, attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """Return how many sequences of the last level lie in those chosen; -1: X has not all of these."""
    *outer, last = read["X"]
    (y,), by = read["Y"], attrs["by"]
    if by != LONGER:
        numbers = chosen(by, y)
        there = len(read["X"][0]) - 1 > numbers.max(initial=-1)
        return (len(rows_of(outer, numbers)) if there else -1,)
    count = first_rows(outer, longer(y, *read["I"]))
    return (count if count < len(last) else -1,)


def _picked(op: Lods[Any], levels: Sequence[Any], by: str, y: str, i: str = "") -> tuple[Any, ...]:
    """Return the levels of chosen sequences."""
    inputs = {"Y": [op.value(y)], **({"I": [op.value(i)]} if i else {})}
    return tuple(
        op.level("lod_picked", {"X": levels[: k + 1], **inputs}, {"by": by})
        for k in range(len(levels))
    )


def _split_lod(op: Lods[Any]) -> Mapping[str, tuple[Any, ...]]:
    levels = op.of("X")[op.attrs["level"] :]
    return {
        out: _picked(op, levels, by, "Mask") for out, by in (("OutTrue", TRUE), ("OutFalse", FALSE))
    }


def _merged_lod(op: Lods[Any]) -> Mapping[str, tuple[Any, ...]]:
    """Those of both, behind the levels of X that were not split."""
    yes, no = op.of("InTrue"), op.of("InFalse")
    if len(yes) != len(no):
        return {}
    together = [op.level("lod_joined", {"X": pair}) for pair in zip(yes, no, strict=True)]
    outer = op.of("X")[: op.attrs["level"]]
    return {"Out": (*outer, *_picked(op, together, MERGED, "Mask"))}


def _chosen_lod(by: str, i: str = "") -> LodRule:
    return lambda op: {"Out": _picked(op, op.of("X"), by, "RankTable", i)}


_ROWS = "X [5 2], X@LOD [2 0 3]"
_NESTED = "X [6 2], X@LOD [2 1] [3 1 2]"
_FIRST = "I lengths [1]"


_THREE, _TWO = "RankTable table [2 3; 0 2; 1 0]", "RankTable table [0 2; 1 1]"

define(
    "lod_rank_table",
    RankTable,
    table_shape,
    sequences_of=("X",),
    needs=lambda attrs: {"Out": ("X@LOD",)},
    lod=lambda op: {"Out": op.of("X")[: op.attrs["level"]]},  # those around the sequences
    formula=ranked,
    samples=(sample(_ROWS), sample(_NESTED), sample(_NESTED, level=1)),
    refuses=(sample("X [5 2]"), sample(_ROWS, level=1)),
)
define(
    "max_sequence_len",
    MaxSequenceLen,
    lambda op: {"Out": Spec((1,), VarType.INT64)},
    lod=no_sequences,
    formula=lambda a: {
        "out": f.concatenate([f.full((1,), 0, "int64"), a.rank_table[:, 1]]).max(keepdims=True)
    },
    samples=(sample(_THREE),),
)
define(
    "reorder_lod_tensor_by_rank",
    ReorderByRank,
    reordered_shape,
    grad=Grad.swap("reorder_lod_tensor_by_rank_grad", "RankTable"),
    lod=_chosen_lod(RANK),
    formula=_reordered(RANK),
    samples=(sample(_ROWS, _THREE), sample("X [3 2]", _THREE), sample(_NESTED, _TWO)),
    refuses=(sample(_ROWS, _TWO), sample(_ROWS, "RankTable table [1;]")),
)
define(
    "reorder_lod_tensor_by_rank_grad",
    ReorderByRankGrad,
    lambda op: {"Out": op.spec("X")},
    lod=_chosen_lod(UNRANK),
    formula=_reordered(UNRANK),
)
define(
    "shrink_rnn_memory",
    ShrinkRnnMemory,
    shrunk_shape,
    grad=Grad("shrink_rnn_memory_grad", ("X", "Out@GRAD"), ("X@GRAD",)),
    reads_values=lambda attrs: ("RankTable", "I", "X@LOD"),
    sizes_of=_shrunk_sizes,
    lod=_chosen_lod(LONGER, "I"),
    formula=lambda a: {"out": a.x[: a.out.shape[0]]},
    views={"Out": "X"},
    cuts=True,
    samples=(
        sample(_ROWS, _FIRST, _THREE),
        sample("X [2 2]", _FIRST, _THREE),
        sample(_NESTED, _FIRST, _TWO),
    ),
    refuses=(sample("X [1 2]", _FIRST, _THREE),),
)
define(
    "shrink_rnn_memory_grad",
    ShrinkRnnMemoryGrad,
    shapes_of=("X",),
    formula=lambda a: {
        "d_x": f.padded(a.d_out, [(0, a.x.shape[0] - a.d_out.shape[0]), *[(0, 0)] * (a.x.ndim - 1)])
    },
)
define(
    "split_lod_tensor",
    SplitLodTensor,
    split_shape,
    grad=Grad(
        "merge_lod_tensor",
        {"X": "X", "Mask": "Mask", "InTrue": "OutTrue@GRAD", "InFalse": "OutFalse@GRAD"},
        {"Out": "X@GRAD"},
    ),
    reads_values=lambda attrs: ("Mask", "X@LOD"),
    lod=_split_lod,
    formula=split,
    samples=(
        sample("X [4 2], Mask bool [4 1]"),
        sample(_ROWS, "Mask table [1; 0; 0]"),
        sample(_NESTED, "Mask table [0; 1]"),
        sample(_NESTED, "Mask table [1; 0; 1]", level=1),
    ),
    refuses=(sample(_ROWS, "Mask bool [5 1]"),),
)
define(
    "merge_lod_tensor",
    MergeLodTensor,
    merged_shape,
    grad=Grad(
        "split_lod_tensor",
        {"X": "Out@GRAD", "Mask": "Mask"},
        {"OutTrue": "InTrue@GRAD", "OutFalse": "InFalse@GRAD"},
    ),
    reads_values=lambda attrs: ("Mask",),
    lod=_merged_lod,
    formula=merged,
    samples=(
        sample("X [3 1], Mask table [0; 1; 0], InTrue [1 2], InFalse [2 2]"),
        sample(
            "X [3 1], Mask table [0; 1; 0], InTrue [2 2], InTrue@LOD [2], InFalse [4 2], "
            "InFalse@LOD [1 3]"
        ),
    ),
    refuses=(
        sample("X [3 1], Mask table [0; 1; 0], InTrue [1 3], InFalse [2 2]"),
        sample("X [3 1], Mask table [1; 1; 0], InTrue [1 2], InFalse [2 2]"),
    ),
)
define(
    "lod_picked",
    OffsetsPicked,
    picked_shape,
    reads_values=lambda attrs: ("X", "Y", "I"),
    sizes_of=_picked_sizes,
    lod=no_sequences,
    formula=picked,
    samples=(
        sample("X* offsets [2 0 3], Y table [2 3; 0 2; 1 0]"),
        sample("X* offsets [2 1] [3 1 2], Y table [1 2; 0 1]"),
        sample("X* offsets [3 2 0], Y table [2 3; 0 2; 1 0]", by=UNRANK),
        sample("X* offsets [3 2 0], Y table [2 3; 0 2; 1 0]", _FIRST, by=LONGER),
        sample("X* offsets [2 0 3], Y table [1; 0; 1]", by=TRUE),
        sample("X* offsets [2 0 3], Y table [1; 0; 1]", by=FALSE),
        sample("X* offsets [2 0 3], Y table [0; 1; 1]", by=MERGED),
    ),
)
