"""Transposes that move the innermost dimension, tile by tile: NumPy's copy misses the cache on one side."""

from __future__ import annotations

from typing import NamedTuple

from ....graph.ir.graph import Node
from ....graph.ops.operands import Array
from ....graph.ops.view import Transpose, Transpose2Grad, TransposeGrad
from ....strategies.types import VarType
from ...codegen.native import launch
from ...device.device import Device
from ..array.manipulation import copied
from ..registry import Step, kernel

_TILE = 64  # rows of the source in one turn: what eight columns read of them stays in cache
_WIDTH = 4  # bytes of an element
# r: the dimension along which the source is contiguous, c: the target's
_COPY = f"""
def run(words):
    to, source = u32(words[0]), u32(words[1])
    rows, columns, to_r, source_c = words[2], words[3], words[4], words[5]
{{outer}}
    {{pad}}for r0 in range(0, rows, {_TILE}):
    {{pad}}    r1 = min(r0 + {_TILE}, rows)
    {{pad}}    for c in range(0, columns - columns % 8, 8):
    {{pad}}        for r in range(r0, r1):
    {{pad}}            t, s = {{t}} + r * to_r + c, {{s}} + r + c * source_c
    {{pad}}            for k in range(8):
    {{pad}}                store(to, t + k, load(source, s + k * source_c, 1, 2), 0, 2)
    {{pad}}    for c in range(columns - columns % 8, columns):
    {{pad}}        for r in range(r0, r1):
    {{pad}}            t, s = {{t}} + r * to_r, {{s}} + r
    {{pad}}            store(to, t + c, load(source, s + c * source_c, 1, 2), 0, 2)
"""


class _Dimension(NamedTuple):
    size: int
    to: int  # strides, in elements
    source: int


def bind_copy(dev: Device, target: Array, source: Array) -> list[Step]:
    """Return the copy: by tiles, if the arrays are contiguous along different dimensions."""
    dimensions = _joined(target, source)
    row = next((d for d in dimensions if d.source == 1 and d.to > 1), None)
    column = next((d for d in dimensions if d.to == 1 and d.source > 1), None)
    if row is None or column is None or target.itemsize != _WIDTH or not target.size:
        return copied(dev, target, source)
    outer = [d for d in dimensions if d not in (row, column)]
    words = [target.ctypes.data, source.ctypes.data, row.size, column.size, row.to, column.source]
    words += [number for d in outer for number in d]
    lines = (
        "    " * (k + 1) + f"for i{k} in range(words[{6 + 3 * k}]):" for k in range(len(outer))
    )
    at = [
        " + ".join([f"i{k} * words[{6 + 3 * k + side}]" for k in range(len(outer))] or ["0"])
        for side in (1, 2)
    ]
    text = _COPY.format(outer="\n".join(lines), pad="    " * len(outer), t=at[0], s=at[1])
    return [launch(text, words, target, source)]


def _joined(target: Array, source: Array) -> list[_Dimension]:
    """Return the dimensions, outermost of the target first, joined where both arrays allow it."""
    width = target.itemsize
    steps = zip(target.shape, target.strides, source.strides, strict=True)
    apart = [_Dimension(n, to // width, given // width) for n, to, given in steps if n > 1]
    made: list[_Dimension] = []
    for d in sorted(apart, key=lambda d: -d.to):
        outer = made[-1] if made else None
        if outer and (outer.to, outer.source) == (d.size * d.to, d.size * d.source):
            made[-1] = d._replace(size=outer.size * d.size)
        else:
            made.append(d)
    return made


def _moves_innermost(node: Node) -> bool:
    axis = node.attrs["axis"]
    values = [*node.inputs.get("X", ()), *node.inputs.get("Out@GRAD", ())]
    narrow = all(v is not None and v.spec.dtype in (VarType.FP32, VarType.INT32) for v in values)
    return narrow and bool(axis) and axis[-1] % len(axis) != len(axis) - 1


@kernel("transpose", "transpose2", on=("numba",), takes=_moves_innermost)
def transpose(dev: Device, a: Transpose) -> list[Step]:
    """See ``view.py``."""
    return [] if a.out is None else bind_copy(dev, a.out, a.x.transpose(a.axis))


@kernel("transpose_grad", "transpose2_grad", on=("numba",), takes=_moves_innermost)
def transpose_grad(dev: Device, a: Transpose2Grad | TransposeGrad) -> list[Step]:
    """The transpose back."""
    return [] if a.d_x is None else bind_copy(dev, a.d_x.transpose(a.axis), a.d_out)
