"""Pooling: one pass per window element over strided views of the (padded) images."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ....graph.ir.graph import Node
from ....graph.ops.conv import window_paddings
from ....graph.ops.operands import Array
from ....graph.ops.pool import Pool2d, Pool2dGrad
from ...device.device import Device
from ..registry import Step, kernel


@dataclass
class Windows:
    """Where the pooling windows lie."""

    k: list[int]
    strides: list[int]
    pads: list[tuple[int, int]]
    out: tuple[int, int]
    size: tuple[int, int]

    @property
    def room(self) -> tuple[int, int]:
        """Height and width that the windows cover, padding included."""
        spans = [(o - 1) * s + k for o, s, k in zip(self.out, self.strides, self.k, strict=True)]
        height = max(spans[0], self.size[0] + self.pads[0][0])
        return height, max(spans[1], self.size[1] + self.pads[1][0])

    @property
    def padded(self) -> bool:
        """Whether windows reach outside the image."""
        return self.room != self.size

    def interior(self, padded: Array) -> Any:
        """Return the view that the image itself fills."""
        top, left = self.pads[0][0], self.pads[1][0]
        return padded[:, :, top : top + self.size[0], left : left + self.size[1]]

    def taps(self, padded: Array) -> list[Any]:
        """Return, for each window element in row order, what it meets in every window."""
        (sh, sw), (oh, ow) = self.strides, self.out
        return [
            padded[:, :, i : i + (oh - 1) * sh + 1 : sh, j : j + (ow - 1) * sw + 1 : sw]
            for i in range(self.k[0])
            for j in range(self.k[1])
        ]

    def counts(self, exclusive: bool, dtype: Any) -> Any:
        """Return what an average divides by, [1, 1, oh, ow]; ``exclusive`` leaves padding out."""
        if not exclusive:
            return np.full((1, 1, *self.out), self.k[0] * self.k[1], dtype)
        ones = np.zeros((1, 1, *self.room), dtype)
        self.interior(ones)[...] = 1
        return np.maximum(sum(self.taps(ones)), 1)


def one_window(node: Node) -> bool:
    """Tell whether all windows of a pooling are alike; those of an adaptive one often are not."""
    attrs = node.attrs
    if not attrs["adaptive"]:
        return True
    (x,) = node.inputs["X"]
    assert x is not None
    if attrs["global_pooling"]:
        return all(size >= 0 for size in x.spec.shape[2:])
    sizes = zip(x.spec.shape[2:], attrs["ksize"], strict=True)
    return all(size >= 0 and size % count == 0 for size, count in sizes)


def _cells(x: Array, out: Array) -> list[tuple[Any, Any]]:
    """Pair each window of an adaptive pooling with its place in the result, [n, c, 1, 1]."""
    edges = [
        [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
        for size, count in zip(x.shape[2:], out.shape[2:], strict=True)
    ]
    return [
        (x[:, :, top:bottom, left:right], out[:, :, i : i + 1, j : j + 1])
        for i, (top, bottom) in enumerate(edges[0])
        for j, (left, right) in enumerate(edges[1])
    ]


def _uneven(a: Pool2d | Pool2dGrad) -> bool:
    """Tell whether the windows of a pooling differ in size."""
    sizes = zip(a.x.shape[2:], a.out.shape[2:], strict=True)
    return a.adaptive and any(size % count for size, count in sizes)


def _adaptive(dev: Device, x: Array, out: Array, average: bool) -> list[Step]:
    steps: list[Step] = []
    for window, cell in _cells(x, out):
        reduce = dev.xp.add.reduce if average else dev.reducer("maximum")
        steps.append(partial(reduce, window, (2, 3), None, cell, True))
        if average:
            share = 1.0 / (window.shape[2] * window.shape[3])
            steps.append(partial(dev.xp.multiply, cell, share, cell))
    return steps


def _adaptive_grad(dev: Device, x: Array, d_out: Array, d_x: Any, average: bool) -> list[Step]:
    """Averages share the gradient; of equal maxima the first gets it."""
    xp = dev.xp
    steps: list[Step] = [partial(d_x.fill, 0)]
    pairs = zip(_cells(d_x, d_out), _cells(x, d_out), strict=True)
    for (target, gradient), (window, _) in pairs:
        if average:
            share = dev.scratch(gradient.shape, gradient.dtype)
            area = target.shape[2] * target.shape[3]
            steps.append(partial(xp.multiply, gradient, 1.0 / area, share))
            steps.append(partial(xp.add, target, share, target))
            continue
        steps.append(partial(_to_first, xp, window, gradient, target))
    return steps


def _to_first(xp: Any, window: Any, gradient: Any, target: Array) -> None:
    """Add the gradient of a window's maximum to the first element that equals it."""
    n, c, height, width = window.shape
    first = window.reshape(n, c, -1).argmax(2)
    hit = (xp.arange(height * width) == first[..., None]).reshape(window.shape)
    xp.add(target, hit * gradient, target)


