"""Convolutions over images in NCHW or NHWC, and over volumes in NCDHW or NDHWC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, Literal

from .operands import Input, Operands, Output, Positive
from .registry import Inference, Op, Spec, Specs, define, differentiable
from .rules import merge_dims, of_shape
from .samples import normal, sample
from .second_order import bilinear

FORWARD = (
    "conv2d",
    "depthwise_conv2d",
    "conv3d",
    "conv2d_transpose",
    "depthwise_conv2d_transpose",
    "conv3d_transpose",
)
GRADIENTS = tuple(f"{name}_grad" for name in FORWARD)
GRAD_ADD = "conv2d_grad_add"
LAST = ("NHWC", "NDHWC")  # the formats in which channels are the last dimension


def window_paddings(
    paddings: Sequence[int],
    algorithm: str,
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
) -> list[tuple[int, int]]:
    """Return (before, after) for every dimension of the images; ``kernel`` is the dilated extent.

    EXPLICIT: a number for each (both sides alike) or two (top, bottom, left, right). SAME: the result is
    ceil(size / stride) long. VALID: none.
    """
    if algorithm == "VALID":
        return [(0, 0)] * len(sizes)
    if algorithm == "SAME":
        pairs = []
        for size, k, stride in zip(sizes, kernel, strides, strict=True):
            total = max((-(-size // stride) - 1) * stride + k - size, 0) if size >= 0 else 0
            pairs.append((total // 2, total - total // 2))
        return pairs
    if len(paddings) == 2 * len(sizes):
        return list(zip(paddings[::2], paddings[1::2], strict=True))
    return [(each, each) for each in paddings]


def channels_first(shape: tuple[int, ...], data_format: str) -> tuple[int, ...]:
    """Return the shape of images with channels behind the batch."""
    return (shape[0], shape[-1], *shape[1:-1]) if data_format in LAST else shape


def as_given(shape: tuple[int, ...], data_format: str) -> tuple[int, ...]:
    """Return a shape with channels behind the batch as ``data_format`` says."""
    return (shape[0], *shape[2:], shape[1]) if data_format in LAST else shape


def windows(
    attrs: Mapping[str, Any], sizes: Sequence[int], kernel: Sequence[int]
) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the paddings and dilations of a convolution; with SAME its windows are not dilated."""
    algorithm, dilations = attrs["padding_algorithm"], list(attrs["dilations"])
    if algorithm == "SAME":
        dilations = [1] * len(dilations)
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = window_paddings(attrs["paddings"], algorithm, sizes, extent, attrs["strides"])
    return pads, dilations


def dimensions(op: Inference) -> int:
    """Return over how many dimensions an op's windows go; refuse attributes that are not as many."""
    count = len(op.op.attrs["strides"])
    for name in ("strides", "dilations", "ksize", "paddings"):
        if name in op.op.attrs:
            numbers = len(op.attr(name))
            twice = name == "paddings" and numbers == 2 * count
            op.require(
                numbers == count or twice, f"{name} must have {count} numbers, got {numbers}"
            )
    return count


def check_images(op: Inference, slot: str) -> tuple[int, ...]:
    """Return the shape of a slot with channels behind the batch; refuse what are no images."""
    data_format, rank = check_format(op), dimensions(op) + 2
    shape = op.shape(slot)
    op.require(len(shape) == rank, f"{slot} must have {rank} dimensions")
    return channels_first(shape, data_format)


