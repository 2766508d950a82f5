"""Ops that take a part of a tensor, or put a tensor into a larger one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add

from . import formula as f
from .operands import Input, Inputs, Operands, Output, named
from .registry import Inference, Specs, define, slope
from .rules import merge_dims, of_shape
from .samples import sample
from .shapes import Sized

_OFFSETS = {"Offsets": "offsets"}
_OFFSETS_OF_EITHER = {**_OFFSETS, "OffsetsTensor": "offsets"}
_NUMBERS = {"Shape": "shape", "ShapeTensor": "shape", **_OFFSETS_OF_EITHER}


def window_start(offsets: Sequence[int], rank: int) -> list[int]:
    """Return where a window begins in each dimension: no offsets are zeros."""
    return list(offsets) or [0] * rank


def crop_shape(op: Inference) -> Mapping[str, Specs]:
    """``shape`` elements (-1: all that follow) from ``offsets`` on; ``crop`` may have Y's shape."""
    x = op.spec("X")
    rank = len(x.shape)
    crop = op.op.type == "crop"
    shape = list(op.shape("Y") if crop and op.has("Y") else op.attr("shape"))
    starts = window_start(op.attr("offsets"), rank)
    op.require(
        len(shape) == len(starts) == rank,
        f"shape {shape} and offsets {starts} need a number for each of {rank} dimensions",
    )
    for i, (size, start, whole) in enumerate(zip(shape, starts, x.shape, strict=True)):
        op.require(start >= 0, f"offset {start} of dimension {i} must not be below 0")
        op.require(size > 0 or size == -1, f"size {size} of dimension {i} must be above 0, or -1")
        if size == -1:
            shape[i] = whole - start if whole >= 0 else -1
        op.require(
            whole < 0 or 0 < shape[i] <= whole - start,
            f"{shape[i]} elements from {start} on do not fit the {whole} of dimension {i}",
        )
    return {"Out": of_shape(tuple(shape), x)}


class Crop(Operands):
    x: Input
    offsets_tensor: Input | None = named("Offsets")
    y: Input | None
    out: Output
    offsets: Sequence[int] = []
    shape: Sequence[int] = []


define(
    "crop",
    Crop,
    crop_shape,
    numbers=_OFFSETS,
    shapes_of=("Y",),
    samples=(
        sample("X [4 5]", shape=[2, 3], offsets=[1, 2]),
        sample("X [3 4 2], Y [2 2 2]", offsets=[0, 1, 0]),
    ),
    refuses=(
        sample("X [4 5]", shape=[2, 3], offsets=[3, 2]),
        sample("X [4 5]", shape=[2], offsets=[0]),
        sample("X [4 5]", shape=[2, 2], offsets=[-1, 0]),
    ),
    slope=slope("(x) offsets_tensor d_out", "d_x", numbers=_OFFSETS),
)


class CropTensor(Operands):
    x: Input
    offsets_whole: Input | None = named("Offsets")
    offsets_tensor: Inputs | None
    shape_whole: Input | None = named("Shape")
    shape_tensor: Inputs | None
    out: Output
    offsets: Sequence[int] = []
    shape: Sequence[int] = []


define(
    "crop_tensor",
    CropTensor,
    crop_shape,
    numbers=_NUMBERS,
    samples=(sample("X [4 5]", shape=[2, -1], offsets=[1, 2]),),
    refuses=(
        sample("X [4 5]", shape=[2, 4], offsets=[0, 2]),
        sample("X [4 5]", shape=[2, 0], offsets=[0, 2]),
    ),
    slope=slope("(x) offsets_whole offsets_tensor d_out", "d_x", numbers=_OFFSETS_OF_EITHER),
)


class PadConstantLike(Operands):
    x: Input
    y: Input
    out: Output
    pad_value: float = 0.0


define(
    "pad_constant_like",
    PadConstantLike,
    Sized(
        "X, Y as X -> Out",
        "len(X) == len(Y); Y must have X's rank",
        "every(size <= whole for size, whole in zip(Y, X)); Y must have no larger size than X",
    ),
    shapes_of=("X",),
    samples=(sample("X [4 5], Y [2 3]", pad_value=1.5), sample("X [2 3], Y [2 3]")),
    slope=slope("(y) d_out", "d_y"),
)


def partial_width(op: Inference) -> tuple[int, int]:
    """Return the rows that the operands agree on, and how many columns of each are taken."""
    specs = op.specs("X")
    rows, width = (*specs[0].shape, -1, -1)[:2]
    for spec in specs:
        both = merge_dims(rows, spec.shape[0]) if len(spec.shape) == 2 else None
        fits = both is not None and merge_dims(width, spec.shape[1]) is not None
        op.require(fits and spec.dtype == specs[0].dtype, "operands must be matrices of one shape")
        rows, width = both if both is not None else -1, max(width, spec.shape[1])
    start, length = op.attr("start_index"), op.attr("length")
    op.require(width > 0, "the width of the operands must be known")
    op.require(-width <= start < width, f"start_index {start} is outside the {width} columns")
    start += width if start < 0 else 0
    length = width - start if length < 0 else length
    op.require(
        0 < length <= width - start,
        f"length {length} from column {start} on does not fit the {width} columns",
    )
    return rows, length


class PartialConcat(Operands):
    x: Inputs
    start_index: int = 0
    length: int = -1
    out: Output


class PartialSum(PartialConcat):
    use_mkldnn: bool = False


def partial_sum(a: PartialSum) -> f.Results:
    start = a.start_index % a.x[0].shape[1]
    stop = None if a.length < 0 else start + a.length
    return {"out": reduce(add, (x[:, start:stop] for x in a.x))}


def partial_concat_shape(op: Inference) -> Mapping[str, Specs]:
    """The columns taken of every operand, side by side."""
    rows, length = partial_width(op)
    return {"Out": of_shape((rows, length * len(op.specs("X"))), op.specs("X")[0])}


_TWO = "X* [2 4] [2 4]"

define(
    "partial_concat",
    PartialConcat,
    partial_concat_shape,
    samples=(sample(_TWO, start_index=1, length=2), sample("X* [3 4] [3 4] [3 4]", start_index=-3)),
    refuses=(
        sample(_TWO, start_index=4),
        sample(_TWO, start_index=2, length=3),
        sample("X* [2 4] [2 3]"),
    ),
    slope=slope("(x) d_out", "d_x"),
)
define(
    "partial_sum",
    PartialSum,
    lambda op: {"Out": of_shape(partial_width(op), op.specs("X")[0])},
    formula=partial_sum,
    samples=(sample(_TWO, start_index=1, length=2), sample("X* [3 4] [3 4] [3 4]", start_index=-3)),
    refuses=(sample(_TWO, length=5),),
    slope=slope("(x) d_out", "d_x"),
)
