"""Transposed convolutions: from the result of a convolution to what has the shape of its images.

Filters lie as the convolution has them, [C, O / groups, kh, kw]: its result has the C channels that come in
here, its images have the O channels that come out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .conv import ConvOperands, ConvResult, ConvSlopes, as_given, check_factors, windows
from .operands import Input, Output
from .registry import Inference, Op, Specs, define
from .rules import merge_dims, of_shape
from .samples import sample


def transposed_shape(op: Inference) -> Mapping[str, Specs]:
    """[N, C, H, W] (or [N, H, W, C]) and [C, O / groups, kh, kw] make [N, O, oh, ow].

    oh is (H - 1) * stride - paddings + extent, or up to a stride more: ``output_size``, or ``output_padding``
    on top of that.
    """
    x, (shape, w), groups = op.spec("Input"), check_factors(op), op.attr("groups")
    op.require(
        merge_dims(shape[1], w[0]) is not None,
        f"Input has {shape[1]} channels, Filter takes {w[0]}",
    )
    op.require(w[0] % groups == 0, f"{w[0]} channels cannot be split into {groups} groups")
    dims = _sizes(op, shape[2:], w[2:])
    result = (x.shape[0], w[1] * groups, *dims)
    return {"Output": of_shape(as_given(result, op.attr("data_format")), x)}


def _sizes(op: Inference, image: Sequence[int], kernel: Sequence[int]) -> list[int]:
    pads, dilations = windows(op.attrs, image, kernel)
    sizes, extra = list(op.attr("output_size")), list(op.attr("output_padding"))
    for name, numbers in (("output_size", sizes), ("output_padding", extra)):
        op.require(
            len(numbers) in (0, len(image)), f"{name} must have {len(image)} numbers, got {numbers}"
        )
    op.require(not (sizes and extra), "output_size and output_padding exclude each other")
    sizes, extra = sizes or [-1] * len(image), extra or [0] * len(image)
    dims = []
    for i, (size, stride, k, d, pad) in enumerate(
        zip(image, op.attr("strides"), kernel, dilations, pads, strict=True)
    ):
        least = (size - 1) * stride - sum(pad) + (k - 1) * d + 1
        op.require(
            0 <= extra[i] < stride,
            f"output_padding {extra} must lie between 0 and the strides {op.attr('strides')}",
        )
        if size < 0:
            dims.append(sizes[i])
            continue
        result = sizes[i] if sizes[i] >= 0 else least + extra[i]
        op.require(
            least <= result < least + stride,
            f"output_size {sizes} must be from {least} to {least + stride - 1} in dimension {i} of images",
        )
        op.require(result > 0, f"the paddings {pads} leave nothing of the result")
        dims.append(result)
    return dims


class TransposedOperands(ConvOperands):
    output_size: Sequence[int] = []
    output_padding: Sequence[int] = []


class ConvTranspose2dOperands(TransposedOperands):
    bias: Input | None
    is_test: bool = False
    fuse_relu: bool = False
    fuse_activation: str = ""
    fuse_alpha: float = 0.0
    fuse_beta: float = 0.0


class ConvTranspose2d(ConvTranspose2dOperands, ConvResult): ...


class ConvTranspose2dGrad(ConvTranspose2dOperands, ConvSlopes):
    d_bias: Output | None


class ConvTranspose3dOperands(TransposedOperands):
    strides: Sequence[int] = [1, 1, 1]
    paddings: Sequence[int] = [0, 0, 0]
    dilations: Sequence[int] = [1, 1, 1]


class ConvTranspose3d(ConvTranspose3dOperands, ConvResult): ...


class ConvTranspose3dGrad(ConvTranspose3dOperands, ConvSlopes): ...


_SAMPLES = (
    sample("Input [2 4 3 4], Filter [4 3 3 3]", paddings=[1, 1]),
    sample(
        "Input [2 4 3 2], Filter [4 2 3 4]",
        strides=[2, 2],
        groups=2,
        paddings=[1, 1],
        output_size=[6, 4],
    ),
    sample(
        "Input [1 2 3 3], Filter [2 3 2 3]",
        dilations=[2, 1],
        strides=[1, 2],
        paddings=[1, 0, 2, 1],
        output_padding=[0, 1],
    ),
    sample("Input [1 3 4 3], Filter [3 2 1 1]"),
    sample("Input [1 2 3 3], Filter [2 2 3 3]", padding_algorithm="SAME", strides=[2, 2]),
    sample("Input [2 4 3 4], Filter [4 3 2 2]", data_format="NHWC", groups=2, strides=[2, 1]),
)
_DEPTHWISE = (
    sample("Input [2 4 3 3], Filter [4 1 4 4]", groups=4, strides=[2, 2], paddings=[1, 1]),
    sample("Input [2 3 2 3], Filter [3 1 3 2]", groups=3, data_format="NHWC"),
)
_OF_VOLUMES = (
    sample("Input [2 2 2 3 2], Filter [2 3 2 3 2]", strides=[2, 1, 2], paddings=[0, 1, 1]),
    sample(
        "Input [1 2 3 2 4], Filter [4 1 2 2 3]",
        data_format="NHWC",
        groups=2,
        dilations=[1, 2, 1],
        paddings=[0, 1, 1, 0, 0, 0],
    ),
)
_REFUSES = (
    sample("Input [2 3 6 5], Filter [4 2 3 3]"),
    sample("Input [2 3 2 2], Filter [3 4 3 3]", output_size=[7, 4]),
    sample("Input [2 3 2 2], Filter [3 4 3 3]", output_padding=[1, 0]),
    sample("Input [2 3 2 2], Filter [3 4 1 1]", paddings=[1, 1]),
)

for _name, _samples in (("conv2d_transpose", _SAMPLES), ("depthwise_conv2d_transpose", _DEPTHWISE)):
    define(
        _name,
        ConvTranspose2d,
        transposed_shape,
        samples=_samples,
        refuses=_REFUSES,
        slope=Op(f"{_name}_grad", ConvTranspose2dGrad),
    )
define(
    "conv3d_transpose",
    ConvTranspose3d,
    transposed_shape,
    samples=_OF_VOLUMES,
    refuses=(
        sample("Input [2 3 2 2 2], Filter [4 2 3 3 3]"),
        sample("Input [2 3 2 2], Filter [3 2 3 3]"),
    ),
    slope=Op("conv3d_transpose_grad", ConvTranspose3dGrad),
)
