"""A matrix product with bias and activation in one primitive, or two where what stands between is wanted."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....graph.ops.fused_linear import GEMM, leading
from ...device.device import Device
from ..array.linear import as_matrix
from ..registry import Step
from .elementwise import activation as activate
from .elementwise import slope_at_operand, slope_at_result
from .linear import product
from .support import onednn


def _function(activation: str, approximate: bool) -> str:
    return "gelu_tanh" if activation == "gelu" and approximate else activation


@onednn(GEMM)
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
    act = _function(activation, approximate)
    if act == "none":
        return product(dev, a_MK, b_KN, out_MN, bias=bias)
    if act != "relu" and reserve_space is None:
        return product(dev, a_MK, b_KN, out_MN, bias=bias, post_ops=((act, 0.0, 0.0),))
    sum_MN = out_MN if reserve_space is None else reserve_space.reshape(out_MN.shape)
    return [
        *product(dev, a_MK, b_KN, sum_MN, bias=bias),
        *activate(dev, act, sum_MN, out_MN),
    ]


@onednn(f"{GEMM}_grad")
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
    x_2d = as_matrix(x, leading(x.ndim, x_num_col_dims))
    a_MK, b_KN = x_2d.T if trans_x else x_2d, y.T if trans_y else y
    d_MN = d_out.reshape(a_MK.shape[0], b_KN.shape[1])
    steps: list[Step] = []
    if activation_grad != "none":
        act = _function(activation_grad.removesuffix("_grad"), approximate)
        came, d_MN = d_MN, dev.scratch(d_MN.shape, d_out.dtype)
        if act == "relu":
            steps += slope_at_result(dev, act, out.reshape(d_MN.shape), came, d_MN)
        else:
            steps += slope_at_operand(dev, act, reserve_space.reshape(d_MN.shape), came, d_MN)
    if d_bias is not None:
        steps.append(partial(np.add.reduce, d_MN, 0, None, d_bias))
    if dx is not None:
        left, right = (b_KN, d_MN.T) if trans_x else (d_MN, b_KN.T)
        dx_2d = dx.reshape(x_2d.shape)
        steps += product(dev, left, right, dx_2d)
        if activation_below != "none":
            act = _function("gelu", approximate=True)
            steps += slope_at_operand(dev, act, below.reshape(dx_2d.shape), dx_2d, dx_2d)
    if dy is not None:
        left, right = (d_MN.T, a_MK) if trans_y else (a_MK.T, d_MN)
        steps += product(dev, left, right, dy)
    return steps
