"""Matrix products. Legend: M rows of X, K the inner size, N columns of Y."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ...device.device import Device
from ..registry import Step, kernel


def as_matrix(array: Any, num_col_dims: int) -> Any:
    """View an array as a matrix whose rows are its first ``num_col_dims`` dimensions."""
    before, behind = array.shape[:num_col_dims], array.shape[num_col_dims:]
    return array.reshape(math.prod(before), math.prod(behind))


@kernel("mul")
def mul(dev: Device, x: Any, y: Any, out: Any, *, x_num_col_dims: int, y_num_col_dims: int) -> Step:
    x_MK, y_KN = as_matrix(x, x_num_col_dims), as_matrix(y, y_num_col_dims)
    return partial(dev.xp.matmul, x_MK, y_KN, out.reshape(x_MK.shape[0], y_KN.shape[1]))


@kernel("mul_grad")
def mul_grad(
    dev: Device,
    x: Any,
    y: Any,
    d_out: Any,
    d_x: Any,
    d_y: Any,
    *,
    x_num_col_dims: int,
    y_num_col_dims: int,
) -> list[Step]:
    x_MK, y_KN = as_matrix(x, x_num_col_dims), as_matrix(y, y_num_col_dims)
    d_MN = d_out.reshape(x_MK.shape[0], y_KN.shape[1])
    steps: list[Step] = []
    if d_x is not None:
        steps.append(partial(dev.xp.matmul, d_MN, y_KN.T, d_x.reshape(x_MK.shape)))
    if d_y is not None:
        steps.append(partial(dev.xp.matmul, x_MK.T, d_MN, d_y.reshape(y_KN.shape)))
    return steps


def stacks(x: Any, y: Any, out: Any, transpose_x: bool, transpose_y: bool) -> tuple[Any, Any, Any]:
    """Return X, Y and Out as stacks of matrices that broadcast, transposes applied as views."""
    if x.ndim > 2 < y.ndim and math.prod(x.shape[:-2]) == math.prod(y.shape[:-2]):
        y = y.reshape(*x.shape[:-2], *y.shape[-2:])
    a = x.reshape(1, -1) if x.ndim == 1 else x
    b = y.reshape(-1, 1) if y.ndim == 1 else y
    a = a.swapaxes(-1, -2) if transpose_x else a
    b = b.swapaxes(-1, -2) if transpose_y else b
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return a, b, out.reshape(*lead, a.shape[-2], b.shape[-1])


def _scaled(dev: Device, out: Any, alpha: float) -> list[Step]:
    return [] if alpha == 1.0 else [partial(dev.xp.multiply, out, alpha, out)]


@kernel("matmul")
def matmul(
    dev: Device, x: Any, y: Any, out: Any, *, transpose_X: bool, transpose_Y: bool, alpha: float
) -> list[Step]:
    a, b, c = stacks(x, y, out, transpose_X, transpose_Y)
    return [partial(dev.xp.matmul, a, b, c), *_scaled(dev, out, alpha)]


@kernel("matmul_grad")
def matmul_grad(
    dev: Device,
    x: Any,
    y: Any,
    d_out: Any,
    d_x: Any,
    d_y: Any,
    *,
    transpose_X: bool,
    transpose_Y: bool,
    alpha: float,
) -> list[Step]:
    a, b, d_c = stacks(x, y, d_out, transpose_X, transpose_Y)
    steps: list[Step] = []
    if d_x is not None:
        d_a, _, _ = stacks(d_x, y, d_out, transpose_X, transpose_Y)
        steps += [*_product(dev, d_c, b.swapaxes(-1, -2), d_a), *_scaled(dev, d_x, alpha)]
    if d_y is not None:
        _, d_b, _ = stacks(x, d_y, d_out, transpose_X, transpose_Y)
        steps += [*_product(dev, a.swapaxes(-1, -2), d_c, d_b), *_scaled(dev, d_y, alpha)]
    return steps


def _product(dev: Device, left: Any, right: Any, out: Any) -> list[Step]:
    """left @ right into ``out``; summed over leading dimensions that ``out`` was broadcast along."""
    lead = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    missing = len(lead) - (out.ndim - 2)
    whole = out.reshape((1,) * missing + out.shape)
    axes = tuple(i for i, n in enumerate(lead) if whole.shape[i] != n)
    if not axes:
        return [partial(dev.xp.matmul, left, right, whole)]
    stack = dev.scratch((*lead, *out.shape[-2:]), out.dtype)
    return [
        partial(dev.xp.matmul, left, right, stack),
        partial(dev.xp.add.reduce, stack, axes, None, whole, True),
    ]
