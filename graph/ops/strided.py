"""Ops that take every n-th element, or all of them from the end to the front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .lod import no_sequences
from .operands import Input, Inputs, Operands, Output, Unary
from .registry import Grad, Inference, Specs, define, slope
from .rules import as_many, of_shape
from .samples import sample
from .shapes import Sized, names_dimensions

_BOUNDS = ("Starts", "Ends", "Strides")
_NUMBERS = {
    f"{bound}{kind}": bound.lower() for kind in ("Tensor", "TensorList") for bound in _BOUNDS
}


def strided_indices(size: int, start: int, end: int, stride: int) -> range:
    """Return the indices that are taken. Going backwards, an end of -1 lies before the first element."""
    if stride < 0 and end == -1:
        end = -size - 1
    return range(*slice(start, end, stride).indices(size))


def strided_slice_shape(op: Inference) -> Mapping[str, Specs]:
    """Every ``strides``-th element from ``starts`` to ``ends`` of each of ``axes``."""
    x = op.spec("Input")
    dims = list(x.shape)
    for axis, start, end, stride in as_many(
        op, **{name: op.attr(name) for name in ("axes", "starts", "ends", "strides")}
    ):
        op.require(0 <= axis < len(dims), f"axis {axis} is outside the {len(dims)} dimensions")
        op.require(stride != 0, "a stride of 0 never ends")
        dropped = axis in op.attr("decrease_axis")
        if dims[axis] >= 0:
            dims[axis] = len(strided_indices(dims[axis], start, end, stride))
            op.require(not dropped or dims[axis] == 1, f"index {start} is outside dimension {axis}")
        elif dropped:
            dims[axis] = 1
    shape = [d for i, d in enumerate(dims) if i not in op.attr("decrease_axis")]
    return {"Out": of_shape(tuple(shape) or (1,), x)}


class StridedSlice(Operands):
    input: Input
    starts_tensor: Input | None
    ends_tensor: Input | None
    strides_tensor: Input | None
    starts_tensor_list: Inputs | None
    ends_tensor_list: Inputs | None
    strides_tensor_list: Inputs | None
    axes: Sequence[int] = []
    starts: Sequence[int] = []
    ends: Sequence[int] = []
    strides: Sequence[int] = []
    infer_flags: Sequence[int] = []
    decrease_axis: Sequence[int] = []
    out: Output


define(
    "strided_slice",
    StridedSlice,
    strided_slice_shape,
    linear=("Input",),
    numbers=_NUMBERS,
    samples=(
        sample("Input [4 5]", axes=[0, 1], starts=[0, -1], ends=[4, 0], strides=[2, -2]),
        sample(
            "Input [3 4]",
            axes=[0, 1],
            starts=[1, 3],
            ends=[2, -1],
            strides=[1, -1],
            decrease_axis=[0],
        ),
    ),
    refuses=(
        sample("Input [4 5]", axes=[2], starts=[0], ends=[1], strides=[1]),
        sample("Input [4 5]", axes=[1], starts=[0], ends=[1], strides=[0]),
        sample("Input [4 5]", axes=[0, 1], starts=[0], ends=[1], strides=[1]),
    ),
    slope=slope(
        "(input) starts_tensor ends_tensor strides_tensor starts_tensor_list ends_tensor_list "
        "strides_tensor_list d_out",
        "d_input",
        numbers=_NUMBERS,
    ),
)


class Reverse(Unary):
    axis: Sequence[int] = []


define(
    "reverse",
    Reverse,
    Sized("X -> Out", names_dimensions("axis")),
    lod=no_sequences,
    grad=Grad.swap("reverse"),
    samples=(sample("X [3 4]", axis=[0]), sample("X [2 3 4]", axis=[-1, 0])),
    refuses=(sample("X [3 4]", axis=[2]),),
)
