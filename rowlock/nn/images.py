"""Images of ``paddle.nn.functional``: resizing, reading at positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ..graph.layers import images
from ..graph.layers import shape as layers
from ..graph.layers.arguments import integer, number
from ..graph.layers.helper import layer
from ..graph.layers.numbers import as_variables
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidValue, Unsupported
from .pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d

_RANKS = {
    "nearest": (3, 4, 5),
    "linear": (3,),
    "bilinear": (4,),
    "bicubic": (4,),
    "trilinear": (5,),
    "area": (3, 4, 5),
}
_FORMATS = {3: ("NCW", "NWC"), 4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}


def interpolate(
    x: Variable,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool = False,
    align_mode: int = 0,
    data_format: str | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
    name: str | None = None,
) -> Variable:
    """Resize [N, C, W], [N, C, H, W] or [N, C, D, H, W] (or channels last) to ``size``, or by ``scale_factor``.

    ``mode`` is nearest, linear, bilinear, trilinear, bicubic or area (the mean of what lies there). Raises
    ValueError where mode, rank and sizes do not fit, TypeError for other types.
    """
    mode, rank = str(mode).lower(), len(x.shape or ())
    if rank not in _RANKS.get(mode, ()):
        raise InvalidValue(
            f"interpolate: mode {mode!r} does not go with {rank} dimensions (modes and their ranks: {_RANKS})."
        )
    data_format = _FORMATS[rank][0] if data_format is None else data_format
    if data_format not in _FORMATS[rank]:
        raise InvalidValue(
            f"interpolate: data_format must be one of {_FORMATS[rank]}, got {data_format!r}."
        )
    if (size is None) == (scale_factor is None):
        raise InvalidValue("interpolate: give size or scale_factor, one of them.")
    if align_corners and mode in ("nearest", "area"):
        raise InvalidValue(
            f"interpolate: align_corners goes with linear and cubic modes, not with {mode!r}."
        )
    if antialias:
        raise Unsupported("interpolate: antialias is not built.")
    if mode == "area":
        return _area(x, size, scale_factor, data_format, name)
    axes = rank - 2
    attrs = {"align_corners": align_corners, "align_mode": align_mode}
    if rank == 3:
        wide = layers.unsqueeze(x, [1 if data_format == "NWC" else 2])
        sizes, factors = _sizes_of(size, scale_factor, 1)
        sizes = None if sizes is None else [1, *sizes]
        factors = None if factors is None else [1.0, *factors]
        method = "nearest" if mode == "nearest" else "bilinear"
        last = data_format == "NWC"
        out = _resized(wide, method, sizes, factors, last, attrs, recompute_scale_factor, name)
        return layers.squeeze(out, [1 if last else 2])
    sizes, factors = _sizes_of(size, scale_factor, axes)
    last = data_format.endswith("C")
    return _resized(x, mode, sizes, factors, last, attrs, recompute_scale_factor, name)


upsample = interpolate


def upsampling_nearest2d(
    x: Variable,
    size: Any = None,
    scale_factor: Any = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Resize images with the nearest element."""
    return interpolate(x, size, scale_factor, "nearest", data_format=data_format, name=name)


