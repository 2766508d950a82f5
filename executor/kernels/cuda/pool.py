"""Pooling over images and volumes in either order; an element gathers its gradient from the windows it is in.

Images are volumes with a depth of 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....graph.ir.capabilities import AS_THEY_COME
from ....graph.ops.operands import Array
from ....graph.ops.pool import Pool, PoolGrad
from ....graph.ops.pool_index import MaxPool, MaxPoolGrad
from ....strategies.types import FLOATS, INTEGERS
from ...codegen.cuda_launches import MOST, divisors, each, ints, read, written
from ...codegen.cuda_source import c_type
from ...cuda.runtime import Step
from ...device.device import Device
from ..array.pool import Windows, windows_of
from ..registry import of_types
from .copies import moved
from .support import cuda, floating, on_boundary

# Of an axis: elements of the image, windows, elements of a window, from one window to the next, margin before.
_AXIS = ("size", "count", "k", "step", "before")
# What a window finds, of its elements `v` in place `at`: the text for each, and for what is written.
_FINDS = {
    "avg": (
        "best[l] += wide(v.at[l]);",
        "element<R>(best[l] / max(elements(Z, z) * elements(Y, y) * elements(X, x), 1))",
    ),
    "max": (
        "if (wide(v.at[l]) > best[l] || is_nan(v.at[l])) best[l] = wide(v.at[l]);",
        "element<R>(best[l])",
    ),
    "place": (
        """{
          nan[l] |= is_nan(v.at[l]);
          if (wide(v.at[l]) > best[l]) best[l] = wide(v.at[l]), place[l] = at;
        }""",
        "(R)(nan[l] ? -1 : place[l])",
    ),
}
# What of the gradient of a window comes to an element in place `at` of it.
_GIVES = {
    "avg": "wide(g.at[l]) / max(elements(Z, o) * elements(Y, p) * elements(X, q), 1)",
    "max": "places.at[l] == (Place)at ? wide(g.at[l]) : Sum(0)",
}
# A window goes from `begin` to `end`; `elements` count for its average; an element is in windows from `first`
# to `behind`. PLACE is counted in the window, or ABSOLUTE in the image.
_FUNCTIONS = """
struct Axis { int size, count, k, step, before; };
__device__ __forceinline__ int begin(Axis a, int p) {
  return UNEVEN ? p * a.size / a.count : p * a.step - a.before;
}
__device__ __forceinline__ int end(Axis a, int p) {
  return UNEVEN ? ((p + 1) * a.size + a.count - 1) / a.count : p * a.step - a.before + a.k;
}
__device__ __forceinline__ int elements(Axis a, int p) {
  return EXCLUSIVE || UNEVEN ? max(min(end(a, p), a.size) - max(begin(a, p), 0), 0) : a.k;
}
__device__ __forceinline__ int first(Axis a, int i) {
  if (UNEVEN) return i * a.count / a.size;
  return i + a.before < a.k ? 0 : (i + a.before - a.k) / a.step + 1;
}
__device__ __forceinline__ int behind(Axis a, int i) {
  if (UNEVEN) return ((i + 1) * a.count + a.size - 1) / a.size;
  return min(a.count, (i + a.before) / a.step + 1);
}
__device__ __forceinline__ bool is_nan(T x) { return !PASS_NAN && wide(x) != wide(x); }
#define PLACE(z, y, x, o, p, q) (ABSOLUTE ? ((z) * Y.size + (y)) * X.size + (x) \\
  : (((z) - begin(Z, o)) * Y.k + (y) - begin(Y, p)) * X.k + (x) - begin(X, q))
