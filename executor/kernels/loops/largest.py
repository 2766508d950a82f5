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
from ....strategies.types import INTEGERS, VarType
from ...codegen.text_loops import bind_text, named
from ...device.device import Device
from ..registry import Step, by_arrays, kernel, of_types

_FEW = 64  # more are sorted faster all at once
# nan comes behind every number, as it does in a sorted array
_BEFORE = "(v > {0}) | (({0} != {0}) & (v == v))"
_LOOP = f"""
    for row in range(rows):
        first, to = row * width, row * k
        for i in range(width):
            v, j = load(x, first + i), i
            if i >= k:
                least = load(out, to + k - 1)
                if not ({_BEFORE.format("least")}):
                    continue
                j = k - 1
            while j > 0:
                other = load(out, to + j - 1)
                if not ({_BEFORE.format("other")}):
                    break
                store(out, to + j, other)
                store(index, to + j, load(index, to + j - 1))
                j -= 1
            store(out, to + j, v)
            store(index, to + j, i)
"""


def _few(node: Node) -> bool:
    (x,), (indices,) = node.inputs["X"], node.outputs["Indices"]
    of_floats = x is not None and x.spec.dtype == VarType.FP32
    to_int64 = indices is not None and indices.spec.dtype == VarType.INT64
    return of_floats and to_int64 and 1 < node.attrs["k"] <= _FEW


@kernel("top_k", on=("llvm",), takes=_few, gapless=True)
def top_k(dev: Device, a: TopK) -> list[Step]:
    """Largest first; equal elements in the order of their index."""
    arrays = {"x": a.x, "out": a.out, "index": a.indices}
    width = a.x.shape[-1]
    return [bind_text(_LOOP, arrays, rows=a.x.size // width, width=width, k=a.k)]


_KEY = """
def key_of(v):
    return select(v == v, ordered({number}), np.int32(0x7fffffff))
"""
# Row by row: the largest, then where it is.
_ALONG = """
    for row in range(rows):
        first, most = row * width, np.int32(-0x80000000)
        for i in range(width):
            key = key_of(load(x, first + i))
            most = select(key > most, key, most)
        place = np.int32(width)
        for i in range(width):
            at = select(key_of(load(x, first + i)) == most, np.int32(i), np.int32(width))
            place = select(at < place, at, place)
        store(out, row, np.int64(place))
"""
# Rows side by side, ``step`` elements between their beginnings: each vector holds elements of many rows.
_BLOCK = 1024  # rows whose largest elements stay in cache
_ACROSS = f"""
    for o in range(outer):
        for begin in range(0, inner, {_BLOCK}):
            count = min({_BLOCK}, inner - begin)
            for j in range(count):
                store(best, j, np.int32(-0x80000000))
            for i in range(width):
                at = o * width * inner + i * apart + begin{{step}}
                for j in range(count):
                    key, most = key_of(load(x, at + j{{step}})), load(best, j)
                    before = load(place, j)
                    store(best, j, select(key > most, key, most))
                    store(place, j, select(key > most, np.int32(i), before))
            for j in range(count):
                store(out, o * inner + begin + j, np.int64(load(place, j)))
"""
_SHORT = 6  # elements of a row: of shorter rows many are gone through together
_LONG = 64  # the places in longer rows NumPy finds faster
_MANY = 8  # rows side by side: fewer NumPy moves apart


def _extreme(op_type: str, number: str) -> None:
    @kernel(op_type, on=("llvm",), takes=of_types(VarType.FP32, Out=INTEGERS), gapless=True)
    def extreme(dev: Device, a: ArgExtreme) -> list[Step]:
        """The place of the first largest (or least) element along an axis."""
        axis = a.axis % a.x.ndim
        width, inner = a.x.shape[axis], prod(a.x.shape[axis + 1 :])
        if width == 1:
            return [partial(a.out.fill, 0)]
        fits = width <= _LONG if inner == 1 else inner >= _MANY
        if not fits:
            return by_arrays(op_type, dev, a)
        key, rows = _KEY.format(number=number), a.x.size // width
        arrays = {"x": a.x, "out": a.out}
        if inner == 1 and width > _SHORT:
            return [bind_text(_ALONG, arrays, key, rows=rows, width=width)]
        arrays |= {name: dev.scratch((_BLOCK,), np.int32) for name in ("best", "place")}
        lies_close = inner == 1
        text = _ACROSS.format(step=" * width" if lies_close else "")
        sizes = (1, rows, 1) if lies_close else (rows // inner, inner, inner)
        numbers = named("outer inner apart", sizes)
        return [bind_text(text, arrays, key, width=width, **numbers)]


# A number plus zero is no negative zero, which is equal to zero.
_extreme("arg_max", "v + np.float32(0.0)")
_extreme("arg_min", "np.float32(0.0) - v")
