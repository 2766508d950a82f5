"""Ops on sequences of rows (LoD). Legend: N rows, B sequences, M elements of a row.

Every result is rows of an operand, picked or added up by numbers that follow from the offsets: so the gradients
follow, too. What depends on the offsets' elements beyond the number of sequences says so (``reads_values``).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from ...strategies.types import INTEGERS, VarType
from . import formula as f
from .levels import level_from
from .lod import Lods, like, no_sequences
from .operands import Array, Input, Offsets, Operands, Output, named, record_of
from .registry import Elements, Grad, Inference, Op, Spec, Specs, define, in_steps, slope
from .rules import of_shape, one_level
from .samples import sample
from .shapes import Sized, in_sequences

POOLS = ("AVERAGE", "SUM", "SQRT", "MAX", "LAST", "FIRST")


def bounds_of_rows(a: Any, rows: int) -> tuple[Array, Array, Array]:
    """Return, for each row of X: the number of its sequence, where that begins, and where it ends."""
    ends = a.x_lod[-1]
    number = f.sequence_of(ends, rows)
    return number, f.take(ends, number), f.take(ends[1:], number)


def result(a: Any, field: str = "out") -> Array:
    """Return a result, or in a gradient op, which has none, its gradient: they have one shape."""
    value: Array | None = getattr(a, field, None)
    return getattr(a, f"d_{field}") if value is None else value


# -- sequence_pool ----------------------------------------------------------------------------------


class SequencePool(Operands):
    x: Input
    x_lod: Offsets
    is_test: bool = False
    pooltype: str = "AVERAGE"
    pad_value: float = 0.0
    out: Output
    max_index: Output | None


class SequencePoolGrad(SequencePool, reads="x max_index"):
    d_out: Input
    d_x: Output


def sequence_pool(a: SequencePool) -> f.Results:
    """The sum, the mean, sum / sqrt(length), the largest, the first or the last of each sequence's rows."""
    ends, rows = a.x_lod[-1], a.x.shape[0]
    shape = (ends.shape[0] - 1, *a.x.shape[1:])
    x = a.x.reshape(rows, prod(shape[1:]))
    starts, ends, kind = ends[:-1], ends[1:], str(a.pooltype).upper()
    filled = f.not_equal(starts, ends).reshape(-1, 1)
    index = None
    if kind in ("SUM", "AVERAGE", "SQRT"):
        pooled = f.row_sums(f.sequence_of(a.x_lod[-1], rows), x, starts.shape[0])
        length = f.maximum(ends - starts, 1).astype(x.dtype).reshape(-1, 1)
        if kind != "SUM":
            pooled = pooled / (length if kind == "AVERAGE" else f.sqrt(length))
    elif kind == "MAX":
        index = f.row_of_largest(a.x_lod[-1], x).astype("int32")
        columns = f.table(range(x.shape[1]), "int64")
        place = f.maximum(index.astype("int64"), 0) * x.shape[1] + columns
        pooled = f.take(x.reshape(-1), place)
    else:
        row = f.minimum(starts, rows - 1) if kind == "FIRST" else f.maximum(ends - 1, 0)
        pooled = f.take(x, row)
    index = f.full(shape, -1, "int32") if index is None else index.reshape(shape)
    return {"out": f.where(filled, pooled, a.pad_value).reshape(shape), "max_index": index}


define(
    "sequence_pool",
    SequencePool,
    Sized(
        "X floats [N ...] -> Out [sequences(X) ...], MaxIndex int32 [sequences(X) ...]",
        f"pooltype.upper() in {POOLS}; pooltype must be one of {', '.join(POOLS)}",
    ),
    formula=sequence_pool,
    lod=lambda op: {"Out": op.of("X")[:-1]},
    samples=(
        *(sample("X [5 3], X@LOD [2 0 3]", pooltype=kind, pad_value=-9.0) for kind in POOLS),
        *(sample("X [0 3], X@LOD [0 0]", pooltype=kind, pad_value=-9.0) for kind in POOLS),
        sample("X [6 2 2], X@LOD [1 2] [2 3 1]"),
    ),
    slope=Op("sequence_pool_grad", SequencePoolGrad, shapes_of=("X",)),
)


# -- sequence_softmax -------------------------------------------------------------------------------


