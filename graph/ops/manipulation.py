"""Ops that move, cut and join elements without computing with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ...strategies.types import VarType
from .registry import Grad, Inference, Op, Spec, Specs, define
from .rules import grads_like, merge_dims, normal_axis, of_shape, product
from .samples import booleans, integers, normal, sample

Shape = tuple[int, ...]


def _like_x_shape(op: Inference) -> Mapping[str, Specs]:
    """XShape is the forward input's shape with a 0 in front; X@GRAD has that shape."""
    return {"X@GRAD": Spec(op.shape("XShape")[1:], op.spec("Out@GRAD").dtype)}


def _define_view(
    name: str,
    new_shape: Callable[[Inference, Shape], Shape],
    attrs: Mapping[str, Any],
    samples: tuple[Any, ...],
    *,
    tensors: tuple[str, ...] = (),
    refuses: tuple[Any, ...] = (),
) -> None:
    """Declare an op that gives the same elements another shape, and its gradient, which reads XShape."""

    def rule(op: Inference) -> Mapping[str, Specs]:
        used = [slot.rstrip("*?") for slot in tensors if op.has(slot.rstrip("*?"))]
        op.require(
            not used, f"{', '.join(used)}: sizes given as tensors are not built, give numbers"
        )
        x = op.spec("X")
        return {"Out": of_shape(new_shape(op, x.shape), x), "XShape": of_shape((0, *x.shape), x)}

    define(
        Op(
            type=name,
            inputs=("X", *tensors),
            outputs=("Out", "XShape?"),
            attrs=attrs,
            shape=rule,
            grad=Grad(f"{name}_grad", ("XShape", "Out@GRAD"), ("X@GRAD",)),
            samples=samples,
            refuses=refuses,
        )
    )
    define(
        Op(
            type=f"{name}_grad",
            inputs=("XShape", "Out@GRAD"),
            outputs=("X@GRAD",),
            attrs=attrs,
            shape=_like_x_shape,
        )
    )


def reshaped(op: Inference, shape: Shape) -> Shape:
    """``shape`` attribute: 0 copies X's size at that place, one -1 takes what is left."""
    wanted = list(op.attr("shape"))
    op.require(bool(wanted), "the new shape is empty")
    op.require(wanted.count(-1) <= 1, f"only one size of {wanted} may be -1")
    for i, size in enumerate(wanted):
        if size == 0:
            op.require(i < len(shape), f"size 0 at {i} copies a dimension that X does not have")
            wanted[i] = shape[i]
    total = product(shape)
    if total >= 0 and list(op.attr("shape")).count(-1) == 1 and wanted.count(-1) == 1:
        rest = math.prod(size for size in wanted if size != -1)
        op.require(rest > 0 and total % rest == 0, f"{total} elements do not fill {wanted}")
        wanted[wanted.index(-1)] = total // rest
    elif total >= 0 and -1 not in wanted:
        op.require(math.prod(wanted) == total, f"{total} elements do not fill {wanted}")
    return tuple(wanted)


def squeezed(op: Inference, shape: Shape) -> Shape:
    """Drop the dimensions in ``axes``, which must be 1; every 1 if none is named."""
    axes = [normal_axis(op, axis, len(shape)) for axis in op.attr("axes")]
    if not axes:
        return tuple(d for d in shape if d != 1)
    for axis in axes:
        op.require(shape[axis] in (1, -1), f"dimension {axis} has size {shape[axis]}, not 1")
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def unsqueezed(op: Inference, shape: Shape) -> Shape:
    """Put a 1 at each place of ``axes``, one after the other."""
    result = list(shape)
    for axis in op.attr("axes"):
        result.insert(normal_axis(op, axis, len(result), extra=1), 1)
    return tuple(result)


def flattened(op: Inference, shape: Shape) -> Shape:
    """A matrix: dimensions before ``axis`` are rows, the rest columns."""
    axis = op.attr("axis")
    op.require(0 <= axis <= len(shape), f"axis {axis} is outside the {len(shape)} dimensions")
    return product(shape[:axis]), product(shape[axis:])


