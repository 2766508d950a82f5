"""Windows as columns: what one element of the window meets in all of them is a view of the image."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ....graph.ops.operands import Array
from ....graph.ops.unfold import Unfold, UnfoldGrad
from ...device.device import Device
from ..registry import Step, kernel


def _met(size: int, count: int, first: int, stride: int) -> tuple[slice, slice]:
    """Return which of ``count`` windows meet the image, and where; the first one is at ``first``."""
    start = max(0, -(first // stride))
    stop = max(start, min(count, (size - 1 - first) // stride + 1))
    at = first + start * stride
    return slice(start, stop), slice(at, at + max((stop - start - 1) * stride + 1, 0), stride)


def taps(x: Array, y: Array, a: Unfold | UnfoldGrad) -> Iterator[tuple[Any, Any]]:
    """Yield (columns, image) for each element of the window, where it meets the image and not its margin."""
    sizes = x.shape[2:]
    counts = [
        (size + a.paddings[i] + a.paddings[2 + i] - d * (k - 1) - 1) // a.strides[i] + 1
        for i, (size, k, d) in enumerate(zip(sizes, a.kernel_sizes, a.dilations, strict=True))
    ]
    columns = y.reshape(*x.shape[:2], *a.kernel_sizes, *counts)
    met = [
        [_met(sizes[i], counts[i], k * a.dilations[i] - a.paddings[i], a.strides[i])
         for k in range(a.kernel_sizes[i])]
        for i in (0, 1)
    ]  # fmt: skip
    for i, (rows, from_rows) in enumerate(met[0]):
        for j, (places, from_places) in enumerate(met[1]):
            yield columns[:, :, i, j, rows, places], x[:, :, from_rows, from_places]


@kernel("unfold", low=True)
def unfold(dev: Device, a: Unfold) -> list[Step]:
    copies = (partial(dev.xp.copyto, to, image) for to, image in taps(a.x, a.y, a))
    return [*([partial(a.y.fill, 0)] if any(a.paddings) else []), *copies]


@kernel("unfold_grad")
def unfold_grad(dev: Device, a: UnfoldGrad) -> list[Step]:
    """Sums in the order of the window's elements."""
    pairs = taps(a.d_x, a.d_y, a)
    adds = [partial(dev.xp.add, image, columns, image) for columns, image in pairs]
    return [partial(a.d_x.fill, 0), *adds]
