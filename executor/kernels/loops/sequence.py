"""Pools, softmax and copies of sequences, and their gradients: one loop each, where formulas make several.

Sums are made in the order of rows. A function returns None where it leaves the arrays to the op's formula.

Legend: N rows, S sequences, C elements of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from textwrap import indent
from typing import Any

import numpy as np

from ....graph.ops.operands import Array
from ....graph.ops.sequence import (
    SequenceExpand,
    SequenceExpandGrad,
    SequencePool,
    SequencePoolGrad,
    SequenceSoftmax,
    SequenceSoftmaxGrad,
)
from ....strategies.errors import SequenceError
from ...codegen.text_loops import bind_text, known
from ...device.device import Device
from ..registry import Step

_LOOPS = """
    wrong[0], wrong[1] = ends[S], rows
    for s in range(S if ends[S] == rows else 0):
        begin, end = ends[s], ends[s + 1]
{body}
"""

_POOL = """
for c in range(C):
    store(out, s * C + c, np.float32(0))
for r in range(begin, end):
    for c in range(C):
        store(out, s * C + c, load(out, s * C + c) + load(x, r * C + c))
{mean}
if begin == end:
    for c in range(C):
        store(out, s * C + c, pad[0])
"""

# Of rows of few elements a sum stays in a register, column by column, and is made in the same order.
_NARROW_POOL = """
for c in range(C):
    total = np.float32(0)
    for r in range(begin, end):
        total += load(x, r * C + c)
    store(out, s * C + c, total)
{mean}
if begin == end:
    for c in range(C):
        store(out, s * C + c, pad[0])
"""
_NARROW = 4

_MEAN = """
length = {length}
for c in range(C):
    store(out, s * C + c, load(out, s * C + c) / length)
"""

_POOL_GRAD = """
length = {length}
for r in range(begin, end):
    for c in range(C):
        store(d_x, r * C + c, load(d_out, s * C + c) / length)
"""

_NARROW_POOL_GRAD = """
length = {length}
for c in range(C):
    share = load(d_out, s * C + c) / length
    for r in range(begin, end):
        store(d_x, r * C + c, share)
"""

# The first nan is the largest, as in ``by_index.row_of_largest``.
_LARGEST = """
for c in range(C):
    store(out, s * C + c, load(pad, 0))
    store(index, s * C + c, np.int32(-1))
if begin < end:
    for c in range(C):
        store(out, s * C + c, load(x, begin * C + c))
        store(index, s * C + c, np.int32(begin))
for r in range(begin + 1, end):
    for c in range(C):
        v, most = load(x, r * C + c), load(out, s * C + c)
        more = (v > most) | ((v != v) & (most == most))
        store(out, s * C + c, select(more, v, most))
        row = select(more, np.int32(r), load(index, s * C + c))
        store(index, s * C + c, row)
"""

_LARGEST_GRAD = """
for r in range(begin, end):
    for c in range(C):
        store(d_x, r * C + c, np.float32(0))
if begin < end:
    for c in range(C):
        at = select(begin <= index[s * C + c] < end, np.int64(index[s * C + c]), begin) * C + c
        store(d_x, at, load(d_x, at) + load(d_out, s * C + c))
"""

_EXPAND = """
for r in range(begin, end):
    for c in range(C):
        store(out, r * C + c, load(x, s * C + c))
"""

_EXPAND_GRAD = """
for c in range(C):
    store(d_x, s * C + c, np.float32(0))
for r in range(begin, end):
    for c in range(C):
        store(d_x, s * C + c, load(d_x, s * C + c) + load(d_out, r * C + c))
"""

_SOFTMAX = """
if begin < end:
    largest = x[begin]
    for r in range(begin + 1, end):
        v = x[r]
        largest = select((v > largest) | ((v != v) & (largest == largest)), v, largest)
    for r in range(begin, end):
        store(out, r, exp_(load(x, r) - largest))
    total = np.float32(0)
    for r in range(begin, end):
        total += load(out, r)
    for r in range(begin, end):
        store(out, r, load(out, r) / total)
"""

_SOFTMAX_GRAD = """
total = np.float32(0)
for r in range(begin, end):
    total += d_out[r] * out[r]
for r in range(begin, end):
    store(d_x, r, load(out, r) * (load(d_out, r) - total))
