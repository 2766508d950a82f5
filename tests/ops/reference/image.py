"""Convolution and pooling."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from .registry import reference


def image_pads(
    attrs: dict[str, Any], size: tuple[int, ...], kernel: list[int]
) -> list[tuple[int, int]]:
    p = attrs["paddings"]
    if attrs["padding_algorithm"] == "SAME":
        totals = [
            max((math.ceil(n / s) - 1) * s + k - n, 0)
            for n, s, k in zip(size, attrs["strides"], kernel, strict=True)
        ]
        return [(t // 2, t - t // 2) for t in totals]
    return [(p[0], p[0]), (p[1], p[1])] if len(p) == 2 else [(p[0], p[1]), (p[2], p[3])]


def channels_first(slot: str, made: str) -> Any:
    """Turn images that have channels last, and what is made of them, around a reference for NCHW."""

    def decorate(function: Any) -> Any:
        def turned(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
            if attrs["data_format"] != "NHWC":
                return dict(function(ins, attrs))
            out = function({**ins, slot: ins[slot].transpose(0, 3, 1, 2)}, attrs)[made]
            return {made: out.transpose(0, 2, 3, 1)}

        return turned

    return decorate


@reference("conv2d", "depthwise_conv2d")
@channels_first("Input", "Output")
def conv2d(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, w = ins["Input"], ins["Filter"]
    x = np.maximum(x, 0) if attrs["fuse_relu_before_depthwise_conv"] else x
    (sh, sw), (dh, dw), groups = attrs["strides"], attrs["dilations"], attrs["groups"]
    if attrs["padding_algorithm"] == "SAME":
        dh = dw = 1
    kh, kw = (w.shape[2] - 1) * dh + 1, (w.shape[3] - 1) * dw + 1
    pads = image_pads(attrs, x.shape[2:], [kh, kw])
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    oh, ow = (x.shape[2] - kh) // sh + 1, (x.shape[3] - kw) // sw + 1
    out = np.zeros((len(x), len(w), oh, ow))
    per_group, filters = w.shape[1], len(w) // groups
    for o, i, j in itertools.product(range(len(w)), range(oh), range(ow)):
        channels = slice(o // filters * per_group, (o // filters + 1) * per_group)
        window = x[:, channels, i * sh : i * sh + kh : dh, j * sw : j * sw + kw : dw]
        out[:, o, i, j] = (window * w[o]).sum((1, 2, 3))
    return {"Output": out}


@reference("pool2d")
@channels_first("X", "Out")
def pool2d(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = ins["X"]
    height, width = x.shape[2:]
    average = attrs["pooling_type"] == "avg"
    reduce = np.mean if average else np.max
    if attrs["global_pooling"]:
        return {"Out": reduce(x, axis=(2, 3), keepdims=True)}
    (kh, kw), (sh, sw) = attrs["ksize"], attrs["strides"]
    pads = image_pads(attrs, x.shape[2:], attrs["ksize"])
    if attrs["adaptive"]:
        out = np.zeros((*x.shape[:2], kh, kw))
        for i, j in itertools.product(range(kh), range(kw)):
            rows = slice(i * height // kh, math.ceil((i + 1) * height / kh))
            columns = slice(j * width // kw, math.ceil((j + 1) * width / kw))
            out[:, :, i, j] = reduce(x[:, :, rows, columns], axis=(2, 3))
        return {"Out": out}
    rounded = math.ceil if attrs["ceil_mode"] else math.floor
    oh = rounded((height + sum(pads[0]) - kh) / sh) + 1
    ow = rounded((width + sum(pads[1]) - kw) / sw) + 1
    out = np.zeros((*x.shape[:2], oh, ow))
    for i, j in itertools.product(range(oh), range(ow)):
        top, left = i * sh - pads[0][0], j * sw - pads[1][0]
        window = x[:, :, max(top, 0) : top + kh, max(left, 0) : left + kw]
        out[:, :, i, j] = reduce(window, axis=(2, 3))
        if average and not attrs["exclusive"]:
            out[:, :, i, j] *= window.shape[2] * window.shape[3] / (kh * kw)
    return {"Out": out}
