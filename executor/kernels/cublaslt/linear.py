"""Matrix products and their gradients."""

from __future__ import annotations

from typing import Any

from ...device.device import Device
from ..array.linear import as_matrix, stacks
from ..registry import Step
from .product import product
from .support import cublaslt


@cublaslt("mul")
def mul(
    dev: Device, x: Any, y: Any, out: Any, *, x_num_col_dims: int, y_num_col_dims: int
) -> list[Step]:
    x_MK, y_KN = as_matrix(x, x_num_col_dims), as_matrix(y, y_num_col_dims)
    return product(dev, x_MK, y_KN, out.reshape(x_MK.shape[0], y_KN.shape[1]))


@cublaslt("mul_grad")
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
        steps += product(dev, d_MN, y_KN.T, d_x.reshape(x_MK.shape))
    if d_y is not None:
        steps += product(dev, x_MK.T, d_MN, d_y.reshape(y_KN.shape))
    return steps


@cublaslt("matmul")
def matmul(
    dev: Device, x: Any, y: Any, out: Any, *, transpose_X: bool, transpose_Y: bool, alpha: float
) -> list[Step]:
    return product(dev, *stacks(x, y, out, transpose_X, transpose_Y), alpha=alpha)


@cublaslt("matmul_grad")
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
        steps += product(dev, d_c, b.swapaxes(-1, -2), d_a, alpha=alpha)
    if d_y is not None:
        _, d_b, _ = stacks(x, d_y, d_out, transpose_X, transpose_Y)
        steps += product(dev, a.swapaxes(-1, -2), d_c, d_b, alpha=alpha)
    return steps
