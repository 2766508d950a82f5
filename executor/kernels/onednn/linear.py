"""Matrix products. Transposes are strides; leading dimensions become rows where memory allows."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ....graph.ir.capabilities import Factors
from ....graph.ops.operands import Array
from ....strategies.types import BFLOAT16
from ...device.device import Device
from ...host.foreign import ForeignCall, count_of, place_of
from ..array.linear import register
from ..registry import Step
from . import primitive as dnnl
from .support import onednn

_NARROW = 96  # columns: of fewer, a primitive for any size was measured to be up to 12 % slower


@dnnl.shared
def matmul_of(
    a: dnnl.Layout,
    b: dnnl.Layout,
    bias: dnnl.Layout | None,
    c: dnnl.Layout,
    post_ops: tuple[dnnl.PostOp, ...],
) -> dnnl.Primitive:
    return dnnl.Primitive("matmul", a, b, bias, c, post_ops=post_ops)


def _factor(dev: Device, array: Array) -> dnnl.Layout:
    """Return the layout of an operand. What is rounded keeps its order: copies into another cost more."""
    exact = dev.math == "float32" or array.dtype == BFLOAT16
    return dnnl.layout_of(array) if exact else dnnl.dense(array, dev.math)


def product(
    dev: Device,
    a: Array,
    b: Array,
    c: Array,
    *,
    bias: Any = None,
    post_ops: tuple[dnnl.PostOp, ...] = (),
) -> list[Step]:
    """c = a @ b, for stacks of matrices; summed over leading dimensions that ``c`` has not, or of size 1.

    A ``bias`` row and ``post_ops`` are for matrices whose rows lie side by side in ``c``. Where rows are
    uneven, matrices of any size are multiplied by one call: compiling a primitive for each takes longer than a
    step.
    """
    if not a.ndim == b.ndim == c.ndim == 2:
        a, b, c = _flat(a, b, c)
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        left, right, out = (m.reshape((1,) * (len(lead) + 2 - m.ndim) + m.shape) for m in (a, b, c))
        axes = tuple(i for i, n in enumerate(lead) if out.shape[i] != n)
        if axes:
            stack = dev.scratch((*lead, *c.shape[-2:]), c.dtype)
            summed = partial(np.add.reduce, stack, axes, None, out, True)
            return [*product(dev, a, b, stack, post_ops=post_ops), summed]
        a, b, c = left, right, out
    if c.shape[-1] > 1 and c.strides[-1] != c.itemsize:  # rows of the result must lie side by side
        a, b, c = b.swapaxes(-1, -2), a.swapaxes(-1, -2), c.swapaxes(-1, -2)
    any_size = dev.uneven and dev.math == "float32"
    if any_size and c.ndim == 2 and bias is None:
        call = _gemm(a, b, c, post_ops)
        if call is not None:
            return [call]
    reads = {"src": a, "weights": b}
    if bias is not None:
        reads["bias"] = bias.reshape((1,) * (c.ndim - 1) + (-1,))
    if any_size and c.shape[-1] >= _NARROW:
        return [_product_of_any_size(dev, reads, c, post_ops)]
    row = None if bias is None else dnnl.layout_of(reads["bias"])
    primitive = matmul_of(_factor(dev, a), _factor(dev, b), row, dnnl.layout_of(c), post_ops)
    return primitive.bind(dev, reads, {"dst": c})


def _product_of_any_size(
    dev: Device, reads: Mapping[str, Array], c: Array, post_ops: tuple[dnnl.PostOp, ...]
) -> Step:
    """Return the call of a primitive that is told sizes and strides with the memory."""
    used = {role: (dnnl.layout_of(m), m) for role, m in (*reads.items(), ("dst", c))}
    a, b, result = (used[role][0].of_any_size for role in ("src", "weights", "dst"))
    row = used["bias"][0].of_any_length if "bias" in used else None
    primitive = matmul_of(a, b, row, result, post_ops)
    return primitive.call(dev, {role: (at.handle, m) for role, (at, m) in used.items()})


def rounded(dev: Device, factor: Array) -> tuple[Array, list[Step]]:
    """Return what several products multiply, in scratch if they round it, and the calls that this takes."""
    if dev.math == "float32":
        return factor, []
    copy = dev.scratch(factor.shape, BFLOAT16)
    return copy, dnnl.reordered(dev, factor, copy)


def _gemm(a: Array, b: Array, c: Array, post_ops: tuple[dnnl.PostOp, ...]) -> Step | None:
    """Return c = alpha * a @ b, or c += a @ b, as one call; None if it is another function of these matrices.

    There is nothing to compile, and no object of the library: the call takes sizes, strides and addresses.
    """
    factors = _FACTORS_OF_SUMS.get(post_ops)
    if len(post_ops) == 1 and post_ops[0][0] == "linear" and not post_ops[0][2]:
        factors = ctypes.c_float(post_ops[0][1]), _ZERO
    left, right, result = _operand(a), _operand(b), _operand(c)
    if factors is None or left is None or right is None or result is None or not a.size:
        return None
    (a_order, *left_at), (b_order, *right_at), (order, *at) = left, right, result
    if order is _BY_COLUMN:
        return None
    rows, columns, between = count_of(c.shape[0]), count_of(c.shape[1]), count_of(a.shape[1])
    alpha, beta = factors
    step = ForeignCall(
        dnnl.loaded().gemm, a_order, b_order, rows, columns, between,
        alpha, *left_at, *right_at, beta, *at,
    )  # fmt: skip
    step.alive = a, b, c
    return step


_BY_ROW, _BY_COLUMN = ctypes.c_char(b"N"), ctypes.c_char(b"T")
_ZERO, _ONE = ctypes.c_float(0.0), ctypes.c_float(1.0)
_FACTORS_OF_SUMS = {(): (_ONE, _ZERO), (dnnl.SUM,): (_ONE, _ONE)}


def _operand(matrix: Array) -> tuple[Any, Any, Any] | None:
    """Return how a matrix lies, its address, and how many elements lie from line to line."""
    (rows, columns), size, (far, near) = matrix.shape, matrix.itemsize, matrix.strides
    far, near = far // size, near // size
    if (near == 1 or columns == 1) and (far >= columns or rows == 1):
        order, step = _BY_ROW, max(far, columns)
    elif (far == 1 or rows == 1) and (near >= rows or columns == 1):
        order, step = _BY_COLUMN, max(near, rows)
    else:
        return None
    return order, place_of(matrix), count_of(step)


def _scaled(alpha: float) -> tuple[dnnl.PostOp, ...]:
    return () if alpha == 1.0 else (("linear", alpha, 0.0),)


def _flat(a: Array, b: Array, c: Array) -> tuple[Any, Any, Any]:
    """Make one product of a stack of them, if one operand is the same matrix in all, or the result is a sum."""
    if b.ndim == 2 < a.ndim == c.ndim and a.flags.c_contiguous and c.flags.c_contiguous:
        return a.reshape(-1, a.shape[-1]), b, c.reshape(-1, c.shape[-1])
    columns = a.swapaxes(-1, -2)
    alike = a.shape[:-2] == b.shape[:-2]
    if c.ndim == 2 < a.ndim and alike and columns.flags.c_contiguous and b.flags.c_contiguous:
        return columns.reshape(-1, columns.shape[-1]).T, b.reshape(-1, b.shape[-1]), c
    return a, b, c


def _scaled_product(dev: Device, left: Array, right: Array, out: Array, alpha: float) -> list[Step]:
    return product(dev, left, right, out, post_ops=_scaled(alpha))


FACTORS: Factors = {"X": ("Out",), "Y": ("Out",)}
_FACTORS_OF_GRADS: Factors = {
    "X": ("Y@GRAD",),
    "Y": ("X@GRAD",),
    "Out@GRAD": ("X@GRAD", "Y@GRAD"),
}


def _kernel(op_type: str) -> Any:
    """Return the decorator of a product's kernel, or of its gradient's."""
    of_grads = op_type.endswith("_grad")
    return onednn(op_type, factors=_FACTORS_OF_GRADS if of_grads else FACTORS)


register(_kernel, _scaled_product)
