"""Convolution as matrix products, a few images at a time so that the unfolded windows stay in cache.

A convolution y = x * w, its gradients and a transposed convolution are three products (``Product``): a back
end has a function for these, of which ``product_kernels`` makes the kernels of all ops.

Windows are unfolded into matrices [K, L], in the order of memory in which whole rows of images are copied: for
images whose channels come last, and where windows are as wide as the image, what one window meets lies side by
side; else what one element of the kernel meets does.

Legend: N images, G groups, C channels of a group, O filters of a group, K = C * the sizes of the kernel, L =
elements of a channel of the result. Images have any number of dimensions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ....graph.ops.conv import (
    FORWARD,
    GRAD_ADD,
    GRADIENTS,
    Conv2dGradAdd,
    Conv2dOperands,
    ConvOperands,
    ConvResult,
    ConvSlopes,
    windows,
)
from ....graph.ops.conv_transpose import TransposedOperands
from ....graph.ops.operands import Array
from ...device.device import Device
from ..registry import Step, kernel
from .activation import sloped

_CACHE_BYTES = 1 << 20  # unfolded windows of one chunk of images
CONVOLUTIONS = (*FORWARD, *GRADIENTS)


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
    products = []
    if isinstance(a, TransposedOperands):
        if a.d_filter is not None:
            products.append(Product("w", a.d_output, a.d_filter, x))
        if a.d_input is not None:
            products.append(Product("y", a.d_output, a.filter, a.d_input))
        return products
    if a.d_filter is not None:
        products.append(Product("w", x, a.d_filter, a.d_output))
    if a.d_input is not None:
        products.append(Product("x", a.d_input, a.filter, a.d_output))
    return products


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

    def windows(self, padded: Any, xp: Any) -> Any:
        """View padded images as what each kernel element meets: [n, G, C, *kernel, *sizes of the result]."""
        grouped = by_group(padded, self.groups)
        within, between = (
            [n * step for n, step in zip(factors, grouped.strides[3:], strict=True)]
            for factors in (self.dilations, self.strides)
        )
        shape = (*grouped.shape[:3], *self.w[2:], *self.out[2:])
        steps = (*grouped.strides[:3], *within, *between)
        return xp.lib.stride_tricks.as_strided(grouped, shape, steps)

    def taps(self, padded: Any, columns: Any) -> Iterator[tuple[Any, Any]]:
        """Pair parts of padded images with their places in ``columns``, which :meth:`windows` is like.

        No part has an element twice: it is what one kernel element meets, and in dimensions in which there is
        only one window, what all of them meet.
        """
        grouped, ranks = by_group(padded, self.groups), range(len(self.w) - 2)
        whole = [d for d in ranks if self.out[2 + d] == 1]
        dims = [*whole, *(d for d in ranks if d not in whole)]
        order = [0, 1, 2, *(3 + dims.index(d) for d in ranks)]
        result = [0 if d in whole else slice(None) for d in ranks]
        axes: list[Any] = [[slice(None)] if d in whole else range(self.w[2 + d]) for d in ranks]
        for place in itertools.product(*axes):
            met = []
            for d, at in enumerate(place):
                first, count, step = 0, self.w[2 + d], self.dilations[d]
                if d not in whole:
                    first, count, step = at * step, self.out[2 + d], self.strides[d]
                met.append(slice(first, first + (count - 1) * step + 1, step))
            yield columns[(..., *place, *result)].transpose(order), grouped[(..., *met)]

    def chunk(self, itemsize: int) -> int:
        """Return how many images to unfold at a time: each chunk reads, or adds up, all filters once more."""
        per_image = self.x[1] * math.prod(self.w[2:]) * math.prod(self.out[2:]) * itemsize
        most = max(_CACHE_BYTES, math.prod(self.w) * itemsize)
        return max(1, min(self.x[0], most // max(per_image, 1)))


def geometry(a: ConvOperands, product: Product) -> Geometry:
    """Return the sizes of the convolution that a product belongs to."""
    x, w, y = product.x.shape, product.w.shape, product.y.shape
    # The sizes that SAME goes by are those of Input.
    pads, dilations = windows(vars(a), a.input.shape[2:], w[2:])
    return Geometry(x, w, y, list(a.strides), dilations, pads, a.groups)


def by_group(images: Any, groups: int) -> Any:
    """View [n, channels, *sizes] as [n, G, C, *sizes]."""
    n, channels, *sizes = images.shape
    return images.reshape(n, groups, channels // groups, *sizes)


def is_channels_last(images: Any) -> bool:
    """Tell whether the channels of images lie side by side."""
    order = (0, *range(2, images.ndim), 1)
    return not images.flags.c_contiguous and bool(images.transpose(order).flags.c_contiguous)


def matrices(images: Any, groups: int) -> Any:
    """View [n, channels, *sizes], in either order of memory, as [n, G, C, L]."""
    n, channels, *sizes = images.shape
    shape = n, math.prod(sizes), groups, channels // groups
    if is_channels_last(images):
        order = (0, *range(2, images.ndim), 1)
        return images.transpose(order).reshape(shape).transpose(0, 2, 3, 1)
    return images.reshape(n, groups, channels // groups, math.prod(sizes))


def _joined(stack: Any) -> Any:
    """View matrices [n, G, rows, L] whose columns follow each other as [G, rows, n * L]; others are None."""
    n, groups, rows, length = stack.shape
    lying = stack.transpose(0, 3, 1, 2)
    if not lying.flags.c_contiguous:
        return None
    return lying.reshape(n * length, groups, rows).transpose(1, 2, 0)


def _single(*stacks: Any) -> Any:
    """View stacks of one matrix each as matrices."""
    return [m[0] for m in stacks] if len(stacks[0]) == 1 else stacks


def by_channel(w: Any, groups: int) -> Any:
    """View filters [G * O, C, *kernel] as [G, O, C, *kernel]."""
    return w.reshape(groups, w.shape[0] // groups, *w.shape[1:])


class _Unfold:
    """Windows of a chunk of images, refilled for each chunk: ``matrices`` [n, G, K, L].

    ``columns`` has them as :meth:`Geometry.windows` has them.
    """

    def __init__(self, dev: Device, geo: Geometry, images: Array) -> None:
        n, groups, dtype = geo.chunk(images.itemsize), geo.groups, images.dtype
        self.xp, self.geo, self.n = dev.xp, geo, n
        kernel, sizes, channels = geo.w[2:], geo.out[2:], geo.x[1] // groups
        self.last, rank = is_channels_last(images), len(kernel)
        if self.last or (sizes[-1] == 1 and kernel[-1] > 1):
            window = (*kernel, channels) if self.last else (channels, *kernel)
            block = dev.scratch((n, *sizes, groups, *window), dtype)
            self.matrices = block.reshape(n, math.prod(sizes), groups, -1).transpose(0, 2, 3, 1)
            first = rank + 2  # of the window's dimensions
            channel, taps = (first + rank, first) if self.last else (first, first + 1)
            inner, outer = range(taps, taps + rank), range(1, 1 + rank)
            self.columns = block.transpose(0, rank + 1, channel, *inner, *outer)
        else:
            self.columns = dev.scratch((n, groups, channels, *kernel, *sizes), dtype)
            self.matrices = self.columns.reshape(n, groups, -1, math.prod(sizes))
        self.padded = None
        if any(sum(pad) for pad in geo.pads):
            shape = (n, *geo.padded, geo.x[1]) if self.last else (n, geo.x[1], *geo.padded)
            self.padded = dev.keep(shape, dtype)
            if self.last:
                self.padded = self.padded.transpose(0, -1, *range(1, 1 + rank))

    def fill(self, images: Array) -> list[Step]:
        """Return the copies that unfold some images."""
        steps: list[Step] = []
        source = images
        if self.padded is not None:
            source = self.padded[: len(images)]
            steps.append(partial(self.xp.copyto, self.geo.interior(source), images))
        windows = self.geo.windows(source, self.xp)
        return [*steps, partial(self.xp.copyto, self.columns[: len(images)], windows)]

    def fold(self, images: Array) -> list[Step]:
        """Return the calls that add up in some images what their windows hold."""
        target = images if self.padded is None else self.padded[: len(images)]
        add: Callable[..., Any] = self.xp.add
        steps: list[Step] = [partial(target.fill, 0)]
        pairs = self.geo.taps(target, self.columns[: len(images)])
        steps += [partial(add, tap, column, tap) for column, tap in pairs]
        if self.padded is not None:
            steps.append(partial(self.xp.copyto, images, self.geo.interior(target)))
        return steps


def _chunks(total: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, total)) for start in range(0, total, size)]


def _dense(dev: Device, array: Array) -> tuple[Any, list[Step], list[Step]]:
    """Return an array whose matrices are views, the step that fills it, and the one that writes it back."""
    if array.flags.c_contiguous or is_channels_last(array):
        return array, [], []
    copy, move = dev.scratch(array.shape, array.dtype), dev.xp.copyto
    return copy, [partial(move, copy, array)], [partial(move, array, copy)]


Multiply = Callable[[Device, Any, Any, Any], list[Step]]


class _Windows:
    """The windows of one convolution's images, a few images at a time, and its filters as matrices.

    ``multiply`` returns the calls of out = a @ b, for stacks of matrices with any strides.
    """

    def __init__(self, dev: Device, geo: Geometry, multiply: Multiply) -> None:
        self.dev, self.geo, self._multiply = dev, geo, multiply

    def steps(self, product: Product) -> list[Step]:
        """Return the calls that compute a product."""
        dev, geo, (result, x, w, y) = self.dev, self.geo, product
        if not geo.x[0]:
            return [partial(w.fill, 0)] if result == "w" else []
        (x, read_x, write_x), (y, read_y, write_y) = _dense(dev, x), _dense(dev, y)
        steps = [*(read_x if result != "x" else []), *(read_y if result != "y" else [])]
        unfold = None if geo.plain else _Unfold(dev, geo, x)
        filters, near = self._filters(w, unfold is not None and unfold.last)
        if result != "w" and near is not None:
            steps.append(partial(dev.xp.copyto, near, by_channel(w, geo.groups)))
        size = geo.x[0] if unfold is None and result != "w" else geo.chunk(x.itemsize)
        for number, images in enumerate(_chunks(geo.x[0], size)):
            some = x[images]
            grads = matrices(y[images], geo.groups)
            windows = matrices(some, geo.groups) if unfold is None else unfold.matrices[: len(some)]
            if result != "x" and unfold is not None:
                steps += unfold.fill(some)
            with dev.in_turn():  # chunks have the same scratch
                if result == "y":
                    steps += self._of_each(filters, windows, grads)
                elif result == "x":
                    steps += self._of_each(filters.swapaxes(1, 2), grads, windows)
                else:
                    steps += self._summed(grads, windows, filters, more=number > 0)
            if result == "x" and unfold is not None:
                steps += unfold.fold(some)
        if result == "w" and near is not None:
            steps.append(partial(dev.xp.copyto, by_channel(w, geo.groups), near))
        return [*steps, *{"x": write_x, "y": write_y, "w": []}[result]]

    def _filters(self, w: Array, last: bool) -> tuple[Any, Any]:
        """Return filters as [G, O, K]; and, if that is other memory, a view of it as [G, O, C, *kernel]."""
        near = by_channel(w, self.geo.groups)
        groups, filters, channels, *kernel = near.shape
        if w.flags.c_contiguous and not last:
            return w.reshape(groups, filters, -1), None
        shape = (*kernel, channels) if last else (channels, *kernel)
        block = self.dev.scratch((groups, filters, *shape), w.dtype)
        order = (0, 1, -1, *range(2, 2 + len(kernel))) if last else range(block.ndim)
        return block.reshape(groups, filters, -1), block.transpose(order)

    def _of_each(self, factor: Any, each: Any, out: Any) -> list[Step]:
        """out = factor @ each, [G, rows, K] @ [n, G, K, L]: as one product where memory allows."""
        joined, result = _joined(each), _joined(out)
        if joined is None or result is None:
            return self._multiply(self.dev, factor, each, out)
        return self._multiply(self.dev, *_single(factor, joined, result))

    def _summed(self, grads: Any, windows: Any, total: Any, more: bool) -> list[Step]:
        """Sum over images of grads [G, O, L] @ windows [G, L, K]; ``more``: added to what ``total`` holds."""
        dev, xp = self.dev, self.dev.xp
        n, groups, filters, length = grads.shape
        target = dev.scratch(total.shape, total.dtype) if more else total
        joined, steps = _joined(windows), []
        if joined is None:
            parts = dev.scratch((n, *total.shape), total.dtype)
            steps = self._multiply(dev, grads, windows.swapaxes(2, 3), parts)
            steps.append(partial(xp.add.reduce, parts, 0, None, target))
        else:
            factor = _joined(grads)
            if factor is None:
                near = dev.scratch((n, length, groups, filters), total.dtype).transpose(0, 2, 3, 1)
                steps.append(partial(xp.copyto, near, grads))
                factor = _joined(near)
            steps += self._multiply(dev, *_single(factor, joined.swapaxes(1, 2), target))
        return [*steps, partial(xp.add, total, target, total)] if more else steps


def by_windows(multiply: Multiply) -> Compute:
    """Return the function that makes the products of convolutions of unfolded windows by ``multiply``."""

    def compute(dev: Device, a: ConvOperands, product: Product) -> list[Step]:
        return _Windows(dev, geometry(a, product), multiply).steps(product)

    return compute


def rectified(dev: Device, x: Array) -> tuple[Any, list[Step]]:
    """Return scratch for relu(x), in the same order in memory, and the call that fills it."""
    scratch = dev.scratch_like(x)
    return scratch, [partial(dev.xp.maximum, x, 0, out=scratch)]


def through_relu(dev: Device, x: Array, d_x: Any) -> list[Step]:
    """Return the calls that send a gradient of relu(x) back through it, in its place."""
    return sloped(dev, "relu", {}, {"Out": x}, d_x, d_x)


def _matmul(dev: Device, a: Array, b: Array, out: Array) -> list[Step]:
    if dev.name == "numpy" or out.flags.c_contiguous:
        return [partial(dev.xp.matmul, a, b, out)]
    near = dev.scratch(out.shape, out.dtype)
    return [partial(dev.xp.matmul, a, b, near), partial(dev.xp.copyto, out, near)]


_kernel = product_kernels(by_windows(_matmul), rectified, through_relu)
kernel(*CONVOLUTIONS, on=("numpy",), any_order=True)(_kernel)
kernel(*CONVOLUTIONS, on=("cupy",))(_kernel)


@kernel(GRAD_ADD, any_order=True)
def conv2d_grad_add(dev: Device, a: Conv2dGradAdd) -> list[Step]:
    product = Product("x", a.d_input, a.filter, a.d_output)
    compute = by_windows(_matmul)
    return [*compute(dev, a, product), partial(dev.xp.add, a.d_input, a.addend, a.d_input)]
