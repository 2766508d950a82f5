"""Pooling: one pass per window element over strided views of the (padded) images, of any dimensions."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np

from ....graph.ir.graph import Node
from ....graph.ops.conv import window_paddings
from ....graph.ops.operands import Array
from ....graph.ops.pool import Pool, PoolGrad
from ....graph.ops.pool_index import MaxPool, MaxPoolGrad
from ...device.device import Device
from ..registry import Step, kernel


@dataclass
class Windows:
    """Where pooling windows lie. Those of an adaptive pooling may be ``uneven``, of other sizes than ``k``."""

    k: list[int]
    strides: list[int]
    pads: list[tuple[int, int]]
    out: tuple[int, ...]
    size: tuple[int, ...]
    uneven: bool = False

    @property
    def room(self) -> tuple[int, ...]:
        """Sizes of what the windows cover, padding included."""
        sides = zip(self.out, self.strides, self.k, self.size, self.pads, strict=True)
        return tuple(max((o - 1) * s + k, size + pad[0]) for o, s, k, size, pad in sides)

    @property
    def padded(self) -> bool:
        """Whether windows reach outside the image."""
        return self.room != self.size

    def interior(self, padded: Any) -> Any:
        """Return the view that the image itself fills."""
        sides = zip(self.pads, self.size, strict=True)
        return padded[(..., *(slice(pad[0], pad[0] + size) for pad, size in sides))]

    def taps(self, padded: Any) -> list[Any]:
        """Return, for each window element in row order, what it meets in every window."""
        lines = [
            [slice(i, i + (o - 1) * s + 1, s) for i in range(k)]
            for k, s, o in zip(self.k, self.strides, self.out, strict=True)
        ]
        return [padded[(..., *tap)] for tap in itertools.product(*lines)]

    def edges(self) -> list[tuple[Any, Any]]:
        """Return for every dimension where each window begins and ends in the image."""
        edges = []
        for i, (size, count) in enumerate(zip(self.size, self.out, strict=True)):
            at = np.arange(count, dtype=np.int64)
            if self.uneven:
                edges.append((at * size // count, -(-(at + 1) * size // count)))
                continue
            start = at * self.strides[i] - self.pads[i][0]
            edges.append((np.clip(start, 0, size), np.clip(start + self.k[i], 0, size)))
        return edges

    def counts(self, exclusive: bool, dtype: Any) -> Any:
        """Return what an average divides by, [1, 1, *out]; ``exclusive`` leaves padding out."""
        if not exclusive and not self.uneven:
            return np.full((1, 1, *self.out), math.prod(self.k), dtype)
        lengths = [end - start for start, end in self.edges()]
        counts = reduce(np.multiply.outer, lengths)
        return np.maximum(counts, 1).astype(dtype)[None, None]

    def cells(self, x: Any, *outs: Any) -> list[tuple[Any, ...]]:
        """Pair each window with its place in the results, [n, c, 1, ..., 1]."""
        lines = [
            [
                (slice(i, i + 1), slice(start, end))
                for i, (start, end) in enumerate(zip(*edge, strict=True))
            ]
            for edge in self.edges()
        ]
        return [
            (
                x[(..., *(part for _, part in cell))],
                *(out[(..., *(at for at, _ in cell))] for out in outs),
            )
            for cell in itertools.product(*lines)
        ]

    def places(self) -> Any:
        """Return the number of each element of an image, in the image's shape."""
        return np.arange(math.prod(self.size), dtype=np.int32).reshape(self.size)


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


