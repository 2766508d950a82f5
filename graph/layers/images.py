"""Layers of images: resizing, scaling by channel, reading at positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...strategies.errors import InvalidArgument, InvalidType, InvalidValue, require_type
from ...strategies.types import INTEGERS
from ..program.variable import Variable
from .arguments import check_variable, integer, integers, of_family
from .helper import LayerHelper, layer
from .numbers import as_variables

_OPS = {
    "NEAREST": ("nearest_interp", 4),
    "BILINEAR": ("bilinear_interp", 4),
    "TRILINEAR": ("trilinear_interp", 5),
}
_SIZES = ("out_d", "out_h", "out_w")


def image_resize(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    resample: str = "BILINEAR",
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """Resize images [N, C, H, W] or [N, C, D, H, W] (or with channels last) of floats.

    ``out_shape`` are the new sizes (numbers, known Variables, or one known Variable), or ``scale`` a factor.
    With ``align_corners`` the outermost elements stay where they are; else ``align_mode`` 0 compares the
    middles of elements, 1 their beginnings. Raises ValueError for a method or sizes that do not fit, TypeError
    for other types.
    """
    if resample not in _OPS:
        raise InvalidValue(
            f"image_resize: resample must be 'NEAREST', 'BILINEAR' or 'TRILINEAR', got {resample!r}."
        )
    op_type, rank = _OPS[resample]
    return resized(
        input,
        op_type,
        rank,
        out_shape,
        scale,
        actual_shape,
        align_corners,
        align_mode,
        data_format,
        name,
    )


def resized(
    input: Variable,
    op_type: str,
    rank: int,
    out_shape: Any,
    scale: Any,
    actual_shape: Variable | None,
    align_corners: bool,
    align_mode: int,
    data_format: str,
    name: str | None,
) -> Variable:
    """Append one of the ops that resize images of ``rank`` dimensions."""
    kind = "image_resize"
    if input.shape is not None and len(input.shape) != rank:
        raise InvalidValue(
            f"{kind} takes images of {rank} dimensions, and {input.name!r} has {len(input.shape)}."
        )
    require_type(align_corners, bool, f"{kind}: align_corners must be a bool")
    if align_mode not in (0, 1):
        raise InvalidValue(f"{kind}: align_mode must be 0 or 1, got {align_mode!r}.")
    formats = {4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}[rank]
    if data_format not in formats:
        raise InvalidValue(f"{kind}: data_format must be one of {formats}, got {data_format!r}.")
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = dict.fromkeys(_SIZES, -1)
    attrs |= {
        "interp_method": op_type.removesuffix("_interp"),
        "align_corners": align_corners,
        "align_mode": align_mode,
        "data_layout": "NCHW" if data_format == formats[0] else "NHWC",
    }
    if out_shape is not None:
        _new_sizes(kind, out_shape, rank - 2, inputs, attrs)
    elif isinstance(scale, Variable):
        inputs["Scale"] = scale
    elif scale is not None:
        attrs["scale"] = _factor(kind, scale)
    elif actual_shape is None:
        raise InvalidValue(f"{kind} needs out_shape or scale.")
    if actual_shape is not None:
        inputs["OutSize"] = actual_shape
    return layer(op_type, name, **inputs, **attrs)


def _factor(layer: str, scale: Any) -> float:
    require_type(scale, int | float, f"{layer}: scale must be a number or a Variable")
    if scale <= 0:
        raise InvalidValue(f"{layer}: scale must be above 0, got {scale}.")
    return float(scale)


def _new_sizes(
    layer: str, sizes: Any, count: int, inputs: dict[str, Any], attrs: dict[str, Any]
) -> None:
    """Add new sizes to an op's inputs and attributes."""
    if isinstance(sizes, Variable):
        inputs["OutSize"] = sizes
        return
    require_type(sizes, list | tuple, f"{layer}: out_shape must be a list, a tuple or a Variable")
    if len(sizes) != count:
        raise InvalidValue(f"{layer}: out_shape must have {count} sizes, got {list(sizes)}.")
    names = _SIZES[-count:]
    if any(isinstance(size, Variable) for size in sizes):
        inputs["SizeTensor"] = as_variables(sizes)
        return
    plain = integers(sizes, "out_shape", layer)
    if min(plain) <= 0:
        raise InvalidArgument(f"{layer}: sizes in out_shape must be above 0, got {plain}.")
    attrs |= dict(zip(names, plain, strict=True))


