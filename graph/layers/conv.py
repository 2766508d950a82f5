"""Convolutions of images and volumes, and transposed ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...strategies.errors import InvalidArgument, InvalidValue, require_type
from ..ops.conv import LAST
from ..program.variable import Variable
from .arguments import check_variable, known_sizes, of_family
from .helper import LayerHelper
from .initializer import NormalInitializer

# Dimensions that windows go over -> the orders of images
FORMATS = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def several(
    value: Any, count: int, argument: str, layer: str, *, least: int | None = None
) -> list[int]:
    """Return ``count`` numbers from one or as many.

    Raises:
        InvalidValue: it is neither, or a number is below ``least``.
    """
    numbers = list(value) if isinstance(value, (list, tuple)) else [value] * count
    if len(numbers) != count or not all(_is_whole(number) for number in numbers):
        names = {1: "one", 2: "two", 3: "three"}
        raise InvalidValue(
            f"{layer}: {argument} must be an int or a list of {names.get(count, count)}, got {value!r}."
        )
    if least is not None and min(numbers) < least:
        raise InvalidValue(f"{layer}: {argument} must not be below {least}, got {value!r}.")
    return [int(number) for number in numbers]


def _is_whole(value: Any) -> bool:
    return not isinstance(value, (bool, str, Variable)) and hasattr(value, "__index__")


def image_format(data_format: Any, layer: str, dims: int = 2) -> bool:
    """Tell whether channels are last; refuse orders that images do not have."""
    first, last = FORMATS[dims]
    if data_format not in (first, last):
        raise InvalidValue(
            f"{layer}: data_format must be {first!r} or {last!r}, got {data_format!r}."
        )
    return bool(data_format == last)


def paddings_of(
    padding: Any, channels_last: bool, dims: int, layer: str, argument: str = "padding"
) -> tuple[list[int], str]:
    """Return (numbers, algorithm) from an int, a list, per-dimension pairs, or "SAME"/"VALID".

    Pairs for all dimensions are in the order of the image's shape; batch and channels are not padded.
    """
    if isinstance(padding, str):
        if padding.upper() not in ("SAME", "VALID"):
            raise InvalidValue(
                f"{layer}: {argument} must be 'SAME', 'VALID' or numbers, got {padding!r}."
            )
        return [0] * dims, padding.upper()
    if isinstance(padding, (list, tuple)) and padding and isinstance(padding[0], (list, tuple)):
        if len(padding) not in (dims, dims + 2):
            raise InvalidValue(
                f"{layer}: {argument} must have a pair for each dimension, got {padding!r}."
            )
        first = 0 if len(padding) == dims else 1 if channels_last else 2
        sides = padding[first : first + dims]
        if any(n for pair in (*padding[:first], *padding[first + dims :]) for n in pair):
            raise InvalidValue(f"{layer}: batch and channels cannot be padded, got {padding!r}.")
        padding = [n for pair in sides for n in pair]
    if isinstance(padding, (list, tuple)) and len(padding) == 2 * dims:
        return several(padding, 2 * dims, argument, layer, least=0), "EXPLICIT"
    return several(padding, dims, argument, layer, least=0), "EXPLICIT"


def known_channels(
    input: Variable, layer: str, dims: int, data_format: str, count: int, groups: int
) -> int:
    """Return the channels of images; refuse other ranks, and numbers that do not split in groups."""
    shape = input.shape or ()
    last = image_format(data_format, layer, dims)
    if len(shape) != dims + 2:
        raise InvalidValue(f"{layer}: input must have {dims + 2} dimensions, got {list(shape)}.")
    (channels,) = known_sizes(layer, input, -1 if last else 1, "the channels")
    if groups < 1:
        raise InvalidValue(f"{layer}: groups must be above 0, got {groups}.")
    if count < 1:
        raise InvalidValue(f"{layer}: num_filters must be above 0, got {count}.")
    if channels % groups or count % groups:
        raise InvalidValue(
            f"{layer}: {channels} channels and {count} filters do not split in {groups}."
        )
    return channels


def _check(layer: str, param_attr: Any, use_cudnn: Any) -> None:
    if param_attr is False:
        raise InvalidArgument(f"{layer}: param_attr cannot be False: a convolution needs filters.")
    require_type(use_cudnn, bool, f"{layer}: use_cudnn must be True or False", InvalidValue)


def _finished(
    helper: LayerHelper, out: Variable, last: bool, bias_attr: Any, act: str | None
) -> Variable:
    axis = len(out.shape or ()) - 1 if last else 1
    return helper.activate(helper.add_bias(out, bias_attr, dim_start=axis, dim_end=axis + 1), act)


def _convolution(
    dims: int,
    input: Variable,
    num_filters: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: Any = 0,
    dilation: int | Sequence[int] = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Convolution of images [N, C, H, W], or with channels last; of volumes there is a depth D before H.

    Weights are [O, C / groups, kh, kw], normal with deviation sqrt(2 / (kh kw C)).

    Raises:
        InvalidArgument: ``param_attr`` is False.
        InvalidType, InvalidValue: another argument has a wrong type, or sizes and groups do not fit.
    """
    layer = f"conv{dims}d"
    _check(layer, param_attr, use_cudnn)
    groups_or_none, groups = groups, 1 if groups is None else groups
    channels = known_channels(input, layer, dims, data_format, num_filters, groups)
    depthwise = (
        dims == 2 and groups_or_none == channels and num_filters % channels == 0 and not use_cudnn
    )
    op_type = "depthwise_conv2d" if depthwise else layer
    helper = LayerHelper(op_type, name)
    size = several(filter_size, dims, "filter_size", layer, least=1)
    w = _filters(helper, param_attr, input, (num_filters, channels, groups), size)
    attrs = window_attrs(layer, dims, stride, padding, dilation, data_format)
    attrs |= {"groups": groups, "use_cudnn": use_cudnn}
    out = helper.layer(op_type, input=input, filter=w, **attrs)
    return _finished(helper, out, data_format in LAST, bias_attr, act)