def windows_of(a: Pool | PoolGrad | MaxPool | MaxPoolGrad, out: Array) -> Windows:
    """Return the windows that a pooling op's attributes ask for; ``out`` is its result or of that shape."""
    size, image = a.x.shape[2:], out.shape[2:]
    none = [(0, 0)] * len(size)
    if a.adaptive:
        k = [whole // count for whole, count in zip(size, image, strict=True)]
        uneven = any(whole % count for whole, count in zip(size, image, strict=True))
        return Windows(k, k, none, image, size, uneven)
    if a.global_pooling:
        return Windows(list(size), [1] * len(size), none, image, size)
    k, strides = list(a.ksize), list(a.strides)
    algorithm = vars(a).get("padding_algorithm", "EXPLICIT")
    return Windows(
        k, strides, window_paddings(a.paddings, algorithm, size, k, strides), image, size
    )


def padded(dev: Device, x: Array, win: Windows, fill: float) -> tuple[Any, list[Step]]:
    """Return images with margins where windows reach outside, and the call that fills in the images."""
    if not win.padded:
        return x, []
    room = dev.keep((*x.shape[:2], *win.room), x.dtype)
    room.fill(fill)
    return room, [partial(dev.xp.copyto, win.interior(room), x)]


def pooled(
    dev: Device, win: Windows, x: Array, out: Any, average: bool, exclusive: bool = True
) -> list[Step]:
    """Return the calls that write the maximum or the average of each window."""
    xp = dev.xp
    shares = xp.asarray(1.0 / win.counts(exclusive, np.float64)).astype(x.dtype) if average else 1
    divide = [partial(xp.multiply, out, shares, out)] if average else []
    if win.uneven or (average and not win.padded and set(win.out) == {1}):
        join = xp.add.reduce if average else dev.reducer("maximum")
        axes = tuple(range(2, x.ndim))
        cells = win.cells(x, out)
        return [*(partial(join, window, axes, None, cell, True) for window, cell in cells), *divide]
    source, steps = padded(dev, x, win, 0.0 if average else -np.inf)
    first, *rest = win.taps(source)
    combine = xp.add if average else xp.maximum
    steps.append(
        partial(combine, first, rest[0], out=out) if rest else partial(xp.copyto, out, first)
    )
    return [*steps, *(partial(combine, out, tap, out=out) for tap in rest[1:]), *divide]


@kernel("pool2d", "pool3d", any_order=True)
def pool(dev: Device, a: Pool) -> list[Step]:
    return pooled(dev, windows_of(a, a.out), a.x, a.out, a.pooling_type == "avg", a.exclusive)


def pooled_grad(
    dev: Device,
    win: Windows,
    slopes: tuple[Array, Array, Array, Any],
    average: bool,
    exclusive: bool = True,
) -> list[Step]:
    """Return the calls that write the gradient of images; ``slopes``: X, Out, Out@GRAD and X@GRAD."""
    x, out, d_out, d_x = slopes
    if average:
        return _average_grad(dev, win, d_out, d_x, exclusive)
    if win.uneven:
        cells = zip(win.cells(d_x, d_out), win.cells(x), strict=True)
        return [
            partial(d_x.fill, 0),
            *(
                partial(_to_first, dev.xp, window, part, target)
                for (target, part), (window,) in cells
            ),
        ]
    source, steps = padded(dev, x, win, -np.inf)
    return [*steps, *_max_grad(dev, win, source, out, d_out, d_x)]


@kernel("pool2d_grad", "pool3d_grad", any_order=True)
def pool_grad(dev: Device, a: PoolGrad) -> list[Step]:
    slopes = (a.x, a.out, a.d_out, a.d_x)
    return pooled_grad(dev, windows_of(a, a.out), slopes, a.pooling_type == "avg", a.exclusive)


def _to_first(xp: Any, window: Any, gradient: Any, target: Array) -> None:
    """Add the gradient of a window's maximum to the first element that equals it."""
    n, c, *sizes = window.shape
    first = window.reshape(n, c, -1).argmax(2)
    hit = (xp.arange(math.prod(sizes)) == first[..., None]).reshape(window.shape)
    xp.add(target, hit * gradient, target)


def _target(dev: Device, win: Windows, d_x: Any) -> tuple[Any, list[Step]]:
    """Return where gradients gather, and the copy of the part that is the image."""
    if not win.padded:
        return d_x, []
    room = dev.scratch((*d_x.shape[:2], *win.room), d_x.dtype)
    return room, [partial(dev.xp.copyto, d_x, win.interior(room))]


def _average_grad(dev: Device, win: Windows, d_out: Array, d_x: Any, exclusive: bool) -> list[Step]:
    shares = dev.xp.asarray(1.0 / win.counts(exclusive, np.float64)).astype(d_out.dtype)
    share = dev.scratch(d_out.shape, d_out.dtype)
    steps: list[Step] = [partial(dev.xp.multiply, d_out, shares, share)]
    if win.uneven:
        steps.append(partial(d_x.fill, 0))
        cells = win.cells(d_x, share)
        return [*steps, *(partial(dev.xp.add, window, part, window) for window, part in cells)]
    target, copies = _target(dev, win, d_x)
    if not win.padded and tuple(win.k) == win.size:
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
