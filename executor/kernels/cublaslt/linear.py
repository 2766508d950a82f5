"""Matrix products and their gradients."""

from __future__ import annotations

from ....graph.ops.linear import Matmul, MatmulGrad, Mul, MulGrad
from ...device.device import Device
from ..array.linear import as_matrix, stacks
from ..registry import Step
from .product import product
from .support import cublaslt


@cublaslt("mul")
def mul(dev: Device, a: Mul) -> list[Step]:
    x_MK, y_KN = as_matrix(a.x, a.x_num_col_dims), as_matrix(a.y, a.y_num_col_dims)
    return product(dev, x_MK, y_KN, a.out.reshape(x_MK.shape[0], y_KN.shape[1]))


@cublaslt("mul_grad")
def mul_grad(dev: Device, a: MulGrad) -> list[Step]:
    x_MK, y_KN = as_matrix(a.x, a.x_num_col_dims), as_matrix(a.y, a.y_num_col_dims)
    d_MN = a.d_out.reshape(x_MK.shape[0], y_KN.shape[1])
    steps: list[Step] = []
    if a.d_x is not None:
        steps += product(dev, d_MN, y_KN.T, a.d_x.reshape(x_MK.shape))
    if a.d_y is not None:
        steps += product(dev, x_MK.T, d_MN, a.d_y.reshape(y_KN.shape))
    return steps


@cublaslt("matmul")
def matmul(dev: Device, a: Matmul) -> list[Step]:
    return product(dev, *stacks(a.x, a.y, a.out, a.transpose_X, a.transpose_Y), alpha=a.alpha)


@cublaslt("matmul_grad")
def matmul_grad(dev: Device, a: MatmulGrad) -> list[Step]:
    array, b, d_c = stacks(a.x, a.y, a.d_out, a.transpose_X, a.transpose_Y)
    steps: list[Step] = []
    if a.d_x is not None:
        d_a, _, _ = stacks(a.d_x, a.y, a.d_out, a.transpose_X, a.transpose_Y)
        steps += product(dev, d_c, b.swapaxes(-1, -2), d_a, alpha=a.alpha)
    if a.d_y is not None:
        _, d_b, _ = stacks(a.x, a.d_y, a.d_out, a.transpose_X, a.transpose_Y)
        steps += product(dev, array.swapaxes(-1, -2), d_c, d_b, alpha=a.alpha)
    return steps