def _linear(
    resample: str,
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """Resize images, or volumes, with two neighbours along each axis: see :func:`image_resize`."""
    settings = (actual_shape, align_corners, align_mode, data_format)
    return image_resize(input, out_shape, scale, name, resample, *settings)


resize_bilinear = of_family(_linear, "BILINEAR", "resize_bilinear")
resize_trilinear = of_family(_linear, "TRILINEAR", "resize_trilinear", data_format="NCDHW")


def resize_nearest(
    input: Variable,
    out_shape: Any = None,
    scale: Any = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """Resize images with the nearest element: see :func:`image_resize`."""
    return image_resize(
        input, out_shape, scale, name, "NEAREST", actual_shape, align_corners, 1, data_format
    )


def image_resize_short(input: Variable, out_short_len: int, resample: str = "BILINEAR") -> Variable:
    """Resize images [N, C, H, W]: the shorter side becomes ``out_short_len``, the other keeps its share."""
    shape = input.shape or ()
    if len(shape) != 4:
        raise InvalidValue(
            f"image_resize_short takes images of 4 dimensions, and {input.name!r} has {len(shape)}."
        )
    image = list(shape[2:])
    if min(image) <= 0:
        raise InvalidValue(f"image_resize_short needs images of a known size, got {image}.")
    short, long = (0, 1) if image[0] <= image[1] else (1, 0)
    sizes = [0, 0]
    sizes[short] = out_short_len
    sizes[long] = int(float(image[long]) * (float(sizes[short]) / float(image[short])) + 0.5)
    return image_resize(input, sizes, resample=resample)


def affine_channel(
    x: Variable,
    scale: Variable | None = None,
    bias: Variable | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
    act: str | None = None,
) -> Variable:
    """x * scale + bias, where scale and bias have one element for each channel."""
    for argument, value in (("scale", scale), ("bias", bias)):
        check_variable(value, argument, "affine_channel")
    helper = LayerHelper("affine_channel", name)
    inputs = {"X": x, "Scale": scale, "Bias": bias}
    out = helper.layer("affine_channel", **inputs, data_layout=data_layout)
    return helper.activate(out, act)


def affine_grid(theta: Variable, out_shape: Any, name: str | None = None) -> Variable:
    """Positions [N, H, W, 2], from -1 to 1, that ``theta`` [N, 2, 3] gives the elements of [N, C, H, W]."""
    return grid_of(theta, out_shape, True, name)


def grid_of(theta: Variable, out_shape: Any, align_corners: bool, name: str | None) -> Variable:
    """Append affine_grid; without ``align_corners`` -1 and 1 are the outer edges of elements."""
    inputs: dict[str, Any] = {"Theta": theta}
    attrs: dict[str, Any] = {} if align_corners else {"align_corners": False}
    if isinstance(out_shape, Variable):
        if out_shape.dtype not in INTEGERS:
            raise InvalidType(
                f"affine_grid: out_shape must hold integers, {out_shape.name!r} does not."
            )
        inputs["OutputShape"] = out_shape
    elif isinstance(out_shape, (list, tuple, np.ndarray)):
        attrs["output_shape"] = [integer(size, "out_shape", "affine_grid") for size in out_shape]
    else:
        raise InvalidType(
            f"affine_grid: out_shape must be a list, a tuple or a Variable, got {out_shape!r}."
        )
    return layer("affine_grid", name, **inputs, **attrs)


def grid_sampler(x: Variable, grid: Variable, name: str | None = None) -> Variable:
    """Sample ``x`` [N, C, H, W] at the positions ``grid`` [N, H', W', 2] (column and row from -1 to 1).

    Weighs the four elements around each position; outside are zeros. [N, C, H', W'].
    """
    return sampled(x, grid, {}, name)


def sampled(x: Variable, grid: Variable, attrs: dict[str, Any], name: str | None) -> Variable:
    """Append grid_sampler."""
    return layer("grid_sampler", name, x=x, grid=grid, **attrs)
