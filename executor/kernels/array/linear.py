"""Matrix products. Legend: M rows of X, K the inner size, N columns of Y."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ....graph.ops.linear import Matmul, MatmulGrad, Mul, MulGrad
from ....graph.ops.operands import Array
from ...device.device import Device
from ..registry import Step, kernel

Product = Callable[[Device, Array, Array, Array, float], list[Step]]


def as_matrix(array: Array, num_col_dims: int) -> Any:
    """View an array as a matrix whose rows are its first ``num_col_dims`` dimensions."""
    before, behind = array.shape[:num_col_dims], array.shape[num_col_dims:]
    return array.reshape(math.prod(before), math.prod(behind))


def register(on: Callable[[str], Callable[[Any], Any]], product: Product) -> None:
    """Register the kernels that are made of a library's products: out = alpha * left @ right."""

    @on("mul")
    def mul(dev: Device, a: Mul) -> list[Step]:
        x_MK, y_KN = as_matrix(a.x, a.x_num_col_dims), as_matrix(a.y, a.y_num_col_dims)
        return product(dev, x_MK, y_KN, a.out.reshape(x_MK.shape[0], y_KN.shape[1]), 1.0)

    @on("mul_grad")
    def mul_grad(dev: Device, a: MulGrad) -> list[Step]:
        x_MK, y_KN = as_matrix(a.x, a.x_num_col_dims), as_matrix(a.y, a.y_num_col_dims)
        d_MN = a.d_out.reshape(x_MK.shape[0], y_KN.shape[1])
        steps: list[Step] = []
        if a.d_x is not None:
            steps += product(dev, d_MN, y_KN.T, a.d_x.reshape(x_MK.shape), 1.0)
        if a.d_y is not None:
            steps += product(dev, x_MK.T, d_MN, a.d_y.reshape(y_KN.shape), 1.0)
        return steps

    @on("matmul")
    def matmul(dev: Device, a: Matmul) -> list[Step]:
        x, y, out = stacks(a.x, a.y, a.out, a.transpose_X, a.transpose_Y)
        return product(dev, x, y, out, a.alpha)

    @on("matmul_grad")
    def matmul_grad(dev: Device, a: MatmulGrad) -> list[Step]:
        x, y, d_out = stacks(a.x, a.y, a.d_out, a.transpose_X, a.transpose_Y)
        steps: list[Step] = []
        if a.d_x is not None:
            d_x, _, _ = stacks(a.d_x, a.y, a.d_out, a.transpose_X, a.transpose_Y)
            steps += product(dev, d_out, y.swapaxes(-1, -2), d_x, a.alpha)
        if a.d_y is not None:
            _, d_y, _ = stacks(a.x, a.d_y, a.d_out, a.transpose_X, a.transpose_Y)
            steps += product(dev, x.swapaxes(-1, -2), d_out, d_y, a.alpha)
        return steps


def stacks(
    x: Array, y: Array, out: Array, transpose_x: bool, transpose_y: bool
) -> tuple[Any, Any, Any]:
    """Return X, Y and Out as stacks of matrices that broadcast, transposes applied as views."""
    if x.ndim > 2 < y.ndim and math.prod(x.shape[:-2]) == math.prod(y.shape[:-2]):
        y = y.reshape(*x.shape[:-2], *y.shape[-2:])
    a = x.reshape(1, -1) if x.ndim == 1 else x
    b = y.reshape(-1, 1) if y.ndim == 1 else y
    a = a.swapaxes(-1, -2) if transpose_x else a
    b = b.swapaxes(-1, -2) if transpose_y else b
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return a, b, out.reshape(*lead, a.shape[-2], b.shape[-1])


def _product(dev: Device, left: Array, right: Array, out: Array, alpha: float) -> list[Step]:
    """alpha * left @ right; summed over leading dimensions that ``out`` was broadcast along."""
    xp = dev.xp
    scaled = [] if alpha == 1.0 else [partial(xp.multiply, out, alpha, out)]
    lead = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    missing = len(lead) - (out.ndim - 2)
    whole = out.reshape((1,) * missing + out.shape)
    axes = tuple(i for i, n in enumerate(lead) if whole.shape[i] != n)
    if not axes:
        return [partial(xp.matmul, left, right, whole), *scaled]
    stack = dev.scratch((*lead, *out.shape[-2:]), out.dtype)
    summed = partial(xp.add.reduce, stack, axes, None, whole, True)
    return [partial(xp.matmul, left, right, stack), summed, *scaled]


register(kernel, _product)
