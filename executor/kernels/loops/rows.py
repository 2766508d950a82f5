"""Compiled loops over rows: softmax, softmax with cross entropy, and embeddings, forward and backward.

A row is read while it is in cache. Rows lie without gaps along the last axis; a softmax along another one
goes through memory pass by pass, and other operands are left to the array kernels. What a label or an index
must not be is noted by the loop and told afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from ....graph.ops.embedding import LookupTable, LookupTableGrad, padding_row
from ....graph.ops.formula import outside
from ....graph.ops.loss import (
    FUSED,
    Softmax,
    SoftmaxGrad,
    SoftmaxWithCrossEntropy,
    SoftmaxWithCrossEntropyGrad,
)
from ....graph.ops.operands import Array
from ....strategies.errors import InvalidValue
from ....strategies.types import VarType
from ...codegen.text_loops import bind_checked, bind_text
from ...device.device import Device
from ...host.writes import address
from ..array.formula import by_formula
from ..formulas import LLVM_MEANS
from ..registry import Step, by_arrays, kernel, of_types
from .elementwise import in_float32

# The largest of a row is found among integers that are ordered like the floats: their maximum is a vector
# operation. A nan makes the sum nan, whatever the largest is.
_EXP_ROW = """
        o = r * n
        high = ordered(load(x, o))
        for i in range(1, n):
            key = ordered(load(x, o + i))
            high = select(high < key, key, high)
        top = unordered(high)
        total = np.float32(0.0)
        for i in range(n):{part}
            e = share_(load(x, o + i) - top)
            store(y, o + i, e)
            total = plus(total, e)
"""
_DIVIDE = """
        for i in range(n):
            store(y, o + i, load(y, o + i) / total)
"""
_SOFTMAX = """
    {alias}
    for r in range(rows):
"""
_SOFTMAX_GRAD = """
    {alias}
    for r in range(rows):
        o = r * n
        total = np.float32(0.0)
        for i in range(n):
            total = plus(total, load(y, o + i) * load(d, o + i))
        for i in range(n):
            store(out, o + i, (load(d, o + i) - total) * load(y, o + i))
"""
_CROSS_ENTROPY = """
    {alias}
    for r in range(rows):
        label = labels[r]
        found = r * n + (label if 0 <= label < n else 0)
        score = x[found]
"""
_LOSS = """
        if label == ignored:
            loss[r] = np.float32(0.0)
        elif 0 <= label < n:
            loss[r] = log_(total) - (score - top)
        else:
            wrong[0], wrong[1] = 1, label
"""
_SOFT_CROSS_ENTROPY = """
    {alias}
    for r in range(rows):
        shares, part = np.float32(0.0), np.float32(0.0)
"""
_SOFT_PART = """
            share = load(labels, o + i)
            shares = plus(shares, share)
            part = plus(part, share * (load(x, o + i) - top))
"""
_SOFT_LOSS = """
        loss[r] = log_(total) * shares - part
"""
_CROSS_ENTROPY_GRAD = """
    {alias}
    for r in range(rows):
        label, slope, o = labels[r], d[r], r * n
        if label == ignored:
            for i in range(n):
                out[o + i] = np.float32(0.0) * slope
        elif 0 <= label < n:
            picked = (y[o + label] - np.float32(1.0)) * slope
            for i in range(n):
                store(out, o + i, load(y, o + i) * slope)
            out[o + label] = picked
        else:
            wrong[0], wrong[1] = 1, label
"""
_LOOKUP = """
    for r in range(count):
        row, o = ids[r], r * n
        if row < 0 or row >= rows:
            wrong[0], wrong[1] = 1, row
        elif row == padding:
            for i in range(n):
                store(out, o + i, np.float32(0.0))
        else:
            for i in range(n):
                store(out, o + i, load(table, row * n + i))
"""
_LOOKUP_GRAD = """
    for i in range(size):
        out[i] = np.float32(0.0)
    for r in range(count):
        if ids[r] != padding:
            t, o = ids[r] * n, r * n
            for i in range(n):
                store(out, t + i, load(out, t + i) + load(d, o + i))
