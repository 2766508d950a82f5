"""Convolutions without cuDNN: windows are gathered into scratch, a few images at a time, and multiplied.

Legend: N images, G groups, C channels of a group, O filters of a group, K = C * kh * kw, L = oh * ow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....graph.ops.conv import Conv2d, Conv2dGrad
from ....graph.ops.operands import Array
from ...codegen.cuda_source import c_type
from ...cuda.kernel import CudaKernel
from ...device.device import Device
from ..array.conv import Geometry, geometry
from ..cuda.support import enough_blocks, launch
from ..registry import Step
from .product import product
from .support import copied, cublaslt, part

_UNFOLDED_BYTES = 128 << 20  # of windows at a time


@cublaslt("conv2d", "depthwise_conv2d")
def conv2d(dev: Device, a: Conv2d) -> list[Step]:
    geo = geometry(a, a.output)
    x, steps = _rectified(dev, a.input) if a.fuse_relu_before_depthwise_conv else (a.input, [])
    w_GOK, copies = _filters(dev, geo, a.filter)
    steps += copies
    for images in _chunks(geo, x.dtype.itemsize):
        with dev.in_turn():
            windows, unfolding = _windows(dev, geo, x[images])
            y = _by_group(a.output[images], a.groups)
            steps += [*unfolding, *product(dev, w_GOK, windows, y)]
    return steps


@cublaslt("conv2d_grad", "depthwise_conv2d_grad")
def conv2d_grad(dev: Device, a: Conv2dGrad) -> list[Step]:
    geo = geometry(a, a.d_output)
    steps: list[Step] = []
    if a.d_filter is not None:
        x = a.input
        if a.fuse_relu_before_depthwise_conv:
            x, steps = _rectified(dev, a.input)
        steps += _filter_grad(dev, geo, x, a.d_output, a.d_filter)
    if a.d_input is not None:
        w_GOK, copies = _filters(dev, geo, a.filter)
        steps += [*copies, *_input_grad(dev, geo, w_GOK.swapaxes(1, 2), a.d_output, a.d_input)]
        if a.fuse_relu_before_depthwise_conv:
            reads = {"Out": a.input, "Out@GRAD": a.d_input}  # relu(x) > 0 where x is
            steps += part(dev, "relu_grad", reads, {"X@GRAD": a.d_input})
    return steps


def _rectified(dev: Device, x: Array) -> tuple[Any, list[Step]]:
    made = dev.scratch_like(x)
    return made, part(dev, "relu", {"X": x}, {"Out": made})


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
            added = product(dev, grads, windows.swapaxes(2, 3), w_GOK, more=number > 0)
            steps += [*unfolding, *added]
    return [*steps, *(copied(dev, total, d_filter) if apart else [])]


def _input_grad(dev: Device, geo: Geometry, w_GKO: Array, d_out: Array, d_input: Any) -> list[Step]:
    """Multiply w^T [G, K, O] @ d_out [G, O, L]; each pixel adds up what windows it was in."""
    groups = geo.groups
    if geo.plain:
        return product(dev, w_GKO, _by_group(d_out, groups), _by_group(d_input, groups))
    wide = np.float64 if d_input.dtype == np.float64 else np.float32
    steps: list[Step] = []
    for images in _chunks(geo, np.dtype(wide).itemsize):
        with dev.in_turn():
            target = d_input[images]
            windows = _scratch(dev, geo, len(target), wide)
            grads = _by_group(d_out[images], groups)
            steps += product(dev, w_GKO, grads, windows)
            steps.append(_launch(dev, geo, "fold", target, windows, target.size))
    return steps


def _chunks(geo: Geometry, itemsize: int) -> Iterator[slice]:
    """Yield images whose windows are unfolded together: all, where nothing is."""
    size = geo.x[0]
    if not geo.plain:
        per_image = geo.x[1] * geo.w[2] * geo.w[3] * geo.out[2] * geo.out[3] * itemsize
        size = max(1, min(size, _UNFOLDED_BYTES // max(per_image, 1)))
    for start in range(0, geo.x[0], size):
        yield slice(start, min(start + size, geo.x[0]))


def _by_group(images: Array, groups: int) -> Any:
    """View [N, channels, h, w], of either order in memory, as [N, G, channels / G, h * w]."""
    n, channels, h, w = images.shape
    return images.reshape(n, groups, channels // groups, h * w)


def _scratch(dev: Device, geo: Geometry, count: int, dtype: Any) -> Any:
    """Return room for the windows of some images, as [N, G, K, L]."""
    inner = geo.x[1] // geo.groups * geo.w[2] * geo.w[3]
    return dev.scratch((count, geo.groups, inner, geo.out[2] * geo.out[3]), dtype)


def _windows(dev: Device, geo: Geometry, images: Array) -> tuple[Any, list[Step]]:
    """Return windows [N, G, K, L] of some images, and the launch that gathers them."""
    if geo.plain:
        return _by_group(images, geo.groups), []
    windows = _scratch(dev, geo, len(images), images.dtype)
    return windows, [_launch(dev, geo, "unfold", images, windows, windows.size)]


def _launch(dev: Device, geo: Geometry, name: str, images: Array, windows: Any, work: int) -> Step:
    """Return the launch of a kernel between images and their windows, of which it makes ``work`` elements."""
    writes = name == "fold"
    image, window = c_type(images.dtype), c_type(windows.dtype)
    made = CudaKernel(
        name,
        (
            (f"{image}*" if writes else f"const {image}*", "images"),
            (f"const {window}*" if writes else f"{window}*", "windows"),
            *(("int", f"step_{axis}") for axis in "nchw"),
            ("int", "total"),
        ),
        _FOLD if writes else _UNFOLD,
        definitions=_sizes(geo) + f"using Image = {image};",
    )
    steps = (stride // images.dtype.itemsize for stride in images.strides)
    return launch(dev, made, enough_blocks(dev, work), (images, windows, *steps, work))


def _sizes(geo: Geometry) -> str:
    """Sizes as constants: indices are divided by them."""
    named = {
        "C": geo.x[1], "H": geo.x[2], "W": geo.x[3],
        "KH": geo.w[2], "KW": geo.w[3], "OH": geo.out[2], "OW": geo.out[3],
        "SH": geo.strides[0], "SW": geo.strides[1],
        "DH": geo.dilations[0], "DW": geo.dilations[1],
        "TOP": geo.pads[0][0], "LEFT": geo.pads[1][0],
    }  # fmt: skip
    return "".join(f"constexpr int {name} = {value};\n" for name, value in named.items())


_UNFOLD = """
  for (long long at = thread_index(); at < total; at += thread_count()) {
    unsigned r = (unsigned)at;
    int ow = r % OW; r /= OW;
    int oh = r % OH; r /= OH;
    int kw = r % KW; r /= KW;
    int kh = r % KH; r /= KH;
    int c = r % C, n = r / C;
    int h = oh * SH + kh * DH - TOP, w = ow * SW + kw * DW - LEFT;
    Image found{};
    if (h >= 0 && h < H && w >= 0 && w < W)
      found = images[(long long)n * step_n + (long long)c * step_c + h * step_h + w * step_w];
    windows[at] = found;
  }
"""
_FOLD = """
  for (long long at = thread_index(); at < total; at += thread_count()) {
    unsigned r = (unsigned)at;
    int w = r % W; r /= W;
    int h = r % H; r /= H;
    int c = r % C, n = r / C;
    auto sum = wide(Image{});
    for (int kh = 0; kh < KH; ++kh) {
      int y = h + TOP - kh * DH;
      if (y < 0 || y % SH || y / SH >= OH) continue;
      for (int kw = 0; kw < KW; ++kw) {
        int x = w + LEFT - kw * DW;
        if (x < 0 || x % SW || x / SW >= OW) continue;
        long long row = ((long long)(n * C + c) * KH + kh) * KW + kw;
        sum += windows[(row * OH + y / SH) * OW + x / SW];
      }
    }
    images[(long long)n * step_n + (long long)c * step_c + h * step_h + w * step_w] =
        element<Image>(sum);
  }
"""
