"""The largest elements of rows: each row is read once; what exceeds the least of those kept is sorted in."""

from __future__ import annotations

from ....graph.ir.graph import Node
from ....graph.ops.creation import TopK
from ....strategies.types import VarType
from ...codegen.native import launch
from ...device.device import Device
from ..registry import Step, by_arrays, kernel

_FEW = 64  # more are sorted faster all at once
# nan comes behind every number, as it does in a sorted array
_BEFORE = "(v > {0}) | (({0} != {0}) & (v == v))"
_LOOP = f"""
def run(words):
    x, out, index = f32(words[0]), f32(words[1]), i64(words[2])
    rows, width, k = words[3], words[4], words[5]
    for row in range(rows):
        first, to = row * width, row * k
        for i in range(width):
            v, j = load(x, first + i, 0, 3), i
            if i >= k:
                least = load(out, to + k - 1, 1, 3)
                if not ({_BEFORE.format("least")}):
                    continue
                j = k - 1
            while j > 0:
                other = load(out, to + j - 1, 1, 3)
                if not ({_BEFORE.format("other")}):
                    break
                store(out, to + j, other, 1, 3)
                store(index, to + j, load(index, to + j - 1, 2, 3), 2, 3)
                j -= 1
            store(out, to + j, v, 1, 3)
            store(index, to + j, i, 2, 3)
"""


def _few(node: Node) -> bool:
    (x,), (indices,) = node.inputs["X"], node.outputs["Indices"]
    of_floats = x is not None and x.spec.dtype == VarType.FP32
    to_int64 = indices is not None and indices.spec.dtype == VarType.INT64
    return of_floats and to_int64 and 1 < node.attrs["k"] <= _FEW


@kernel("top_k", on=("numba",), takes=_few)
def top_k(dev: Device, a: TopK) -> list[Step]:
    """Largest first; equal elements in the order of their index."""
    arrays = (a.x, a.out, a.indices)
    if not a.x.size or not all(array.flags.c_contiguous for array in arrays):
        return by_arrays("top_k", dev, a)
    width = a.x.shape[-1]
    words = [*(array.ctypes.data for array in arrays), a.x.size // width, width, a.k]
    return [launch(_LOOP, words, *arrays)]
