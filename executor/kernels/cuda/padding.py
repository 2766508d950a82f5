"""Margins around images: every element of the result looks up what it repeats, or gathers what repeats it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....graph.ops.operands import Array
from ....graph.ops.padding import Pad2d, Pad2dGrad, image_axis
from ...codegen.cuda_source import c_type
from ...cuda.kernel import CudaKernel
from ...cuda.runtime import Step
from ...device.device import Device
from ..array.padding import middle
from .copies import UNITS, divisor, filled_around, moved
from .support import cuda, enough_blocks, launch

_SIZES = ("height", "width", "inner", "top", "left", "high", "wide")  # high, wide: with margins
_DIVISORS = ("inner", "row", "image")  # of an index in the result
# The line of an image that a line of the padded image shows.
_SHOWN = {
    "edge": "return min(max(at, 0), size - 1);",
    "reflect": "return at < 0 ? -at : at >= size ? 2 * (size - 1) - at : at;",
}
# How many lines show line `at` of an image, and the k-th of them in the padded one.
_SHOWS = {
    "edge": (
        "return 1 + (at == 0 ? low : 0) + (at == size - 1 ? all - low - size : 0);",
        "return (at == 0 ? 0 : at + low) + k;",
    ),
    "reflect": (
        "return 1 + (at > 0 && at <= low) + (at < size - 1 && low + 2 * (size - 1) - at < all);",
        "return k == 0 ? at + low : k == 1 && at > 0 && at <= low ? low - at : low + 2 * (size - 1) - at;",
    ),
}


@cuda("pad2d")
def pad2d(dev: Device, a: Pad2d) -> list[Step]:
    """See ``executor/kernels/array/padding.py``."""
    if a.mode == "constant":
        inside = middle(a.out, a.x, a.paddings, image_axis(a.data_format))
        return [*filled_around(dev, a.out, inside, a.pad_value), *moved(dev, inside, a.x)]
    if not a.out.size:
        return []
    unit = UNITS[a.x.itemsize]
    functions = f"__device__ int shown(int at, int size) {{ {_SHOWN[a.mode]} }}"
    body = """
  for (unsigned i = thread_index(); i < count; i += thread_count()) {
    const unsigned image = over(i, image_magic, image_shift), pixel = i - image * high * wide * inner;
    const unsigned row = over(pixel, row_magic, row_shift), place = pixel - row * wide * inner;
    const unsigned column = over(place, inner_magic, inner_shift), c = place - column * inner;
    const int y = shown((int)row - top, height), x = shown((int)column - left, width);
    out[i] = source[((long long)(image * height + y) * width + x) * inner + c];
  }"""
    kernel = _kernel(f"pad2d_{a.mode}_{a.x.itemsize}", unit, functions, body)
    return [_launch(dev, kernel, a.out, a.x, a.out, a.x, a.paddings, a.data_format)]


@cuda("pad2d_grad")
def pad2d_grad(dev: Device, a: Pad2dGrad) -> list[Step]:
    """Each pixel adds up the gradients of those that show it."""
    if not a.d_x.size:
        return []
    if a.mode == "constant":
        return moved(dev, a.d_x, middle(a.d_out, a.d_x, a.paddings, image_axis(a.data_format)))
    kind = c_type(a.d_x.dtype)
    count, line = _SHOWS[a.mode]
    functions = f"""
__device__ int shows(int at, int size, int low, int all) {{ {count} }}
__device__ int showing(int at, int size, int low, int all, int k) {{ {line} }}"""
    body = f"""
  for (unsigned i = thread_index(); i < count; i += thread_count()) {{
    const unsigned image = over(i, image_magic, image_shift), pixel = i - image * height * width * inner;
    const unsigned y = over(pixel, row_magic, row_shift), place = pixel - y * width * inner;
    const unsigned x = over(place, inner_magic, inner_shift), c = place - x * inner;
    const int rows = shows(y, height, top, high), columns = shows(x, width, left, wide);
    decltype(wide_(source[0])) sum = 0;
    for (int r = 0; r < rows; r++) {{
      const long long line = (long long)image * high + showing(y, height, top, high, r);
      for (int s = 0; s < columns; s++)
        sum += wide_(source[(line * wide + showing(x, width, left, wide, s)) * inner + c]);
    }}
    out[i] = element<{kind}>(sum);
  }}"""
    functions += f"\n__device__ auto wide_({kind} x) {{ return wide(x); }}"
    kernel = _kernel(f"pad2d_grad_{a.mode}_{kind}".replace(" ", "_"), kind, functions, body)
    return [_launch(dev, kernel, a.d_x, a.d_out, a.d_out, a.d_x, a.paddings, a.data_format)]


def _kernel(name: str, unit: str, functions: str, body: str) -> CudaKernel:
    parameters = [(f"{unit}*", "out"), (f"const {unit}*", "source"), ("unsigned", "count")]
    parameters += [("int", size) for size in _SIZES]
    for part in _DIVISORS:
        parameters += [("unsigned", f"{part}_magic"), ("unsigned", f"{part}_shift")]
    return CudaKernel(name, tuple(parameters), body, ("index.cuh",), functions)


def _launch(
    dev: Device,
    kernel: CudaKernel,
    result: Any,
    source: Array,
    padded: Array,
    plain: Any,
    paddings: Sequence[int],
    data_format: str,
) -> Step:
    """``plain`` is the image, ``padded`` the one with margins; ``result`` is one of them."""
    first = image_axis(data_format)
    inner = math.prod(plain.shape[first + 2 :])
    words = [*plain.shape[first : first + 2], inner, paddings[0], paddings[2]]
    words += padded.shape[first : first + 2]
    height, width = result.shape[first : first + 2]
    for d in (inner, width * inner, height * width * inner):
        words += divisor(d)
    return launch(
        dev, kernel, enough_blocks(dev, result.size), [result, source, result.size, *words]
    )
