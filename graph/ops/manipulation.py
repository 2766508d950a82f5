"""Ops that cut, join and repeat tensors without computing with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from .lod import joined, no_sequences
from .operands import Gradient, Input, Inputs, Operands, Output, Outputs, Unary, named
from .registry import Grad, Inference, Lying, Op, Spec, Specs, define, in_steps, slope
from .rules import normal_axis, of_shape, product, sizes_read
from .samples import sample
from .shapes import Sized


def _along(
    whole: str, slot: str, parts: Callable[[Inference], Sequence[Spec]]
) -> Callable[[Inference], Lying | None]:
    """Return the rule that parts along ``axis`` follow each other if no dimension is outside it."""

    def lying(op: Inference) -> Lying | None:
        shape = op.shape(whole)
        if product(shape[: normal_axis(op, op.attr("axis"), len(shape))]) != 1:
            return None
        sizes = [product(spec.shape) for spec in parts(op)]
        return Lying(whole, slot, [0, *accumulate(sizes[:-1])])

    return lying


def _layers(whole: str, slot: str) -> Callable[[Inference], Lying | None]:
    """Return the rule of parts that have a dimension less than the whole."""
    return _along(whole, slot, lambda op: _unstacked(op, op.spec(whole)))


def concat_shape(op: Inference) -> Mapping[str, Specs]:
    """Sizes along ``axis`` add up; the others agree."""
    specs = op.specs("X")
    first = specs[0]
    rank = len(first.shape)
    axis = normal_axis(op, op.attr("axis"), rank)
    alike = all(len(spec.shape) == rank and spec.dtype == first.dtype for spec in specs)
    op.require(alike, "ranks or dtypes differ")
    dims = list[int]()
    for k, sizes in enumerate(zip(*(spec.shape for spec in specs), strict=True)):
        known = {*sizes} - {-1}
        if k == axis:
            dims.append(-1 if -1 in sizes else sum(sizes))
        elif len(known) > 1:
            op.fail(f"sizes other than dimension {axis} differ")
        else:
            dims.append(known.pop() if known else -1)
    return {"Out": of_shape(tuple(dims), first)}


class Concat(Operands):
    x: Inputs
    axis_tensor: Input | None
    axis: int = 0
    use_mkldnn: bool = False
    use_quantizer: bool = False
    out: Output


define(
    "concat",
    Concat,
    concat_shape,
    linear=("X",),
    numbers={"AxisTensor": "axis"},
    lod=joined,
    parts=_along("Out", "X", lambda op: op.specs("X")),
    samples=(sample("X* [2 3] [4 3]"), sample("X* [2 3 2] [2 1 2] [2 2 2]", axis=1)),
    refuses=(sample("X* [2 3] [2 4]", axis=0),),
    slope=slope(
        "(x) axis_tensor d_out",
        "d_x",
        numbers={"AxisTensor": "axis"},
        parts=_along("Out@GRAD", "X@GRAD", lambda op: op.specs("X")),
    ),
)


def _split(op: Inference) -> list[Spec]:
    """Return the specs of ``num`` equal parts of ``axis``, or of parts of the sizes in ``sections``."""
    x = op.spec("X")
    axis = normal_axis(op, op.attr("axis"), len(x.shape))
    size, num, sections = x.shape[axis], op.attr("num"), list(op.attr("sections"))
    if not sections:
        op.require(
            num > 0 and (size < 0 or size % num == 0),
            f"{size} cannot be split into {num} equal parts",
        )
        sections = [size // num if size >= 0 else -1] * num
    elif size >= 0:
        if -1 in sections:
            sections[sections.index(-1)] = size - sum(s for s in sections if s != -1)
        op.require(
            sum(sections) == size and min(sections) >= 0, f"sections {sections} do not make {size}"
        )
    return [of_shape((*x.shape[:axis], s, *x.shape[axis + 1 :]), x) for s in sections]


class Split(Operands):
    x: Input
    axis_tensor: Input | None
    sections_tensor_list: Inputs | None
    out: Outputs
    sections: Sequence[int] = []
    num: int = 0
    axis: int = 0


define(
    "split",
    Split,
    lambda op: {"Out": _split(op)},
    numbers={"AxisTensor": "axis", "SectionsTensorList": "sections"},
    parts=_along("X", "Out", _split),
    grad=Grad.swap("concat", "AxisTensor", attrs=lambda a: {"axis": a["axis"]}),
    samples=(sample("X [4 6]", num=3, axis=1), sample("X [5 2]", sections=[1, -1], axis=0)),
    refuses=(sample("X [4 5]", num=3, axis=1),),
)


def _unstacked(op: Inference, y: Spec) -> list[Spec]:
    axis = normal_axis(op, op.attr("axis"), len(y.shape))
    return [of_shape((*y.shape[:axis], *y.shape[axis + 1 :]), y)] * y.shape[axis]


class Stack(Operands):
    x: Inputs
    y: Output
    axis: int = 0


define(
    "stack",
    Stack,
    Sized(
        "X as X [*shape] -> Y [*before number *after]",
        "at = front(axis, shape + (1,))",
        "before, number, after = shape[:at], len(X), shape[at:]",
    ),
    linear=("X",),
    parts=_layers("Y", "X"),
    samples=(sample("X* [2 3] [2 3]", axis=1), sample("X* [4] [4] [4]", axis=-1)),
    slope=slope(
        "d_y",
        "d_x",
        shape=lambda op: {"X@GRAD": _unstacked(op, op.spec("Y@GRAD"))},
        parts=_layers("Y@GRAD", "X@GRAD"),
    ),
)


def unstack_grad_shape(op: Inference) -> Mapping[str, Specs]:
    """The layers' gradients, stacked again."""
    specs = op.specs("Y@GRAD")
    axis = normal_axis(op, op.attr("axis"), len(specs[0].shape), extra=1)
    shape = specs[0].shape
    return {"X@GRAD": of_shape((*shape[:axis], len(specs), *shape[axis:]), specs[0])}


