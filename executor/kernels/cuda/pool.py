"""Pooling over images in either order; the gradient of an element gathers from the windows that it is in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....graph.ir.graph import Node
from ....graph.ops.operands import Array
from ....graph.ops.pool import Pool2d, Pool2dGrad
from ...codegen.cuda_source import c_type
from ...cuda.kernel import CudaKernel
from ...cuda.runtime import Step
from ...device.device import Device
from ..array.pool import Windows, one_window, windows_of
from .copies import MOST, divisor, moved
from .support import cuda, enough_blocks, floating, launch, on_boundary

_WINDOW = ("kh", "kw", "sh", "sw", "top", "left", "bottom", "right")
_SIZES = ("channels", "height", "width", "high", "broad")  # of images, then of what is pooled
# What a window finds, of its elements `v` at offset `at`: the text for each, and for what is written.
_FINDS = {
    "avg": (
        "best[l] += wide(v.at[l]);",
        "element<R>(best[l] / max(span(y0, kh, height, top, bottom) * span(x0, kw, width, left, right), 1))",
    ),
    "max": (
        "if (wide(v.at[l]) > best[l] || isnan_(v.at[l])) best[l] = wide(v.at[l]);",
        "element<R>(best[l])",
    ),
    "place": (
        """{
          nan[l] |= isnan_(v.at[l]);
          if (wide(v.at[l]) > best[l]) best[l] = wide(v.at[l]), place[l] = at;
        }""",
        "(R)(nan[l] ? -1 : place[l])",
    ),
}
# What of the gradient of a window comes to an element at offset `at` in it.
_GIVES = {
    "avg": """wide(g.at[l]) / max(span(p * sh - top, kh, height, top, bottom)
            * span(q * sw - left, kw, width, left, right), 1)""",
    "max": "places.at[l] == (Place)at ? wide(g.at[l]) : Sum(0)",
}
# span: how many elements of an axis count for the average of a window that begins at `a`.
_FUNCTIONS = """
__device__ __forceinline__ int span(int a, int k, int size, int before, int after) {
  return EXCLUSIVE ? max(min(a + k, size) - max(a, 0), 0) : k;
}
__device__ __forceinline__ bool isnan_(T x) { return wide(x) != wide(x); }
"""


def _takes(node: Node) -> bool:
    return floating(node) and one_window(node)


@cuda("pool2d", takes=_takes, any_order=True)
def pool2d(dev: Device, a: Pool2d) -> list[Step]:
    """One thread for some channels of a pixel, or for a pixel."""
    win = windows_of(a)
    return _found(dev, a.pooling_type, win, a.x, a.out, a.exclusive)


def _found(
    dev: Device, what: str, win: Windows, x: Array, result: Any, exclusive: bool
) -> list[Step]:
    """Return the launches that write for each window what is found in it, ``what`` of ``_FINDS``."""
    each, made = _FINDS[what]
    body = f"""
    const int y0 = (int)y * sh - top, x0 = (int)x * sw - left;
    Sum best[LANES];
    bool nan[LANES] = {{}};
    int place[LANES] = {{}};
    for (int l = 0; l < LANES; l++) best[l] = {"0" if what == "avg" else "-__int_as_float(0x7f800000)"};
    for (int r = max(y0, 0); r < min(y0 + kh, height); r++)
      for (int s = max(x0, 0); s < min(x0 + kw, width); s++) {{
        const Vec<T, LANES> v = load_vec<LANES>(x_in + AT(n, c, r, s, height, width));
        const int at = (r - y0) * kw + s - x0;
        for (int l = 0; l < LANES; l++) {each}
      }}
    Vec<R, LANES> made;
    for (int l = 0; l < LANES; l++) made.at[l] = {made};
    store_vec<LANES>(result + AT(n, c, y, x, high, broad), made);"""
    return _launches(dev, f"pool_{what}", win, {"x_in": x}, result, (body, exclusive))


@cuda("pool2d_grad", takes=_takes, any_order=True)
def pool2d_grad(dev: Device, a: Pool2dGrad) -> list[Step]:
    """Of a window's maximum the first element that equals it gets the gradient: places are found first."""
    if a.d_x is None:
        return []
    win = windows_of(a)
    arrays, steps, place = {"d_out": a.d_out}, [], ""
    if a.pooling_type == "max":
        narrow = win.k[0] * win.k[1] < 255  # -1 stands for no place
        arrays["place"] = dev.scratch_like(a.out, np.uint8 if narrow else np.int32)
        steps = _found(dev, "place", win, a.x, arrays["place"], a.exclusive)
        place = f"""
        typedef {"unsigned char" if narrow else "int"} Place;
        const Vec<Place, LANES> places = load_vec<LANES>(place + AT(n, c, p, q, high, broad));
        const int at = ((int)y + top - p * sh) * kw + (int)x + left - q * sw;"""
    body = f"""
    Sum sum[LANES] = {{}};
    const int p0 = (int)y + top < kh ? 0 : ((int)y + top - kh) / sh + 1;
    const int q0 = (int)x + left < kw ? 0 : ((int)x + left - kw) / sw + 1;
    for (int p = p0; p < high && p * sh <= (int)y + top; p++)
      for (int q = q0; q < broad && q * sw <= (int)x + left; q++) {{
        const Vec<T, LANES> g = load_vec<LANES>(d_out + AT(n, c, p, q, high, broad));{place}
        for (int l = 0; l < LANES; l++) sum[l] += {_GIVES[a.pooling_type]};
      }}
    Vec<R, LANES> made;
    for (int l = 0; l < LANES; l++) made.at[l] = element<R>(sum[l]);
    store_vec<LANES>(result + AT(n, c, y, x, height, width), made);"""
    name = f"pool_grad_{a.pooling_type}"
    return [*steps, *_launches(dev, name, win, arrays, a.d_x, (body, a.exclusive))]


