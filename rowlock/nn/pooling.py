"""Pooling of ``paddle.nn.functional``; sequences are images of one row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..functions.signatures import reordered
from ..graph.layers import shape as layers
from ..graph.layers import tensors, unary
from ..graph.layers.arguments import Floats, of_family
from ..graph.layers.conv import FORMATS, image_format, paddings_of, several
from ..graph.layers.helper import layer
from ..graph.layers.pool import indexed
from ..graph.ops.conv import window_paddings
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidValue, require_type
from .convs import spread


def _check(x: Variable, layer: str, dims: int) -> None:
    if x.ndim != dims + 2:
        raise InvalidValue(
            f"{layer}: x must have {dims + 2} dimensions, got {list(x.shape or ())}."
        )


def _as_image(dims: int, x: Variable, compute: Callable[[Variable], Any]) -> Any:
    """Compute on images; sequences become images of one row, and their results sequences again."""
    if dims > 1:
        return compute(x)
    result = compute(layers.unsqueeze(x, [2]))
    if isinstance(result, tuple):
        return tuple(layers.squeeze(tensor, [2]) for tensor in result)
    return layers.squeeze(result, [2])


def _windows(
    layer: str, dims: int, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, last: bool
) -> dict[str, Any]:
    k = several(kernel_size, dims, "kernel_size", layer)
    strides = k if stride is None else several(stride, dims, "stride", layer)
    if min(*k, *strides) < 1:
        raise InvalidValue(
            f"{layer}: kernel_size and stride must be above 0, got {kernel_size!r} and {stride!r}."
        )
    paddings, algorithm = paddings_of(padding, last, dims, layer)
    if algorithm == "VALID" and ceil_mode:
        raise InvalidValue(f'{layer}: ceil_mode must be False where padding is "VALID".')
    return {
        "ksize": spread(dims, k, 1),
        "strides": spread(dims, strides, 1),
        "paddings": spread(dims, paddings, 0),
        "padding_algorithm": algorithm,
        "ceil_mode": ceil_mode,
    }


def _pool(x: Variable, attrs: dict[str, Any], name: str | None) -> Variable:
    op_type = f"pool{x.ndim - 2}d"
    return layer(op_type, name, x=x, **attrs)


def _with_margin(x: Variable, attrs: dict[str, Any], last: bool) -> Variable:
    """Return x with the padding as zeros, which count; what lies beyond them does not (Paddle 2.x)."""
    k, strides = attrs["ksize"], attrs["strides"]
    pads = window_paddings(attrs["paddings"], "EXPLICIT", (x.shape or ())[2:], k, strides)
    inner = [n for pair in pads for n in pair]
    attrs |= {"paddings": [0] * len(k), "exclusive": True}
    return tensors.pad(x, [0, 0, *inner, 0, 0] if last else [0, 0, 0, 0, *inner])


def _max_pool(
    dims: int,
    x: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    return_mask: bool = False,
    ceil_mode: bool = False,
    data_format: str = "",
    name: str | None = None,
) -> Any:
    """Maximum over windows; with ``return_mask`` also where each lies in its channel, int32.

    Raises:
        InvalidValue: sizes do not fit, or ``return_mask`` is set with channels last.
    """
    layer = f"max_pool{dims}d"
    _check(x, layer, dims)
    last = image_format(data_format, layer, dims)
    attrs = _windows(layer, dims, kernel_size, stride, padding, ceil_mode, last)
    if not return_mask:
        attrs |= {"pooling_type": "max", "data_format": FORMATS[max(dims, 2)][last]}
        return _as_image(dims, x, lambda image: _pool(image, attrs, name))
    if last:
        raise InvalidValue(
            f"{layer}: with return_mask data_format must be {FORMATS[dims][0]!r}, got {data_format!r}."
        )

    def with_places(image: Variable) -> tuple[Variable, Variable]:
        algorithm, sizes = attrs.pop("padding_algorithm"), (image.shape or ())[2:]
        if algorithm == "SAME" and min(sizes) < 0:
            raise InvalidValue(f'{layer}: padding="SAME" with return_mask needs known sizes.')
        k, strides = attrs["ksize"], attrs["strides"]
        pads = window_paddings(attrs["paddings"], algorithm, sizes, k, strides)
        attrs["paddings"] = [before for before, _ in pads]
        if any(before != after for before, after in pads):
            attrs["paddings"] = [n for pair in pads for n in pair]
        return indexed(len(k), image, attrs, name)

    return _as_image(dims, x, with_places)


def _avg_pool(
    dims: int,
    x: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    exclusive: bool = True,
    divisor_override: float | None = None,
    data_format: str = "",
    name: str | None = None,
) -> Variable:
    """Average over windows; ``exclusive`` leaves the padding out, ``divisor_override`` replaces the count."""
    layer = f"avg_pool{dims}d"
    _check(x, layer, dims)
    last = image_format(data_format, layer, dims)
    attrs = _windows(layer, dims, kernel_size, stride, padding, ceil_mode, last)
    attrs |= {"pooling_type": "avg", "data_format": FORMATS[max(dims, 2)][last]}
    attrs["exclusive"] = exclusive and divisor_override is None
    clip = ceil_mode and not exclusive and attrs["padding_algorithm"] == "EXPLICIT"

    def pooled(image: Variable) -> Variable:
        wide = _with_margin(image, attrs, last) if clip and divisor_override is None else image
        return _pool(wide, attrs, name)

    out: Variable = _as_image(dims, x, pooled)
    if divisor_override is None:
        return out
    if not divisor_override:
        raise InvalidValue(
            f"{layer}: divisor_override must be a number other than 0, got {divisor_override!r}."
        )
    scaled: Variable = out * (math.prod(attrs["ksize"]) / float(divisor_override))
    return scaled


def _lp_pool(
    dims: int,
    x: Floats,
    norm_type: float,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    data_format: str = "",
    name: str | None = None,
) -> Variable:
    """(sum of x^norm_type over windows)^(1 / norm_type); the maximum where ``norm_type`` is infinite.

    Raises:
        InvalidValue: ``norm_type`` is 0.
    """
    if not norm_type:
        raise InvalidValue(f"lp_pool{dims}d: norm_type must not be 0.")
    windows = (kernel_size, stride, padding)
    if math.isinf(norm_type):
        pooled: Variable = _max_pool(dims, x, *windows, False, ceil_mode, data_format, name)
        return pooled
    powers = unary.pow(x, float(norm_type))
    sums = _avg_pool(dims, powers, *windows, ceil_mode, False, 1.0, data_format, name)
    return unary.pow(sums, 1.0 / norm_type)


def _output_sizes(layer: str, dims: int, x: Variable, output_size: Any, first: int) -> list[int]:
    """Return the sizes of an adaptive pooling; None is the size of x."""
    numbers = output_size if isinstance(output_size, (list, tuple)) else [output_size] * dims
    shape = (x.shape or ())[first:]
    sizes = [n if size is None else size for n, size in zip(shape, numbers, strict=False)]
    sizes = several(sizes if len(numbers) == dims else output_size, dims, "output_size", layer)
    if min(sizes) < 1:
        raise InvalidValue(f"{layer}: output_size must be known and above 0, got {output_size!r}.")
    return sizes


def _adaptive_avg(
    dims: int, x: Variable, output_size: Any, data_format: str = "", name: str | None = None
) -> Variable:
    """Average over as many windows as the result has elements; None is the size of x."""
    layer = f"adaptive_avg_pool{dims}d"
    _check(x, layer, dims)
    last = image_format(data_format, layer, dims)
    sizes = _output_sizes(layer, dims, x, output_size, 1 if last else 2)
    attrs = {"pooling_type": "avg", "ksize": spread(dims, sizes, 1), "adaptive": True}
    attrs["data_format"] = FORMATS[max(dims, 2)][last]
    result: Variable = _as_image(dims, x, lambda image: _pool(image, attrs, name))
    return result


def _adaptive_max(
    dims: int, x: Variable, output_size: Any, return_mask: bool = False, name: str | None = None
) -> Any:
    """Maximum over as many windows as the result has elements; with ``return_mask`` also their places."""
    layer = f"adaptive_max_pool{dims}d"
    _check(x, layer, dims)
    require_type(return_mask, bool, f"{layer}: return_mask must be a bool")
    sizes = spread(dims, _output_sizes(layer, dims, x, output_size, 2), 1)
    attrs = {"ksize": sizes, "adaptive": True}
    result = _as_image(dims, x, lambda image: indexed(len(sizes), image, attrs, name))
    return result if return_mask else result[0]


def _unpool(
    dims: int,
    x: Variable,
    indices: Variable,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    data_format: str = "",
    output_size: Any = None,
    name: str | None = None,
) -> Variable:
    """Reverse of a maximum over windows: zeros but for x, whose elements go to ``indices`` of their channel.

    Raises:
        InvalidValue: sizes do not fit. A place outside of a channel is refused when the step runs.
    """
    kind = f"max_unpool{dims}d"
    _check(x, kind, dims)
    _check(indices, kind, dims)
    if data_format != FORMATS[dims][0]:
        raise InvalidValue(
            f"{kind}: data_format must be {FORMATS[dims][0]!r}, got {data_format!r}."
        )
    k = several(kernel_size, dims, "kernel_size", kind)
    strides = k if stride is None else several(stride, dims, "stride", kind)
    pads = several(padding, dims, "padding", kind)
    attrs = {"ksize": spread(dims, k, 1), "strides": spread(dims, strides, 1)}
    attrs["paddings"] = spread(dims, pads, 0)
    if output_size is not None:
        attrs["output_size"] = _unpooled(kind, dims, x, (k, strides, pads), output_size)
    op_type = "unpool" if dims < 3 else "unpool3d"
    if dims == 1:
        indices = layers.unsqueeze(indices, [2])
    result: Variable = _as_image(
        dims, x, lambda image: layer(op_type, name, x=image, indices=indices, **attrs)
    )
    return result


def _unpooled(
    layer: str, dims: int, x: Variable, windows: tuple[list[int], ...], output_size: Any
) -> list[int]:
    """Return the sizes of the result: less than a stride from where the windows are one behind the other."""
    require_type(output_size, list | tuple, f"{layer}: output_size must be a list")
    numbers = list(output_size)[-dims:]
    if len(output_size) not in (dims, dims + 2):
        raise InvalidValue(
            f"{layer}: output_size must have {dims} or {dims + 2} numbers, got {output_size!r}."
        )
    sides = zip((x.shape or ())[2:], numbers, *windows, strict=True)
    for n, size, k, stride, pad in sides:
        usual = (n - 1) * stride + k - 2 * pad
        if n >= 0 and not usual - stride < size < usual + stride:
            raise InvalidValue(
                f"{layer}: output_size {output_size!r} must lie between {usual - stride + 1} and "
                f"{usual + stride - 1} where x has size {n}."
            )
    return spread(dims, several(numbers, dims, "output_size", layer), 1)


_WINDOWS = "x kernel_size stride padding"
max_pool1d = reordered(
    of_family(_max_pool, 1, "max_pool1d", data_format="NCL"),
    f"{_WINDOWS} return_mask ceil_mode name",
)
max_pool2d = of_family(_max_pool, 2, "max_pool2d", data_format="NCHW")
max_pool3d = of_family(_max_pool, 3, "max_pool3d", data_format="NCDHW")
avg_pool1d = reordered(
    of_family(_avg_pool, 1, "avg_pool1d", data_format="NCL"), f"{_WINDOWS} exclusive ceil_mode name"
)
avg_pool2d = of_family(_avg_pool, 2, "avg_pool2d", data_format="NCHW")
avg_pool3d = of_family(_avg_pool, 3, "avg_pool3d", data_format="NCDHW")
lp_pool1d = of_family(_lp_pool, 1, "lp_pool1d", data_format="NCL")
lp_pool2d = of_family(_lp_pool, 2, "lp_pool2d", data_format="NCHW")
adaptive_avg_pool1d = reordered(
    of_family(_adaptive_avg, 1, "adaptive_avg_pool1d", data_format="NCL"), "x output_size name"
)
adaptive_avg_pool2d = of_family(_adaptive_avg, 2, "adaptive_avg_pool2d", data_format="NCHW")
adaptive_avg_pool3d = of_family(_adaptive_avg, 3, "adaptive_avg_pool3d", data_format="NCDHW")
adaptive_max_pool1d = of_family(_adaptive_max, 1, "adaptive_max_pool1d")
adaptive_max_pool2d = of_family(_adaptive_max, 2, "adaptive_max_pool2d")
adaptive_max_pool3d = of_family(_adaptive_max, 3, "adaptive_max_pool3d")
max_unpool1d = of_family(_unpool, 1, "max_unpool1d", data_format="NCL")
max_unpool2d = of_family(_unpool, 2, "max_unpool2d", data_format="NCHW")
max_unpool3d = of_family(_unpool, 3, "max_unpool3d", data_format="NCDHW")


publish_definitions(__name__)