class SequenceSoftmax(Operands):
    x: Input
    x_lod: Offsets
    out: Output
    use_cudnn: bool = False
    data_format: str = "AnyLayout"


class SequenceSoftmaxGrad(SequenceSoftmax, reads="x out"):
    d_out: Input
    d_x: Output


def sequence_softmax(a: SequenceSoftmax) -> f.Results:
    """exp(x) over the sum of exp of its sequence."""
    x_N1 = a.x.reshape(-1, 1)
    number, count = f.sequence_of(a.x_lod[-1], x_N1.shape[0]), a.x_lod[-1].shape[0] - 1
    largest = f.maximum(f.row_of_largest(a.x_lod[-1], x_N1).reshape(-1), 0)
    power = f.exp(x_N1 - f.take(f.constant(f.take(x_N1, largest)), number))
    return {"out": (power / f.take(f.row_sums(number, power, count), number)).reshape(a.x.shape)}


def sequence_softmax_grad(a: SequenceSoftmaxGrad) -> f.Results:
    """out * (d - the sum of d * out of its sequence)."""
    out_N1, d_N1 = a.out.reshape(-1, 1), a.d_out.reshape(-1, 1)
    number, count = f.sequence_of(a.x_lod[-1], out_N1.shape[0]), a.x_lod[-1].shape[0] - 1
    total = f.take(f.row_sums(number, d_N1 * out_N1, count), number)
    return {"d_x": (out_N1 * (d_N1 - total)).reshape(a.x.shape)}


define(
    "sequence_softmax",
    SequenceSoftmax,
    Sized("X [N 1?] -> Out as X", lambda op: {"sequences": op.sequences("X")}),
    formula=sequence_softmax,
    samples=(
        sample("X [5 1], X@LOD [2 0 3]"),
        sample("X [0 1], X@LOD [0 0]"),
        sample("X [6], X@LOD [1 2] [2 3 1]"),
    ),
    slope=Op(
        "sequence_softmax_grad",
        SequenceSoftmaxGrad,
        formula=sequence_softmax_grad,
        shapes_of=("X",),
    ),
)


# -- sequence_expand, sequence_expand_as ------------------------------------------------------------


class SequenceExpand(Operands):
    x: Input
    y: Input
    x_lod: Offsets
    y_lod: Offsets
    out_lod: Offsets
    out: Output
    ref_level: int = -1


class SequenceExpandGrad(SequenceExpand, reads="x y"):
    out_lod: Offsets = named("Out@GRAD@LOD")
    d_out: Input
    d_x: Output


def expand_shape(op: Inference) -> Mapping[str, Specs]:
    """Sequence (or row) i of X, as many times as sequence i of Y is long at ``ref_level``."""
    x = op.spec("X")
    op.sequences("Y")
    one_level(op, "X")
    levels = op.specs("Y@LOD") if op.has("Y@LOD") else []
    ref = op.attr("ref_level")
    op.require(-1 <= ref < max(len(levels), 1), f"Y has no level {ref}: it has {len(levels)}")
    if not levels:
        return {"Out": of_shape((-1, *x.shape[1:]), x)}
    count = levels[ref].shape[0] - 1 if levels[ref].shape[0] > 0 else -1
    items = op.sequences("X") if op.has("X@LOD") else x.shape[0]
    if count >= 0 and items >= 0:
        op.require(items == count, f"X has {items} sequences or rows, Y {count} sequences")
    (rows,) = op.sizes or (-1,)
    return {"Out": of_shape((rows, *x.shape[1:]), x)}


