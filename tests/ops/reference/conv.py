"""Convolutions of images and volumes, transposed ones too, one window at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .registry import reference


def paddings(
    attrs: dict[str, Any], sizes: tuple[int, ...], kernel: list[int]
) -> list[tuple[int, int]]:
    p = attrs["paddings"]
    if attrs.get("padding_algorithm") == "VALID":
        return [(0, 0)] * len(sizes)
    if attrs.get("padding_algorithm") == "SAME":
        totals = [
            max((math.ceil(n / s) - 1) * s + k - n, 0)
            for n, s, k in zip(sizes, attrs["strides"], kernel, strict=True)
        ]
        return [(t // 2, t - t // 2) for t in totals]
    if len(p) == len(sizes):
        return [(n, n) for n in p]
    return [(p[2 * i], p[2 * i + 1]) for i in range(len(sizes))]


def channels_first(slot: str, result: str) -> Any:
    """Turn images that have channels last, and what is made of them, around a reference for NCHW."""

    def decorate(function: Any) -> Any:
        def turned(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
            if attrs["data_format"] not in ("NHWC", "NDHWC"):
                return dict(function(ins, attrs))
            out = function({**ins, slot: np.moveaxis(ins[slot], -1, 1)}, attrs)[result]
            return {result: np.moveaxis(out, 1, -1)}

        return turned

    return decorate


def _windows(attrs: dict[str, Any], shape: tuple[int, ...], w: Any) -> tuple[Any, Any, Any]:
    gaps = [1] * len(shape) if attrs["padding_algorithm"] == "SAME" else attrs["dilations"]
    extent = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], gaps, strict=True)]
    return gaps, extent, paddings(attrs, shape, extent)


def _at(place: tuple[int, ...], attrs: dict[str, Any], extent: Any, gaps: Any) -> Any:
    parts = zip(place, attrs["strides"], extent, gaps, strict=True)
    return [slice(i * s, i * s + k, d) for i, s, k, d in parts]


@reference("conv2d", "depthwise_conv2d", "conv3d")
@channels_first("Input", "Output")
def conv(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, w, groups = ins["Input"], ins["Filter"], attrs["groups"]
    x = np.maximum(x, 0) if attrs.get("fuse_relu_before_depthwise_conv") else x
    gaps, extent, pads = _windows(attrs, x.shape[2:], w)
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    sizes = [
        (n - k) // s + 1 for n, k, s in zip(x.shape[2:], extent, attrs["strides"], strict=True)
    ]
    out = np.zeros((len(x), len(w), *sizes))
    per_group, filters = w.shape[1], len(w) // groups
    for o, *place in np.ndindex(len(w), *sizes):
        channels = slice(o // filters * per_group, (o // filters + 1) * per_group)
        window = x[(slice(None), channels, *_at(tuple(place), attrs, extent, gaps))]
        out[(slice(None), o, *place)] = (window * w[o]).reshape(len(x), -1).sum(1)
    return {"Output": out}


@reference("conv2d_grad_add")
def conv_grad_add(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    """The convolution is linear in its images: the slope of <its result, Output@GRAD>, element by element."""
    slope, unit = np.zeros(ins["Input"].shape), np.zeros(ins["Input"].shape)
    for place in np.ndindex(*unit.shape):
        unit[place] = 1
        result = conv({**ins, "Input": unit}, attrs)["Output"]
        slope[place] = (result * ins["Output@GRAD"]).sum()
        unit[place] = 0
    return {"Input@GRAD": slope + ins["Addend"]}


@reference("conv2d_transpose", "depthwise_conv2d_transpose", "conv3d_transpose")
@channels_first("Input", "Output")
def conv_transpose(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, w, groups = ins["Input"], ins["Filter"], attrs["groups"]
    gaps, extent, pads = _windows(attrs, x.shape[2:], w)
    strides, image = attrs["strides"], x.shape[2:]
    full = [(n - 1) * s + k for n, s, k in zip(image, strides, extent, strict=True)]
    room = np.zeros(
        (len(x), w.shape[1] * groups, *(n + s for n, s in zip(full, strides, strict=True)))
    )
    filters, per_group = w.shape[1], len(w) // groups
    for c, *place in np.ndindex(x.shape[1], *image):
        outs = slice(c // per_group * filters, (c // per_group + 1) * filters)
        added = np.multiply.outer(x[(slice(None), c, *place)], w[c])
        room[(slice(None), outs, *_at(tuple(place), attrs, extent, gaps))] += added
    extra = attrs.get("output_padding") or [0] * len(image)
    cut = []
    for i, (n, (before, after)) in enumerate(zip(full, pads, strict=True)):
        size = n - before - after + extra[i]
        cut.append(slice(before, before + ((attrs["output_size"] or [0] * 9)[i] or size)))
    return {"Output": room[(..., *cut)]}