def check_factors(op: Inference) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of images, channels behind the batch, and of filters."""
    x, w = op.spec("Input"), op.spec("Filter")
    shape = check_images(op, "Input")
    op.require(len(w.shape) == len(shape), f"Filter must have {len(shape)} dimensions")
    op.require(
        not (op.has("Bias") or op.has("ResidualData")), "fused Bias and ResidualData are not built"
    )
    op.require(x.dtype == w.dtype, "Input and Filter must have one dtype")
    op.require(
        min(*op.attr("strides"), *op.attr("dilations")) > 0, "strides and dilations must be above 0"
    )
    return shape, w.shape


def conv_shape(op: Inference) -> Mapping[str, Specs]:
    """[N, C, H, W] (or [N, H, W, C]) and [O, C / groups, kh, kw] make [N, O, oh, ow]."""
    x, (shape, w), groups = op.spec("Input"), check_factors(op), op.attr("groups")
    op.require(
        merge_dims(shape[1], w[1] * groups) is not None,
        f"Input has {shape[1]} channels, Filter takes {w[1]} in {groups} group(s)",
    )
    op.require(w[0] % groups == 0, f"{w[0]} filters cannot be split into {groups} groups")
    op.require(0 not in w, f"Filter {list(w)} holds no elements")
    op.require(
        min(op.attr("paddings")) >= 0, f"paddings={list(op.attr('paddings'))} must not be negative"
    )
    pads, dilations = windows(op.attrs, shape[2:], w[2:])
    extent = [(k - 1) * d + 1 for k, d in zip(w[2:], dilations, strict=True)]
    dims = []
    for size, pad, k, stride in zip(shape[2:], pads, extent, op.attr("strides"), strict=True):
        room = size + sum(pad) - k
        op.require(size < 0 or room >= 0, f"the kernel {extent} is larger than the padded image")
        dims.append(-1 if size < 0 else room // stride + 1)
    return {"Output": of_shape(as_given((x.shape[0], w[0], *dims), op.attr("data_format")), x)}


def check_format(op: Inference) -> str:
    """Return where channels are; refuse what is no order of images."""
    data_format = str(op.attr("data_format"))
    known = ("NCHW", "NHWC", "NCDHW", "NDHWC", "AnyLayout")
    orders = "'NCDHW' or 'NDHWC'" if dimensions(op) == 3 else "'NCHW' or 'NHWC'"
    op.require(data_format in known, f"data_format={data_format!r} must be {orders}")
    return data_format


_SAMPLES = (
    sample("Input [2 3 6 5], Filter [4 3 3 3]", paddings=[1, 1]),
    sample("Input [2 4 7 7], Filter [6 2 3 3]", strides=[2, 2], groups=2),
    sample("Input [2 2 7 6], Filter [3 2 2 3]", dilations=[2, 1], paddings=[1, 0, 2, 1]),
    sample("Input [1 3 5 5], Filter [2 3 1 1]"),
    sample("Input [3 1 7 5], Filter [4 1 3 5]"),
    sample("Input [2 2 6 9], Filter [3 2 2 5]", dilations=[1, 2]),
    sample("Input [1 2 5 5], Filter [2 2 3 3]", padding_algorithm="SAME", strides=[2, 2]),
    sample(
        "Input [2 6 5 4], Filter [4 2 3 2]", data_format="NHWC", groups=2, paddings=[1, 0, 1, 1]
    ),
    sample("Input [2 3 4 3], Filter [2 3 1 1]", data_format="NHWC"),
)
_DEPTHWISE = (
    sample("Input [2 4 6 6], Filter [4 1 3 3]", groups=4, paddings=[1, 1]),
    sample(
        {"Input": normal(2, 4, 5, 5, away_from=(0.0,))},
        "Filter [4 1 3 3]",
        groups=4,
        fuse_relu_before_depthwise_conv=True,
    ),
    sample(
        "Input [2 5 6 4], Filter [4 1 3 3]",
        groups=4,
        data_format="NHWC",
        padding_algorithm="SAME",
        strides=[2, 1],
    ),
)
_OF_VOLUMES = (
    sample("Input [2 2 3 4 3], Filter [3 2 2 3 2]", paddings=[1, 0, 1], strides=[1, 2, 1]),
    sample(
        "Input [1 4 4 3 4], Filter [2 2 2 1 2]",
        groups=2,
        dilations=[2, 1, 1],
        paddings=[1, 0, 0, 1, 0, 2],
    ),
    sample("Input [2 2 2 3 2], Filter [3 2 1 1 1]"),
    sample(
        "Input [2 3 4 3 2], Filter [2 2 3 2 2]",
        data_format="NDHWC",
        padding_algorithm="SAME",
        strides=[2, 1, 2],
    ),
)
_REFUSES = (
    sample("Input [2 3 6 5], Filter [4 2 3 3]"),
    sample("Input [2 3 2 2], Filter [4 3 3 3]"),
    sample("Input [2 3 6 5], Filter [0 3 3 3]"),
    sample("Input [2 3 6 5], Filter [4 3 3 3]", paddings=[-1, 0]),
)


class ConvOperands(Operands):
    """Slots and attributes of every convolution, transposed or not."""

    input: Input
    filter: Input
    strides: Sequence[int] = [1, 1]
    paddings: Sequence[int] = [0, 0]
    padding_algorithm: Literal["EXPLICIT", "SAME", "VALID"] = "EXPLICIT"
    groups: Positive = 1
    dilations: Sequence[int] = [1, 1]
    data_format: str = "NCHW"
    use_cudnn: bool = False
    use_mkldnn: bool = False
    workspace_size_MB: int = 512


class ConvResult(ConvOperands):
    output: Output


class ConvSlopes(ConvOperands):
    d_output: Input
    d_input: Output | None
    d_filter: Output | None


class ConvAttributes(ConvOperands):
    is_test: bool = False
    fuse_relu: bool = False
    fuse_activation: str = ""
    fuse_alpha: float = 0.0
    fuse_beta: float = 0.0
    fuse_residual_connection: bool = False
    force_fp32_output: bool = False
    exhaustive_search: bool = False


class Conv2dOperands(ConvAttributes):
    bias: Input | None
    fuse_relu_before_depthwise_conv: bool = False
    use_quantizer: bool = False
    fuse_brelu: bool = False
    fuse_brelu_threshold: float = 6.0
    Scale_in: float = 1.0
    Scale_out: float = 1.0
    Scale_in_eltwise: float = 1.0
    Scale_weights: Sequence[float] = [1.0]


class Conv2d(Conv2dOperands, ConvResult):
    residual_data: Input | None


class Conv2dGrad(Conv2dOperands, ConvSlopes):
    d_bias: Output | None


class Conv3dOperands(ConvAttributes):
    strides: Sequence[int] = [1, 1, 1]
    paddings: Sequence[int] = [0, 0, 0]
    dilations: Sequence[int] = [1, 1, 1]
    data_format: str = "NCDHW"


class Conv3d(Conv3dOperands, ConvResult):
    residual_data: Input | None


class Conv3dGrad(Conv3dOperands, ConvSlopes):
    residual_data: Input | None


for _name, _samples in (("conv2d", _SAMPLES), ("depthwise_conv2d", _DEPTHWISE)):
    define(
        _name,
        Conv2d,
        conv_shape,
        samples=_samples,
        refuses=_REFUSES,
        slope=differentiable(
            Op(f"{_name}_grad", Conv2dGrad),
            bilinear("Input", "Filter", "Output"),
            exists=lambda attrs: not attrs["fuse_relu_before_depthwise_conv"],
        ),
    )
define(
    "conv3d",
    Conv3d,
    conv_shape,
    samples=_OF_VOLUMES,
    refuses=(
        sample("Input [2 3 4 4 4], Filter [4 2 3 3 3]"),
        sample("Input [2 3 4 4], Filter [4 3 3 3]"),
        sample("Input [2 3 4 4 4], Filter [4 3 3 3 3]", strides=[1, 1]),
    ),
    slope=Op("conv3d_grad", Conv3dGrad),
)


class Conv2dGradAdd(ConvOperands):
    """Input@GRAD = the gradient of a convolution's images + Addend, which is like them."""

    d_output: Input
    addend: Input
    d_input: Output


