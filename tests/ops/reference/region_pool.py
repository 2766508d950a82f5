"""Pools over regions, bin by bin and pixel by pixel."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from .registry import reference

Arrays = dict[str, Any]


def _nearest(x: float) -> float:
    """Halves go away from zero."""
    return math.copysign(math.floor(abs(x) + 0.5), x)


def _bins(ins: Arrays, attrs: Arrays, channels: int, value: Callable[..., float]) -> Any:
    """Ask ``value`` about each bin of each region: image, region, channel, row and column of the bin."""
    counts = ins.get("BatchRoINums")
    ends = ins["RoisLod"] if "RoisLod" in ins else ins["ROIs@LOD"][-1] if counts is None else None
    counts = np.diff(ends) if counts is None else counts
    image_of = [n for n, count in enumerate(counts) for _ in range(count)]
    bins = attrs["pooled_height"], attrs["pooled_width"]
    out = np.zeros((len(ins["ROIs"]), channels, *bins))
    for place in np.ndindex(*out.shape):
        out[place] = value(ins["X"][image_of[place[0]]], ins["ROIs"][place[0]], *place[1:])
    return out


def _linear(x: Any, at: tuple[float, float]) -> float:
    """What lies between pixels, those outside being 0."""
    total = 0.0
    for place in np.ndindex(*x.shape):
        shares = [max(1 - abs(a - p), 0) for a, p in zip(at, place, strict=True)]
        total += x[place] * shares[0] * shares[1]
    return total


@reference("roi_align")
def roi_align(ins: Arrays, attrs: Arrays) -> Arrays:
    scale = attrs["spatial_scale"]

    def value(x: Any, roi: Any, c: int, p: int, q: int) -> float:
        axes = []
        for number, count, length, first, last in (
            (p, attrs["pooled_height"], x.shape[1], roi[1], roi[3]),
            (q, attrs["pooled_width"], x.shape[2], roi[0], roi[2]),
        ):
            first, last = (edge * scale - 0.5 * attrs["aligned"] for edge in (first, last))
            size = max(last - first, 0 if attrs["aligned"] else 1) / count
            points = attrs["sampling_ratio"] if attrs["sampling_ratio"] > 0 else math.ceil(size)
            at = [first + (number + (k + 0.5) / points) * size for k in range(points)]
            axes.append([None if y < -1 or y > length else min(max(y, 0), length - 1) for y in at])
        pairs = [(y, z) for y in axes[0] for z in axes[1]]
        values = [0 if y is None or z is None else _linear(x[c], (y, z)) for y, z in pairs]
        return sum(values) / len(pairs)

    return {"Out": _bins(ins, attrs, ins["X"].shape[1], value)}


@reference("prroi_pool")
def prroi_pool(ins: Arrays, attrs: Arrays) -> Arrays:
    """Cut at pixels, a bin has pieces whose mean is the value in their middle."""
    scale = attrs["spatial_scale"]

    def edges(first: float, last: float, number: int, count: int, length: int) -> Any:
        size = (last - first) * scale / count
        begin = first * scale + number * size
        inside = [y for y in range(-1, length + 2) if begin < y < begin + size]
        return [begin, *inside, begin + size]

    def value(x: Any, roi: Any, c: int, p: int, q: int) -> float:
        rows = edges(roi[1], roi[3], p, attrs["pooled_height"], x.shape[1])
        columns = edges(roi[0], roi[2], q, attrs["pooled_width"], x.shape[2])
        total = 0.0
        for top, bottom in pairwise(rows):
            for left, right in pairwise(columns):
                middle = (top + bottom) / 2, (left + right) / 2
                total += _linear(x[c], middle) * (bottom - top) * (right - left)
        return total / ((rows[-1] - rows[0]) * (columns[-1] - columns[0]))

    return {"Out": _bins(ins, attrs, ins["X"].shape[1], value)}


def _pixels(start: float, size: float, number: int, count: int, shift: float, length: int) -> range:
    begin = math.floor(number * size / count + start) + shift
    end = math.ceil((number + 1) * size / count + start) + shift
    return range(int(min(max(begin, 0), length)), int(min(max(end, 0), length)))


@reference("psroi_pool")
def psroi_pool(ins: Arrays, attrs: Arrays) -> Arrays:
    scale, bins = attrs["spatial_scale"], (attrs["pooled_height"], attrs["pooled_width"])

    def value(x: Any, roi: Any, c: int, p: int, q: int) -> float:
        starts = [_nearest(roi[k]) * scale for k in (1, 0)]
        sizes = [
            max((_nearest(roi[k + 2]) + 1) * scale - s, 0.1)
            for k, s in zip((1, 0), starts, strict=True)
        ]
        rows = _pixels(starts[0], sizes[0], p, bins[0], 0, x.shape[1])
        columns = _pixels(starts[1], sizes[1], q, bins[1], 0, x.shape[2])
        channel = (c * bins[0] + p) * bins[1] + q
        values = [x[channel, h, w] for h in rows for w in columns]
        return sum(values) / max(len(values), 1)

    return {"Out": _bins(ins, attrs, attrs["output_channels"], value)}


@reference("roi_pool")
def roi_pool(ins: Arrays, attrs: Arrays) -> Arrays:
    scale, bins = attrs["spatial_scale"], (attrs["pooled_height"], attrs["pooled_width"])

    def best(x: Any, roi: Any, c: int, p: int, q: int) -> tuple[float, int]:
        starts = [_nearest(roi[k] * scale) for k in (1, 0)]
        ends = [_nearest(roi[k] * scale) for k in (3, 2)]
        sizes = [max(end - start + 1, 1) for start, end in zip(starts, ends, strict=True)]
        rows = _pixels(0, sizes[0], p, bins[0], starts[0], x.shape[1])
        columns = _pixels(0, sizes[1], q, bins[1], starts[1], x.shape[2])
        places = [h * x.shape[2] + w for h in rows for w in columns]
        flat = x[c].ravel()
        return max(((flat[k], k) for k in places), default=(0.0, -1))

    channels = ins["X"].shape[1]
    return {
        "Out": _bins(ins, attrs, channels, lambda *place: best(*place)[0]),
        "Argmax": _bins(ins, attrs, channels, lambda *place: best(*place)[1]).astype("int64"),
    }
