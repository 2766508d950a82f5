"""Kernels of pools over regions, on the host: which pixels they read follows from the regions.

A mean over a bin is a weight for each row times a weight for each column: bins are products with weights
[regions, bins, pixels], which differ by the kind of pool. Legend: R regions, P bins along an axis, L pixels, C
channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....graph.ops import region_pool as ops
from ....graph.ops.operands import Array
from ....strategies.errors import InvalidValue, SequenceError
from ..registry import each_step


def images_of(op: str, a: Any) -> Array:
    """Return the image of each region.

    Raises:
        SequenceError: there are not as many sequences as images, or not as many regions.
        InvalidValue: a region is not finite.
    """
    counts = getattr(a, "batch_ro_i_nums", None)
    if counts is None:
        slot = getattr(a, "rois_lod", None)
        counts = np.diff(a.rois_at[-1] if slot is None else slot)
    if len(counts) != len(a.x) or counts.sum() != len(a.rois):
        raise SequenceError(
            f"{op}: ROIs has {len(a.rois)} rows, of which {counts.tolist()} belong to an image each, and X has "
            f"{len(a.x)} images. Feed as many sequences of ROIs as images."
        )
    wrong = np.flatnonzero(~np.isfinite(a.rois).all(1))
    if wrong.size:
        raise InvalidValue(
            f"{op}: region {wrong[0]} of ROIs is {a.rois[wrong[0]].tolist()}. What it was computed from was "
            f"not finite: the training may have diverged. FLAGS_check_nan_inf names the op that makes NaN."
        )
    return np.repeat(np.arange(len(counts)), counts)


def _away_from_zero(x: Array) -> Any:
    return np.trunc(x + np.copysign(x.dtype.type(0.5), x))


def _whole(starts: Array, bins: Array, count: int, shift: Array, length: int) -> tuple[Any, Any]:
    """Return the first pixels of bins and those behind them, cut to the image: [R, P]."""
    numbers = np.arange(count, dtype=bins.dtype)
    begin = np.floor(numbers * bins[:, None] + starts[:, None]) + shift[:, None]
    end = np.ceil((numbers + 1) * bins[:, None] + starts[:, None]) + shift[:, None]
    return tuple(np.clip(edge, 0, length).astype(np.int64) for edge in (begin, end))


def _axes(a: ops.Bins) -> Iterator[tuple[int, int, int, int]]:
    """Return, for rows and columns: bins, pixels, and which elements of a region are its edges."""
    yield a.pooled_height, a.x.shape[2], 1, 3
    yield a.pooled_width, a.x.shape[3], 0, 2


def _aligned(a: ops.RoiAlign | ops.RoiAlignGrad) -> list[Any]:
    """Weights of points evenly in bins, each between four pixels."""
    weights = []
    for count, length, first, last in _axes(a):
        shift = a.x.dtype.type(0.5 if a.aligned else 0)
        scale = a.x.dtype.type(a.spatial_scale)
        start, end = (a.rois[:, k] * scale - shift for k in (first, last))
        size = end - start if a.aligned else np.maximum(end - start, 1)
        bins = size / count
        points = np.ceil(bins) if a.sampling_ratio <= 0 else np.full_like(size, a.sampling_ratio)
        some = np.maximum(points, 1)  # where bins have a size
        weight = np.zeros((len(a.rois), count, length), a.x.dtype)
        rows, numbers = np.indices(weight.shape[:2])
        for k in range(int(points.max(initial=0))):
            step = (k + a.x.dtype.type(0.5)) * (bins / some)
            at = start[:, None] + np.arange(count, dtype=bins.dtype) * bins[:, None] + step[:, None]
            share = ((at >= -1) & (at <= length) & (k < points[:, None])) / some[:, None]
            at = np.clip(at, 0, length - 1)
            low = at.astype(np.int64)
            weight[rows, numbers, low] += share * (1 - (at - low))
            weight[rows, numbers, np.minimum(low + 1, length - 1)] += share * (at - low)
        weights.append(weight)
    return weights


def touched(a: ops.PsroiPool | ops.PsroiPoolGrad) -> Iterator[tuple[Any, Any]]:
    """Return, for rows and columns, the first pixels that bins touch and those behind them: [R, P]."""
    scale = a.x.dtype.type(a.spatial_scale)
    for count, length, first, last in _axes(a):
        start = _away_from_zero(a.rois[:, first]) * scale
        end = (_away_from_zero(a.rois[:, last]) + 1) * scale
        bins = np.maximum(end - start, a.x.dtype.type(0.1)) / count
        yield _whole(start, bins, count, np.zeros_like(bins), length)


def _counted(a: ops.PsroiPool | ops.PsroiPoolGrad) -> list[Any]:
    """Weights of all pixels that a bin touches."""
    weights = []
    for length, (begin, stop) in zip(a.x.shape[2:], touched(a), strict=True):
        pixels = np.arange(length)
        inside = (pixels >= begin[..., None]) & (pixels < stop[..., None])
        weights.append((inside / np.maximum(stop - begin, 1)[..., None]).astype(a.x.dtype))
    return weights


def _below(t: Array) -> Any:
    """The integral of the tent max(1 - |t|, 0) up to t."""
    t = np.clip(t, -1, 1)
    return 0.5 + t - np.sign(t) * t * t / 2


def _tent(t: Array) -> Any:
    return np.maximum(1 - np.abs(t), 0)


def _integrated(a: ops.PrroiPool | ops.PrroiPoolGrad) -> list[tuple[Any, Any, Any]]:
    """Weights of means over bins of what is linear between pixels, and their slopes by a bin's two edges."""
    weights = []
    scale = a.x.dtype.type(a.spatial_scale)
    for count, length, first, last in _axes(a):
        start, end = a.rois[:, first] * scale, a.rois[:, last] * scale
        bins = (np.maximum(end - start, 0) / count)[:, None]
        begin = start[:, None] + np.arange(count, dtype=bins.dtype) * bins
        size = bins[..., None]
        over = np.where(size > 0, 1 / np.where(size > 0, size, 1), 0)
        low, high = (edge[..., None] - np.arange(length) for edge in (begin, begin + bins))
        mean = (_below(high) - _below(low)) * over
        slopes = (mean - _tent(low)) * over, (_tent(high) - mean) * over
        weights.append(tuple(w.astype(a.x.dtype) for w in (mean, *slopes)))
    return weights


