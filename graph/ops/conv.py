"""Convolutions over images in NCHW."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .registry import Grad, Inference, Op, Specs, define
from .rules import grads_like, merge_dims, of_shape
from .samples import normal, sample

CONV_ATTRS = {
    "strides": [1, 1],
    "paddings": [0, 0],
    "padding_algorithm": "EXPLICIT",
    "groups": 1,
    "dilations": [1, 1],
    "data_format": "NCHW",
    "is_test": False,
    "use_cudnn": False,
    "fuse_relu_before_depthwise_conv": False,
    "use_mkldnn": False,
    "use_quantizer": False,
    "fuse_relu": False,
    "fuse_brelu": False,
    "fuse_brelu_threshold": 6.0,
    "fuse_activation": "",
    "fuse_alpha": 0.0,
    "fuse_beta": 0.0,
    "fuse_residual_connection": False,
    "Scale_in": 1.0,
    "Scale_out": 1.0,
    "Scale_in_eltwise": 1.0,
    "Scale_weights": [1.0],
    "force_fp32_output": False,
    "workspace_size_MB": 512,
    "exhaustive_search": False,
}


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


def conv_shape(op: Inference) -> Mapping[str, Specs]:
    """[N, C, H, W] and [O, C / groups, kh, kw] make [N, O, oh, ow]."""
    x, w = op.spec("Input"), op.spec("Filter")
    op.require(len(x.shape) == 4 and len(w.shape) == 4, "Input and Filter must have 4 dimensions")
    op.require(
        op.attr("data_format") in ("NCHW", "AnyLayout"), "data_format other than NCHW is not built"
    )
    op.require(
        not (op.has("Bias") or op.has("ResidualData")), "fused Bias and ResidualData are not built"
    )
    groups, algorithm = op.attr("groups"), op.attr("padding_algorithm")
    op.require(
        algorithm in ("EXPLICIT", "SAME", "VALID"), f"padding_algorithm {algorithm!r} is unknown"
    )
    op.require(x.dtype == w.dtype, "Input and Filter must have one dtype")
    op.require(
        merge_dims(x.shape[1], w.shape[1] * groups) is not None,
        f"Input has {x.shape[1]} channels, Filter takes {w.shape[1]} in {groups} group(s)",
    )
    op.require(
        w.shape[0] % groups == 0, f"{w.shape[0]} filters cannot be split into {groups} groups"
    )
    extent = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], op.attr("dilations"), strict=True)]
    strides = op.attr("strides")
    op.require(
        min(strides) > 0 and min(op.attr("dilations")) > 0, "strides and dilations must be above 0"
    )
    pads = window_paddings(op.attr("paddings"), algorithm, x.shape[2:], extent, strides)
    dims = []
    for size, pad, k, stride in zip(x.shape[2:], pads, extent, strides, strict=True):
        room = size + sum(pad) - k
        op.require(size < 0 or room >= 0, f"the kernel {extent} is larger than the padded image")
        dims.append(-1 if size < 0 else room // stride + 1)
    return {"Output": of_shape((x.shape[0], w.shape[0], *dims), x)}


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
)
_DEPTHWISE = (
    sample({"Input": normal(2, 4, 6, 6), "Filter": normal(4, 1, 3, 3)}, groups=4, paddings=[1, 1]),
    sample(
        {"Input": normal(2, 4, 5, 5, away_from=(0.0,)), "Filter": normal(4, 1, 3, 3)},
        groups=4,
        fuse_relu_before_depthwise_conv=True,
    ),
)
_REFUSES = (
    sample({"Input": normal(2, 3, 6, 5), "Filter": normal(4, 2, 3, 3)}),
    sample({"Input": normal(2, 3, 2, 2), "Filter": normal(4, 3, 3, 3)}),
)

for _name, _samples in (("conv2d", _SAMPLES), ("depthwise_conv2d", _DEPTHWISE)):
    _optional = ("Bias?", "ResidualData?")
    define(
        Op(
            type=_name,
            inputs=("Input", "Filter", *_optional),
            outputs=("Output",),
            attrs=CONV_ATTRS,
            shape=conv_shape,
            grad=Grad(
                f"{_name}_grad",
                ("Input", "Filter", "Bias", "Output@GRAD"),
                ("Input@GRAD", "Filter@GRAD", "Bias@GRAD"),
            ),
            samples=_samples,
            refuses=_REFUSES,
        )
    )
    define(
        Op(
            type=f"{_name}_grad",
            inputs=("Input", "Filter", "Bias?", "Output@GRAD"),
            outputs=("Input@GRAD", "Filter@GRAD", "Bias@GRAD"),
            attrs=CONV_ATTRS,
            shape=grads_like("Input", "Filter", "Bias"),
        )
    )