def _expanded_rows(read: Elements, attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """Return where the last copy ends."""
    ends = read["Out@LOD"][0] if read.get("Out@LOD") else read["Y@LOD"][attrs["ref_level"]]
    return (int(ends[-1]),)


def expand_lod(op: Lods[Any]) -> Mapping[str, tuple[Any, ...]]:
    """Each copy of a sequence is a sequence; copies of rows are none."""
    x, y = op.of("X"), op.of("Y")
    if not x or not y:
        return {}
    return {"Out": (op.level("lod_of_copies", {"X": x[-1:], "Y": [y[op.attrs["ref_level"]]]}),)}


def sequence_expand(a: SequenceExpand) -> f.Results:
    """Copy c is of sequence i of X, where Y's sequence i has element c."""
    copies = a.y_lod[a.ref_level]
    rows = result(a).shape[0]
    if not a.x_lod:
        return {"out": f.take(a.x, f.sequence_of(copies, rows, "Y"))}
    ends = a.out_lod[-1]
    copy = f.sequence_of(ends, rows, "Out")
    source = f.take(f.sequence_of(copies, ends.shape[0] - 1, "Y"), copy)
    position = f.table(range(rows), "int64") - f.take(ends, copy)
    return {"out": f.take(a.x, f.take(a.x_lod[-1], source) + position)}


define(
    "sequence_expand",
    SequenceExpand,
    expand_shape,
    reads_values=lambda attrs: ("Out@LOD", "Y@LOD"),
    sizes_of=_expanded_rows,
    lod=expand_lod,
    formula=sequence_expand,
    shapes_of=("Y",),
    samples=(
        sample("X [3 2], Y [3 1], Y@LOD [2 0 1]"),
        sample(
            "X [4 2], Y [8 1], X@LOD [2 2], Y@LOD [2 2] [3 3 1 1], Out@LOD [2 2 2 2]", ref_level=0
        ),
    ),
    refuses=(
        sample("X [4 2], Y [3 1], Y@LOD [2 0 1]"),
        sample("X [3 2], Y [3 1], Y@LOD [2 0 1]", ref_level=1),
    ),
    slope=Op("sequence_expand_grad", SequenceExpandGrad, shapes_of=("X", "Y")),
)


define(
    "sequence_expand_as",
    record_of("x y y_lod", "out"),
    Sized(
        "X [sequences(Y) ...] -> Out [rows ...]",
        in_sequences("Y"),
        lambda op: {"rows": op.shape("Y")[0]},
    ),
    lod=like("Y", "Out"),
    formula=lambda a: {"out": f.take(a.x, f.sequence_of(a.y_lod[-1], a.y.shape[0], "Y"))},
    shapes_of=("Y",),
    samples=(sample("X [3 2], Y [5 1], Y@LOD [2 0 3]"),),
    slope=slope("(x) (y) d_out y_lod", "d_x"),
)


# -- sequence_reverse -------------------------------------------------------------------------------


class SequenceReverse(Operands):
    x: Input
    x_lod: Offsets
    y: Output


def sequence_reverse(a: SequenceReverse) -> f.Results:
    """The rows of each sequence from the last to the first."""
    rows = a.x.shape[0]
    _, start, end = bounds_of_rows(a, rows)
    return {"y": f.take(a.x, start + end - 1 - f.table(range(rows), "int64"))}


define(
    "sequence_reverse",
    SequenceReverse,
    Sized("X -> Y as X", in_sequences("X")),
    formula=sequence_reverse,
    grad=Grad("sequence_reverse", {"X": "Y@GRAD"}, {"Y": "X@GRAD"}),
    samples=(sample("X [5 2], X@LOD [2 0 3]"),),
    refuses=(sample("X [6 2], X@LOD [1 2] [2 3 1]"),),
)


# -- sequence_pad, sequence_unpad -------------------------------------------------------------------


class SequencePad(Operands):
    x: Input
    pad_value: Input
    x_lod: Offsets
    out: Output
    length: Output
    padded_length: int = -1


def pad_shape(op: Inference) -> Mapping[str, Specs]:
    """[B, padded_length or that of the longest, ...], and the lengths [B]."""
    x, count, length = op.spec("X"), op.sequences("X"), op.attr("padded_length")
    one_level(op, "X")
    op.require(len(x.shape) > 1, "X must have rows of numbers: [N, M], got a list of numbers")
    op.require(length > 0 or length == -1, f"padded_length must be positive or -1, got {length}")
    step, padding = x.shape[1:], op.shape("PadValue")
    fits = padding in ((), (1,)) or tuple(padding) == tuple(step)
    op.require(fits or -1 in step, f"PadValue must be one number or a row of X, {list(step)}")
    ends = op.offsets("X")
    if ends is not None:
        longest = int(np.diff(ends).max(initial=0))
        length = longest if length == -1 else length
        op.require(
            length >= longest, f"padded_length {length} is less than the longest of X, {longest}"
        )
    return {"Out": of_shape((count, length, *step), x), "Length": Spec((count,), VarType.INT64)}


def sequence_pad(a: SequencePad) -> f.Results:
    """Sequences as rows of equal length; what lies behind an end is PadValue."""
    ends = a.x_lod[-1]
    if a.out is None and a.length is not None:  # nothing else is wanted
        return {"length": ends[1:] - ends[:-1]}
    count, length = result(a).shape[:2]
    starts, sizes = ends[:-1].reshape(-1, 1), (ends[1:] - ends[:-1]).reshape(-1, 1)
    if a.padded_length != -1:  # the shape rule does not read lengths
        sizes = f.checked(
            sizes, length + 1, "length", f"lengths that padded_length {length} has room for"
        )
    step = f.table([range(length)], "int64")
    rows = f.take(a.x, f.minimum(starts + step, max(a.x.shape[0] - 1, 0)))
    inside = step < sizes
    padding: Any = 0 if a.pad_value is None else a.pad_value
    if a.pad_value is not None and a.pad_value.size == 1:
        padding = padding.reshape((1,) * rows.ndim)
    inside = inside.reshape(count, length, *(1,) * (a.x.ndim - 1))
    return {"out": f.where(inside, rows, padding), "length": sizes.reshape(-1)}


define(
    "sequence_pad",
    SequencePad,
    pad_shape,
    reads_values=lambda attrs: ("X@LOD",) if attrs["padded_length"] == -1 else (),
    needs=lambda attrs: {"Length": ("X@LOD",)},
    lod=no_sequences,
    formula=sequence_pad,
    samples=(
        sample("X [5 3], PadValue [1], X@LOD [2 0 3]"),
        sample("X [5 2 2], PadValue [2 2], X@LOD [2 0 3]", padded_length=4),
        sample("X [0 3], PadValue [1], X@LOD [0 0]", padded_length=4),
    ),
    refuses=(
        sample("X [5], PadValue [1], X@LOD [2 0 3]"),
        sample("X [5 3], PadValue [2], X@LOD [2 0 3]"),
        sample("X [5 3], PadValue [1], X@LOD [2 0 3]", padded_length=2),
    ),
    slope=slope("(x) d_out x_lod", "d_x"),
)


class SequenceUnpad(Operands):
    x: Input
    length: Input
    out_lod: Offsets
    out: Output


def unpad_shape(op: Inference) -> Mapping[str, Specs]:
    """The rows of X that lengths leave: [their sum, ...]; numbers become rows of one."""
    x, count = op.spec("X"), op.value("Length")
    op.require(len(x.shape) >= 2, "X must be [sequences, steps, ...]")
    op.require(op.spec("Length").dtype in INTEGERS, "Length must hold integers")
    if count is not None:
        op.require(count.size == x.shape[0], f"X has {x.shape[0]} rows, Length {count.size}")
        low, high = int(count.min(initial=0)), int(count.max(initial=0))
        op.require(
            low >= 0 and high <= x.shape[1],
            f"Length {low if low < 0 else high} is outside the {x.shape[1]} steps of X",
        )
    rows = -1 if count is None else int(count.sum())
    return {"Out": of_shape((rows, *(x.shape[2:] or (1,))), x)}


def sequence_unpad(a: SequenceUnpad) -> f.Results:
    """Row r of sequence b is X[b, r]."""
    rows, steps = result(a).shape[0], a.x.shape[1]
    number = f.sequence_of(a.out_lod[-1], rows, "Out")
    position = f.table(range(rows), "int64") - f.take(a.out_lod[-1], number)
    x = a.x.reshape(-1, *(a.x.shape[2:] or (1,)))
    return {"out": f.take(x, number * steps + position)}


define(
    "sequence_unpad",
    SequenceUnpad,
    unpad_shape,
    reads_values=lambda attrs: ("Length",),
    lod=level_from("lod_from_lengths", X="Length"),
    formula=sequence_unpad,
    samples=(
        sample("X [3 3 2], Length lengths [2 0 3], Out@LOD [2 0 3]"),
        sample("X [3 4], Length lengths [2 0 3], Out@LOD [2 0 3]"),
    ),
    refuses=(
        sample("X [3 2 2], Length lengths [2 0 3], Out@LOD [2 0 3]"),
        sample("X [2 3 2], Length lengths [2 0 3], Out@LOD [2 0 3]"),
    ),
    slope=slope("(x) length? d_out out_lod", "d_x"),
)


# -- sequence_mask ----------------------------------------------------------------------------------


class SequenceMask(Operands):
    x: Input
    max_len_tensor: Input | None
    y: Output
    maxlen: int = -1
    out_dtype: int = int(VarType.INT64)


def mask_shape(op: Inference) -> Mapping[str, Specs]:
    """X's shape, and behind it ``maxlen``, or the largest of X; -1 where that is not known."""
    x, length = op.spec("X"), op.attr("maxlen")
    op.require(x.dtype in INTEGERS, "X must hold integers")
    if op.has("MaxLenTensor"):
        number = op.value("MaxLenTensor")
        length = -1 if number is None else int(np.ravel(number)[0])
        op.require(number is None or length > 0, f"maxlen must be positive, got {length}")
    elif length == -1:
        counts = op.value("X")
        length = -1 if counts is None else int(counts.max(initial=0))
    else:
        op.require(length > 0, f"maxlen must be positive or -1, got {length}")
    return {"Y": Spec((*x.shape, length), VarType(op.attr("out_dtype")))}


def sequence_mask(a: SequenceMask) -> f.Results:
    """1 where the position is below X."""
    position = f.table(range(a.y.shape[-1]), "int64")
    return {"y": (position < a.x.reshape(*a.x.shape, 1)).astype(a.y.dtype)}


define(
    "sequence_mask",
    SequenceMask,
    mask_shape,
    numbers={"MaxLenTensor": "maxlen"},
    reads_values=lambda attrs: ("X",) if attrs["maxlen"] == -1 else (),
    lod=no_sequences,
    formula=sequence_mask,
    samples=(sample("X 0:5 [4]", maxlen=4), sample("X 0:5 [2 3]", out_dtype=int(VarType.FP32))),
    refuses=(sample("X 0:5 [4]", maxlen=0), sample("X [4]", maxlen=4)),
    in_steps=in_steps(
        samples=(sample("X 0:5 [2 3], MaxLenTensor lengths [4]"),),
        refuses=(sample("X 0:5 [4], MaxLenTensor lengths [0]"),),
        formula=sequence_mask,
    ),
)


# -- lod_reset --------------------------------------------------------------------------------------


def reset_shape(op: Inference) -> Mapping[str, Specs]:
    """Like X; the new offsets begin with 0, do not fall and end where X does."""
    target = list(op.attr("target_lod"))
    if op.has("Y@LOD"):
        rows, of_y = op.shape("X")[0], op.shape("Y")[0]
        op.require(
            min(rows, of_y) < 0 or rows == of_y,
            f"the sequences of Y end at row {of_y}, and X has {rows} rows",
        )
    elif not op.has("Y"):
        rising = all(a <= b for a, b in pairwise(target))
        op.require(
            len(target) > 1 and target[0] == 0 and rising, f"offsets {target} must rise from 0"
        )
        rows = op.shape("X")[0]
        op.require(rows < 0 or target[-1] == rows, f"offsets {target} must end at row {rows}")
    return {"Out": op.spec("X")}


def reset_lod(op: Lods[Any]) -> Mapping[str, tuple[Any, ...]]:
    """All levels of Y, or its elements, or ``target_lod``; ``append`` puts one behind those of X."""
    outer = op.of("X") if op.attrs["append"] else ()
    if op.uses("Y"):
        operands = {"X": [op.value("Y")], "Rows": [op.value("X")]}
        return {"Out": op.of("Y") or (*outer, op.level("lod_offsets", operands))}
    target = list(op.attrs["target_lod"])
    attrs = {"shape": [len(target)], "dtype": int(VarType.INT64), "int64_values": target}
    return {"Out": (*outer, op.level("assign_value", {}, attrs))}


define(
    "lod_reset",
    record_of("x y? y_lod out_lod", "out", target_lod=[], append=False),
    reset_shape,
    lod=reset_lod,
    formula=lambda a: {"out": a.x},
    samples=(sample("X [5 2]", target_lod=[0, 2, 5]),),
    refuses=(
        sample("X [5 2]"),
        sample("X [5 2]", target_lod=[0, 2, 4]),
        sample("X [5 2]", target_lod=[1, 5]),
        sample("X [5 2], Y [4 1], Y@LOD [2 2]"),
    ),
    slope=slope("(x) d_out", "d_x"),
)
