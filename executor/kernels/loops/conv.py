"""Compiled loops over convolutions of one channel each, whose number fills no vectors.

oneDNN computes channels side by side, sixteen or eight at a time, and moves images that lie in the order of
their shape to that order and back. These loops go along lines of the images as they lie.

A line of results meets, for each tap, the places of a line of images that lie on it: where these begin and end
stands in a table.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....graph.ir.graph import Node
from ....graph.ops.conv import ConvOperands
from ....strategies.types import VarType
from ...codegen.text_loops import bind_text, named
from ...device.device import Device
from ..array.conv import Geometry, Product, geometry, product_kernels, rectified, through_relu
from ..registry import Step, kernel

_VECTOR = 16  # channels that the library computes at a time, and pads others to

# The results y of images x, or the gradient of x or of filters w.
_LINES = """
    for plane in range(planes):
        f, image, result = plane % channels * rows * columns, plane * high * wide, plane * tall * broad
{clear}
        for i in range(rows):
            for j in range(columns):
                begin, end = ends[2 * j], ends[2 * j + 1]
                tap = f + i * columns + j
{start}
                for r in range(tall):
                    at = r * by_row + i * gap_row - top
                    if at >= 0 and at < high:
                        p, o = image + at * wide + j * gap_column - left, result + r * broad
                        if by_column == 1:
                            for s in range(begin, end):
                                {dense}
                        else:
                            for s in range(begin, end):
                                {strided}
{finish}
"""
_CLEAR = "for k in range({size}):\n    store({name}, {first} + k, np.float32(0))"


def _text(clear: str, start: str, each: str, finish: str) -> str:
    def lines(text: str, depth: int) -> str:
        return "\n".join("    " * depth + line for line in (text or "pass").split("\n"))

    dense = each.format(at="p + s")
    strided = each.format(at="p + s * by_column")
    return _LINES.format(
        clear=lines(clear, 2),
        start=lines(start, 4),
        dense=dense,
        strided=strided,
        finish=lines(finish, 4),
    )


_FACTOR = "v = load(w, tap)"
_SOURCES = {
    "y": _text(
        _CLEAR.format(size="tall * broad", name="y", first="result"),
        _FACTOR,
        "store(y, o + s, load(y, o + s) + v * load(x, {at}))",
        "",
    ),
    "x": _text(
        _CLEAR.format(size="high * wide", name="x", first="image"),
        _FACTOR,
        "store(x, {at}, load(x, {at}) + v * load(y, o + s))",
        "",
    ),
    "w": _text(
        "if plane < channels:\n    "
        + _CLEAR.format(size="rows * columns", name="w", first="f").replace("\n", "\n    "),
        "total = np.float32(0)",
        "total = plus(total, load(y, o + s) * load(x, {at}))",
        "store(w, tap, load(w, tap) + total)",
    ),
}


def _takes(node: Node) -> bool:
    """Tell whether each channel is convolved with one filter of its own, and the last ones fill no vector."""
    (x,), (w,) = node.inputs["Input"], node.inputs["Filter"]
    assert x is not None and w is not None
    channels, groups = x.spec.shape[1], node.attrs["groups"]
    alone = channels == groups == w.spec.shape[0] and w.spec.shape[1] == 1
    values = [*node.reads(), *node.writes()]
    return alone and channels % _VECTOR > 0 and all(v.spec.dtype == VarType.FP32 for v in values)


def _ends(geo: Geometry) -> Any:
    """Return, for each column of filters, the columns of results at which it lies on the image: [kw, 2]."""
    stride, gap, left = geo.strides[1], geo.dilations[1], geo.pads[1][0]
    # The column that a tap meets in the first column of results
    first = np.arange(geo.w[3]) * gap - left
    begin = np.maximum(0, -(first // stride))
    end = np.minimum(geo.out[3], -((first - geo.x[3]) // stride))
    return np.stack([begin, end], 1).astype(np.int64)


def _by_lines(dev: Device, a: ConvOperands, operands: Product) -> list[Step]:
    result, x, w, y = operands
    geo = geometry(a, operands)
    ends = _ends(geo)
    arrays = {"x": x, "w": w, "y": y, "ends": ends}
    numbers = named("channels high wide tall broad", (*geo.x[1:], *geo.out[2:]))
    numbers |= named("rows columns by_row by_column", (*geo.w[2:], *geo.strides))
    numbers |= named("gap_row gap_column", geo.dilations)
    numbers |= named("top left", (before for before, _ in geo.pads))
    return [bind_text(_SOURCES[result], arrays, **numbers, planes=geo.x[0] * geo.x[1])]


_kernel = product_kernels(_by_lines, rectified, through_relu)


_FORMS = [f"depthwise_conv2d{form}" for form in ("", "_grad", "_transpose", "_transpose_grad")]
kernel(*_FORMS, on=("llvm",), takes=_takes, gapless=True)(_kernel)