"""


@lru_cache
def _text(text: str, alias: str, part: str = "") -> str:
    """Return a text with ``part`` done with each element before its exponential is written.

    ``alias`` is that of :func:`_alias`.
    """
    return text.format(alias=alias, part=part)


def _gapless(*arrays: Any) -> bool:
    return all(a is None or a.flags.c_contiguous for a in arrays)


def _alias(result: str, out: Array, **operands: Array) -> str:
    """Return the line that gives a result the name of the operand whose memory it takes, if it takes one's.

    Only so can the compiler tell that an element is written where it was read, and compute many at a time.
    """
    same = (name for name, operand in operands.items() if address(operand) == address(out))
    name = next(same, None)
    return "pass" if name is None else f"{result} = {name}"


def outside_error(op: str, limit: int, what: str, of: str) -> Callable[[int], InvalidValue]:
    """Return the function from a number that is not below a limit to its error."""
    return lambda number: InvalidValue(outside(op, limit, what, of).format(number))


_SCORED = of_types(VarType.FP32, Label=[VarType.FP32, VarType.INT64])  # labels may be soft


def _along_rows(axis: int, scores: Array) -> bool:
    """Tell whether an axis is the last one."""
    return axis in (-1, scores.ndim - 1)


@kernel("softmax", on=("llvm",), takes=in_float32, nonempty=True)
def softmax(dev: Device, a: Softmax) -> list[Step]:
    if not _gapless(a.x, a.out) or not _along_rows(a.axis, a.x):
        return by_formula("softmax", dev, a, LLVM_MEANS)
    n = a.x.shape[-1]
    text = _text(_SOFTMAX + _EXP_ROW + _DIVIDE, _alias("y", a.out, x=a.x))
    return [bind_text(text, {"x": a.x, "y": a.out}, rows=a.x.size // n, n=n)]


@kernel("softmax_grad", on=("llvm",), takes=in_float32)
def softmax_grad(dev: Device, a: SoftmaxGrad) -> list[Step]:
    if a.d_x is None or not a.out.size:
        return []
    if not _gapless(a.out, a.d_out, a.d_x) or not _along_rows(a.axis, a.out):
        return by_formula("softmax_grad", dev, a, LLVM_MEANS)
    n = a.out.shape[-1]
    operands = {"y": a.out, "d": a.d_out}
    text = _text(_SOFTMAX_GRAD, _alias("out", a.d_x, **operands))
    return [bind_text(text, {**operands, "out": a.d_x}, rows=a.out.size // n, n=n)]


_label_error = partial(outside_error, FUSED, what="label", of="classes")


@kernel(FUSED, on=("llvm",), takes=_SCORED, gapless=True)
def softmax_with_cross_entropy(dev: Device, a: SoftmaxWithCrossEntropy) -> list[Step]:
    """Loss = log(sum exp(x - max)) - (x - max)[label]."""
    arrays = {"x": a.logits, "y": a.softmax, "loss": a.loss, "labels": a.label}
    if any(array is None for array in arrays.values()) or not _along_rows(a.axis, a.logits):
        return by_formula(FUSED, dev, a, LLVM_MEANS)
    n = a.logits.shape[-1]
    rows = a.logits.size // n
    alias = _alias("y", a.softmax, x=a.logits)
    if a.soft_label:
        text = _SOFT_CROSS_ENTROPY + _EXP_ROW + _DIVIDE + _SOFT_LOSS
        return [bind_text(_text(text, alias, _SOFT_PART.rstrip()), arrays, rows=rows, n=n)]
    text = _text(_CROSS_ENTROPY + _EXP_ROW + _DIVIDE + _LOSS, alias)
    sizes = {"rows": rows, "n": n, "ignored": a.ignore_index}
    return bind_checked(dev, text, arrays, _label_error(n), **sizes)


@kernel(f"{FUSED}_grad", on=("llvm",), takes=_SCORED, gapless=True)
def softmax_with_cross_entropy_grad(dev: Device, a: SoftmaxWithCrossEntropyGrad) -> list[Step]:
    """(softmax - label) * d."""
    arrays = {"y": a.softmax, "d": a.d_loss, "out": a.d_logits, "labels": a.label}
    if a.d_logits is None or a.soft_label or not _along_rows(a.axis, a.softmax):
        return by_formula(f"{FUSED}_grad", dev, a, LLVM_MEANS)
    n = a.softmax.shape[-1]
    text = _text(_CROSS_ENTROPY_GRAD, _alias("out", a.d_logits, y=a.softmax))
    sizes = {"rows": a.softmax.size // n, "n": n, "ignored": a.ignore_index}
    return bind_checked(dev, text, arrays, _label_error(n), **sizes)


_lookup = of_types(VarType.FP32, Ids=[VarType.INT64])


@kernel("lookup_table", "lookup_table_v2", on=("llvm",), takes=_lookup, gapless=True)
def lookup(dev: Device, a: LookupTable) -> list[Step]:
    """Copy rows; an index that is none is refused, the padding's row is zero."""
    rows, n = a.w.shape
    arrays = {"table": a.w, "out": a.out, "ids": a.ids}
    sizes = {"count": a.ids.size, "rows": rows, "n": n, "padding": padding_row(a.padding_idx, rows)}
    error = outside_error("lookup_table", rows, "index", "rows")
    return bind_checked(dev, _LOOKUP, arrays, error, **sizes)


@kernel("lookup_table_grad", "lookup_table_v2_grad", on=("llvm",), takes=_lookup, gapless=True)
def lookup_grad(dev: Device, a: LookupTableGrad) -> list[Step]:
    """Add the rows in the order of the ids."""
    if a.d_w is None:
        return by_arrays("lookup_table_grad", dev, a)
    rows, n = a.d_w.shape
    arrays = {"d": a.d_out, "out": a.d_w, "ids": a.ids}
    sizes = {"count": a.ids.size, "n": n, "size": a.d_w.size}
    return [bind_text(_LOOKUP_GRAD, arrays, **sizes, padding=padding_row(a.padding_idx, rows))]
