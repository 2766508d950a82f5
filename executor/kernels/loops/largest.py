"""The largest elements of rows, and where the largest or least one lies.

Of several, each row is read once; what exceeds the least of those kept is sorted in. For one, elements become
integers of the same order, whose maximum is a vector operation; the first nan comes before every number.
"""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np

from ....graph.ir.graph import Node
from ....graph.ops.creation import ArgExtreme, TopK
from ....graph.ops.operands import Array
from ....strategies.types import VarType
from ...codegen.native import launch
from ...codegen.scalar_math import definitions
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


_KEY = """
def key_of(v):
    return select(v == v, ordered({number}), np.int32(0x7fffffff))
"""
# Row by row: the largest, then where it is.
_ALONG = """
def run(words):
    x, out, rows, width = f32(words[0]), {kind}(words[1]), words[2], words[3]
    for row in range(rows):
        first, most = row * width, np.int32(-0x80000000)
        for i in range(width):
            key = key_of(load(x, first + i, 0, 2))
            most = select(key > most, key, most)
        place = np.int32(width)
        for i in range(width):
            at = select(key_of(load(x, first + i, 0, 2)) == most, np.int32(i), np.int32(width))
            place = select(at < place, at, place)
        store(out, row, np.int64(place), 1, 2)
"""
# Rows side by side, ``step`` elements between their beginnings: each vector holds elements of many rows.
_BLOCK = 1024  # rows whose largest elements stay in cache
_ACROSS = f"""
def run(words):
    x, out, best, place = f32(words[0]), {{kind}}(words[1]), i32(words[2]), i32(words[3])
    outer, width, inner, apart = words[4], words[5], words[6], words[7]
    for o in range(outer):
        for begin in range(0, inner, {_BLOCK}):
            count = min({_BLOCK}, inner - begin)
            for j in range(count):
                store(best, j, np.int32(-0x80000000), 2, 4)
            for i in range(width):
                at = o * width * inner + i * apart + begin{{step}}
                for j in range(count):
                    key, most = key_of(load(x, at + j{{step}}, 0, 4)), load(best, j, 2, 4)
                    before = load(place, j, 3, 4)
                    store(best, j, select(key > most, key, most), 2, 4)
                    store(place, j, select(key > most, np.int32(i), before), 3, 4)
            for j in range(count):
                store(out, o * inner + begin + j, np.int64(load(place, j, 3, 4)), 1, 4)
"""
_SHORT = 6  # elements of a row: of shorter rows many are gone through together
_LONG = 64  # the places in longer rows NumPy finds faster
_MANY = 8  # rows side by side: fewer NumPy moves apart


def _in_single(node: Node) -> bool:
    return all(v.spec.dtype == VarType.FP32 for v in node.reads())


def _extreme(op_type: str, number: str) -> None:
    @kernel(op_type, on=("numba",), takes=_in_single)
    def extreme(dev: Device, a: ArgExtreme) -> list[Step]:
        """The place of the first largest (or least) element along an axis."""
        axis = a.axis % a.x.ndim
        width, inner = a.x.shape[axis], prod(a.x.shape[axis + 1 :])
        if width == 1:
            return [partial(a.out.fill, 0)]
        gapless = a.x.flags.c_contiguous and a.out.flags.c_contiguous
        fits = width <= _LONG if inner == 1 else inner >= _MANY
        if not a.x.size or not gapless or not fits:
            return by_arrays(op_type, dev, a)
        key, kind, rows = _KEY.format(number=number), f"i{a.out.itemsize * 8}", a.x.size // width
        if inner == 1 and width > _SHORT:
            return [_call(key + _ALONG.format(kind=kind), [a.x, a.out], rows, width)]
        arrays = [a.x, a.out, *(dev.scratch((_BLOCK,), np.int32) for _ in range(2))]
        if inner == 1:
            text, sizes = _ACROSS.format(kind=kind, step=" * width"), (1, width, rows, 1)
        else:
            text, sizes = _ACROSS.format(kind=kind, step=""), (rows // inner, width, inner, inner)
        return [_call(key + text, arrays, *sizes)]


# A number plus zero is no negative zero, which is equal to zero.
_extreme("arg_max", "v + np.float32(0.0)")
_extreme("arg_min", "np.float32(0.0) - v")


def _call(text: str, arrays: list[Array], *sizes: int) -> Step:
    words = [*(array.ctypes.data for array in arrays), *sizes]
    return launch(definitions(text) + text, words, *arrays)
