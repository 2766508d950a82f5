"""Convolutions over images in NCHW or NHWC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .operands import Input, Operands, Output
from .registry import Inference, Op, Specs, define, differentiable
from .rules import merge_dims, of_shape
from .samples import normal, sample
from .second_order import bilinear


def window_paddings(
    paddings: Sequence[int],
    algorithm: str,
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
) -> list[tuple[int, int]]:
    """Return (before, after) for both image dimensions; ``kernel`` is the dilated extent.

    EXPLICIT: two numbers (both sides alike) or four (top, bottom, left, right). SAME: the result is
    ceil(size / stride) long. VALID: none.
    """
    if algorithm == "VALID":
        return [(0, 0), (0, 0)]
    if algorithm == "SAME":
        pairs = []
        for size, k, stride in zip(sizes, kernel, strides, strict=True):
            total = max((-(-size // stride) - 1) * stride + k - size, 0) if size >= 0 else 0
            pairs.append((total // 2, total - total // 2))
        return pairs
    if len(paddings) == 4:
        return [(paddings[0], paddings[1]), (paddings[2], paddings[3])]
    return [(paddings[0], paddings[0]), (paddings[1], paddings[1])]


def channels_first(shape: tuple[int, ...], data_format: str) -> tuple[int, ...]:
    """Return the shape of images as NCHW."""
    return (shape[0], shape[-1], *shape[1:-1]) if data_format == "NHWC" else shape


def as_given(shape: tuple[int, ...], data_format: str) -> tuple[int, ...]:
    """Return an NCHW shape as ``data_format`` says."""
    return (shape[0], *shape[2:], shape[1]) if data_format == "NHWC" else shape


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


def conv_shape(op: Inference) -> Mapping[str, Specs]:
    """[N, C, H, W] (or [N, H, W, C]) and [O, C / groups, kh, kw] make [N, O, oh, ow]."""
    x, w, data_format = op.spec("Input"), op.spec("Filter"), check_format(op)
    op.require(len(x.shape) == 4 and len(w.shape) == 4, "Input and Filter must have 4 dimensions")
    shape = channels_first(x.shape, data_format)
    op.require(
        not (op.has("Bias") or op.has("ResidualData")), "fused Bias and ResidualData are not built"
    )
    groups, algorithm = op.attr("groups"), op.attr("padding_algorithm")
    op.require(
        algorithm in ("EXPLICIT", "SAME", "VALID"), f"padding_algorithm {algorithm!r} is unknown"
    )
    op.require(x.dtype == w.dtype, "Input and Filter must have one dtype")
    op.require(
        merge_dims(shape[1], w.shape[1] * groups) is not None,
        f"Input has {shape[1]} channels, Filter takes {w.shape[1]} in {groups} group(s)",
    )
    op.require(
        w.shape[0] % groups == 0, f"{w.shape[0]} filters cannot be split into {groups} groups"
    )
    strides = op.attr("strides")
    op.require(
        min(strides) > 0 and min(op.attr("dilations")) > 0, "strides and dilations must be above 0"
    )
    pads, dilations = windows(op.attrs, shape[2:], w.shape[2:])
    extent = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    dims = []
    for size, pad, k, stride in zip(shape[2:], pads, extent, strides, strict=True):
        room = size + sum(pad) - k
        op.require(size < 0 or room >= 0, f"the kernel {extent} is larger than the padded image")
        dims.append(-1 if size < 0 else room // stride + 1)
    return {"Output": of_shape(as_given((x.shape[0], w.shape[0], *dims), data_format), x)}


def check_format(op: Inference) -> str:
    """Return where channels are; refuse what is no order of images."""
    data_format = str(op.attr("data_format"))
    known = ("NCHW", "NHWC", "AnyLayout")
    op.require(data_format in known, f"data_format={data_format!r} must be 'NCHW' or 'NHWC'")
    return data_format


_SAMPLES = (
    sample({"Input": normal(2, 3, 6, 5), "Filter": normal(4, 3, 3, 3)}, paddings=[1, 1]),
    sample({"Input": normal(2, 4, 7, 7), "Filter": normal(6, 2, 3, 3)}, strides=[2, 2], groups=2),
    sample(
        {"Input": normal(2, 2, 7, 6), "Filter": normal(3, 2, 2, 3)},
        dilations=[2, 1],
        paddings=[1, 0, 2, 1],
    ),
    sample({"Input": normal(1, 3, 5, 5), "Filter": normal(2, 3, 1, 1)}),
    sample(
        {"Input": normal(1, 2, 5, 5), "Filter": normal(2, 2, 3, 3)},
        padding_algorithm="SAME",
        strides=[2, 2],
    ),
    sample(
        {"Input": normal(2, 6, 5, 4), "Filter": normal(4, 2, 3, 2)},
        data_format="NHWC",
        groups=2,
        paddings=[1, 0, 1, 1],
    ),
    sample({"Input": normal(2, 3, 4, 3), "Filter": normal(2, 3, 1, 1)}, data_format="NHWC"),
)
_DEPTHWISE = (
    sample({"Input": normal(2, 4, 6, 6), "Filter": normal(4, 1, 3, 3)}, groups=4, paddings=[1, 1]),
    sample(
        {"Input": normal(2, 4, 5, 5, away_from=(0.0,)), "Filter": normal(4, 1, 3, 3)},
        groups=4,
        fuse_relu_before_depthwise_conv=True,
    ),
    sample(
        {"Input": normal(2, 5, 6, 4), "Filter": normal(4, 1, 3, 3)},
        groups=4,
        data_format="NHWC",
        padding_algorithm="SAME",
        strides=[2, 1],
    ),
)
_REFUSES = (
    sample({"Input": normal(2, 3, 6, 5), "Filter": normal(4, 2, 3, 3)}),
    sample({"Input": normal(2, 3, 2, 2), "Filter": normal(4, 3, 3, 3)}),
)


class Conv2dOperands(Operands):
    input: Input
    filter: Input
    bias: Input | None
    strides: Sequence[int] = [1, 1]
    paddings: Sequence[int] = [0, 0]
    padding_algorithm: str = "EXPLICIT"
    groups: int = 1
    dilations: Sequence[int] = [1, 1]
    data_format: str = "NCHW"
    is_test: bool = False
    use_cudnn: bool = False
    fuse_relu_before_depthwise_conv: bool = False
    use_mkldnn: bool = False
    use_quantizer: bool = False
    fuse_relu: bool = False
    fuse_brelu: bool = False
    fuse_brelu_threshold: float = 6.0
    fuse_activation: str = ""
    fuse_alpha: float = 0.0
    fuse_beta: float = 0.0
    fuse_residual_connection: bool = False
    Scale_in: float = 1.0
    Scale_out: float = 1.0
    Scale_in_eltwise: float = 1.0
    Scale_weights: Sequence[float] = [1.0]
    force_fp32_output: bool = False
    workspace_size_MB: int = 512
    exhaustive_search: bool = False


class Conv2d(Conv2dOperands):
    residual_data: Input | None
    output: Output


class Conv2dGrad(Conv2dOperands):
    d_output: Input
    d_input: Output | None
    d_filter: Output | None
    d_bias: Output | None


for _name, _samples in (("conv2d", _SAMPLES), ("depthwise_conv2d", _DEPTHWISE)):
    _optional = ("Bias?", "ResidualData?")

    define(
        Op(type=_name, record=Conv2d, shape=conv_shape, samples=_samples, refuses=_REFUSES),
        differentiable(
            Op(type=f"{_name}_grad", record=Conv2dGrad),
            bilinear("Input", "Filter", "Output"),
            exists=lambda attrs: not attrs["fuse_relu_before_depthwise_conv"],
        ),
    )