_define_view(
    "reshape2",
    reshaped,
    {"shape": [], "use_quantizer": False},
    (sample({"X": normal(2, 3, 4)}, shape=[0, -1]), sample({"X": normal(4, 3)}, shape=[2, 6])),
    tensors=("Shape?", "ShapeTensor*?"),
    refuses=(sample({"X": normal(3, 4)}, shape=[5, 2]), sample({"X": normal(3, 4)}, shape=[5, -1])),
)
_define_view(
    "squeeze2",
    squeezed,
    {"axes": []},
    (sample({"X": normal(3, 1, 4, 1)}, axes=[1]), sample({"X": normal(1, 4)}, axes=[])),
    refuses=(sample({"X": normal(3, 1)}, axes=[0]),),
)
_define_view(
    "unsqueeze2",
    unsqueezed,
    {"axes": []},
    (sample({"X": normal(3, 4)}, axes=[1]), sample({"X": normal(3, 4)}, axes=[0, -1])),
    tensors=("AxesTensor?", "AxesTensorList*?"),
)
_define_view(
    "flatten2",
    flattened,
    {"axis": 1},
    (sample({"X": normal(2, 3, 4)}, axis=2), sample({"X": normal(2, 3)}, axis=0)),
)


def transposed(op: Inference, shape: Shape) -> Shape:
    """Dimension i of the result is dimension ``axis[i]`` of X."""
    axis = op.attr("axis")
    op.require(
        sorted(axis) == list(range(len(shape))),
        f"axis={axis} is no order of {len(shape)} dimensions",
    )
    return tuple(shape[i] for i in axis)


_define_view(
    "transpose2",
    transposed,
    {"axis": [], "data_format": "AnyLayout", "use_mkldnn": False, "use_quantizer": False},
    (sample({"X": normal(2, 3, 4)}, axis=[2, 0, 1]), sample({"X": normal(3, 4)}, axis=[1, 0])),
    refuses=(sample({"X": normal(3, 4)}, axis=[0, 2]),),
)


def concat_shape(op: Inference) -> Mapping[str, Specs]:
    """Sizes along ``axis`` add up; the others agree."""
    op.require(not op.has("AxisTensor"), "AxisTensor is not built: give axis as a number")
    specs = op.specs("X")
    first = specs[0]
    axis = normal_axis(op, op.attr("axis"), len(first.shape))
    dims: list[int | None] = list(first.shape)
    for spec in specs[1:]:
        op.require(
            len(spec.shape) == len(dims) and spec.dtype == first.dtype, "ranks or dtypes differ"
        )
        dims = [
            merge_dims(a, b) if a is not None else None
            for a, b in zip(dims, spec.shape, strict=True)
        ]
        dims[axis] = -1
        op.require(None not in dims, f"sizes other than dimension {axis} differ")
    sizes = [spec.shape[axis] for spec in specs]
    dims[axis] = -1 if -1 in sizes else sum(sizes)
    return {"Out": of_shape(tuple(d for d in dims if d is not None), first)}


_CONCAT = {"axis": 0, "use_mkldnn": False, "use_quantizer": False}
define(
    Op(
        type="concat",
        inputs=("X*", "AxisTensor?"),
        outputs=("Out",),
        attrs=_CONCAT,
        shape=concat_shape,
        grad=Grad("concat_grad", ("X", "AxisTensor", "Out@GRAD"), ("X@GRAD",)),
        samples=(
            sample({"X": [normal(2, 3), normal(4, 3)]}),
            sample({"X": [normal(2, 3, 2), normal(2, 1, 2), normal(2, 2, 2)]}, axis=1),
        ),
        refuses=(sample({"X": [normal(2, 3), normal(2, 4)]}, axis=0),),
    )
)
define(
    Op(
        type="concat_grad",
        inputs=("X*", "AxisTensor?", "Out@GRAD"),
        outputs=("X@GRAD*",),
        attrs=_CONCAT,
        shape=grads_like("X"),
    )
)


def split_shape(op: Inference) -> Mapping[str, Specs]:
    """``num`` equal parts of ``axis``, or parts of the sizes in ``sections`` (one may be -1)."""
    op.require(
        not (op.has("AxisTensor") or op.has("SectionsTensorList")),
        "give axis and sections as numbers",
    )
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
    return {"Out": [of_shape((*x.shape[:axis], s, *x.shape[axis + 1 :]), x) for s in sections]}


