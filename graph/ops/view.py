"""Ops that give the same elements another shape or order of dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .lod import no_sequences
from .operands import Operands, Slot, Unary, record, record_of, slope_record
from .registry import Inference, Op, Specs, define, differentiable, like_operands
from .rules import normal_axis, of_shape, product, sizes_read
from .samples import sample
from .second_order import copied
from .shapes import Sized

Shape = tuple[int, ...]
# What gives the same elements another shape, in both forms
VIEWS = tuple(
    f"{name}{form}" for name in ("reshape", "squeeze", "unsqueeze", "flatten") for form in ("", "2")
)


# XShape is the forward input's shape with a 0 in front
_OF_X_SHAPE = Sized("Out@GRAD, XShape [0 ...] -> X@GRAD [...]")


def _define_views(
    name: str,
    new_shape: Callable[[Inference, Shape], Shape],
    first: type[Operands],
    reads: str = "x d_out",
    writes: str = "d_x",
    *,
    second_attrs: Mapping[str, Any] | None = None,
    read_each_step: Mapping[str, Any] | None = None,
    **settings: Any,
) -> None:
    """Declare both forms of an op that gives the same elements another shape, and their gradients.

    ``first`` is the record of the first form; ``reads`` and ``writes`` are slots of its gradient op. The second
    form has the attributes ``second_attrs``, too, and XShape, which its gradient op reads. ``read_each_step``
    holds samples and refusals of a third form, which reads the numbers of its shape in each step; no program
    holds it.
    """

    def first_rule(op: Inference) -> Mapping[str, Specs]:
        x = op.spec("X")
        return {"Out": of_shape(new_shape(op, x.shape), x)}

    def second_rule(op: Inference) -> Mapping[str, Specs]:
        x = op.spec("X")
        return {**first_rule(op), "XShape": of_shape((0, *x.shape), x)}

    views = {"X@GRAD": "Out@GRAD"} if "views" in settings else {}
    numbers = settings.get("numbers", {})
    keeps_order = settings.get("keeps_order", Op.keeps_order)
    slots, x_shape = first.declared(), Slot("XShape", False, True, "x_shape")
    attrs = {**slots.attrs, **(second_attrs or {})}
    second = record(f"{name}2", slots.inputs, (*slots.outputs, x_shape), attrs)
    for form, rule, own, grad_rule, grad_slots in (
        (name, first_rule, first, like_operands, (reads, writes)),
        (f"{name}2", second_rule, second, _OF_X_SHAPE, ("x_shape d_out", "d_x")),
    ):
        grad_record = slope_record(own.declared(), *grad_slots)
        read = {slot.name for slot in grad_record.declared().inputs}
        gradient = Op(
            f"{form}_grad",
            grad_record,
            grad_rule,
            numbers={slot: attr for slot, attr in numbers.items() if slot in read},
            views=views,
            shapes_of=[slot for slot in ("X", "Out") if slot in read],
            keeps_order=keeps_order,
        )
        if views and "linear" not in settings:
            gradient = differentiable(gradient, copied(), views={"DDOut": "DDX"})
        define(form, own, rule, **settings, slope=gradient)
    if read_each_step is not None:
        at = f"{name}_at"
        define(at, second, second_rule, reads_values=lambda attrs: tuple(numbers), **read_each_step)


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
    op.require(
        min(sizes) >= -1, f"a size of {sizes} is below -1, which takes the remaining elements"
    )
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


_define_views(
    "reshape",
    reshaped,
    record_of("x shape_slot:Shape? shape_tensor*?", "out", shape=[]),
    "x shape_slot shape_tensor out d_out",
    "d_x d_shape_slot d_shape_tensor",
    second_attrs={"use_quantizer": False},
    numbers={"ShapeTensor": "shape", "Shape": "shape"},  # a list counts first
    samples=(sample("X [2 3 4]", shape=[0, -1]), sample("X [4 3]", shape=[2, 6])),
    refuses=(sample("X [3 4]", shape=[5, 2]), sample("X [3 4]", shape=[5, -1])),
    views={"Out": "X"},
    read_each_step={
        "samples": (
            sample("X [2 3 4], Shape lengths [0 -1]"),
            sample("X [4 3], ShapeTensor* lengths [2] [6]", shape=[-1, 6]),
        ),
        "refuses": (sample("X [3 4], Shape lengths [5 2]"),),
    },
)
_define_views(
    "squeeze",
    squeezed,
    record_of("x", "out", axes=[]),
    samples=(sample("X [3 1 4 1]", axes=[1]), sample("X [1 4]", axes=[])),
    refuses=(sample("X [3 1]", axes=[0]),),
    views={"Out": "X"},
)
_define_views(
    "unsqueeze",
    unsqueezed,
    record_of("x axes_tensor? axes_tensor_list*?", "out", axes=[]),
    numbers={"AxesTensorList": "axes", "AxesTensor": "axes"},
    samples=(sample("X [3 4]", axes=[1]), sample("X [3 4]", axes=[0, -1])),
    views={"Out": "X"},
    read_each_step={
        "samples": (
            sample("X [3 4], AxesTensor lengths [0 2]"),
            sample("X [3 4], AxesTensorList* lengths [1] [0]"),
        ),
        "refuses": (sample("X [3 4], AxesTensor lengths [4]"),),
    },
)
_define_views(
    "flatten",
    flattened,
    record_of("x", "out", axis=1),
    samples=(sample("X [2 3 4]", axis=2), sample("X [2 3]", axis=0)),
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


class Transpose(Unary):
    axis: Sequence[int] = []
    data_format: str = "AnyLayout"
    use_mkldnn: bool = False
    use_quantizer: bool = False


_define_views(
    "transpose",
    transposed,
    Transpose,
    "x out d_out",
    linear=("X",),
    views={"Out": "X"},
    keeps_order=lambda attrs, slots: list(attrs["axis"]) == sorted(attrs["axis"]),
    lod=no_sequences,
    samples=(
        sample("X [2 3 4]", axis=[2, 0, 1]),
        sample("X [3 4]", axis=[1, 0]),
        sample("X [3 4]", axis=[0, 1]),
    ),
    refuses=(sample("X [3 4]", axis=[0, 2]),),
)
