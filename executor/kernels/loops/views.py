"""Copies between arrays whose elements lie in another order, or in short runs.

Where the innermost dimension moves, NumPy's copy misses the cache on one side: loops go tile by tile. Where
only a few elements lie side by side in both, it takes longer to begin than to copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ....graph.ir.capabilities import AS_THEY_COME, IN_ORDER
from ....graph.ir.graph import Node
from ....graph.ops.operands import Array
from ....graph.ops.padding import Pad2d, Pad2dGrad, image_axis
from ....strategies.types import VarType
from ...codegen.dimensions import CopyDimension, joined_of_copy
from ...codegen.text_loops import bind_text, named
from ...device.device import Device
from ..array import padding
from ..array.manipulation import copied
from ..array.moves import fill, register
from ..registry import Step, kernel

_TILE = 64  # rows of the source in one turn: what eight columns read of them stays in cache
_WIDTH = 4  # bytes of an element
# r: the dimension along which the source is contiguous, c: the target's
_COPY = f"""
{{outer}}
    {{pad}}for r0 in range(0, rows, {_TILE}):
    {{pad}}    r1 = min(r0 + {_TILE}, rows)
    {{pad}}    for c in range(0, columns - columns % 8, 8):
    {{pad}}        for r in range(r0, r1):
    {{pad}}            t, s = {{t}} + r * to_r + c, {{s}} + r + c * source_c
    {{pad}}            for k in range(8):
    {{pad}}                store(to, t + k, load(source, s + k * source_c))
    {{pad}}    for c in range(columns - columns % 8, columns):
    {{pad}}        for r in range(r0, r1):
    {{pad}}            t, s = {{t}} + r * to_r, {{s}} + r
    {{pad}}            store(to, t + c, load(source, s + c * source_c))
"""


# Elements side by side: of so many the compiler knows how many there are; longer runs NumPy copies as fast.
_KNOWN, _SHORT = 16, 256
_RUNS = """
{outer}
    {pad}t, s = {t}, {s}
    {pad}for k in range({length}):
    {pad}    store(to, t + k, load(source, s + k))
"""
# Margins and middle of one image after the other: what is filled is still in cache when it is copied to.
_MARGINS = """
    size, fill = tall * broad, np.uint32(value)
    for plane in range(planes):
        for k in range(plane * size, (plane + 1) * size):
            store(to, k, fill)
        for r in range(high):
            t = plane * size + (top + r) * broad + left
            s = (plane * high + r) * {length}
            for k in range({length}):
                store(to, t + k, load(source, s + k))
"""
_FEW = 7  # elements along a dimension: fewer make no tile
_LINE = 16  # elements of a cache line: lines are read, or written, to their end before others take their place
_COPY_FEW = f"""
{{outer}}
    {{pad}}for l0 in range(0, length, {_LINE}):
    {{pad}}    for n in range(near):
    {{pad}}        for l in range(l0, min(l0 + {_LINE}, length)):
    {{pad}}            t, s = {{t}} + n * to_n + l * to_l, {{s}} + n * source_n + l * source_l
    {{pad}}            for k in range({{few}}):
    {{pad}}                store(to, t + k * to_f, load(source, s + k * source_f))