define(
    Op(
        type="split",
        inputs=("X", "AxisTensor?", "SectionsTensorList*?"),
        outputs=("Out*",),
        attrs={"sections": [], "num": 0, "axis": 0},
        shape=split_shape,
        grad=Grad(
            "concat", {"X": "Out@GRAD"}, {"Out": "X@GRAD"}, attrs=lambda a: {"axis": a["axis"]}
        ),
        samples=(
            sample({"X": normal(4, 6)}, num=3, axis=1),
            sample({"X": normal(5, 2)}, sections=[1, -1], axis=0),
        ),
        refuses=(sample({"X": normal(4, 5)}, num=3, axis=1),),
    )
)


def stack_shape(op: Inference) -> Mapping[str, Specs]:
    """A new dimension at ``axis``, as long as there are operands."""
    specs = op.specs("X")
    op.require(
        len({s.dtype for s in specs}) == 1 and len({len(s.shape) for s in specs}) == 1,
        "operands differ",
    )
    axis = normal_axis(op, op.attr("axis"), len(specs[0].shape), extra=1)
    shape = specs[0].shape
    for spec in specs[1:]:
        dims = [merge_dims(a, b) for a, b in zip(shape, spec.shape, strict=True)]
        op.require(None not in dims, "operands must have one shape")
        shape = tuple(d for d in dims if d is not None)
    return {"Y": of_shape((*shape[:axis], len(specs), *shape[axis:]), specs[0])}


define(
    Op(
        type="stack",
        inputs=("X*",),
        outputs=("Y",),
        attrs={"axis": 0},
        shape=stack_shape,
        grad=Grad("stack_grad", ("Y@GRAD",), ("X@GRAD",)),
        samples=(
            sample({"X": [normal(2, 3), normal(2, 3)]}, axis=1),
            sample({"X": [normal(4)] * 3}, axis=-1),
        ),
        refuses=(sample({"X": [normal(2, 3), normal(3, 2)]}),),
    )
)


def _unstacked(op: Inference, y: Spec) -> list[Spec]:
    axis = normal_axis(op, op.attr("axis"), len(y.shape))
    return [of_shape((*y.shape[:axis], *y.shape[axis + 1 :]), y)] * y.shape[axis]


define(
    Op(
        type="stack_grad",
        inputs=("Y@GRAD",),
        outputs=("X@GRAD*",),
        attrs={"axis": 0},
        shape=lambda op: {"X@GRAD": _unstacked(op, op.spec("Y@GRAD"))},
    )
)

_SLICE_TENSORS = ("StartsTensor?", "EndsTensor?", "StartsTensorList*?", "EndsTensorList*?")


def slice_bounds(size: int, start: int, end: int) -> tuple[int, int]:
    """Return start and end counted from the front and cut to ``size``."""
    start = min(max(start + size if start < 0 else start, 0), size)
    end = min(max(end + size if end < 0 else end, 0), size)
    return start, max(end, start)


def slice_shape(op: Inference) -> Mapping[str, Specs]:
    """Elements ``starts`` to ``ends`` of each of ``axes``; ``decrease_axis`` then drops sizes of 1."""
    used = [
        s for s in ("StartsTensor", "EndsTensor", "StartsTensorList", "EndsTensorList") if op.has(s)
    ]
    op.require(not used, f"{', '.join(used)}: bounds given as tensors are not built, give numbers")
    x = op.spec("Input")
    dims = list(x.shape)
    for axis, start, end in zip(op.attr("axes"), op.attr("starts"), op.attr("ends"), strict=True):
        op.require(0 <= axis < len(dims), f"axis {axis} is outside the {len(dims)} dimensions")
        if dims[axis] >= 0:
            low, high = slice_bounds(dims[axis], start, end)
            dims[axis] = high - low
        elif start >= 0 and 0 <= end - start < 1 << 20 and end >= 0:
            dims[axis] = end - start if axis in op.attr("decrease_axis") else -1
    kept = [d for i, d in enumerate(dims) if i not in op.attr("decrease_axis")]
    return {"Out": of_shape(tuple(kept) or (1,), x)}