def upsampling_bilinear2d(
    x: Variable,
    size: Any = None,
    scale_factor: Any = None,
    data_format: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Resize images with two neighbours along each axis; the outermost elements stay where they are."""
    return interpolate(x, size, scale_factor, "bilinear", True, data_format=data_format, name=name)


def _sizes_of(size: Any, factor: Any, count: int) -> tuple[Any, list[float] | None]:
    """Return new sizes (numbers and Variables, or one Variable), or factors, one for each axis."""
    if size is not None:
        if isinstance(size, Variable):
            return size, None
        sizes = list(size) if isinstance(size, (list, tuple)) else [size] * count
        if len(sizes) != count:
            raise InvalidValue(f"interpolate: size must have {count} numbers, got {sizes}.")
        for each in sizes:
            if not isinstance(each, Variable) and integer(each, "size", "interpolate") <= 0:
                raise InvalidValue(f"interpolate: sizes must be above 0, got {sizes}.")
        return sizes, None
    factors = list(factor) if isinstance(factor, (list, tuple)) else [factor] * count
    if len(factors) != count:
        raise InvalidValue(f"interpolate: scale_factor must have {count} numbers, got {factors}.")
    for each in factors:
        if isinstance(each, Variable):
            raise Unsupported(
                "interpolate: scale_factor must be a number: sizes are known when a step is bound."
            )
        if number(each, "scale_factor", "interpolate") <= 0:
            raise InvalidValue(f"interpolate: scale_factor must be above 0, got {each}.")
    return None, [float(each) for each in factors]


def _resized(
    x: Variable,
    method: str,
    sizes: Any,
    factors: Sequence[float] | None,
    last: bool,
    attrs: dict[str, Any],
    recompute: bool | None,
    name: str | None,
) -> Variable:
    """Append an op that resizes images; neighbours lie as far apart as factors say, or else as sizes do."""
    shape = x.shape or ()
    axes = len(shape) - 2
    names = ("out_d", "out_h", "out_w")[-axes:]
    inputs: dict[str, Any] = {"X": x}
    attrs = {**attrs, "interp_method": method, "data_layout": "NHWC" if last else "NCHW"}
    if factors is not None:
        image = shape[1:-1] if last else shape[2:]
        if min(image) <= 0:
            raise InvalidValue(
                f"interpolate: {x.name!r} has unknown sizes {list(image)}: give size instead of scale_factor."
            )
        sizes = [int(n * factor) for n, factor in zip(image, factors, strict=True)]
        if not recompute:
            attrs["scales"] = list(factors)
    if isinstance(sizes, Variable):
        inputs["OutSize"] = sizes
    elif any(isinstance(size, Variable) for size in sizes):
        inputs["SizeTensor"] = as_variables(sizes)
    else:
        attrs |= dict(zip(names, sizes, strict=True))
    return layer(f"{method}_interp", name, **inputs, **attrs)


def _area(x: Variable, size: Any, factor: Any, data_format: str, name: str | None) -> Variable:
    image = (x.shape or ())[2:]
    sizes, factors = _sizes_of(size, factor, len(image))
    if data_format.endswith("C"):
        raise Unsupported("interpolate: mode 'area' takes channels in front.")
    if factors is not None:
        sizes = [int(n * f) for n, f in zip(image, factors, strict=True)]
    if len(sizes) == 1:
        return adaptive_avg_pool1d(x, sizes[0], name=name)
    pool = adaptive_avg_pool2d if len(sizes) == 2 else adaptive_avg_pool3d
    return pool(x, sizes, name=name)


def affine_grid(
    theta: Variable, out_shape: Any, align_corners: bool = True, name: str | None = None
) -> Variable:
    """Positions [N, H, W, 2] that ``theta`` [N, 2, 3] gives the elements of images [N, C, H, W].

    With ``align_corners`` -1 and 1 are the middles of the outermost elements, else their outer edges.
    """
    return images.grid_of(theta, out_shape, align_corners, name)


def grid_sample(
    x: Variable,
    grid: Variable,
    mode: Literal["bilinear", "nearest"] = "bilinear",
    padding_mode: Literal["zeros", "reflection", "border"] = "zeros",
    align_corners: bool = True,
    name: str | None = None,
) -> Variable:
    """Sample images [N, C, H, W] at the positions ``grid`` [N, H', W', 2], from -1 to 1.

    Outside are zeros, the nearest element ("border"), or the image in a mirror ("reflection").
    """
    attrs = {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners}
    return images.sampled(x, grid, attrs, name)


publish_definitions(__name__, withhold=(upsampling_bilinear2d, upsampling_nearest2d))
