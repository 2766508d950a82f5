"""Convolution as matrix products, a few images at a time so that the unfolded windows stay in cache.

Legend: N images, G groups, C channels of a group, O filters of a group, K = C * kh * kw, L = oh * ow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ....graph.ops.conv import Conv2d, Conv2dGrad, Conv2dOperands, windows
from ....graph.ops.operands import Array, SlopeOfOut
from ...device.device import Device
from ..registry import Step, kernel
from .activation import relu_grad

_CACHE_BYTES = 1 << 20  # unfolded windows of one chunk of images


@dataclass
class Geometry:
    """Sizes of one convolution, and views that pair windows with taps."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    out: tuple[int, ...]
    strides: list[int]
    dilations: list[int]
    pads: list[tuple[int, int]]
    groups: int

    @property
    def plain(self) -> bool:
        """Whether windows are single elements, so that nothing needs unfolding."""
        return self.w[2:] == (1, 1) and self.strides == [1, 1] and self.pads == [(0, 0), (0, 0)]

    @property
    def padded(self) -> tuple[int, int]:
        """Height and width with padding."""
        return self.x[2] + sum(self.pads[0]), self.x[3] + sum(self.pads[1])

    def interior(self, padded: Array) -> Any:
        """Return the view of a padded image that the image itself fills."""
        top, left = self.pads[0][0], self.pads[1][0]
        return padded[:, :, top : top + self.x[2], left : left + self.x[3]]

    def tap(self, padded: Array, i: int, j: int) -> Any:
        """Return what kernel element (i, j) meets, for every window: [n, channels, oh, ow]."""
        (sh, sw), (dh, dw), (oh, ow) = self.strides, self.dilations, self.out[2:]
        rows = slice(i * dh, i * dh + (oh - 1) * sh + 1, sh)
        columns = slice(j * dw, j * dw + (ow - 1) * sw + 1, sw)
        return padded[:, :, rows, columns]

    def chunk(self, itemsize: int) -> int:
        """Return how many images to unfold at a time."""
        per_image = self.x[1] * self.w[2] * self.w[3] * self.out[2] * self.out[3] * itemsize
        return max(1, min(self.x[0], _CACHE_BYTES // max(per_image, 1)))


def geometry(a: Conv2dOperands, out: Array) -> Geometry:
    """``out`` is Output or its gradient."""
    x, w = a.input, a.filter
    pads, dilations = windows(vars(a), x.shape[2:], w.shape[2:])
    return Geometry(x.shape, w.shape, out.shape, list(a.strides), dilations, pads, a.groups)


class _Unfold:
    """Windows of a chunk of images as a matrix [n, G, K, L], refilled for each chunk."""

    def __init__(self, dev: Device, geo: Geometry, dtype: Any) -> None:
        n, (kh, kw), (oh, ow) = geo.chunk(dtype.itemsize), geo.w[2:], geo.out[2:]
        self.xp, self.geo, self.n = dev.xp, geo, n
        self.columns = dev.scratch((n, geo.x[1], kh, kw, oh, ow), dtype)
        padded = any(sum(pad) for pad in geo.pads)
        self.padded = dev.keep((n, geo.x[1], *geo.padded), dtype) if padded else None

    def matrix(self, count: int) -> Any:
        """View the windows of the first ``count`` images as [count, G, K, L]."""
        groups = self.geo.groups
        return self.columns[:count].reshape(count, groups, -1, self.geo.out[2] * self.geo.out[3])

    def fill(self, images: Array) -> list[Step]:
        """Return the copies that unfold some images."""
        steps: list[Step] = []
        source = images
        if self.padded is not None:
            source = self.padded[: len(images)]
            steps.append(partial(self.xp.copyto, self.geo.interior(source), images))
        target = self.columns[: len(images)]
        return [
            *steps,
            *(partial(self.xp.copyto, target[:, :, i, j], tap) for i, j, tap in self.taps(source)),
        ]

    def taps(self, padded: Array) -> list[tuple[int, int, Any]]:
        """Return each kernel element with what it meets in a padded image."""
        kh, kw = self.geo.w[2:]
        return [(i, j, self.geo.tap(padded, i, j)) for i in range(kh) for j in range(kw)]


def _chunks(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def _by_group(array: Array, groups: int) -> Any:
    """View [n, channels, h, w] as [n, G, channels / G, h * w]."""
    n, channels, h, w = array.shape
    return array.reshape(n, groups, channels // groups, h * w)


def _contiguous(dev: Device, array: Array) -> tuple[Any, list[Step]]:
    """Return an array that reshapes without a copy, and the step that fills it."""
    if array.flags.c_contiguous:
        return array, []
    copy = dev.scratch(array.shape, array.dtype)
    return copy, [partial(dev.xp.copyto, copy, array)]


@kernel("conv2d", "depthwise_conv2d")
def conv2d(dev: Device, a: Conv2d) -> list[Step]:
    geo, image = geometry(a, a.output), a.input
    w, steps = _contiguous(dev, a.filter)
    if a.fuse_relu_before_depthwise_conv:
        image, rectifying = rectified(dev, image)
        steps += rectifying
    w_GOK = w.reshape(a.groups, w.shape[0] // a.groups, -1)
    if geo.plain:
        x, copies = _contiguous(dev, image)
        return [
            *steps,
            *copies,
            partial(dev.xp.matmul, w_GOK, _by_group(x, a.groups), _by_group(a.output, a.groups)),
        ]
    unfold = _Unfold(dev, geo, image.dtype)
    for images in _chunks(geo.x[0], unfold.n):
        part = a.output[images]
        steps += unfold.fill(image[images])
        steps.append(
            partial(dev.xp.matmul, w_GOK, unfold.matrix(len(part)), _by_group(part, a.groups))
        )
    return steps


@kernel("conv2d_grad", "depthwise_conv2d_grad")
def conv2d_grad(dev: Device, a: Conv2dGrad) -> list[Step]:
    geo, image = geometry(a, a.d_output), a.input
    d_out, steps = _contiguous(dev, a.d_output)
    if a.fuse_relu_before_depthwise_conv and a.d_filter is not None:
        image, rectifying = rectified(dev, image)
        steps += rectifying
    if a.d_filter is not None:
        steps += _filter_grad(dev, geo, image, d_out, a.d_filter)
    if a.d_input is not None:
        w, copies = _contiguous(dev, a.filter)
        w_GKO = w.reshape(a.groups, w.shape[0] // a.groups, -1).swapaxes(1, 2)
        steps += [*copies, *_input_grad(dev, geo, w_GKO, d_out, a.d_input)]
        if a.fuse_relu_before_depthwise_conv:
            into = SlopeOfOut(out=a.input, d_out=a.d_input, d_x=a.d_input)
            steps += relu_grad(dev, into)
    return steps


def rectified(dev: Device, x: Array) -> tuple[Any, list[Step]]:
    """Return scratch for relu(x), in the same order in memory, and the call that fills it."""
    made = dev.scratch_like(x)
    return made, [partial(dev.xp.maximum, x, 0, out=made)]


def _filter_grad(dev: Device, geo: Geometry, x: Array, d_out: Array, d_filter: Any) -> list[Step]:
    """Sum over images of d_out [G, O, L] @ windows [G, L, K]."""
    xp, groups = dev.xp, geo.groups
    if not geo.x[0]:
        return [partial(d_filter.fill, 0)]
    total = d_filter.reshape(groups, geo.w[0] // groups, -1)
    unfold = None if geo.plain else _Unfold(dev, geo, x.dtype)
    source, steps = _contiguous(dev, x) if geo.plain else (x, [])
    n = geo.chunk(x.dtype.itemsize)
    parts = dev.scratch((n, *total.shape), x.dtype)
    partial_sum = dev.scratch(total.shape, x.dtype)
    for number, images in enumerate(_chunks(geo.x[0], n)):
        count = len(d_out[images])
        if unfold is None:
            windows = _by_group(source[images], groups)
        else:
            steps += unfold.fill(x[images])
            windows = unfold.matrix(count)
        grads = _by_group(d_out[images], groups)
        steps.append(partial(xp.matmul, grads, windows.swapaxes(2, 3), parts[:count]))
        target = total if number == 0 else partial_sum
        steps.append(partial(xp.add.reduce, parts[:count], 0, None, target))
        if number:
            steps.append(partial(xp.add, total, partial_sum, total))
    return steps


def _input_grad(dev: Device, geo: Geometry, w_GKO: Array, d_out: Array, d_input: Any) -> list[Step]:
    """Fold w^T [G, K, O] @ d_out [G, O, L] back: each kernel element adds to what it met."""
    xp, groups = dev.xp, geo.groups
    if geo.plain:
        return [partial(xp.matmul, w_GKO, _by_group(d_out, groups), _by_group(d_input, groups))]
    unfold = _Unfold(dev, geo, d_input.dtype)
    padded = any(sum(pad) for pad in geo.pads)
    steps: list[Step] = []
    add: Callable[..., Any] = xp.add
    for images in _chunks(geo.x[0], unfold.n):
        count = len(d_out[images])
        steps.append(
            partial(xp.matmul, w_GKO, _by_group(d_out[images], groups), unfold.matrix(count))
        )
        target = unfold.padded[:count] if padded and unfold.padded is not None else d_input[images]
        steps.append(partial(target.fill, 0))
        for i, j, tap in unfold.taps(target):
            steps.append(partial(add, tap, unfold.columns[:count, :, i, j], tap))
        if padded:
            steps.append(partial(xp.copyto, d_input[images], geo.interior(target)))
    return steps
