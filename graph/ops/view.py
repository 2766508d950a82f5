"""Ops that give the same elements another shape or order of dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from .lod import no_sequences
from .operands import (
    Gradient,
    Input,
    Inputs,
    Operands,
    Output,
    Outputs,
    SlopeOfBoth,
    SlopeOfX,
    Unary,
    named,
)
from .registry import Inference, Op, Spec, Specs, define, differentiable
from .rules import grads_like, normal_axis, of_shape, product, sizes_read
from .samples import lengths, normal, sample
from .second_order import copied

Shape = tuple[int, ...]
# What gives the same elements another shape, in both forms
VIEWS = tuple(
    f"{name}{form}" for name in ("reshape", "squeeze", "unsqueeze", "flatten") for form in ("", "2")
)


def _like_x_shape(op: Inference) -> Mapping[str, Specs]:
    """XShape is the forward input's shape with a 0 in front; X@GRAD has that shape."""
    return {"X@GRAD": Spec(op.shape("XShape")[1:], op.spec("Out@GRAD").dtype)}


class Views(NamedTuple):
    """Records of both forms of an op and of their gradients, of which the second reads XShape, not X."""

    first: type[Operands]
    first_grad: type[Operands]
    second: type[Operands]
    second_grad: type[Operands]


def _define_views(
    name: str, new_shape: Callable[[Inference, Shape], Shape], records: Views, **settings: Any
) -> None:
    """Declare both forms of an op that gives the same elements another shape, and their gradients."""

    def first_rule(op: Inference) -> Mapping[str, Specs]:
        x = op.spec("X")
        return {"Out": of_shape(new_shape(op, x.shape), x)}

    def second_rule(op: Inference) -> Mapping[str, Specs]:
        x = op.spec("X")
        return {**first_rule(op), "XShape": of_shape((0, *x.shape), x)}

    views = {"X@GRAD": "Out@GRAD"} if "views" in settings else {}
    numbers = settings.get("numbers", {})
    keeps_order = settings.get("keeps_order", Op.keeps_order)
    for form, rule, grad_rule, record, grad_record in (
        (name, first_rule, grads_like("X"), records.first, records.first_grad),
        (f"{name}2", second_rule, _like_x_shape, records.second, records.second_grad),
    ):
        reads = {slot.name for slot in grad_record.declared().inputs}
        gradient = Op(
            f"{form}_grad",
            grad_record,
            grad_rule,
            numbers={slot: attr for slot, attr in numbers.items() if slot in reads},
            views=views,
            keeps_order=keeps_order,
        )
        if views and "linear" not in settings:
            gradient = differentiable(gradient, copied(), views={"DDOut": "DDX"})
        define(form, record, rule, **settings, slope=gradient)


class XShapeGrad(Gradient):
    x_shape: Input
    d_out: Input


def reshaped(op: Inference, shape: Shape) -> Shape:
    """``shape``: 0 copies X's size at that place, one -1 takes what is left.

    A size is -1 where a tensor's number is not known.
    """
    read = sizes_read(op, "Shape", "ShapeTensor", op.attr("shape"))
    if None in read:
        return tuple(n or -1 for n in read)  # what 0 copies is known then, too
    sizes = [n for n in read if n is not None]
    op.require(bool(sizes), "the new shape is empty")
    op.require(sizes.count(-1) <= 1, f"only one size of {sizes} may be -1")
    for i, size in enumerate(sizes):
        if size == 0:
            op.require(i < len(shape), f"size 0 at {i} copies a dimension that X does not have")
            sizes[i] = shape[i]
    total = product(shape)
    if total >= 0 and read.count(-1) == 1 and sizes.count(-1) == 1:
        rest = math.prod(size for size in sizes if size != -1)
        op.require(rest > 0 and total % rest == 0, f"{total} elements do not fill {sizes}")
        sizes[sizes.index(-1)] = total // rest
    elif total >= 0 and -1 not in sizes:
        op.require(math.prod(sizes) == total, f"{total} elements do not fill {sizes}")
    return tuple(sizes)


def squeezed(op: Inference, shape: Shape) -> Shape:
    """Drop the dimensions in ``axes``, which must be 1; every 1 if none is named."""
    axes = [normal_axis(op, axis, len(shape)) for axis in op.attr("axes")]
    if not axes:
        return tuple(d for d in shape if d != 1) or (1,)
    for axis in axes:
        op.require(shape[axis] in (1, -1), f"dimension {axis} has size {shape[axis]}, not 1")
    return tuple(d for i, d in enumerate(shape) if i not in axes) or (1,)


def unsqueezed(op: Inference, shape: Shape) -> Shape:
    """Put a 1 at each place of ``axes``, one after the other.

    All sizes are -1 where a tensor's number is not known.
    """
    axes, result = sizes_read(op, "AxesTensor", "AxesTensorList", op.attr("axes")), list(shape)
    for axis in axes:
        if axis is None:
            return (-1,) * (len(shape) + len(axes))
        result.insert(normal_axis(op, axis, len(result), extra=1), 1)
    return tuple(result)


def flattened(op: Inference, shape: Shape) -> Shape:
    """A matrix: dimensions before ``axis`` are rows, the rest columns."""
    axis = op.attr("axis")
    op.require(0 <= axis <= len(shape), f"axis {axis} is outside the {len(shape)} dimensions")
    return product(shape[:axis]), product(shape[axis:])


class NewShape(Operands):
    shape: Sequence[int] = []


class Reshape(Unary, NewShape):
    shape_slot: Input | None = named("Shape")
    shape_tensor: Inputs | None


