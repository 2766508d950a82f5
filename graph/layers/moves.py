"""Layers that take parts of tensors, or give their elements another place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...strategies.errors import InvalidValue, require_type
from ..program.variable import Variable
from .arguments import Floats, integers, variables_of
from .helper import LayerHelper, layer
from .numbers import numbers_of
from .tensors import sizes_of


def crop(x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None) -> Variable:
    """A window of x: ``shape`` (numbers, or a Variable that has it) from ``offsets`` (zeros) on."""
    inputs: dict[str, Any] = {"X": x}
    attrs: dict[str, Any] = {}
    if isinstance(shape, Variable):
        inputs["Y"] = shape
    else:
        attrs["shape"] = sizes_of(shape, "crop")
    if isinstance(offsets, Variable):
        inputs["Offsets"] = offsets
    else:
        attrs["offsets"] = [0] * x.ndim if offsets is None else integers(offsets, "offsets", "crop")
    return layer("crop", name, **inputs, **attrs)


def crop_tensor(
    x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None
) -> Variable:
    """A window of x: ``shape`` from ``offsets`` (zeros) on, in numbers and Variables; -1 takes the rest.

    Raises:
        InvalidValue: a size is 0 or below -1, or an offset is below 0.
    """
    offsets = [0] * x.ndim if offsets is None else offsets
    fields: dict[str, Any] = {}
    for attr, numbers in (("shape", shape), ("offsets", offsets)):
        own = numbers_of("crop_tensor", attr, numbers)
        for i, size in enumerate(own[attr] if own.keys() == {attr} else ()):
            if size < -1 or (size == 0 and attr == "shape") or (size < 0 and attr == "offsets"):
                least = "above 0, or -1" if attr == "shape" else "0 or above"
                raise InvalidValue(f"crop_tensor: {attr}[{i}] must be {least}, got {size}.")
        fields |= own
    return layer("crop_tensor", name, x=x, **fields)


def pad_constant_like(
    x: Variable, y: Variable, pad_value: float = 0.0, name: str | None = None
) -> Variable:
    """y with a margin behind it, so that it is as large as x."""
    return layer("pad_constant_like", name, x=x, y=y, pad_value=pad_value)


def expand_as(x: Variable, target_tensor: Variable, name: str | None = None) -> Variable:
    """x repeated to the shape of ``target_tensor``, whose sizes are multiples of its own."""
    return layer("expand_as", name, x=x, target_tensor=target_tensor)


def flip(input: Variable, dims: int | Sequence[int], name: str | None = None) -> Variable:
    """The elements from the end to the front along ``dims``."""
    return layer("flip", name, x=input, dims=integers(dims, "dims", "flip"))


def roll(
    input: Variable, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None
) -> Variable:
    """The elements rotated along ``dims`` (None: as one row): past the end they continue at the front.

    Raises:
        InvalidValue: ``shifts`` and ``dims`` differ in length.
    """
    steps = integers(shifts, "shifts", "roll")
    axes = [] if dims is None else integers(dims, "dims", "roll")
    if len(steps) != (len(axes) or 1):
        raise InvalidValue(f"roll: {len(steps)} shifts do not fit {len(axes)} dimensions.")
    return layer("roll", x=input, shifts=steps, dims=axes)


def unbind(input: Variable, axis: int = 0) -> list[Variable]:
    """The layers at each index along ``axis``, as a list.

    Raises:
        InvalidValue: there is no such dimension, or its size is not known.
    """
    shape = input.shape or ()
    if not -len(shape) <= axis < len(shape) or shape[axis] < 1:
        raise InvalidValue(
            f"unbind: the size of dimension {axis} of {input.name!r} ({list(shape)}) must be known."
        )
    helper = LayerHelper("unbind")
    parts = [helper.new(input.dtype) for _ in range(shape[axis])]
    helper.layers("unbind", "", x=input, out=parts, axis=axis)
    return parts


def space_to_depth(x: Variable, blocksize: int, name: str | None = None) -> Variable:
    """Pixels moved to channels, in Paddle's order: [N, C, H, W] to [N, C b^2, H / b, W / b]."""
    return layer("space_to_depth", name, x=x, blocksize=blocksize)


def shuffle_channel(x: Variable, group: int, name: str | None = None) -> Variable:
    """The channels dealt out over ``group`` groups."""
    return layer("shuffle_channel", name, x=x, group=group)


def pixel_shuffle(x: Variable, upscale_factor: int) -> Variable:
    """Channels moved to blocks of pixels: [N, C r^2, H, W] to [N, C, H r, W r]."""
    return layer("pixel_shuffle", x=x, upscale_factor=upscale_factor)


def temporal_shift(
    x: Floats, seg_num: int, shift_ratio: float = 0.25, name: str | None = None
) -> Variable:
    """Some channels one frame later, some one earlier, in segments of ``seg_num`` frames."""
    require_type(shift_ratio, float, "temporal_shift: shift_ratio must be a float")
    return layer("temporal_shift", name, x=x, seg_num=seg_num, shift_ratio=shift_ratio)


def _columns(op_type: str, input: Any, start_index: int, length: int) -> Variable:
    parts = variables_of(input, "input", op_type)
    return layer(op_type, x=parts, start_index=start_index, length=length)


def partial_concat(input: Any, start_index: int = 0, length: int = -1) -> Variable:
    """``length`` columns (-1: the rest) of each matrix from ``start_index`` on, side by side."""
    return _columns("partial_concat", input, start_index, length)


def partial_sum(input: Any, start_index: int = 0, length: int = -1) -> Variable:
    """The sum of ``length`` columns (-1: the rest) of each matrix from ``start_index`` on."""
    return _columns("partial_sum", input, start_index, length)


def unfold(
    x: Floats,
    kernel_sizes: Any,
    strides: Any = 1,
    paddings: Any = 0,
    dilations: Any = 1,
    name: str | None = None,
) -> Variable:
    """Windows as columns: [N, C, H, W] to [N, C kh kw, windows].

    ``paddings`` is one number, two (height, width), or four (top, left, bottom, right).

    Raises:
        InvalidValue: there are three paddings, or five.
    """
    margins = integers(paddings, "paddings", "unfold")
    if len(margins) not in (1, 2, 4):
        raise InvalidValue(f"unfold: paddings must be 1, 2 or 4 numbers, got {margins}.")
    attrs = {
        "kernel_sizes": integers(kernel_sizes, "kernel_sizes", "unfold", 2),
        "strides": integers(strides, "strides", "unfold", 2),
        "paddings": margins * (4 // len(margins)),
        "dilations": integers(dilations, "dilations", "unfold", 2),
    }
    return layer("unfold", name, x=x, **attrs)
