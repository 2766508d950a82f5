"""Convolution as matrix products, a few images at a time so that the unfolded windows stay in cache.

A convolution y = x * w, its gradients and a transposed convolution are three products (``Product``): a back
end has a function for these, of which ``product_kernels`` makes the kernels of all ops.

Legend: N images, G groups, C channels of a group, O filters of a group, K = C * the sizes of the kernel, L =
elements of a channel of the result. Images have any number of dimensions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ....graph.ops.conv import Conv2dOperands, ConvOperands, ConvResult, ConvSlopes, windows
from ....graph.ops.conv_transpose import TransposedOperands
from ....graph.ops.operands import Array, SlopeOfOut
from ...device.device import Device
from ..registry import Step, kernel
from .activation import relu_grad

_CACHE_BYTES = 1 << 20  # unfolded windows of one chunk of images
FORWARD = (
    "conv2d",
    "depthwise_conv2d",
    "conv3d",
    "conv2d_transpose",
    "depthwise_conv2d_transpose",
    "conv3d_transpose",
)
CONVOLUTIONS = (*FORWARD, *(f"{name}_grad" for name in FORWARD))


class Product(NamedTuple):
    """Two operands of a convolution y = x * w, and the one that is computed of them, ``result``.

    It is "y", or "x" or "w": then what lies there is its gradient, and y holds its own.
    """

    result: str
    x: Any
    w: Any
    y: Any


def products(a: ConvOperands, x: Any) -> list[Product]:
    """Return the products that an op asks for; ``x`` is its Input, as it is to be read.

    A transposed convolution is the gradient of a convolution's images, whose result is its Input.
    """
    if isinstance(a, ConvResult):
        if isinstance(a, TransposedOperands):
            return [Product("x", a.output, a.filter, x)]
        return [Product("y", x, a.filter, a.output)]
    assert isinstance(a, ConvSlopes)
    found = []
    if isinstance(a, TransposedOperands):
        if a.d_filter is not None:
            found.append(Product("w", a.d_output, a.d_filter, x))
        if a.d_input is not None:
            found.append(Product("y", a.d_output, a.filter, a.d_input))
        return found
    if a.d_filter is not None:
        found.append(Product("w", x, a.d_filter, a.d_output))
    if a.d_input is not None:
        found.append(Product("x", a.d_input, a.filter, a.d_output))
    return found


Compute = Callable[[Device, ConvOperands, Product], list[Step]]


def product_kernels(
    compute: Compute,
    rectify: Callable[[Device, Array], tuple[Any, list[Step]]],
    slope: Callable[[Device, Array, Any], list[Step]],
) -> Callable[[Device, ConvOperands], list[Step]]:
    """Return the kernel of all convolutions that makes products by ``compute``.

    ``rectify`` returns relu(x) and its calls, ``slope`` the calls that send a gradient through the relu of x.
    """

    def kernel(dev: Device, a: ConvOperands) -> list[Step]:
        relu = isinstance(a, Conv2dOperands) and a.fuse_relu_before_depthwise_conv
        steps: list[Step] = []
        x = a.input
        if relu and not (isinstance(a, ConvSlopes) and a.d_filter is None):
            x, steps = rectify(dev, x)
        for product in products(a, x):
            steps += compute(dev, a, product)
            if relu and product.result == "x":
                steps += slope(dev, a.input, product.x)
        return steps

    return kernel


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
        single = {*self.w[2:], *self.strides} == {1} and not any(map(sum, self.pads))
        return single and self.x[2:] == self.out[2:]

    @property
    def padded(self) -> list[int]:
        """Sizes of an image with padding."""
        return [size + sum(pad) for size, pad in zip(self.x[2:], self.pads, strict=True)]

    def interior(self, padded: Any) -> Any:
        """Return the view of a padded image that the image itself fills."""
        sides = zip(self.x[2:], self.pads, strict=True)
        return padded[(..., *(slice(before, before + size) for size, (before, _) in sides))]

    def tap(self, padded: Any, place: Sequence[int]) -> Any:
        """Return what a kernel element meets, for every window: [n, channels, *sizes of the result]."""
        slices = []
        for i, stride, gap, size in zip(
            place, self.strides, self.dilations, self.out[2:], strict=True
        ):
            slices.append(slice(i * gap, i * gap + (size - 1) * stride + 1, stride))
        return padded[(..., *slices)]

    def chunk(self, itemsize: int) -> int:
        """Return how many images to unfold at a time."""
        per_image = self.x[1] * math.prod(self.w[2:]) * math.prod(self.out[2:]) * itemsize
        return max(1, min(self.x[0], _CACHE_BYTES // max(per_image, 1)))


def geometry(a: ConvOperands, product: Product) -> Geometry:
    """Return the sizes of the convolution that a product belongs to."""
    x, w, y = product.x.shape, product.w.shape, product.y.shape
    # The sizes that SAME goes by are those of Input.
    pads, dilations = windows(vars(a), a.input.shape[2:], w[2:])
    return Geometry(x, w, y, list(a.strides), dilations, pads, a.groups)


class _Unfold:
    """Windows of a chunk of images as a matrix [n, G, K, L], refilled for each chunk."""

    def __init__(self, dev: Device, geo: Geometry, dtype: Any) -> None:
        n = geo.chunk(dtype.itemsize)
        self.xp, self.geo, self.n = dev.xp, geo, n
        self.columns = dev.scratch((n, geo.x[1], *geo.w[2:], *geo.out[2:]), dtype)
        padded = any(sum(pad) for pad in geo.pads)
        self.padded = dev.keep((n, geo.x[1], *geo.padded), dtype) if padded else None

    def matrix(self, count: int) -> Any:
        """View the windows of the first ``count`` images as [count, G, K, L]."""
        return self.columns[:count].reshape(count, self.geo.groups, -1, math.prod(self.geo.out[2:]))

    def fill(self, images: Array) -> list[Step]:
        """Return the copies that unfold some images."""
        steps: list[Step] = []
        source = images
        if self.padded is not None:
            source = self.padded[: len(images)]
            steps.append(partial(self.xp.copyto, self.geo.interior(source), images))
        return [
            *steps,
            *(partial(self.xp.copyto, row, tap) for row, tap in self.taps(source)),
        ]

    def taps(self, padded: Array) -> list[tuple[Any, Any]]:
        """Pair the row of each kernel element in the matrix with what it meets in padded images."""
        rows = self.columns[: len(padded)]
        places = itertools.product(*map(range, self.geo.w[2:]))
        return [(rows[:, :, *place], self.geo.tap(padded, place)) for place in places]


def _chunks(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def _by_group(array: Array, groups: int) -> Any:
    """View [n, channels, *sizes] as [n, G, channels / G, L]."""
    n, channels, *sizes = array.shape
    return array.reshape(n, groups, channels // groups, math.prod(sizes))


def _contiguous(dev: Device, array: Array) -> tuple[Any, list[Step]]:
    """Return an array that reshapes without a copy, and the step that fills it."""
    if array.flags.c_contiguous:
        return array, []
    copy = dev.scratch(array.shape, array.dtype)
    return copy, [partial(dev.xp.copyto, copy, array)]


def _compute(dev: Device, a: ConvOperands, product: Product) -> list[Step]:
    geo, (result, x, w, y) = geometry(a, product), product
    if result == "w":
        y, steps = _contiguous(dev, y)
        return [*steps, *_filter_grad(dev, geo, x, y, w)]
    w, steps = _contiguous(dev, w)
    w_GOK = w.reshape(a.groups, w.shape[0] // a.groups, -1)
    if result == "x":
        y, copies = _contiguous(dev, y)
        return [*steps, *copies, *_input_grad(dev, geo, w_GOK.swapaxes(1, 2), y, x)]
    return [*steps, *_forward(dev, geo, x, w_GOK, y)]


def _forward(dev: Device, geo: Geometry, x: Array, w_GOK: Array, y: Array) -> list[Step]:
    groups = geo.groups
    if geo.plain:
        x, steps = _contiguous(dev, x)
        return [
            *steps,
            partial(dev.xp.matmul, w_GOK, _by_group(x, groups), _by_group(y, groups)),
        ]
    unfold = _Unfold(dev, geo, x.dtype)
    calls: list[Step] = []
    for images in _chunks(geo.x[0], unfold.n):
        part = y[images]
        calls += unfold.fill(x[images])
        calls.append(
            partial(dev.xp.matmul, w_GOK, unfold.matrix(len(part)), _by_group(part, groups))
        )
    return calls


def rectified(dev: Device, x: Array) -> tuple[Any, list[Step]]:
    """Return scratch for relu(x), in the same order in memory, and the call that fills it."""
    made = dev.scratch_like(x)
    return made, [partial(dev.xp.maximum, x, 0, out=made)]


def _slope(dev: Device, x: Array, d_x: Any) -> list[Step]:
    return list(relu_grad(dev, SlopeOfOut(out=x, d_out=d_x, d_x=d_x)))


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
        steps += [partial(add, tap, row, tap) for row, tap in unfold.taps(target)]
        if padded:
            steps.append(partial(xp.copyto, d_input[images], geo.interior(target)))
    return steps


kernel(*CONVOLUTIONS)(product_kernels(_compute, rectified, _slope))
