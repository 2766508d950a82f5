"""Matrix products. Transposes are strides; leading dimensions become rows where memory allows."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np

from ....graph.ops.linear import Matmul, MatmulGrad, Mul, MulGrad
from ....graph.ops.operands import Array
from ...device.device import Device
from ..array.linear import as_matrix, stacks
from ..registry import Step
from .primitive import (
    BIAS,
    CACHED,
    DST,
    SRC,
    WEIGHTS,
    Layout,
    PostOp,
    Primitive,
    attributes,
    layout_of,
)
from .support import onednn


@lru_cache(CACHED)
def _matmul(
    a: Layout, b: Layout, bias: Layout | None, c: Layout, post_ops: tuple[PostOp, ...]
) -> Primitive:
    what = f"matmul of {a} with {b} to {c}"
    return Primitive("matmul", a, b, bias, c, attributes(post_ops), what=what)


def _factor(dev: Device, array: Array) -> Layout:
    """Return the layout of an operand: if its elements are rounded, they can as well be packed."""
    exact = dev.math == "float32"
    return layout_of(array) if exact else Layout(array.shape, dtype=dev.math)


def product(
    dev: Device,
    a: Array,
    b: Array,
    c: Array,
    *,
    bias: Any = None,
    post_ops: tuple[PostOp, ...] = (),
) -> list[Step]:
    """c = a @ b, for stacks of matrices; summed over leading dimensions that ``c`` has not, or of size 1.

    A ``bias`` row and ``post_ops`` are for matrices whose rows lie side by side in ``c``.
    """
    a, b, c = _flat(a, b, c)
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rank = len(lead) + 2
    whole = c.reshape((1,) * (rank - c.ndim) + c.shape)
    axes = tuple(i for i, n in enumerate(lead) if whole.shape[i] != n)
    if axes:
        stack = dev.scratch((*lead, *c.shape[-2:]), c.dtype)
        summed = partial(np.add.reduce, stack, axes, None, whole, True)
        return [*product(dev, a, b, stack, post_ops=post_ops), summed]
    c = whole
    if c.shape[-1] > 1 and c.strides[-1] != c.itemsize:  # rows of the result must lie side by side
        a, b, c = b.swapaxes(-1, -2), a.swapaxes(-1, -2), c.swapaxes(-1, -2)
    a, b = (m.reshape((1,) * (rank - m.ndim) + m.shape) for m in (a, b))
    row = None if bias is None else bias.reshape((1,) * (rank - 1) + (-1,))
    reads = {SRC: a, WEIGHTS: b} if row is None else {SRC: a, WEIGHTS: b, BIAS: row}
    ends = _factor(dev, a), _factor(dev, b), None if row is None else layout_of(row), layout_of(c)
    return _matmul(*ends, post_ops).bind(dev, reads, {DST: c})


def _scaled(alpha: float) -> tuple[PostOp, ...]:
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


@onednn("mul")
def mul(dev: Device, a: Mul) -> list[Step]:
    x_MK, y_KN = as_matrix(a.x, a.x_num_col_dims), as_matrix(a.y, a.y_num_col_dims)
    return product(dev, x_MK, y_KN, a.out.reshape(x_MK.shape[0], y_KN.shape[1]))


@onednn("mul_grad")
def mul_grad(dev: Device, a: MulGrad) -> list[Step]:
    x_MK, y_KN = as_matrix(a.x, a.x_num_col_dims), as_matrix(a.y, a.y_num_col_dims)
    d_MN = a.d_out.reshape(x_MK.shape[0], y_KN.shape[1])
    steps: list[Step] = []
    if a.d_x is not None:
        steps += product(dev, d_MN, y_KN.T, a.d_x.reshape(x_MK.shape))
    if a.d_y is not None:
        steps += product(dev, x_MK.T, d_MN, a.d_y.reshape(y_KN.shape))
    return steps


@onednn("matmul")
def matmul(dev: Device, a: Matmul) -> list[Step]:
    return product(
        dev, *stacks(a.x, a.y, a.out, a.transpose_X, a.transpose_Y), post_ops=_scaled(a.alpha)
    )


@onednn("matmul_grad")
def matmul_grad(dev: Device, a: MatmulGrad) -> list[Step]:
    array, b, d_c = stacks(a.x, a.y, a.d_out, a.transpose_X, a.transpose_Y)
    steps: list[Step] = []
    if a.d_x is not None:
        d_a, _, _ = stacks(a.d_x, a.y, a.d_out, a.transpose_X, a.transpose_Y)
        steps += product(dev, d_c, b.swapaxes(-1, -2), d_a, post_ops=_scaled(a.alpha))
    if a.d_y is not None:
        _, d_b, _ = stacks(a.x, a.d_y, a.d_out, a.transpose_X, a.transpose_Y)
        steps += product(dev, array.swapaxes(-1, -2), d_c, d_b, post_ops=_scaled(a.alpha))
    return steps