def _grad_add_shape(op: Inference) -> Mapping[str, Specs]:
    """Addend and the result are like Input; Output@GRAD is like the convolution's result."""
    x, addend = op.spec("Input"), op.spec("Addend")
    for slot, spec in (("Addend", x), ("Output@GRAD", conv_shape(op)["Output"])):
        assert isinstance(spec, Spec)
        pairs = zip_longest(op.shape(slot), spec.shape)
        fits = all(None not in (a, b) and merge_dims(a, b) is not None for a, b in pairs)
        op.require(fits and op.spec(slot).dtype == spec.dtype, f"{slot} must be {spec}")
    return {"Input@GRAD": addend}


define(
    GRAD_ADD,
    Conv2dGradAdd,
    _grad_add_shape,
    samples=(
        sample(
            "Input [2 4 6 5], Filter [6 4 3 3], Output@GRAD [2 6 6 5], Addend [2 4 6 5]",
            paddings=[1, 1],
        ),
        sample(
            "Input [2 4 7 7], Filter [6 2 1 1], Output@GRAD [2 6 4 4], Addend [2 4 7 7]",
            strides=[2, 2],
            groups=2,
        ),
        sample(
            "Input [2 6 5 4], Filter [4 4 3 2], Output@GRAD [2 5 5 4], Addend [2 6 5 4]",
            data_format="NHWC",
            paddings=[1, 0, 1, 0],
        ),
    ),
    refuses=(sample("Input [1 2 3 3], Filter [2 2 1 1], Output@GRAD [1 2 3 3], Addend [1 2 1 1]"),),
)
