"""Ops that pick elements by position: windows, rows, single elements, order, choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from . import formula as f
from .lod import no_sequences, sliced
from .operands import Array, Gradient, Input, Inputs, Operands, Output, Unary
from .registry import Inference, Lying, Op, Specs, define, in_steps
from .rules import as_many, of_shape, product
from .samples import sample
from .shapes import Sized, names_dimensions

_SLICE_NUMBERS = {
    f"{bound}{kind}": bound.lower()
    for bound in ("Starts", "Ends")
    for kind in ("TensorList", "Tensor")
}


def slice_bounds(size: int, start: int, end: int) -> tuple[int, int]:
    """Return start and end counted from the front and cut to ``size``."""
    start = min(max(start + size if start < 0 else start, 0), size)
    end = min(max(end + size if end < 0 else end, 0), size)
    return start, max(end, start)


def _bounds(op: Inference, name: str) -> Sequence[int | None]:
    """Return where windows start or end; None for what is known only when the program runs."""
    for slot in (f"{name.capitalize()}TensorList", f"{name.capitalize()}Tensor"):
        if op.has(slot):
            values = [op.value(slot, k) for k in range(len(op.specs(slot)))]
            known = [np.ravel(value).tolist() for value in values if value is not None]
            return [n for many in known for n in many] or [None] * len(op.attr("axes"))
    return list(op.attr(name))


def slice_shape(op: Inference) -> Mapping[str, Specs]:
    """Elements ``starts`` to ``ends`` of each of ``axes``; ``decrease_axis`` then drops sizes of 1."""
    x = op.spec("Input")
    dims = list(x.shape)
    starts, ends = (_bounds(op, name) for name in ("starts", "ends"))
    for axis, start, end in as_many(op, axes=op.attr("axes"), starts=starts, ends=ends):
        op.require(0 <= axis < len(dims), f"axis {axis} is outside the {len(dims)} dimensions")
        if start is None or end is None:
            dims[axis] = 1 if axis in op.attr("decrease_axis") else -1
        elif dims[axis] >= 0:
            low, high = slice_bounds(dims[axis], start, end)
            dims[axis] = high - low
            dropped = axis in op.attr("decrease_axis")
            op.require(
                not dropped or high - low == 1,
                f"index {start} is outside dimension {axis} of {x.shape[axis]} elements",
            )
        elif start >= 0 and 0 <= end - start < 1 << 20 and end >= 0:
            dims[axis] = end - start if axis in op.attr("decrease_axis") else -1
    shape = [d for i, d in enumerate(dims) if i not in op.attr("decrease_axis")]
    return {"Out": of_shape(tuple(shape) or (1,), x)}


def _one_run(op: Inference) -> Lying | None:
    """The window lies in X if its elements follow each other: its inner dimensions are those of X."""
    if any(map(op.has, _SLICE_NUMBERS)):
        return None
    begin, elements, shape = 0, 1, op.shape("Input")
    bounds = dict(enumerate((0, size) for size in shape))
    for axis, start, end in zip(*map(op.attr, ("axes", "starts", "ends")), strict=True):
        bounds[axis] = slice_bounds(shape[axis], start, end)
    for axis, (low, high) in bounds.items():
        behind = product(shape[axis + 1 :])
        if elements > 1 and high - low < shape[axis]:
            return None
        begin += low * behind
        elements *= high - low
    return Lying("Input", "Out", [begin])


class Slice(Operands):
    input: Input
    starts_tensor: Input | None
    ends_tensor: Input | None
    starts_tensor_list: Inputs | None
    ends_tensor_list: Inputs | None
    axes: Sequence[int] = []
    starts: Sequence[int] = []
    ends: Sequence[int] = []
    infer_flags: Sequence[int] = []
    decrease_axis: Sequence[int] = []
    out: Output


class SliceGrad(Slice, reads="*"):
    d_out: Input
    d_input: Output


_WINDOWS = "Input [4 5], EndsTensorList* lengths [3] [5]"
define(
    "slice",
    Slice,
    slice_shape,
    linear=("Input",),
    numbers=_SLICE_NUMBERS,
    lod=sliced,
    parts=_one_run,
    samples=(
        sample("Input [4 5]", axes=[0, 1], starts=[1, -3], ends=[3, 1000]),
        sample("Input [4 5]", axes=[1], starts=[2], ends=[3], decrease_axis=[1]),
    ),
    refuses=(
        sample("Input [4 5]", axes=[2], starts=[0], ends=[1]),
        sample("Input [4 5]", axes=[1], starts=[0, 1], ends=[1]),
        sample("Input [4 5]", axes=[1], starts=[5], ends=[6], decrease_axis=[1]),
    ),
    slope=Op("slice_grad", SliceGrad, numbers=_SLICE_NUMBERS, shapes_of=("Input",)),
    in_steps=in_steps(
        samples=(
            sample(_WINDOWS, "StartsTensor lengths [1 -3]", axes=[0, 1]),
            sample(_WINDOWS, "StartsTensorList* lengths [2] [0]", axes=[0, 1], decrease_axis=[0]),
        ),
        refuses=(sample(_WINDOWS, axes=[0, 2], starts=[0, 0]),),
        slope=Op("slice_at_grad", SliceGrad, shapes_of=("Input",)),
    ),
)


class Gather(Unary):
    index: Input
    overwrite: bool = True


class GatherGrad(Gather, Gradient, reads="*"): ...


define(
    "gather",
    Gather,
    Sized("X [rows ...], Index integers [K 1?] -> Out [K ...]"),
    linear=("X",),
    lod=no_sequences,
    samples=(sample("X [5 3], Index 0:5 [1]"), sample("X [5 3], Index 0:5 [6]", overwrite=False)),
    slope=Op("gather_grad", GatherGrad, shapes_of=("X",)),
)


class Where(Operands):
    condition: Input
    x: Input
    y: Input
    out: Output


class WhereGrad(Where, reads="*"):
    d_out: Input
    d_x: Output | None
    d_y: Output | None


define(
    "where",
    Where,
    Sized(
        "Condition bool, X [...], Y [...] -> Out as X",
        "len(Condition) < 2 and prod(Condition) == 1 or Condition == X; "
        "Condition must have X's shape, or one element",
    ),
    linear=("X", "Y"),
    samples=(
        sample("Condition bool [3 4], X [3 4], Y [3 4]"),
        sample("Condition bool [1], X [3 4], Y [3 4]"),
    ),
    slope=Op("where_grad", WhereGrad, shapes_of=("X", "Y")),
)


def places(x: Array, index: Array) -> Array:
    """Return the numbers of the elements (or slices) of X that the rows of Index name."""
    numbers = f.full(index.shape[:-1], 0, np.int64)
    for k, size in enumerate(x.shape[: index.shape[-1]]):
        numbers = numbers * size + f.checked(index[..., k], size).astype(np.int64)
    return numbers


class GatherNd(Unary):
    index: Input


def gather_nd(a: GatherNd) -> f.Results:
    depth = a.index.shape[-1]
    rows = a.x.reshape(product(a.x.shape[:depth]), *a.x.shape[depth:])
    return {"out": f.take(rows, places(a.x, a.index)).reshape(a.out.shape)}


class GatherNdGrad(GatherNd, Gradient, reads="*"): ...


define(
    "gather_nd",
    GatherNd,
    Sized(
        "X, Index integers -> Out [*result]",
        "known(Index[-1]) and Index[-1] <= len(X); "
        "Index's last dimension must be known and not above X's dimensions",
        "result = Index[:-1] + X[Index[-1] :] or (1,)",
    ),
    formula=gather_nd,
    linear=("X",),
    samples=(
        sample("X [3 4], Index 0:3 [5 2]"),
        sample("X [3 4 2], Index 0:3 [2 2 1]"),
        sample("X [3 4], Index 0:3 [2 0]"),
    ),
    slope=Op("gather_nd_grad", GatherNdGrad, shapes_of=("X",)),
)


class Scatter(Unary):
    ids: Input
    updates: Input
    overwrite: bool = True


class ScatterGrad(Scatter, reads="ids updates"):
    d_out: Input
    d_x: Output | None
    d_updates: Output | None


define(
    "scatter",
    Scatter,
    Sized("X [rows ...], Ids integers [K], Updates as X [K ...] -> Out as X"),
    lod=no_sequences,
    in_place={"Out": "X"},
    samples=(
        sample("X [5 3], Ids 0:5 [1], Updates [1 3]"),
        sample("X [5 3], Ids 0:3 [4], Updates [4 3]", overwrite=False),
    ),
    slope=Op(
        "scatter_grad",
        ScatterGrad,
        Sized("Out@GRAD, Updates -> X@GRAD as Out@GRAD, Updates@GRAD as Updates"),
        shapes_of=("Updates",),
    ),
)


class Argsort(Unary):
    indices: Output
    axis: int = -1
    descending: bool = False


class ArgsortGrad(Argsort, Gradient, reads="x indices"): ...


define(
    "argsort",
    Argsort,
    Sized("X -> Out, Indices int64", names_dimensions("axis")),
    samples=(
        sample("X [3 4]"),
        sample("X [3 4]", axis=0, descending=True),
        sample("X 0:3 [3 6]", descending=True),
    ),
    refuses=(sample("X [3 4]", axis=2),),
    slope=Op("argsort_grad", ArgsortGrad, shapes_of=("X",)),
)