def _reach(weights: Array) -> slice:
    """Return the pixels that any bin of a region weighs."""
    used = np.flatnonzero(weights.any(0))
    return slice(used[0], used[-1] + 1) if used.size else slice(0, 0)


def _pool(x: Array, rows: Array, columns: Array) -> Any:
    """Weigh the pixels of an image [C, L, L] by bin: [C, P, P]."""
    h, w = _reach(rows), _reach(columns)
    return rows[:, h] @ x[:, h, w] @ columns[:, w].T


def _spread(d_x: Array, d_out: Array, rows: Array, columns: Array) -> None:
    """Add to the gradient of an image what comes from the bins."""
    h, w = _reach(rows), _reach(columns)
    d_x[:, h, w] += rows[:, h].T @ d_out @ columns[:, w]


@each_step("roi_align", on=("numpy",))
def roi_align(a: ops.RoiAlign) -> None:
    images, (rows, columns) = images_of("roi_align", a), _aligned(a)
    for r, image in enumerate(images):
        a.out[r] = _pool(a.x[image], rows[r], columns[r])


@each_step("roi_align_grad", on=("numpy",))
def roi_align_grad(a: ops.RoiAlignGrad) -> None:
    d_x: Any = a.d_x
    images, (rows, columns) = images_of("roi_align", a), _aligned(a)
    d_x[...] = 0
    for r, image in enumerate(images):
        _spread(d_x[image], a.d_out[r], rows[r], columns[r])


def _by_position(x: Array, a: ops.Bins) -> Any:
    """View channels as [C, P, P, L, L]."""
    return x.reshape(-1, a.pooled_height, a.pooled_width, *x.shape[1:])


@each_step("psroi_pool", on=("numpy",))
def psroi_pool(a: ops.PsroiPool) -> None:
    rows, columns = _counted(a)
    for r, image in enumerate(images_of("psroi_pool", a)):
        h, w = _reach(rows[r]), _reach(columns[r])
        x = _by_position(a.x[image], a)[..., h, w]
        a.out[r] = np.einsum("ph,cpqhw,qw->cpq", rows[r][:, h], x, columns[r][:, w])


@each_step("psroi_pool_grad", on=("numpy",))
def psroi_pool_grad(a: ops.PsroiPoolGrad) -> None:
    d_x: Any = a.d_x
    rows, columns = _counted(a)
    d_x[...] = 0
    for r, image in enumerate(images_of("psroi_pool", a)):
        h, w = _reach(rows[r]), _reach(columns[r])
        part = _by_position(d_x[image], a)[..., h, w]
        part += np.einsum("ph,cpq,qw->cpqhw", rows[r][:, h], a.d_out[r], columns[r][:, w])


@each_step("prroi_pool", on=("numpy",))
def prroi_pool(a: ops.PrroiPool) -> None:
    (rows, *_), (columns, *_) = _integrated(a)
    for r, image in enumerate(images_of("prroi_pool", a)):
        a.out[r] = _pool(a.x[image], rows[r], columns[r])