class Unstack(Operands):
    x: Input
    y: Outputs
    axis: int = 0
    num: int = 0


define(
    "unstack",
    Unstack,
    Sized(
        "X -> Y*layers [*rest]",
        "len(X) > 1; X must have 2 dimensions or more",
        "at = front(axis, X)",
        "layers = num if num > 0 else X[at]",
        "layers == X[at] > 0; X must have num layers",
        "rest = X[:at] + X[at + 1 :]",
    ),
    linear=("X",),
    lod=no_sequences,
    parts=_layers("X", "Y"),
    samples=(sample("X [2 3]", num=2), sample("X [2 3 2]", axis=-2, num=3)),
    refuses=(sample("X [2 3]", axis=2, num=2),),
    slope=slope("d_y", "d_x", shape=unstack_grad_shape, parts=_layers("X@GRAD", "Y@GRAD")),
)


def expand_shape(op: Inference) -> Mapping[str, Specs]:
    """Dimension i is repeated ``expand_times[i]`` times; -1 where a tensor's number is not known."""
    x, (whole, each) = op.spec("X"), _EXPAND_NUMBERS
    times = sizes_read(op, whole, each, op.attr("expand_times"))
    op.require(
        len(times) == len(x.shape), f"expand_times {times} needs a number for each dimension"
    )
    known = [t for t in times if t is not None]
    op.require(all(t > 0 for t in known), f"expand_times {times} must be above 0")
    pairs = zip(x.shape, times, strict=True)
    return {"Out": of_shape(tuple(-1 if t is None or d < 0 else d * t for d, t in pairs), x)}


_EXPAND_NUMBERS = {"ExpandTimes": "expand_times", "expand_times_tensor": "expand_times"}


class Expand(Unary):
    times_tensor: Input | None = named("ExpandTimes")
    expand_times_tensor: Inputs | None = named("expand_times_tensor")
    expand_times: Sequence[int] = []


class ExpandGrad(Expand, Gradient, reads="*"): ...


define(
    "expand",
    Expand,
    expand_shape,
    linear=("X",),
    numbers=_EXPAND_NUMBERS,
    views={"Out": "X"},
    samples=(sample("X [2 3]", expand_times=[2, 3]),),
    refuses=(sample("X [2 3]", expand_times=[2]),),
    slope=Op(
        "expand_grad",
        ExpandGrad,
        numbers=_EXPAND_NUMBERS,
        shapes_of=("X",),
        views={"X@GRAD": "Out@GRAD"},
    ),
    in_steps=in_steps(
        samples=(
            sample("X [2 3], ExpandTimes lengths [2 3]"),
            sample("X [2 3], expand_times_tensor* lengths [1] [2]"),
        ),
        refuses=(sample("X [2 3], ExpandTimes lengths [2 0]"),),
    ),
)