"""


@dataclass(frozen=True)
class _How:
    """What a kernel is compiled for; ``absolute``: places are those in the image."""

    name: str
    exclusive: bool = True
    absolute: bool = False
    pass_nan: bool = False

    def definitions(self, win: Windows) -> str:
        """Return the switches as text."""
        switches = {
            "EXCLUSIVE": self.exclusive,
            "UNEVEN": win.uneven,
            "ABSOLUTE": self.absolute,
            "PASS_NAN": self.pass_nan,
        }
        return "".join(f"#define {name} {int(on)}\n" for name, on in switches.items())


@cuda("pool2d", "pool3d", takes=floating, any_order=True, layout=AS_THEY_COME)
def pool(dev: Device, a: Pool) -> list[Step]:
    """One thread for some channels of a pixel, or for a pixel."""
    how = _How(a.pooling_type, a.exclusive)
    return _found(dev, how, windows_of(a, a.out), a.x, a.out)


_taken = of_types(*FLOATS, Mask=INTEGERS)


@cuda("max_pool2d_with_index", "max_pool3d_with_index", takes=_taken)
def max_pool(dev: Device, a: MaxPool) -> list[Step]:
    """Maxima and their places are found one after the other."""
    win = windows_of(a, a.out)
    return [
        *_found(dev, _How("max", pass_nan=True), win, a.x, a.out),
        *_found(dev, _How("place", absolute=True, pass_nan=True), win, a.x, a.mask),
    ]


def _found(dev: Device, how: _How, win: Windows, x: Array, result: Any) -> list[Step]:
    """Return the launches that write a number for each window, found by ``how.name`` of ``_FINDS``."""
    each, value = _FINDS[how.name]
    lowest = "0" if how.name == "avg" else "-__int_as_float(0x7f800000)"
    body = f"""
    Sum best[LANES];
    bool nan[LANES] = {{}};
    int place[LANES];
    for (int l = 0; l < LANES; l++) best[l] = {lowest}, place[l] = -ABSOLUTE;
    for (int d = max(begin(Z, z), 0); d < min(end(Z, z), Z.size); d++)
      for (int r = max(begin(Y, y), 0); r < min(end(Y, y), Y.size); r++)
        for (int s = max(begin(X, x), 0); s < min(end(X, x), X.size); s++) {{
          const Vec<T, LANES> v = load_vec<LANES>(x_in + AT(n, c, d, r, s, Z.size, Y.size, X.size));
          const int at = PLACE(d, r, s, z, y, x);
          for (int l = 0; l < LANES; l++) {each}
        }}
    Vec<R, LANES> made;
    for (int l = 0; l < LANES; l++) made.at[l] = {value};
    store_vec<LANES>(result + AT(n, c, z, y, x, Z.count, Y.count, X.count), made);"""
    return _launches(dev, how, win, {"x_in": x}, result, body)


@cuda("pool2d_grad", "pool3d_grad", takes=floating, any_order=True, layout=AS_THEY_COME)
def pool_grad(dev: Device, a: PoolGrad) -> list[Step]:
    """The first element that equals a window's maximum gets its gradient: places are found first."""
    win = windows_of(a, a.out)
    if a.pooling_type == "avg":
        return _given(dev, _How("avg", a.exclusive), win, {"d_out": a.d_out}, a.d_x)
    narrow = not win.uneven and math.prod(win.k) < 255  # -1 stands for no place
    place = dev.scratch_like(a.out, np.uint8 if narrow else np.int32)
    steps = _found(dev, _How("place", absolute=win.uneven), win, a.x, place)
    arrays = {"d_out": a.d_out, "place": place}
    return [*steps, *_given(dev, _How("max", absolute=win.uneven), win, arrays, a.d_x)]


@cuda("max_pool2d_with_index_grad", "max_pool3d_with_index_grad", takes=_taken)
def max_pool_grad(dev: Device, a: MaxPoolGrad) -> list[Step]:
    """An element gathers from the windows that have their maximum there."""
    arrays = {"d_out": a.d_out, "place": a.mask}
    return _given(dev, _How("max", absolute=True), windows_of(a, a.d_out), arrays, a.d_x)


def _given(dev: Device, how: _How, win: Windows, arrays: Mapping[str, Any], d_x: Any) -> list[Step]:
    """Return the launches that add up for each element what its windows give, ``how.name`` of ``_GIVES``."""
    places = ""
    if "place" in arrays:
        places = f"""
          typedef {c_type(arrays["place"].dtype)} Place;
          const Vec<Place, LANES> places =
              load_vec<LANES>(place + AT(n, c, o, p, q, Z.count, Y.count, X.count));
          const int at = PLACE((int)z, (int)y, (int)x, o, p, q);"""
    body = f"""
    Sum sum[LANES] = {{}};
    for (int o = first(Z, z); o < behind(Z, z); o++)
      for (int p = first(Y, y); p < behind(Y, y); p++)
        for (int q = first(X, x); q < behind(X, x); q++) {{
          const Vec<T, LANES> g = load_vec<LANES>(d_out + AT(n, c, o, p, q, Z.count, Y.count, X.count));{places}
          for (int l = 0; l < LANES; l++) sum[l] += {_GIVES[how.name]};
        }}
    Vec<R, LANES> made;
    for (int l = 0; l < LANES; l++) made.at[l] = element<R>(sum[l]);
    store_vec<LANES>(result + AT(n, c, z, y, x, Z.size, Y.size, X.size), made);"""
    how = _How(f"grad_{how.name}", how.exclusive, how.absolute)
    return _launches(dev, how, win, arrays, d_x, body)