def windows_of(a: Pool2d | Pool2dGrad) -> Windows:
    """Return the windows that a pooling op's attributes ask for."""
    size, image = a.x.shape[2:], a.out.shape[2:]
    if a.adaptive:
        k = [whole // count for whole, count in zip(size, image, strict=True)]
        return Windows(k, k, [(0, 0), (0, 0)], image, size)
    if a.global_pooling:
        return Windows(list(size), [1, 1], [(0, 0), (0, 0)], (1, 1), size)
    k, strides = list(a.ksize), list(a.strides)
    pads = window_paddings(a.paddings, a.padding_algorithm, size, k, strides)
    return Windows(k, strides, pads, image, size)


def _padded(dev: Device, x: Array, win: Windows, fill: float) -> tuple[Any, list[Step]]:
    if not win.padded:
        return x, []
    room = dev.keep((*x.shape[:2], *win.room), x.dtype)
    room.fill(fill)
    return room, [partial(dev.xp.copyto, win.interior(room), x)]


@kernel("pool2d", any_order=True)
def pool2d(dev: Device, a: Pool2d) -> list[Step]:
    if _uneven(a):
        return _adaptive(dev, a.x, a.out, a.pooling_type == "avg")
    win = windows_of(a)
    average = a.pooling_type == "avg"
    if average and not win.padded and win.out == (1, 1):
        scale = 1.0 / max(win.size[0] * win.size[1], 1)
        return [
            partial(dev.xp.add.reduce, a.x, (2, 3), None, a.out, True),
            partial(dev.xp.multiply, a.out, scale, a.out),
        ]
    lowest = 0.0 if average else -np.inf
    source, steps = _padded(dev, a.x, win, lowest)
    first, *rest = win.taps(source)
    join = dev.xp.add if average else dev.xp.maximum
    steps.append(
        partial(dev.xp.copyto, a.out, first)
        if not rest
        else partial(join, first, rest[0], out=a.out)
    )
    steps += [partial(join, a.out, tap, out=a.out) for tap in rest[1:]]
    if average:
        shares = dev.xp.asarray(1.0 / win.counts(a.exclusive, np.float64)).astype(a.x.dtype)
        steps.append(partial(dev.xp.multiply, a.out, shares, a.out))
    return steps


@kernel("pool2d_grad", any_order=True)
def pool2d_grad(dev: Device, a: Pool2dGrad) -> list[Step]:
    if a.d_x is None:
        return []
    if _uneven(a):
        return _adaptive_grad(dev, a.x, a.d_out, a.d_x, a.pooling_type == "avg")
    win = windows_of(a)
    if a.pooling_type == "avg":
        return _average_grad(dev, win, a.d_out, a.d_x, a.exclusive)
    source, steps = _padded(dev, a.x, win, -np.inf)
    return [*steps, *_max_grad(dev, win, source, a.out, a.d_out, a.d_x)]


def _target(dev: Device, win: Windows, d_x: Any) -> tuple[Any, list[Step]]:
    """Return where gradients gather, and the copy of the part that is the image."""
    if not win.padded:
        return d_x, []
    room = dev.scratch((*d_x.shape[:2], *win.room), d_x.dtype)
    return room, [partial(dev.xp.copyto, d_x, win.interior(room))]


def _average_grad(dev: Device, win: Windows, d_out: Array, d_x: Any, exclusive: bool) -> list[Step]:
    target, copies = _target(dev, win, d_x)
    shares = dev.xp.asarray(1.0 / win.counts(exclusive, np.float64)).astype(d_out.dtype)
    share = dev.scratch(d_out.shape, d_out.dtype)
    steps: list[Step] = [partial(dev.xp.multiply, d_out, shares, share)]
    if win.out == (1, 1) and not win.padded:
        return [*steps, partial(dev.xp.copyto, d_x, share)]
    steps.append(partial(target.fill, 0))
    steps += [partial(dev.xp.add, tap, share, tap) for tap in win.taps(target)]
    return [*steps, *copies]


def _max_grad(
    dev: Device, win: Windows, source: Array, out: Array, d_out: Array, d_x: Any
) -> list[Step]:
    """The first element of a window that equals its maximum gets the gradient."""
    xp = dev.xp
    target, copies = _target(dev, win, d_x)
    hit = dev.scratch(out.shape, np.bool_)
    waiting = dev.scratch(out.shape, np.bool_)
    share = dev.scratch(out.shape, d_out.dtype)
    steps: list[Step] = [partial(target.fill, 0), partial(waiting.fill, True)]
    for here, tap in zip(win.taps(source), win.taps(target), strict=True):
        steps += [
            partial(xp.equal, here, out, hit),
            partial(xp.logical_and, hit, waiting, hit),
            partial(xp.logical_xor, waiting, hit, waiting),
            partial(xp.multiply, d_out, hit, share),
            partial(xp.add, tap, share, tap),
        ]
    return [*steps, *copies]
