"""A product with bias and activation in the memory of its result. Legend: M rows, K inner size, N columns."""

from __future__ import annotations

from functools import partial
from typing import Any

from ....graph.ops.fused_activation import value_of
from ....graph.ops.fused_linear import GEMM, leading
from ...codegen.array_calls import bind_scalar
from ...device.device import Device
from ..registry import Step, kernel
from .fused_activation import sloped
from .linear import as_matrix


@kernel(GEMM)
def fused_gemm_epilogue(
    dev: Device,
    x: Any,
    y: Any,
    bias: Any,
    out: Any,
    reserve_space: Any,
    *,
    trans_x: bool,
    trans_y: bool,
    activation: str,
    approximate: bool,
    x_num_col_dims: int,
) -> list[Step]:
    x_2d = as_matrix(x, leading(x.ndim, x_num_col_dims))
    a_MK, b_KN = x_2d.T if trans_x else x_2d, y.T if trans_y else y
    out_MN = out.reshape(a_MK.shape[0], b_KN.shape[1])
    sum_MN = out_MN if reserve_space is None else reserve_space.reshape(out_MN.shape)
    steps: list[Step] = [
        partial(dev.xp.matmul, a_MK, b_KN, sum_MN),
        partial(dev.xp.add, sum_MN, bias, sum_MN),
    ]
    if activation == "none":
        return steps
    act = value_of(activation, {"approximate": approximate})
    return [*steps, *bind_scalar(lambda s: act(s), {"s": sum_MN}, {}, out_MN, dev)]


@kernel(f"{GEMM}_grad")
def fused_gemm_epilogue_grad(
    dev: Device,
    d_out: Any,
    x: Any,
    y: Any,
    out: Any,
    reserve_space: Any,
    below: Any,
    dx: Any,
    dy: Any,
    d_bias: Any,
    *,
    trans_x: bool,
    trans_y: bool,
    activation_grad: str,
    activation_below: str,
    approximate: bool,
    x_num_col_dims: int,
) -> list[Step]:
    xp = dev.xp
    x_2d = as_matrix(x, leading(x.ndim, x_num_col_dims))
    a_MK, b_KN = x_2d.T if trans_x else x_2d, y.T if trans_y else y
    d_MN = d_out.reshape(a_MK.shape[0], b_KN.shape[1])
    steps: list[Step] = []
    if activation_grad != "none":
        act = activation_grad.removesuffix("_grad")
        held = {"X": reserve_space, "Out": out}
        at = {slot: None if v is None else v.reshape(d_MN.shape) for slot, v in held.items()}
        came, d_MN = d_MN, dev.scratch(d_MN.shape, d_out.dtype)
        steps += sloped(dev, act, {"approximate": approximate}, at, came, d_MN)
    if d_bias is not None:
        steps.append(partial(xp.add.reduce, d_MN, 0, None, d_bias))
    if dx is not None:
        left, right = (b_KN, d_MN.T) if trans_x else (d_MN, b_KN.T)
        dx_2d = dx.reshape(x_2d.shape)
        steps.append(partial(xp.matmul, left, right, dx_2d))
        if activation_below != "none":
            at = {"X": below.reshape(dx_2d.shape)}
            steps += sloped(dev, "gelu", {"approximate": True}, at, dx_2d, dx_2d)
    if dy is not None:
        left, right = (d_MN.T, a_MK) if trans_y else (a_MK.T, d_MN)
        steps.append(partial(xp.matmul, left, right, dy))
    return steps
