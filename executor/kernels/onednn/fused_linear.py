"""A matrix product with bias and activation in one primitive; in two if the activation's operand is wanted."""

from __future__ import annotations

from ....graph.ops.fused_linear import GEMM, FusedGemmEpilogue, FusedGemmEpilogueGrad
from ...device.device import Device
from ..array.fused_linear import below_of, input_product, matrices, slope_argument
from ..registry import Step
from .elementwise import activation as activate
from .elementwise import slope_of_rows
from .linear import FACTORS, product, rounded
from .support import onednn


def _function(activation: str, approximate: bool) -> str:
    return "gelu_tanh" if activation == "gelu" and approximate else activation


@onednn(GEMM, factors=FACTORS)
def fused_gemm_epilogue(dev: Device, a: FusedGemmEpilogue) -> list[Step]:
    a_MK, b_KN, out_MN = matrices(a, a.out)
    act = _function(a.activation, a.approximate)
    if act == "none":
        return product(dev, a_MK, b_KN, out_MN, bias=a.bias)
    if act != "relu" and a.reserve_space is None:
        return product(dev, a_MK, b_KN, out_MN, bias=a.bias, post_ops=((act, 0.0, 0.0),))
    sum_MN = out_MN if a.reserve_space is None else a.reserve_space.reshape(out_MN.shape)
    return [*product(dev, a_MK, b_KN, sum_MN, bias=a.bias), *activate(dev, act, sum_MN, out_MN)]


@onednn(f"{GEMM}_grad", factors={"X": ("DY",), "Y": ("DX",)})
def fused_gemm_epilogue_grad(dev: Device, a: FusedGemmEpilogueGrad) -> list[Step]:
    a_MK, b_KN, d_MN = matrices(a, a.d_out)
    steps: list[Step] = []
    act, point, d_activated = "none", None, d_MN
    if a.activation_grad != "none":
        act = _function(a.activation_grad.removesuffix("_grad"), a.approximate)
        point, d_MN = slope_argument(a).reshape(d_MN.shape), dev.scratch(d_MN.shape, a.d_out.dtype)
    steps += slope_of_rows(dev, act, point, d_activated, d_MN, a.d_bias)
    if a.dx is not None and a.dy is not None:
        d_MN, copies = rounded(dev, d_MN)
        steps += copies
    if a.dx is not None:
        left, right, dx_2d = input_product(a, d_MN, b_KN)
        steps += product(dev, left, right, dx_2d)
        if a.activation_below != "none":
            act = _function("gelu", approximate=True)
            steps += slope_of_rows(dev, act, below_of(a).reshape(dx_2d.shape), dx_2d, dx_2d, None)
    if a.dy is not None:
        left, right = (d_MN.T, a_MK) if a.trans_y else (a_MK.T, d_MN)
        steps += product(dev, left, right, a.dy)
    return steps