"""

_LENGTH = "np.float32(select(begin < end, end - begin, 1))"
_LENGTHS = {"SUM": "", "AVERAGE": _LENGTH, "SQRT": f"root({_LENGTH})"}
_POOLS, _NARROW_POOLS = (
    {
        kind: body.format(mean=_MEAN.format(length=length) if length else "")
        for kind, length in _LENGTHS.items()
    }
    for body in (_POOL, _NARROW_POOL)
)
_POOL_GRADS, _NARROW_POOL_GRADS = (
    {kind: body.format(length=length or "np.float32(1)") for kind, length in _LENGTHS.items()}
    for body in (_POOL_GRAD, _NARROW_POOL_GRAD)
)


def _call(
    dev: Device,
    op: str,
    body: str,
    ends: Array,
    rows: int,
    columns: int,
    arrays: Mapping[str, Array],
    operand: str = "X",
) -> list[Step] | None:
    """Return the calls of a loop over sequences of ``arrays`` by name; None if it does not take these."""
    if ends.dtype != np.int64 or not _known(ends, *arrays.values()):
        return None
    wrong = dev.scratch((2,), np.int64)
    arrays = {"ends": ends, "wrong": wrong, **arrays}
    loop = bind_text(_source(body), arrays, rows=rows, S=ends.size - 1, C=columns)
    return [loop, partial(_refuse, op, wrong, operand)]


def _known(*arrays: Array) -> bool:
    """Tell whether loops can read and write these arrays."""
    return known(*arrays) and all(a.flags.c_contiguous for a in arrays)


@lru_cache
def _source(body: str) -> str:
    return _LOOPS.format(body=indent(body, " " * 8))


def _refuse(op: str, wrong: Array, operand: str) -> None:
    """Raise if sequences do not end where the rows do, which the loop noted."""
    end, rows = wrong.tolist()
    if end != rows:
        raise SequenceError(
            f"{op}: the sequences of {operand} end at row {end}, and it has {rows} rows"
        )


@lru_cache
def _pad(value: float) -> np.ndarray:
    """Return what stands for an empty sequence: plans share it."""
    return np.array([value], np.float32)


def _columns(rows: Array) -> int:
    return rows.size // len(rows) if rows.size else 0


def pool(dev: Device, a: SequencePool) -> list[Step] | None:
    """The sum, the mean, sum / sqrt(length) or the largest of each sequence's rows."""
    kind = str(a.pooltype).upper()
    if not a.x.size:
        return None
    pad = _pad(a.pad_value)
    columns = _columns(a.x)
    if kind == "MAX" and a.max_index is not None:
        operands = {"pad": pad, "x": a.x, "out": a.out, "index": a.max_index}
        return _call(dev, "sequence_pool", _LARGEST, a.x_lod[-1], len(a.x), columns, operands)
    if kind not in _LENGTHS:
        return None
    body = (_NARROW_POOLS if columns < _NARROW else _POOLS)[kind]
    arrays = {"x": a.x, "out": a.out, "pad": pad}
    steps = _call(dev, "sequence_pool", body, a.x_lod[-1], len(a.x), columns, arrays)
    if steps is not None and a.max_index is not None:
        steps.append(partial(a.max_index.fill, -1))
    return steps


def pool_grad(dev: Device, a: SequencePoolGrad) -> list[Step] | None:
    """The gradient of a sequence's result in each of its rows, by its length, or in the largest row."""
    kind = str(a.pooltype).upper()
    if a.d_x is None or not a.d_x.size:
        return None
    columns = _columns(a.d_x)
    if kind == "MAX" and a.max_index is not None:
        operands = {"index": a.max_index, "d_out": a.d_out, "d_x": a.d_x}
        return _call(
            dev, "sequence_pool_grad", _LARGEST_GRAD, a.x_lod[-1], len(a.x), columns, operands
        )
    if kind not in _LENGTHS:
        return None
    body = (_NARROW_POOL_GRADS if columns < _NARROW else _POOL_GRADS)[kind]
    arrays = {"d_out": a.d_out, "d_x": a.d_x}
    return _call(dev, "sequence_pool_grad", body, a.x_lod[-1], len(a.x), columns, arrays)


def softmax(dev: Device, a: SequenceSoftmax) -> list[Step] | None:
    """exp(x - the largest) over its sum in each sequence."""
    arrays = {"x": a.x, "out": a.out}
    return _call(dev, "sequence_softmax", _SOFTMAX, a.x_lod[-1], len(a.x), 1, arrays)


def softmax_grad(dev: Device, a: SequenceSoftmaxGrad) -> list[Step] | None:
    """out * (d - the sum of d * out of its sequence)."""
    if a.d_x is None:
        return None
    arrays = {"out": a.out, "d_out": a.d_out, "d_x": a.d_x}
    return _call(dev, "sequence_softmax_grad", _SOFTMAX_GRAD, a.x_lod[-1], len(a.x), 1, arrays)


def expand(dev: Device, a: SequenceExpand) -> list[Step] | None:
    """Row s of X in each row of sequence s of Y; copies of sequences are left to the formula."""
    if a.x_lod or not a.out.size:
        return None
    arrays = {"x": a.x, "out": a.out}
    ends = a.y_lod[a.ref_level]
    return _call(dev, "sequence_expand", _EXPAND, ends, len(a.out), _columns(a.out), arrays, "Y")


def expand_grad(dev: Device, a: SequenceExpandGrad) -> list[Step] | None:
    """The sum of what comes down in the rows of a sequence of Y."""
    if a.x_lod or a.d_x is None or not a.d_x.size:
        return None
    arrays = {"d_out": a.d_out, "d_x": a.d_x}
    ends = a.y_lod[a.ref_level]
    columns = _columns(a.d_x)
    return _call(
        dev, "sequence_expand_grad", _EXPAND_GRAD, ends, len(a.d_out), columns, arrays, "Y"
    )


Written = Callable[[Device, Any], Sequence[Step] | None]
WRITTEN: Mapping[str, Written] = {
    "sequence_pool": pool,
    "sequence_pool_grad": pool_grad,
    "sequence_expand": expand,
    "sequence_expand_grad": expand_grad,
    "sequence_softmax": softmax,
    "sequence_softmax_grad": softmax_grad,
}
