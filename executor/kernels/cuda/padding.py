"""Margins around images: each element of a result looks up its source, each of a gradient sums its copies."""

from __future__ import annotations

import math

from ....graph.ops.operands import Array
from ....graph.ops.padding import Pad2d, Pad2dGrad, image_axis
from ...codegen.cuda_launches import Argument, divisors, each, ints, read, written
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from ..array.padding import middle
from .copies import UNITS, filled_around, moved
from .support import cuda

_INCLUDES = ("index.cuh",)
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
    const unsigned image = over(i, per_image_magic, per_image_shift), pixel = i - image * per_image;
    const unsigned row = over(pixel, per_row_magic, per_row_shift), place = pixel - row * per_row;
    const unsigned column = over(place, inner_magic, inner_shift), c = place - column * inner;
    const int y = shown((int)row - top, height), x = shown((int)column - left, width);
    out[i] = source[((long long)(image * height + y) * width + x) * inner + c];"""
    arrays = [(f"{unit}* out", a.out), (f"const {unit}* source", a.x)]
    arguments = [*arrays, *_sizes(a.out, a.out, a.x, a)]
    return [each(dev, f"pad2d_{a.mode}", body, arguments, a.out.size, _INCLUDES, functions)]


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
    const unsigned image = over(i, per_image_magic, per_image_shift), pixel = i - image * per_image;
    const unsigned y = over(pixel, per_row_magic, per_row_shift), place = pixel - y * per_row;
    const unsigned x = over(place, inner_magic, inner_shift), c = place - x * inner;
    const int rows = shows(y, height, top, high), columns = shows(x, width, left, wide);
    decltype(wide_(source[0])) sum = 0;
    for (int r = 0; r < rows; r++) {{
      const long long line = (long long)image * high + showing(y, height, top, high, r);
      for (int s = 0; s < columns; s++)
        sum += wide_(source[(line * wide + showing(x, width, left, wide, s)) * inner + c]);
    }}
    out[i] = element<{kind}>(sum);"""
    functions += f"\n__device__ auto wide_({kind} x) {{ return wide(x); }}"
    arguments = [*written(out=a.d_x), *read(source=a.d_out), *_sizes(a.d_x, a.d_out, a.d_x, a)]
    return [each(dev, f"pad2d_grad_{a.mode}", body, arguments, a.d_x.size, _INCLUDES, functions)]


def _sizes(result: Array, padded: Array, plain: Array, a: Pad2d | Pad2dGrad) -> list[Argument]:
    """Return sizes of an image, ``plain``, and of that with margins, and divisors of an index in ``result``."""
    first = image_axis(a.data_format)
    image = slice(first, first + 2)
    inner = math.prod(plain.shape[first + 2 :])
    (height, width), (high, wide) = plain.shape[image], padded.shape[image]
    rows, columns = result.shape[image]
    return [
        *ints(height=height, width=width, high=high, wide=wide),
        *ints(top=a.paddings[0], left=a.paddings[2]),
        *divisors(inner=inner, per_row=columns * inner, per_image=rows * columns * inner),
    ]