class ReshapeGrad(Reshape, Gradient, reads="x shape_slot shape_tensor out"):
    d_out: Input
    d_shape: Output | None
    d_shape_tensor: Outputs


class Reshape2(Reshape):
    x_shape: Output | None
    use_quantizer: bool = False


class Reshape2Grad(XShapeGrad, NewShape):
    use_quantizer: bool = False


_define_views(
    "reshape",
    reshaped,
    Views(Reshape, ReshapeGrad, Reshape2, Reshape2Grad),
    numbers={"ShapeTensor": "shape", "Shape": "shape"},  # a list counts first
    samples=(
        sample({"X": normal(2, 3, 4)}, shape=[0, -1]),
        sample({"X": normal(4, 3)}, shape=[2, 6]),
    ),
    refuses=(sample({"X": normal(3, 4)}, shape=[5, 2]), sample({"X": normal(3, 4)}, shape=[5, -1])),
    views={"Out": "X"},
)


class ReshapeAt(Reshape2):
    """Either form, with a shape that is read in each step; no program holds it."""


def reshape_at_shape(op: Inference) -> Mapping[str, Specs]:
    """As of ``reshape2``."""
    x = op.spec("X")
    return {"Out": of_shape(reshaped(op, x.shape), x), "XShape": of_shape((0, *x.shape), x)}


define(
    "reshape_at",
    ReshapeAt,
    reshape_at_shape,
    reads_values=lambda attrs: ("ShapeTensor", "Shape"),
    samples=(
        sample({"X": normal(2, 3, 4), "Shape": lengths(0, -1)}),
        sample({"X": normal(4, 3), "ShapeTensor": [lengths(2), lengths(6)]}, shape=[-1, 6]),
    ),
    refuses=(sample({"X": normal(3, 4), "Shape": lengths(5, 2)}),),
)


class Axes(Operands):
    axes: Sequence[int] = []


class Squeeze(Unary, Axes): ...


class AxesGrad(SlopeOfX, Axes): ...


class Squeeze2(Squeeze):
    x_shape: Output | None


class Axes2Grad(XShapeGrad, Axes): ...


_define_views(
    "squeeze",
    squeezed,
    Views(Squeeze, AxesGrad, Squeeze2, Axes2Grad),
    samples=(sample({"X": normal(3, 1, 4, 1)}, axes=[1]), sample({"X": normal(1, 4)}, axes=[])),
    refuses=(sample({"X": normal(3, 1)}, axes=[0]),),
    views={"Out": "X"},
)


class Unsqueeze(Squeeze):
    axes_tensor: Input | None
    axes_tensor_list: Inputs | None


class Unsqueeze2(Unsqueeze):
    x_shape: Output | None


_define_views(
    "unsqueeze",
    unsqueezed,
    Views(Unsqueeze, AxesGrad, Unsqueeze2, Axes2Grad),
    numbers={"AxesTensorList": "axes", "AxesTensor": "axes"},
    samples=(sample({"X": normal(3, 4)}, axes=[1]), sample({"X": normal(3, 4)}, axes=[0, -1])),
    views={"Out": "X"},
)


class UnsqueezeAt(Unsqueeze2):
    """Either form, with axes that are read in each step; no program holds it."""


def unsqueeze_at_shape(op: Inference) -> Mapping[str, Specs]:
    """As of ``unsqueeze2``."""
    x = op.spec("X")
    return {"Out": of_shape(unsqueezed(op, x.shape), x), "XShape": of_shape((0, *x.shape), x)}


define(
    "unsqueeze_at",
    UnsqueezeAt,
    unsqueeze_at_shape,
    reads_values=lambda attrs: ("AxesTensorList", "AxesTensor"),
    samples=(
        sample({"X": normal(3, 4), "AxesTensor": lengths(0, 2)}),
        sample({"X": normal(3, 4), "AxesTensorList": [lengths(1), lengths(0)]}),
    ),
    refuses=(sample({"X": normal(3, 4), "AxesTensor": lengths(4)}),),
)


class FlattenAttributes(Operands):
    axis: int = 1


class Flatten(Unary, FlattenAttributes): ...


class FlattenGrad(SlopeOfX, FlattenAttributes): ...


class Flatten2(Flatten):
    x_shape: Output | None


class Flatten2Grad(XShapeGrad, FlattenAttributes): ...


_define_views(
    "flatten",
    flattened,
    Views(Flatten, FlattenGrad, Flatten2, Flatten2Grad),
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


class TransposeAttributes(Operands):
    axis: Sequence[int] = []
    data_format: str = "AnyLayout"
    use_mkldnn: bool = False
    use_quantizer: bool = False


class Transpose(Unary, TransposeAttributes): ...


class TransposeGrad(SlopeOfBoth, TransposeAttributes): ...


class Transpose2(Transpose):
    x_shape: Output | None


class Transpose2Grad(XShapeGrad, TransposeAttributes): ...


_define_views(
    "transpose",
    transposed,
    Views(Transpose, TransposeGrad, Transpose2, Transpose2Grad),
    linear=("X",),
    views={"Out": "X"},
    keeps_order=lambda attrs, slots: list(attrs["axis"]) == sorted(attrs["axis"]),
    lod=no_sequences,
    samples=(
        sample({"X": normal(2, 3, 4)}, axis=[2, 0, 1]),
        sample({"X": normal(3, 4)}, axis=[1, 0]),
        sample({"X": normal(3, 4)}, axis=[0, 1]),
    ),
    refuses=(sample({"X": normal(3, 4)}, axis=[0, 2]),),
)
