"""A product with bias and activation in the memory of its result. Legend: M rows, K inner size, N columns."""

from __future__ import annotations

from functools import partial
from typing import Any

from ....graph.ops.fused_activation import slope_reads, value_of
from ....graph.ops.fused_linear import GEMM, FusedGemmEpilogue, FusedGemmEpilogueGrad, leading
from ....graph.ops.operands import Array
from ...codegen.array_calls import bind_scalar
from ...device.device import Device
from ..registry import Step, kernel
from .activation import sloped
from .linear import as_matrix


def matrices(a: FusedGemmEpilogue | FusedGemmEpilogueGrad, result: Array) -> tuple[Any, Any, Any]:
    """Return both factors as they are multiplied, [M, K] and [K, N], and a result or its gradient as [M, N]."""
    x_2d = as_matrix(a.x, leading(a.x.ndim, a.x_num_col_dims))
    a_MK, b_KN = x_2d.T if a.trans_x else x_2d, a.y.T if a.trans_y else a.y
    return a_MK, b_KN, result.reshape(a_MK.shape[0], b_KN.shape[1])


def input_product(a: FusedGemmEpilogueGrad, d_MN: Any, b_KN: Any) -> tuple[Any, Any, Any]:
    """Return two factors and their product, which is the gradient of X."""
    assert a.dx is not None
    left, right = (b_KN, d_MN.T) if a.trans_x else (d_MN, b_KN.T)
    return left, right, a.dx.reshape(left.shape[0], right.shape[1])


@kernel(GEMM)
def fused_gemm_epilogue(dev: Device, a: FusedGemmEpilogue) -> list[Step]:
    a_MK, b_KN, out_MN = matrices(a, a.out)
    sum_MN = out_MN if a.reserve_space is None else a.reserve_space.reshape(out_MN.shape)
    steps: list[Step] = [
        partial(dev.xp.matmul, a_MK, b_KN, sum_MN),
        partial(dev.xp.add, sum_MN, a.bias, sum_MN),
    ]
    if a.activation == "none":
        return steps
    act = value_of(a.activation, {"approximate": a.approximate})
    return [*steps, *bind_scalar(lambda s: act(s), {"s": sum_MN}, {}, out_MN, dev)]


def slope_argument(a: FusedGemmEpilogueGrad) -> Array:
    """Return the argument of the activation's slope: Out of relu, ReserveSpace of gelu."""
    argument = a.out if a.activation_grad == "relu_grad" else a.reserve_space
    assert argument is not None, "the activation's result or operand was not kept"
    return argument


def below_of(a: FusedGemmEpilogueGrad) -> Array:
    """Return the operand of the activation below."""
    assert a.below is not None, "activation_below needs Below"
    return a.below


@kernel(f"{GEMM}_grad")
def fused_gemm_epilogue_grad(dev: Device, a: FusedGemmEpilogueGrad) -> list[Step]:
    xp = dev.xp
    a_MK, b_KN, d_MN = matrices(a, a.d_out)
    steps: list[Step] = []
    if a.activation_grad != "none":
        act = a.activation_grad.removesuffix("_grad")
        at = {slope_reads(act): slope_argument(a).reshape(d_MN.shape)}
        d_activated, d_MN = d_MN, dev.scratch(d_MN.shape, a.d_out.dtype)
        steps += sloped(dev, act, {"approximate": a.approximate}, at, d_activated, d_MN)
    if a.d_bias is not None:
        steps.append(partial(xp.add.reduce, d_MN, 0, None, a.d_bias))
    if a.dx is not None:
        left, right, dx_2d = input_product(a, d_MN, b_KN)
        steps.append(partial(xp.matmul, left, right, dx_2d))
        if a.activation_below != "none":
            at = {"X": below_of(a).reshape(dx_2d.shape)}
            steps += sloped(dev, "gelu", {"approximate": True}, at, dx_2d, dx_2d)
    if a.dy is not None:
        left, right = (d_MN.T, a_MK) if a.trans_y else (a_MK.T, d_MN)
        steps.append(partial(xp.matmul, left, right, a.dy))
    return steps
