"""Convolutions of ``paddle.nn.functional``: unnumbered, for numbers are of layers with parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..functions.creation import constant
from ..functions.signatures import reordered
from ..graph.layers import binary, tensors
from ..graph.layers import conv as nets
from ..graph.layers import shape as layers
from ..graph.layers.arguments import of_family
from ..graph.layers.helper import layer
from ..graph.program.variable import Variable
from ..names import publish_definitions
from ..strategies.errors import InvalidValue


def spread(dims: int, numbers: list[int], front: int) -> list[int]:
    """Return numbers of one dimension as those of two, of which the first says nothing."""
    return [front] * (len(numbers) if front == 0 else 1) + numbers if dims == 1 else numbers


def _attrs(
    layer: str, dims: int, stride: Any, padding: Any, dilation: Any, data_format: str
) -> dict[str, Any]:
    last = nets.image_format(data_format, layer, dims)
    paddings, algorithm = nets.paddings_of(padding, last, dims, layer)
    return {
        "strides": spread(dims, nets.several(stride, dims, "stride", layer), 1),
        "paddings": spread(dims, paddings, 0),
        "dilations": spread(dims, nets.several(dilation, dims, "dilation", layer), 1),
        "padding_algorithm": algorithm,
        "data_format": nets.FORMATS[max(dims, 2)][last],
    }


def _applied(
    kind: str,
    dims: int,
    x: Variable,
    weight: Variable,
    bias: Variable | None,
    attrs: dict[str, Any],
    name: str | None,
) -> Variable:
    """Append a convolution; sequences are images of one row."""
    for value, argument in ((x, "x"), (weight, "weight")):
        if value.ndim != dims + 2:
            raise InvalidValue(
                f"{kind}: {argument} must have {dims + 2} dimensions, got {list(value.shape or ())}."
            )
    last = attrs["data_format"] in ("NHWC", "NDHWC")
    if dims == 1:
        x, weight = layers.unsqueeze(x, [1 if last else 2]), layers.unsqueeze(weight, [2])
    op_type = kind.replace("1d", "2d")
    if op_type == "conv3d_transpose":  # knows volumes by their filters
        attrs["data_format"] = "NHWC" if last else "NCHW"
    out = layer(op_type, name or op_type, input=x, filter=weight, **attrs)
    if bias is not None:
        out = binary.elementwise_add(out, bias, axis=-1 if last else 1)
    return layers.squeeze(out, [1 if last else 2]) if dims == 1 else out


def _conv(
    dims: int,
    x: Variable,
    weight: Variable,
    bias: Variable | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_format: str = "",
    name: str | None = None,
) -> Variable:
    """Convolution of sequences of one length, images or volumes with given filters [O, C / groups, *sizes]."""
    kind = f"conv{dims}d"
    attrs = {**_attrs(kind, dims, stride, padding, dilation, data_format), "groups": groups}
    return _applied(kind, dims, x, weight, bias, attrs, name)


conv1d = of_family(_conv, 1, "conv1d", data_format="NCL")
conv2d = of_family(_conv, 2, "conv2d", data_format="NCHW")
conv3d = of_family(_conv, 3, "conv3d", data_format="NCDHW")


def _transposed(
    dims: int,
    x: Variable,
    weight: Variable,
    bias: Variable | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    output_size: Any = None,
    data_format: str = "",
    name: str | None = None,
) -> Variable:
    """Transposed convolution with given filters [C, O / groups, *sizes].

    Raises:
        InvalidValue: ``output_padding`` is a stride or more, or comes with ``output_size``; sizes do not fit.
    """
    layer = f"conv{dims}d_transpose"
    attrs = {**_attrs(layer, dims, stride, padding, dilation, data_format), "groups": groups}
    if output_size is not None:
        if output_padding != 0:
            raise InvalidValue(f"{layer}: output_padding and output_size exclude each other.")
        attrs["output_size"] = spread(
            dims, nets.several(output_size, dims, "output_size", layer), 1
        )
    elif output_padding != 0:
        extra = nets.several(output_padding, dims, "output_padding", layer)
        attrs["output_padding"] = spread(dims, extra, 0)
    return _applied(layer, dims, x, weight, bias, attrs, name)


_ORDER = "x weight bias stride padding output_padding groups dilation output_size data_format name"
conv1d_transpose = reordered(
    of_family(_transposed, 1, "conv1d_transpose", data_format="NCL"), _ORDER
)
conv2d_transpose = of_family(_transposed, 2, "conv2d_transpose", data_format="NCHW")
conv3d_transpose = reordered(
    of_family(_transposed, 3, "conv3d_transpose", data_format="NCDHW"), _ORDER
)


def fold(
    x: Variable,
    output_sizes: Any,
    kernel_sizes: Any,
    strides: Any = 1,
    paddings: Any = 0,
    dilations: Any = 1,
    name: str | None = None,
) -> Variable:
    """Windows as columns back to images, where they overlap added up: [N, C kh kw, windows] to [N, C, H, W].

    ``unfold`` the other way round: a transposed convolution of each channel, whose filters hold a 1 each.

    Raises:
        InvalidValue: the rows of x are no multiple of a window's elements, or there are too few windows.
    """
    sizes, kernel, steps, gaps = (
        nets.several(numbers, 2, argument, "fold")
        for argument, numbers in (
            ("output_sizes", output_sizes),
            ("kernel_sizes", kernel_sizes),
            ("strides", strides),
            ("dilations", dilations),
        )
    )
    margins = paddings if isinstance(paddings, (list, tuple)) else [paddings]
    if len(margins) not in (1, 2, 4):
        raise InvalidValue(f"fold: paddings must be 1, 2 or 4 numbers, got {list(margins)}.")
    top, left, bottom, right = (list(margins) * (4 // len(margins)))[:4]
    height, width = sizes[0] + top + bottom, sizes[1] + left + right
    counts = [
        (size - gap * (k - 1) - 1) // step + 1
        for size, gap, k, step in zip((height, width), gaps, kernel, steps, strict=True)
    ]
    window, shape = kernel[0] * kernel[1], x.shape or ()
    fits = len(shape) == 3 and not shape[1] % window
    if not fits or shape[2] not in (-1, counts[0] * counts[1]):
        raise InvalidValue(
            f"fold: x must be [N, C * {window}, {counts[0] * counts[1]}] for these windows, got {list(shape)}."
        )
    rows = shape[1]
    filters = np.tile(np.eye(window).reshape(window, 1, *kernel), (rows // window, 1, 1, 1))
    image = layers.reshape(x, [0, rows, *counts])
    whole = conv2d_transpose(
        image, constant(filters, x.dtype), stride=steps, dilation=gaps, groups=rows // window
    )
    # What the last windows leave out of the image is zero.
    reach = [
        (n - 1) * s + g * (k - 1) + 1
        for n, s, g, k in zip(counts, steps, gaps, kernel, strict=True)
    ]
    short = [max(0, size - r) for size, r in zip((height, width), reach, strict=True)]
    if any(short):
        whole = tensors.pad(whole, [0, 0, 0, 0, 0, short[0], 0, short[1]])
    return layers.slice(whole, [2, 3], [top, left], [top + sizes[0], left + sizes[1]])


publish_definitions(__name__, withhold=(spread,))
