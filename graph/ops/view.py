"""Ops that give the same elements another shape or order of dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from .registry import Grad, Inference, Op, ShapeRule, Spec, Specs, define
from .rules import grads_like, normal_axis, of_shape, product
from .samples import normal, sample

Shape = tuple[int, ...]


def _like_x_shape(op: Inference) -> Mapping[str, Specs]:
    """XShape is the forward input's shape with a 0 in front; X@GRAD has that shape."""
    return {"X@GRAD": Spec(op.shape("XShape")[1:], op.spec("Out@GRAD").dtype)}


def _reads(reads: tuple[str, ...], slot: str) -> bool:
    return slot in {text.rstrip("*?") for text in reads}


def _define_form(
    op_type: str,
    rule: ShapeRule,
    grad_rule: ShapeRule,
    reads: tuple[str, ...],
    writes: tuple[str, ...],
    **settings: Any,
) -> None:
    """Declare one form of a view op and its gradient op; it has an output XShape if the gradient reads it."""
    keeps_order = "views" in settings
    kept = "XShape" in reads
    define(
        Op(
            type=op_type,
            outputs=("Out", "XShape?") if kept else ("Out",),
            shape=rule if kept else lambda op: {"Out": rule(op)["Out"]},
            grad=Grad(
                f"{op_type}_grad",
                tuple(slot.rstrip("*?") for slot in reads),
                tuple(slot.rstrip("*?") for slot in writes),
            ),
            **settings,
        )
    )
    define(
        Op(
            type=f"{op_type}_grad",
            inputs=reads,
            outputs=writes,
            attrs=settings["attrs"],
            numbers={s: a for s, a in settings["numbers"].items() if _reads(reads, s)},
            shape=grad_rule,
            views={"X@GRAD": "Out@GRAD"} if keeps_order else {},
        )
    )


def _define_views(
    name: str,
    new_shape: Callable[[Inference, Shape], Shape],
    attrs: Mapping[str, Any],
    *,
    tensors: tuple[str, ...] = (),
    newer_attrs: Mapping[str, Any] | None = None,
    first_reads: tuple[str, ...] = ("X", "Out@GRAD"),
    first_writes: tuple[str, ...] = ("X@GRAD",),
    **examples: Any,
) -> None:
    """Declare both forms of an op that gives the same elements another shape, and their gradients.

    The gradient of the second form (``reshape2``) reads XShape, so that X need not be kept; that of the
    first form reads ``first_reads``.
    """

    def rule(op: Inference) -> Mapping[str, Specs]:
        x = op.spec("X")
        return {"Out": of_shape(new_shape(op, x.shape), x), "XShape": of_shape((0, *x.shape), x)}

    (attr,) = list(attrs)[:1]
    numbers = {slot.rstrip("*?"): attr for slot in reversed(tensors)}  # a list counts first
    settings = {"inputs": ("X", *tensors), "numbers": numbers, **examples}
    _define_form(name, rule, grads_like("X"), first_reads, first_writes, attrs=attrs, **settings)
    second = {**attrs, **(newer_attrs or {})}
    reads = ("XShape", "Out@GRAD")
    _define_form(f"{name}2", rule, _like_x_shape, reads, ("X@GRAD",), attrs=second, **settings)


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
        return tuple(d for d in shape if d != 1) or (1,)
    for axis in axes:
        op.require(shape[axis] in (1, -1), f"dimension {axis} has size {shape[axis]}, not 1")
    return tuple(d for i, d in enumerate(shape) if i not in axes) or (1,)


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


_define_views(
    "reshape",
    reshaped,
    {"shape": []},
    samples=(
        sample({"X": normal(2, 3, 4)}, shape=[0, -1]),
        sample({"X": normal(4, 3)}, shape=[2, 6]),
    ),
    tensors=("Shape?", "ShapeTensor*?"),
    newer_attrs={"use_quantizer": False},
    first_reads=("X", "Shape?", "ShapeTensor*?", "Out", "Out@GRAD"),
    first_writes=("X@GRAD", "Shape@GRAD", "ShapeTensor@GRAD*"),
    refuses=(sample({"X": normal(3, 4)}, shape=[5, 2]), sample({"X": normal(3, 4)}, shape=[5, -1])),
    views={"Out": "X"},
)
_define_views(
    "squeeze",
    squeezed,
    {"axes": []},
    samples=(sample({"X": normal(3, 1, 4, 1)}, axes=[1]), sample({"X": normal(1, 4)}, axes=[])),
    refuses=(sample({"X": normal(3, 1)}, axes=[0]),),
    views={"Out": "X"},
)
_define_views(
    "unsqueeze",
    unsqueezed,
    {"axes": []},
    samples=(sample({"X": normal(3, 4)}, axes=[1]), sample({"X": normal(3, 4)}, axes=[0, -1])),
    tensors=("AxesTensor?", "AxesTensorList*?"),
    views={"Out": "X"},
)
_define_views(
    "flatten",
    flattened,
    {"axis": 1},
    samples=(sample({"X": normal(2, 3, 4)}, axis=2), sample({"X": normal(2, 3)}, axis=0)),
    views={"Out": "X"},
)


def transposed(op: Inference, shape: Shape) -> Shape:
    """Dimension i of the result is dimension ``axis[i]`` of X."""
    axis = op.attr("axis")
    op.require(
        sorted(axis) == list(range(len(shape))),
        f"axis={axis} is no order of {len(shape)} dimensions",
    )
    return tuple(shape[i] for i in axis)


_define_views(
    "transpose",
    transposed,
    {"axis": [], "data_format": "AnyLayout", "use_mkldnn": False, "use_quantizer": False},
    samples=(
        sample({"X": normal(2, 3, 4)}, axis=[2, 0, 1]),
        sample({"X": normal(3, 4)}, axis=[1, 0]),
    ),
    refuses=(sample({"X": normal(3, 4)}, axis=[0, 2]),),
    first_reads=("X", "Out", "Out@GRAD"),
)