def _launches(
    dev: Device, how: _How, win: Windows, arrays: Mapping[str, Any], result: Any, body: str
) -> list[Step]:
    """``body`` is a thread's work on its part of ``result``."""
    if not result.size:
        return []
    if result.size >= MOST and len(result) > 1:
        half = result.shape[0] // 2
        return [
            step
            for part in (slice(None, half), slice(half, None))
            for step in _launches(
                dev, how, win, {n: a[part] for n, a in arrays.items()}, result[part], body
            )
        ]
    last = _channels_last([*arrays.values(), result])
    if last is not None:
        return [_launched(dev, how, win, arrays, result, last, body)]
    ordered = {n: dev.scratch(a.shape, a.dtype) for n, a in arrays.items()}
    target = dev.scratch(result.shape, result.dtype)
    return [
        *(step for n, a in arrays.items() for step in moved(dev, ordered[n], a)),
        _launched(dev, how, win, ordered, target, False, body),
        *moved(dev, result, target),
    ]


def _channels_last(arrays: list[Any]) -> bool | None:
    """Tell in which of the two orders all the images lie (None: some in one, some in the other)."""
    for last in (False, True):
        if all((_behind(a) if last else a).flags.c_contiguous for a in arrays):
            return last
    return None


def _behind(images: Array) -> Any:
    """View images with their channels as the last dimension."""
    return images.transpose(0, *range(2, images.ndim), 1)


def _launched(
    dev: Device,
    how: _How,
    win: Windows,
    arrays: Mapping[str, Any],
    result: Any,
    last: bool,
    body: str,
) -> Step:
    channels, operands = result.shape[1], [*arrays.values(), result]
    lanes = 16 // operands[0].itemsize
    aligned = all(on_boundary(dev, a, lanes * a.itemsize) for a in operands)
    if not last or channels % lanes or not aligned:
        lanes = 1
    kinds = [c_type(a.dtype) for a in operands]
    arguments = [*read(**arrays), *written(result=result), *ints(channels=channels)]
    befores = [before for before, _ in win.pads]
    axes = [*zip(win.size, win.out, win.k, win.strides, befores, strict=True)]
    axes = [(1, 1, 1, 1, 0)] * (5 - result.ndim) + axes
    for axis, values in zip("ZYX", axes, strict=True):
        arguments += ints(**{f"{name}{axis}": n for name, n in zip(_AXIS, values, strict=True)})
    inner = [*zip("xyz", [*reversed(result.shape[2:]), 1], strict=False)]
    lines = [
        f"const Axis {axis} = {{{', '.join(f'{name}{axis}' for name in _AXIS)}}};" for axis in "ZYX"
    ]
    lines.append("unsigned rest = i, next;")
    for n, size in [("c", channels // lanes), *inner] if last else [*inner, ("c", channels)]:
        arguments += divisors(**{f"size_{n}": size})
        lines.append(f"next = over(rest, size_{n}_magic, size_{n}_shift);")
        lines.append(f"unsigned {n} = rest - next * size_{n}; rest = next;")
    place = "((((long long)(N) * (D) + (Z)) * (H) + (Y)) * (W) + (X)) * channels + (C)"
    if not last:
        place = "((((long long)(N) * channels + (C)) * (D) + (Z)) * (H) + (Y)) * (W) + (X)"
    text = f"""
    {" ".join(lines)}
    const unsigned n = rest;
    c *= LANES;{body}"""
    definitions = f"""
typedef {kinds[0]} T;
typedef {kinds[-1]} R;
typedef {"double" if kinds[0] == "double" else "float"} Sum;
#define LANES {lanes}
{how.definitions(win)}#define AT(N, C, Z, Y, X, D, H, W) ({place})
{_FUNCTIONS}"""
    name = f"pool_{how.name}_{'nhwc' if last else 'nchw'}"
    return each(dev, name, text, arguments, result.size // lanes, ("index.cuh",), definitions)