conv2d = of_family(_convolution, 2, "conv2d")
conv3d = of_family(_convolution, 3, "conv3d", data_format="NCDHW")


def _filters(
    helper: LayerHelper,
    attr: Any,
    input: Variable,
    numbers: tuple[int, int, int],
    size: Sequence[int],
) -> Variable | None:
    """Create the weights of a convolution; ``numbers`` are those of filters, channels and groups."""
    count, channels, groups = numbers
    deviation = math.sqrt(2.0 / (math.prod(size) * channels))
    start = NormalInitializer(0.0, deviation)
    shape = [count, channels // groups, *size]
    return helper.create_parameter(attr, shape, input.dtype, default_initializer=start)


def window_attrs(
    layer: str, dims: int, stride: Any, padding: Any, dilation: Any, data_format: str
) -> dict[str, Any]:
    """Return the attributes that say where windows lie."""
    paddings, algorithm = paddings_of(padding, data_format in LAST, dims, layer)
    return {
        "strides": several(stride, dims, "stride", layer),
        "paddings": paddings,
        "dilations": several(dilation, dims, "dilation", layer),
        "padding_algorithm": algorithm,
        "data_format": data_format,
    }


def _transposed(
    dims: int,
    input: Variable,
    num_filters: int,
    output_size: int | Sequence[int] | None = None,
    filter_size: int | Sequence[int] | None = None,
    padding: Any = 0,
    stride: int | Sequence[int] = 1,
    dilation: int | Sequence[int] = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Transposed convolution: a size n becomes (n - 1) * stride - 2 * padding + dilation * (k - 1) + 1.

    ``output_size`` may be up to stride - 1 more than that; without ``filter_size`` the filter follows from it.
    Weights are [C, O / groups, kh, kw], with a depth before kh for volumes, Xavier uniform.

    Raises:
        InvalidArgument: ``param_attr`` is False.
        InvalidType, InvalidValue: another argument has a wrong type, or sizes and groups do not fit.
    """
    layer = f"conv{dims}d_transpose"
    _check(layer, param_attr, use_cudnn)
    groups_or_none, groups = groups, 1 if groups is None else groups
    channels = known_channels(input, layer, dims, data_format, num_filters, groups)
    attrs = window_attrs(layer, dims, stride, padding, dilation, data_format)
    attrs["output_size"] = (
        [] if output_size is None else several(output_size, dims, "output_size", layer)
    )
    last = data_format in LAST
    if filter_size is None:
        size = _fitting(layer, input, attrs, last)
    else:
        size = several(filter_size, dims, "filter_size", layer, least=1)
    depthwise = dims == 2 and groups_or_none == channels == num_filters and not use_cudnn
    op_type = "depthwise_conv2d_transpose" if depthwise else layer
    helper = LayerHelper(op_type, name)
    shape = [channels, num_filters // groups, *size]
    w = helper.create_parameter(param_attr, shape, input.dtype)
    attrs |= {"groups": groups, "use_cudnn": use_cudnn, "data_format": "NHWC" if last else "NCHW"}
    out = helper.layer(op_type, input=input, filter=w, **attrs)
    return _finished(helper, out, last, bias_attr, act)


conv2d_transpose = of_family(_transposed, 2, "conv2d_transpose")
conv3d_transpose = of_family(_transposed, 3, "conv3d_transpose", data_format="NCDHW")


def _fitting(layer: str, input: Variable, attrs: dict[str, Any], last: bool) -> list[int]:
    """Return the sizes of the filter that makes a result of ``output_size``."""
    sizes, dims = attrs["output_size"], len(attrs["strides"])
    if not sizes:
        raise InvalidValue(f"{layer}: give filter_size, or output_size from which it follows.")
    shape, pads = input.shape or (), attrs["paddings"]
    image = shape[1:-1] if last else shape[2:]
    if min(image) < 0:
        raise InvalidValue(
            f"{layer}: the sizes {list(image)} of {input.name!r} must be known, or filter_size given."
        )
    sums = (
        [2 * n for n in pads]
        if len(pads) == dims
        else [a + b for a, b in zip(pads[::2], pads[1::2], strict=True)]
    )
    sides = zip(sizes, image, attrs["strides"], sums, attrs["dilations"], strict=True)
    kernel = [(out - (n - 1) * s + pad - 1) // d + 1 for out, n, s, pad, d in sides]
    if min(kernel) < 1:
        raise InvalidValue(f"{layer}: no filter makes output_size {sizes} of {list(image)}.")
    return kernel


def deformable_conv(
    input: Variable,
    offset: Variable,
    mask: Variable | None,
    num_filters: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int | None = None,
    deformable_groups: int | None = None,
    im2col_step: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    modulated: bool = True,
    name: str | None = None,
) -> Variable:
    """Convolution of images [N, C, H, W] whose windows data bend: Dai et al., arXiv 1703.06211.

    Args:
        offset: [N, 2 deformable_groups kh kw, oh, ow]: how far each place is moved, row and column in turn.
        mask: [N, deformable_groups kh kw, oh, ow]: how much each place counts; None unless ``modulated``.
        im2col_step: images that Paddle takes at a time (64), of which the batch must be a multiple.

    Raises:
        InvalidType, InvalidValue: an argument does not fit.
    """
    layer = "deformable_conv"
    _check(layer, param_attr, True)
    if modulated:
        check_variable(mask, "mask", layer)
    groups = 1 if groups is None else groups
    channels = known_channels(input, layer, 2, "NCHW", num_filters, groups)
    size = several(filter_size, 2, "filter_size", layer, least=1)
    helper = LayerHelper(layer, name)
    w = _filters(helper, param_attr, input, (num_filters, channels, groups), size)
    out = helper.layer(
        layer if modulated else f"{layer}_v1",
        input=input,
        offset=offset,
        filter=w,
        strides=several(stride, 2, "stride", layer),
        paddings=several(padding, 2, "padding", layer),
        dilations=several(dilation, 2, "dilation", layer),
        groups=groups,
        deformable_groups=deformable_groups,
        im2col_step=im2col_step,
        **({"mask": mask} if modulated else {}),
    )
    return helper.add_bias(out, bias_attr, dim_start=1, dim_end=2)