"""


def bind_copy(dev: Device, target: Array | None, source: Array) -> list[Step]:
    """Return the copy: by tiles, if the arrays are contiguous along different dimensions, or by short runs."""
    if target is None:
        return []
    if source.shape != target.shape:
        source = np.broadcast_to(source, target.shape)
    if source.flags.c_contiguous and target.flags.c_contiguous:
        return copied(dev, target, source)
    dimensions = joined_of_copy(target, source)
    if target.itemsize != _WIDTH or not target.size:
        return copied(dev, target, source)
    if len(dimensions) > 1 and dimensions[-1][1:] == (1, 1) and dimensions[-1].size <= _SHORT:
        return _by_runs(target, source, dimensions)
    row = next((d for d in dimensions if d.source == 1 and d.to > 1), None)
    column = next((d for d in dimensions if d.to == 1 and d.source > 1), None)
    if row is None or column is None:
        return copied(dev, target, source)
    outer = [d for d in dimensions if d not in (row, column)]
    if min(row.size, column.size) < _FEW:
        return _by_few(target, source, row, column, outer)
    numbers = {"rows": row.size, "columns": column.size, "to_r": row.to, "source_c": column.source}
    return _looped(_COPY, numbers, outer, target, source)


def _by_runs(target: Array, source: Array, dimensions: list[CopyDimension]) -> list[Step]:
    """Return the copy of what lies side by side in both arrays, run by run.

    They follow each other in one of the arrays: in that for which fewer places of the other are open at a time.
    """
    *outer, run = dimensions
    by_source = sorted(outer, key=lambda d: -d.source)
    if _open(by_source, 1) < _open(outer, 2):
        outer = by_source
    length = run.size if run.size <= _KNOWN else "width"
    return _looped(_RUNS, {"width": run.size}, outer, target, source, length=length)


def _open(loops: Sequence[CopyDimension], side: int) -> int:
    """Return how many runs lie between two that follow each other on one side of the copy."""
    steps = [d[side] for d in loops]
    return math.prod(d.size for d in loops[steps.index(min(steps)) + 1 :]) if steps else 1


def _by_few(
    target: Array,
    source: Array,
    row: CopyDimension,
    column: CopyDimension,
    outer: list[CopyDimension],
) -> list[Step]:
    """Return the copy where one of two dimensions is short.

    Beside it in memory lies another one: of each line, all that this one takes is copied in one go.
    """
    few, long = sorted((row, column), key=lambda d: d.size)
    side = 1 if few is column else 2
    near = min(outer, key=lambda d: d[side], default=CopyDimension(1, 0, 0))
    rest = [d for d in outer if d is not near]
    numbers = named("length to_l source_l", long) | named("to_f source_f", few[1:])
    numbers |= named("near to_n source_n", near)
    return _looped(_COPY_FEW, numbers, rest, target, source, few=few.size)


def _looped(
    text: str,
    numbers: dict[str, int],
    outer: list[CopyDimension],
    target: Array,
    source: Array,
    **literals: int | str,
) -> list[Step]:
    """Return the call of loops over the outer dimensions around a text; the compiler knows ``literals``."""
    for k, dimension in enumerate(outer):
        numbers |= named(f"size{k} to{k} source{k}", dimension)
    arrays = {"to": target.view(np.uint32), "source": source.view(np.uint32)}
    return [bind_text(_nest(text, len(outer), **literals), arrays, **numbers)]


@lru_cache(1024)
def _nest(text: str, outer: int, **literals: int | str) -> str:
    """Return a text within so many outer loops."""
    lines = ("    " * (k + 1) + f"for i{k} in range(size{k}):" for k in range(outer))
    at = [
        " + ".join([f"i{k} * {side}{k}" for k in range(outer)] or ["0"])
        for side in ("to", "source")
    ]
    return text.format(outer="\n".join(lines), pad="    " * outer, t=at[0], s=at[1], **literals)


def _narrow(node: Node) -> bool:
    return all(v.spec.dtype in (VarType.FP32, VarType.INT32) for v in node.reads())


@kernel(
    "pad2d_grad",
    on=("llvm",),
    takes=lambda node: _narrow(node) and node.attrs["mode"] == "constant",
)
def pad2d_grad(dev: Device, a: Pad2dGrad) -> list[Step]:
    """What is between the margins; elements of other modes' margins are sums."""
    if a.d_x is None:
        return []
    inside = padding.middle(a.d_out, a.d_x, a.paddings, image_axis(a.data_format))
    return bind_copy(dev, a.d_x, inside)


@kernel("pad2d", on=("llvm",), takes=_narrow)
def pad2d(dev: Device, a: Pad2d) -> list[Step]:
    """Images in the order of their shape are gone through once; the rest is copied part by part."""
    together = a.x.flags.c_contiguous and a.out.flags.c_contiguous
    if a.mode != "constant" or a.data_format != "NCHW" or not together or not a.x.size:
        return padding.pad2d_parts(dev, a, bind_copy)
    images, channels, high, wide = a.x.shape
    value = np.array(a.pad_value).astype(a.x.dtype).view(np.uint32)
    arrays = {"to": a.out.view(np.uint32), "source": a.x.view(np.uint32)}
    numbers = named("high width tall broad", (high, wide, *a.out.shape[2:]))
    numbers |= {"planes": images * channels, "top": a.paddings[0], "left": a.paddings[2]}
    text = _MARGINS.format(length=wide if wide <= _KNOWN else "width")
    return [bind_text(text, arrays, **numbers, value=int(value))]


def _on(op_type: str) -> Callable[[Any], Any]:
    """Register a kernel; those that join images and cut them do so in whatever order all of them lie."""
    joins = op_type in ("concat", "concat_grad", "split")
    layout = AS_THEY_COME if joins else IN_ORDER
    return kernel(op_type, on=("llvm",), takes=_narrow, layout=layout)


register(_on, bind_copy, fill)