@each_step("prroi_pool_grad", on=("numpy",))
def prroi_pool_grad(a: ops.PrroiPoolGrad) -> None:
    """Edge k of n bins moves with the region's first edge by 1 - k / n, and by k / n with its last."""
    both = _integrated(a)
    (rows, *row_slopes), (columns, *column_slopes) = both
    if a.d_x is not None:
        a.d_x[...] = 0
    for r, image in enumerate(images_of("prroi_pool", a)):
        if a.d_x is not None:
            _spread(a.d_x[image], a.d_out[r], rows[r], columns[r])
        if a.d_rois is None:
            continue
        pairs = [(slope[r], columns[r]) for slope in row_slopes]
        pairs += [(rows[r], slope[r]) for slope in column_slopes]
        slopes = [a.d_out[r] * _pool(a.x[image], *pair) for pair in pairs]
        for (begin, end), axis, first, last in (
            (slopes[:2], 1, 1, 3),
            (slopes[2:], 2, 0, 2),
        ):
            sums = [edge.sum((0, 3 - axis)) for edge in (begin, end)]
            at = np.arange(len(sums[0]) + 1) / len(sums[0])
            late = (sums[0] * at[:-1] + sums[1] * at[1:]).sum() * a.spatial_scale
            a.d_rois[r, last] = late
            a.d_rois[r, first] = (sums[0] + sums[1]).sum() * a.spatial_scale - late


def _bins(a: ops.RoiPool) -> Iterator[tuple[Any, Any]]:
    """Return, for rows and columns, the first pixels of bins and those behind them: [R, P]."""
    for count, length, first, last in _axes(a):
        scaled = a.rois * a.x.dtype.type(a.spatial_scale)
        start, end = (_away_from_zero(scaled[:, k]) for k in (first, last))
        bins = np.maximum(end - start + 1, 1) / count
        yield _whole(np.zeros_like(bins), bins, count, start, length)


def _keys(image: Array) -> Any:
    """Return, of [C, L, L], int64 [L, L, C]: larger for larger pixels, and for earlier ones of equal."""
    channels = np.ascontiguousarray(image.transpose(1, 2, 0)) + 0  # of -0 and 0 none is larger
    if channels.dtype == np.float32:
        order = channels.view(np.int32).astype(np.int64)
        order ^= (order >> 63) & 0x7FFFFFFF
    else:
        order = np.unique(channels, return_inverse=True)[1].reshape(channels.shape)
    behind = np.arange(image[0].size)[::-1].reshape(*image.shape[1:], 1)
    return (order << 32) + behind


@each_step("roi_pool", on=("numpy",))
def roi_pool(a: ops.RoiPool) -> None:
    """The largest pixels of rows, by columns of bins, and then the largest of these."""
    (tops, bottoms), (lefts, rights) = _bins(a)
    pixels, none = a.x.shape[2] * a.x.shape[3], np.iinfo(np.int64).min
    images, keys, latest = images_of("roi_pool", a), None, -1
    starts = pixels * np.arange(a.x.shape[1])[:, None, None]
    for r, image in enumerate(images):
        if image != latest:
            keys, latest = _keys(a.x[image]), image
        assert keys is not None
        top, bottom, left, right = tops[r], bottoms[r], lefts[r], rights[r]
        rows = slice(top.min(), bottom.max())
        best = np.full((a.pooled_height, a.pooled_width, a.x.shape[1]), none)
        of_rows = np.full((a.pooled_width, max(rows.stop - rows.start, 0), a.x.shape[1]), none)
        for q in np.flatnonzero(right > left):
            np.maximum.reduce(keys[rows, left[q] : right[q]], 1, out=of_rows[q])
        for p in np.flatnonzero(bottom > top):
            here = of_rows[:, top[p] - rows.start : bottom[p] - rows.start]
            np.maximum.reduce(here, 1, out=best[p])
        best = best.transpose(2, 0, 1)
        places, empty = pixels - 1 - (best & 0xFFFFFFFF), best == none
        a.out[r] = a.x[image].reshape(-1).take(places + starts, mode="clip")
        a.out[r][empty] = 0
        if a.argmax is not None:
            a.argmax[r] = places
            a.argmax[r][empty] = -1


@each_step("roi_pool_grad", on=("numpy",))
def roi_pool_grad(a: ops.RoiPoolGrad) -> None:
    d_x: Any = a.d_x
    _, channels, height, width = d_x.shape
    planes = images_of("roi_pool", a)[:, None] * channels + np.arange(channels)
    at = planes[:, :, None, None] * (height * width) + np.maximum(a.argmax, 0)
    parts = np.where(a.argmax < 0, 0, a.d_out)
    d_x[...] = np.bincount(at.ravel(), parts.ravel(), d_x.size).reshape(d_x.shape)