def _launches(
    dev: Device,
    name: str,
    win: Windows,
    arrays: Mapping[str, Any],
    result: Any,
    how: tuple[str, bool],
) -> list[Step]:
    """``how``: what a thread does for its part of ``result``, and whether margins count for averages."""
    if not result.size:
        return []
    if result.size >= MOST:
        half = result.shape[0] // 2
        return [
            step
            for part in (slice(None, half), slice(half, None))
            for step in _launches(
                dev, name, win, {n: a[part] for n, a in arrays.items()}, result[part], how
            )
        ]
    last = _channels_last([*arrays.values(), result])
    if last is not None:
        return [_launched(dev, name, win, arrays, result, last, how)]
    ordered = {n: dev.scratch(a.shape, a.dtype) for n, a in arrays.items()}
    made = dev.scratch(result.shape, result.dtype)
    return [
        *(step for n, a in arrays.items() for step in moved(dev, ordered[n], a)),
        _launched(dev, name, win, ordered, made, False, how),
        *moved(dev, result, made),
    ]


def _channels_last(arrays: list[Any]) -> bool | None:
    """Tell in which of the two orders all the images lie (None: some in one, some in the other)."""
    for last in (False, True):
        if all((a.transpose(0, 2, 3, 1) if last else a).flags.c_contiguous for a in arrays):
            return last
    return None


def _launched(
    dev: Device,
    name: str,
    win: Windows,
    arrays: Mapping[str, Any],
    result: Any,
    last: bool,
    how: tuple[str, bool],
) -> Step:
    channels, held = result.shape[1], [*arrays.values(), result]
    lanes = 16 // held[0].itemsize
    aligned = all(on_boundary(dev, a, lanes * a.itemsize) for a in held)
    if not last or channels % lanes or not aligned:
        lanes = 1
    height, width = result.shape[2:]
    sizes = (channels // lanes, width, height) if last else (width, height, channels)
    windows = [*win.k, *win.strides, *(pad[0] for pad in win.pads), *(pad[1] for pad in win.pads)]
    words = [result.size // lanes, channels, *win.size, *win.out, *windows]
    for d in sizes:
        words += [d, *divisor(d)]
    kernel = _kernel(name, {**arrays, "result": result}, lanes, last, how)
    blocks = enough_blocks(dev, result.size // lanes)
    return launch(dev, kernel, blocks, [*arrays.values(), result, *words])


def _kernel(
    name: str, arrays: Mapping[str, Any], lanes: int, last: bool, how: tuple[str, bool]
) -> CudaKernel:
    body, exclusive = how
    kinds = [c_type(a.dtype) for a in arrays.values()]
    const = (f"const {kind}*" for kind in kinds[:-1])
    parameters = list(zip((*const, f"{kinds[-1]}*"), arrays, strict=True))
    parameters += [("unsigned", "all"), *(("int", n) for n in (*_SIZES, *_WINDOW))]
    for k in range(3):
        parameters += [("unsigned", f"{n}{k}") for n in ("size", "magic", "shift")]
    order = ("c", "x", "y") if last else ("x", "y", "c")
    lines = []
    for k, n in enumerate(order):
        lines += [
            f"next = over(rest, magic{k}, shift{k});",
            f"unsigned {n} = rest - next * size{k};",
        ]
        lines.append("rest = next;")
    place = "(((long long)(N) * (H) + (Y)) * (W) + (X)) * channels + (C)"
    if not last:
        place = "(((long long)(N) * channels + (C)) * (H) + (Y)) * (W) + (X)"
    text = f"""
  for (unsigned i = thread_index(); i < all; i += thread_count()) {{
    unsigned rest = i, next;
    {" ".join(lines)}
    const unsigned n = rest;
    c *= LANES;{body}
  }}"""
    definitions = f"""
typedef {kinds[0]} T;
typedef {kinds[-1]} R;
typedef {"double" if kinds[0] == "double" else "float"} Sum;
#define LANES {lanes}
#define EXCLUSIVE {int(exclusive)}
#define AT(N, C, Y, X, H, W) ({place})
{_FUNCTIONS}"""
    where = "nhwc" if last else "nchw"
    return CudaKernel(f"{name}_{where}", tuple(parameters), text, ("index.cuh",), definitions)
