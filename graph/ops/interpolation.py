"""Images made larger or smaller: each result is a weighted sum of the nearest elements along every axis.

Positions and weights follow from sizes alone, in float32, as Paddle computes them; axes are done in turn.
Bicubic: Keys, "Cubic convolution interpolation for digital image processing", 1981, with a = -0.75.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from . import formula as f
from .conv import as_given, channels_first
from .operands import Array, Input, Inputs, Operands, Output, named
from .registry import Inference, Specs, define, in_steps, slope
from .rules import of_shape, sizes_read
from .samples import Sample, sample

_SIZES = ("out_d", "out_h", "out_w")
_RANKS = {"nearest": (4, 5), "bilinear": (4,), "bicubic": (4,), "trilinear": (5,)}
_CUBIC = -0.75
# Positions along an axis, and weights, of each element added
Taps = list[tuple["np.ndarray", "np.ndarray"]]


def interpolation_shape(op: Inference) -> Mapping[str, Specs]:
    """[N, C, *sizes] to [N, C, *new sizes], or with channels last."""
    x, layout = op.spec("X"), op.attr("data_layout")
    ranks = _RANKS[op.op.type.removesuffix("_at").removesuffix("_interp")]
    op.require(len(x.shape) in ranks, f"X must have {ranks[0]} dimensions, has {len(x.shape)}")
    axes = len(x.shape) - 2
    n, c, *image = channels_first(x.shape, layout)
    op.require(0 not in image, f"images of {image} hold nothing to interpolate")
    scale, sizes = _numbers(op, axes)
    op.require(len(sizes) == axes, f"sizes {sizes} must be as many as an image has, {axes}")
    known = [size for size in sizes if size is not None]
    if scale is None:
        known = [-1] * axes
    elif scale > 0 and min(known, default=1) <= 0:
        known = [-1 if size < 0 else int(size * scale) for size in image]
        op.require(all(size != 0 for size in known), f"scale={scale} leaves nothing of {image}")
    else:
        op.require(
            min(known, default=1) > 0, f"sizes {sizes} must be above 0 where there is no scale"
        )
        known = [-1 if size is None else size for size in sizes]
    return {"Out": of_shape(as_given((n, c, *known), layout), x)}


def _numbers(op: Inference, axes: int) -> tuple[float | None, list[int | None]]:
    """Return the scale and the sizes, from slots where an op reads them in steps; None: not known yet."""
    sizes = sizes_read(
        op, "OutSize", "SizeTensor", [op.attr(name) or -1 for name in _SIZES[-axes:]]
    )
    scale: float | None = op.attr("scale")
    if op.has("Scale") and not op.has("OutSize") and not op.has("SizeTensor"):
        value = op.value("Scale")
        scale = None if value is None else float(np.ravel(value)[0])
    return scale, sizes


class Interpolation(Operands):
    x: Input
    out_size: Input | None
    size_tensor: Inputs | None
    scale_tensor: Input | None = named("Scale")
    out: Output
    data_layout: Literal["NCHW", "NHWC"] = "NCHW"
    out_d: int = 0
    out_h: int = 0
    out_w: int = 0
    scale: float = 0.0
    interp_method: str = "bilinear"
    align_corners: bool = True
    align_mode: int = 1
    scales: Sequence[float] = []  # of 2.x: factors by axis, which tell how far apart neighbours lie


def nearest_taps(
    old: int, new: int, ratio: np.float32, align_corners: bool, align_mode: int
) -> Taps:
    """Return the nearest position; with ``align_corners`` the first and the last stay where they are."""
    places = np.arange(new, dtype=np.float32) * ratio
    index = (places + np.float32(0.5 if align_corners else 0)).astype(np.int64)
    return [(np.minimum(index, old - 1), np.ones(new, np.float32))]


def linear_taps(
    old: int, new: int, ratio: np.float32, align_corners: bool, align_mode: int
) -> Taps:
    """Return two neighbours; ``align_mode`` 0 compares the middles of elements, 1 their beginnings."""
    steps = np.arange(new, dtype=np.float32)
    places = steps * ratio
    if align_mode == 0 and not align_corners:
        half = np.float32(0.5)
        places = np.maximum((steps + half) * ratio - half, np.float32(0))
    low = np.minimum(places.astype(np.int64), old - 1)
    share = places - low.astype(np.float32)
    share = share.astype(np.float64)
    return [(low, 1 - share), (np.minimum(low + 1, old - 1), share)]


def cubic_taps(old: int, new: int, ratio: np.float32, align_corners: bool, align_mode: int) -> Taps:
    """Return four neighbours; those outside are the outermost."""
    half = np.float32(0.5)
    steps = np.arange(new, dtype=np.float32)
    places = steps * ratio if align_corners else (steps + half) * ratio - half
    low = np.floor(places)
    share = places - low
    taps = []
    for k in (-1, 0, 1, 2):
        distance = np.abs(share.astype(np.float64) - k)
        taps.append((np.clip(low.astype(np.int64) + k, 0, old - 1), _cubic(distance)))
    return taps


def _cubic(distance: Array) -> Array:
    """Return the weight of an element at a distance up to 2."""
    near = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance * distance + 1
    far = ((_CUBIC * distance - 5 * _CUBIC) * distance + 8 * _CUBIC) * distance - 4 * _CUBIC
    return np.where(distance <= 1, near, far)


def _ratio(old: int, new: int, align_corners: bool, scale: float) -> np.float32:
    """Return how far apart in the old image neighbours in the new one lie."""
    if new == 1 and (align_corners or not scale):
        return np.float32(0)
    if align_corners:
        return np.float32((old - 1) / (new - 1))
    return np.float32(1 / scale) if scale else np.float32(old) / np.float32(new)


_TAPS = {
    "nearest": nearest_taps,
    "bilinear": linear_taps,
    "trilinear": linear_taps,
    "bicubic": cubic_taps,
}


def interpolation(a: Interpolation) -> f.Results:
    """Weigh and add neighbours along each axis of the images, the last ones, which get shorter, first."""
    first = 1 if a.data_layout == "NHWC" else 2
    x = a.x
    axes = range(first, first + x.ndim - 2)
    for axis in sorted(axes, key=lambda i: a.out.shape[i] / max(a.x.shape[i], 1)):
        old, new = a.x.shape[axis], a.out.shape[axis]
        ratio = _ratio(old, new, a.align_corners, a.scales[axis - first] if a.scales else 0.0)
        taps = _TAPS[a.interp_method](old, new, ratio, a.align_corners, a.align_mode)
        x = _along(x, axis, taps)
    return {"out": x}


def _along(x: Array, axis: int, taps: Taps) -> Array:
    """Return weighted sums of the elements that lie at positions along an axis."""
    old, new = x.shape[axis], taps[0][0].size
    index = taps[0][0]
    plain = len(taps) == 1 or all((w == (k == 0)).all() for k, (_, w) in enumerate(taps))
    if plain and (index == np.arange(new)).all() and old == new:
        return x
    if plain and new % max(old, 1) == 0 and (index == np.arange(new) // (new // old)).all():
        shape = (*x.shape[:axis], old, new // old, *x.shape[axis + 1 :])
        one = x.reshape(*x.shape[: axis + 1], 1, *x.shape[axis + 1 :])
        return f.broadcast(one, shape).reshape(*x.shape[:axis], new, *x.shape[axis + 1 :])
    if plain:
        return f.take(x, index, axis)
    spread = (new,) + (1,) * (x.ndim - 1 - axis)
    terms = [f.take(x, i, axis) * f.table(w.reshape(spread), x.dtype) for i, w in taps]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _declare(op_type: str, method: str, sizes: Sequence[str], x: str) -> None:
    new = dict(zip(sizes, (6, 3, 4), strict=False))
    n, c, *image = x.split()
    one, last = f"X [{x}]", f"X [{' '.join([n, *image, c])}]"
    numbers: dict[str, str | tuple[str, ...]] = {
        "OutSize": tuple(sizes),
        "SizeTensor": tuple(sizes),
        "Scale": "scale",
    }

    def case(*operands: str, **attrs: Any) -> Sample:
        return sample(*operands, interp_method=method, **attrs)

    middles = {"align_corners": False, "align_mode": 0}
    define(
        op_type,
        Interpolation,
        interpolation_shape,
        numbers=numbers,
        formula=interpolation,
        samples=(
            case(one, **new),
            case(one, scale=2.0, align_corners=False),
            case(last, **new, data_layout="NHWC", align_corners=False),
            *([] if method in ("nearest", "bicubic") else [case(one, **new, **middles)]),
        ),
        refuses=(case(one), case(f"X [{' '.join([c, *image])}]", **new)),
        slope=slope("(x) out_size size_tensor scale_tensor d_out", "d_x", numbers=numbers),
        in_steps=in_steps(
            samples=(
                case(one, f"OutSize lengths [{' '.join(map(str, new.values()))}]"),
                case(one, f"SizeTensor* lengths {' '.join(f'[{size}]' for size in new.values())}"),
                case(one, "Scale table [2.0]"),
            ),
            refuses=(case(one, "Scale table [0.0]"), case(one, "OutSize lengths [4]")),
            formula=interpolation,
        ),
    )


for _method in ("nearest", "bilinear", "bicubic"):
    _declare(f"{_method}_interp", _method, _SIZES[1:], "2 3 4 5")
_declare("trilinear_interp", "trilinear", _SIZES, "1 2 3 4 3")
