"""Convolutions without cuDNN: windows are gathered into scratch, a few images at a time, and multiplied.

Legend: N images, G groups, C channels of a group, O filters of a group, K = C * the sizes of the kernel, L =
elements of a channel of the result. Images have two or three dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ....graph.ops.conv import ConvOperands
from ....graph.ops.operands import Array
from ...codegen.cuda_launches import MOST, each, longs, read, written
from ...codegen.cuda_source import c_type
from ...device.device import Device
from ..array.conv import CONVOLUTIONS, Geometry, Product, geometry, product_kernels
from ..cuda.support import rectified, through_relu
from ..registry import Step
from .product import product as multiplied
from .support import copied, cublaslt

_UNFOLDED_BYTES = 128 << 20  # of windows at a time


def _compute(dev: Device, a: ConvOperands, product: Product) -> list[Step]:
    geo, (result, x, w, y) = geometry(a, product), product
    if result == "w":
        return _filter_grad(dev, geo, x, y, w)
    w_GOK, steps = _filters(dev, geo, w)
    if result == "x":
        return [*steps, *_input_grad(dev, geo, w_GOK.swapaxes(1, 2), y, x)]
    for images in _chunks(geo, x.dtype.itemsize):
        with dev.in_turn():
            windows, unfolding = _windows(dev, geo, x[images])
            part = _by_group(y[images], a.groups)
            steps += [*unfolding, *multiplied(dev, w_GOK, windows, part)]
    return steps


def _filters(dev: Device, geo: Geometry, filter: Array) -> tuple[Any, list[Step]]:
    """Return filters as [G, O, K], and the calls that lay them side by side where they are not."""
    near, steps = filter, []
    if not filter.flags.c_contiguous:
        near = dev.scratch(filter.shape, filter.dtype)
        steps = copied(dev, filter, near)
    return near.reshape(geo.groups, geo.w[0] // geo.groups, -1), steps


def _filter_grad(dev: Device, geo: Geometry, x: Array, d_out: Array, d_filter: Any) -> list[Step]:
    """Sum over images of d_out [G, O, L] @ windows^T [G, L, K]; chunks are added up before they are rounded."""
    groups = geo.groups
    chunks = list(_chunks(geo, x.dtype.itemsize))
    low = d_filter.dtype.itemsize == 2
    apart = (low and len(chunks) > 1) or not d_filter.flags.c_contiguous
    total = (
        dev.scratch(d_filter.shape, np.float32 if low else d_filter.dtype) if apart else d_filter
    )
    w_GOK = total.reshape(groups, geo.w[0] // groups, -1)
    steps: list[Step] = []
    for number, images in enumerate(chunks):
        with dev.in_turn():
            windows, unfolding = _windows(dev, geo, x[images])
            grads = _by_group(d_out[images], groups)
            added = multiplied(dev, grads, windows.swapaxes(2, 3), w_GOK, more=number > 0)
            steps += [*unfolding, *added]
    return [*steps, *(copied(dev, total, d_filter) if apart else [])]


def _input_grad(dev: Device, geo: Geometry, w_GKO: Array, d_out: Array, d_input: Any) -> list[Step]:
    """Multiply w^T [G, K, O] @ d_out [G, O, L]; each pixel adds up what windows it was in."""
    groups = geo.groups
    if geo.plain:
        return multiplied(dev, w_GKO, _by_group(d_out, groups), _by_group(d_input, groups))
    wide = np.float64 if d_input.dtype == np.float64 else np.float32
    steps: list[Step] = []
    for images in _chunks(geo, np.dtype(wide).itemsize):
        with dev.in_turn():
            target = d_input[images]
            windows = _scratch(dev, geo, len(target), wide)
            grads = _by_group(d_out[images], groups)
            steps += multiplied(dev, w_GKO, grads, windows)
            steps.append(_launch(dev, geo, "fold", target, windows, target.size))
    return steps


def _chunks(geo: Geometry, itemsize: int) -> Iterator[slice]:
    """Yield images whose windows are unfolded together: all, where nothing is."""
    size = geo.x[0]
    if not geo.plain:
        per_image = geo.x[1] * math.prod(geo.w[2:]) * math.prod(geo.out[2:]) * itemsize
        size = max(1, min(size, _UNFOLDED_BYTES // max(per_image, 1)))
    for start in range(0, geo.x[0], size):
        yield slice(start, min(start + size, geo.x[0]))


def _by_group(images: Array, groups: int) -> Any:
    """View [N, channels, *sizes], of either order in memory, as [N, G, channels / G, L]."""
    n, channels, *sizes = images.shape
    return images.reshape(n, groups, channels // groups, math.prod(sizes))


def _scratch(dev: Device, geo: Geometry, count: int, dtype: Any) -> Any:
    """Return room for the windows of some images, as [N, G, K, L]."""
    inner = geo.x[1] // geo.groups * math.prod(geo.w[2:])
    return dev.scratch((count, geo.groups, inner, math.prod(geo.out[2:])), dtype)


def _windows(dev: Device, geo: Geometry, images: Array) -> tuple[Any, list[Step]]:
    """Return windows [N, G, K, L] of some images, and the launch that gathers them."""
    if geo.plain:
        return _by_group(images, geo.groups), []
    windows = _scratch(dev, geo, len(images), images.dtype)
    return windows, [_launch(dev, geo, "unfold", images, windows, windows.size)]


def _launch(dev: Device, geo: Geometry, name: str, images: Array, windows: Any, work: int) -> Step:
    """Return the launch of a kernel between images and their windows, of which it makes ``work`` elements."""
    n, c, *inner = (stride // images.dtype.itemsize for stride in images.strides)
    steps = zip("ncdhw", (n, c, *[0] * (3 - len(inner)), *inner), strict=True)
    arguments = longs(**{f"step_{axis}": step for axis, step in steps})
    folds = name == "fold"
    arguments += written(images=images) if folds else read(images=images)
    arguments += read(windows=windows) if folds else written(windows=windows)
    definitions = _sizes(geo) + f"using Image = {c_type(images.dtype)};"
    body = _FOLD if folds else _UNFOLD
    index = "unsigned" if work < MOST else "long long"  # of which the first is divided sooner
    return each(dev, name, body, arguments, work, definitions=definitions, index=index)


def _sizes(geo: Geometry) -> str:
    """Sizes as constants: indices are divided by them. Images have a depth of 1."""
    named = {"C": geo.x[1]}
    befores = tuple(before for before, _ in geo.pads)
    for name, numbers, flat in (
        ("", geo.x[2:], 1), ("K", geo.w[2:], 1), ("O", geo.out[2:], 1),
        ("STRIDE_", geo.strides, 1), ("GAP_", geo.dilations, 1), ("BEFORE_", befores, 0),
    ):  # fmt: skip
        deep = (*[flat] * (3 - len(numbers)), *numbers)
        named |= {f"{name}{axis}": number for axis, number in zip("DHW", deep, strict=True)}
    return "".join(f"constexpr int {name} = {value};\n" for name, value in named.items())


_UNFOLD = """
    auto r = i;
    int ow = r % OW; r /= OW;
    int oh = r % OH; r /= OH;
    int od = r % OD; r /= OD;
    int kw = r % KW; r /= KW;
    int kh = r % KH; r /= KH;
    int kd = r % KD; r /= KD;
    int c = r % C, n = r / C;
    int d = od * STRIDE_D + kd * GAP_D - BEFORE_D;
    int h = oh * STRIDE_H + kh * GAP_H - BEFORE_H, w = ow * STRIDE_W + kw * GAP_W - BEFORE_W;
    Image pixel{};
    if (d >= 0 && d < D && h >= 0 && h < H && w >= 0 && w < W)
      pixel = images[n * step_n + c * step_c + d * step_d + h * step_h + w * step_w];
    windows[i] = pixel;"""
_FOLD = """
    auto r = i;
    int w = r % W; r /= W;
    int h = r % H; r /= H;
    int d = r % D; r /= D;
    int c = r % C, n = r / C;
    auto sum = wide(Image{});
    for (int kd = 0; kd < KD; ++kd) {
      int z = d + BEFORE_D - kd * GAP_D;
      if (z < 0 || z % STRIDE_D || z / STRIDE_D >= OD) continue;
      for (int kh = 0; kh < KH; ++kh) {
        int y = h + BEFORE_H - kh * GAP_H;
        if (y < 0 || y % STRIDE_H || y / STRIDE_H >= OH) continue;
        for (int kw = 0; kw < KW; ++kw) {
          int x = w + BEFORE_W - kw * GAP_W;
          if (x < 0 || x % STRIDE_W || x / STRIDE_W >= OW) continue;
          long long row = (((long long)(n * C + c) * KD + kd) * KH + kh) * KW + kw;
          sum += windows[((row * OD + z / STRIDE_D) * OH + y / STRIDE_H) * OW + x / STRIDE_W];
        }
      }
    }
    images[n * step_n + c * step_c + d * step_d + h * step_h + w * step_w] = element<Image>(sum);"""

cublaslt(*CONVOLUTIONS)(product_kernels(_compute, rectified, through_relu))
