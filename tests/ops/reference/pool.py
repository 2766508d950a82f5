"""Pooling of images and volumes, one window at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .conv import channels_first, paddings
from .registry import reference


def windows(
    x: Any, attrs: dict[str, Any]
) -> tuple[list[int], Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]]:
    """Return the sizes of the result, and each place of it with its window of the image."""
    sizes, k, strides = x.shape[2:], attrs["ksize"], attrs["strides"]
    if attrs["global_pooling"]:
        out, edges = [1] * len(sizes), [[(0, n)] for n in sizes]
    elif attrs["adaptive"]:
        out = list(k)
        edges = [
            [(i * n // count, math.ceil((i + 1) * n / count)) for i in range(count)]
            for n, count in zip(sizes, k, strict=True)
        ]
    else:
        pads, ceil = paddings(attrs, sizes, k), attrs["ceil_mode"]
        out = [  # Paddle's division of integers rounds towards 0
            math.trunc((n + sum(p) - w + ceil * (s - 1)) / s) + 1
            for n, p, w, s in zip(sizes, pads, k, strides, strict=True)
        ]
        edges = [
            [(max(i * s - p[0], 0), i * s - p[0] + w) for i in range(count)]
            for count, p, w, s in zip(out, pads, k, strides, strict=True)
        ]
    each = (
        (place, tuple(slice(*line[i]) for line, i in zip(edges, place, strict=True)))
        for place in np.ndindex(*out)
    )
    return out, each


@reference("pool2d", "pool3d")
@channels_first("X", "Out")
def pool(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = ins["X"]
    average = attrs["pooling_type"] == "avg"
    out, each = windows(x, attrs)
    result = np.zeros((*x.shape[:2], *out))
    fixed = not (attrs["exclusive"] or attrs["adaptive"] or attrs["global_pooling"])
    for place, window in each:
        flat = x[(..., *window)].reshape(*x.shape[:2], -1)
        result[(..., *place)] = flat.mean(2) if average else flat.max(2)
        if average and fixed:
            result[(..., *place)] *= flat.shape[2] / math.prod(attrs["ksize"])
    return {"Out": result}


@reference("max_pool2d_with_index", "max_pool3d_with_index")
def max_pool(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = ins["X"]
    out, each = windows(x, attrs)
    largest, mask = np.zeros((*x.shape[:2], *out)), np.zeros((*x.shape[:2], *out), "int32")
    numbers = np.arange(math.prod(x.shape[2:])).reshape(x.shape[2:])
    for place, window in each:
        flat = x[(..., *window)].reshape(*x.shape[:2], -1)
        largest[(..., *place)] = flat.max(2)
        mask[(..., *place)] = numbers[window].ravel()[flat.argmax(2)]
    return {"Out": largest, "Mask": mask}


@reference("unpool", "unpool3d")
def unpool(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x, indices = ins["X"], ins["Indices"]
    sides = zip(x.shape[2:], attrs["ksize"], attrs["strides"], attrs["paddings"], strict=True)
    sizes = attrs["output_size"] or [(n - 1) * s - 2 * p + k for n, k, s, p in sides]
    flat = np.zeros((*x.shape[:2], math.prod(sizes)))
    for place in np.ndindex(*x.shape):
        flat[(*place[:2], indices[place])] = x[place]
    return {"Out": flat.reshape(*x.shape[:2], *sizes)}


@reference("spp")
def pyramid(ins: dict[str, Any], attrs: dict[str, Any]) -> dict[str, Any]:
    x = ins["X"]
    parts = []
    for level in range(attrs["pyramid_height"]):
        count = 2**level
        k = [math.ceil(n / count) for n in x.shape[2:]]
        pads = [(w * count - n + 1) // 2 for w, n in zip(k, x.shape[2:], strict=True)]
        how = {"ksize": k, "strides": k, "paddings": pads, "ceil_mode": False, "adaptive": False}
        how |= {"global_pooling": False, "exclusive": True, "data_format": "NCHW"}
        part = pool({"X": x}, {**how, "pooling_type": attrs["pooling_type"]})["Out"]
        parts.append(part[:, :, :count, :count].reshape(len(x), -1))
    return {"Out": np.concatenate(parts, 1)}