_SLICE: dict[str, Any] = {
    "axes": [],
    "starts": [],
    "ends": [],
    "infer_flags": [],
    "decrease_axis": [],
}
define(
    Op(
        type="slice",
        inputs=("Input", *_SLICE_TENSORS),
        outputs=("Out",),
        attrs=_SLICE,
        shape=slice_shape,
        grad=Grad(
            "slice_grad",
            (
                "Input",
                "StartsTensor",
                "EndsTensor",
                "StartsTensorList",
                "EndsTensorList",
                "Out@GRAD",
            ),
            ("Input@GRAD",),
        ),
        samples=(
            sample({"Input": normal(4, 5)}, axes=[0, 1], starts=[1, -3], ends=[3, 1000]),
            sample({"Input": normal(4, 5)}, axes=[1], starts=[2], ends=[3], decrease_axis=[1]),
        ),
        refuses=(sample({"Input": normal(4, 5)}, axes=[2], starts=[0], ends=[1]),),
    )
)
define(
    Op(
        type="slice_grad",
        inputs=("Input", *_SLICE_TENSORS, "Out@GRAD"),
        outputs=("Input@GRAD",),
        attrs=_SLICE,
        shape=grads_like("Input"),
    )
)


def expand_shape(op: Inference) -> Mapping[str, Specs]:
    """Dimension i is repeated ``expand_times[i]`` times."""
    op.require(
        not (op.has("ExpandTimes") or op.has("expand_times_tensor")), "give expand_times as numbers"
    )
    x, times = op.spec("X"), op.attr("expand_times")
    op.require(
        len(times) == len(x.shape), f"expand_times {times} needs a number for each dimension"
    )
    op.require(all(t > 0 for t in times), f"expand_times {times} must be above 0")
    return {
        "Out": of_shape(
            tuple(d * t if d >= 0 else -1 for d, t in zip(x.shape, times, strict=True)), x
        )
    }


_EXPAND_TENSORS = ("ExpandTimes?", "expand_times_tensor*?")
define(
    Op(
        type="expand",
        inputs=("X", *_EXPAND_TENSORS),
        outputs=("Out",),
        attrs={"expand_times": []},
        shape=expand_shape,
        grad=Grad(
            "expand_grad", ("X", "ExpandTimes", "expand_times_tensor", "Out@GRAD"), ("X@GRAD",)
        ),
        samples=(sample({"X": normal(2, 3)}, expand_times=[2, 3]),),
        refuses=(sample({"X": normal(2, 3)}, expand_times=[2]),),
    )
)
define(
    Op(
        type="expand_grad",
        inputs=("X", *_EXPAND_TENSORS, "Out@GRAD"),
        outputs=("X@GRAD",),
        attrs={"expand_times": []},
        shape=grads_like("X"),
    )
)


def gather_shape(op: Inference) -> Mapping[str, Specs]:
    """Rows of X at the indices."""
    x, index = op.spec("X"), op.shape("Index")
    op.require(
        len(index) == 1 or (len(index) == 2 and index[1] == 1), "Index must be a list of rows"
    )
    return {"Out": of_shape((index[0], *x.shape[1:]), x)}


define(
    Op(
        type="gather",
        inputs=("X", "Index"),
        outputs=("Out",),
        attrs={"overwrite": True},
        shape=gather_shape,
        grad=Grad("gather_grad", ("X", "Index", "Out@GRAD"), ("X@GRAD",)),
        samples=(sample({"X": normal(5, 3), "Index": integers(4, high=5)}),),
    )
)
define(
    Op(
        type="gather_grad",
        inputs=("X", "Index", "Out@GRAD"),
        outputs=("X@GRAD",),
        attrs={"overwrite": True},
        shape=grads_like("X"),
    )
)


def where_shape(op: Inference) -> Mapping[str, Specs]:
    """X where the condition holds, else Y; all three have one shape."""
    x = op.spec("X")
    op.require(op.spec("Condition").dtype == VarType.BOOL, "Condition must be bool")
    for other in ("Y", "Condition"):
        dims = [merge_dims(a, b) for a, b in zip(x.shape, op.shape(other), strict=False)]
        op.require(
            len(x.shape) == len(op.shape(other)) and None not in dims,
            f"{other} must have X's shape",
        )
    return {"Out": x}


define(
    Op(
        type="where",
        inputs=("Condition", "X", "Y"),
        outputs=("Out",),
        shape=where_shape,
        grad=Grad("where_grad", ("Condition", "X", "Y", "Out@GRAD"), ("X@GRAD", "Y@GRAD")),
        samples=(sample({"Condition": booleans(3, 4), "X": normal(3, 4), "Y": normal(3, 4)}),),
    )
)
define(
    Op(
        type="where_grad",
        inputs=("Condition", "X", "Y", "Out@GRAD"),
        outputs=("X@GRAD", "Y@GRAD"),
        shape=grads_like("X", "Y"),
    )
)
