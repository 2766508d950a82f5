"""A matrix product with bias and activation in one call, or two where the library has no such epilogue.

Legend: M rows, K inner size, N columns.
"""

from __future__ import annotations

from typing import Any

from ....graph.ops.fused_linear import GEMM, FusedGemmEpilogue, FusedGemmEpilogueGrad
from ....graph.ops.operands import Array
from ...device.device import Device
from ..array.fused_linear import below_of, input_product, matrices, slope_argument
from ..cuda.support import part
from ..registry import Step
from .product import finished, product
from .support import column_sums, cublaslt


def linear(dev: Device, a: Array, b: Array, bias: Any, out: Array) -> list[Step]:
    """Return the calls for out = a @ b + bias, of matrices; ``bias`` may be None."""
    if bias is None:
        return product(dev, a, b, out)
    whole = finished(dev, a, b, out, "bias", bias=bias)
    if whole is not None:
        return whole
    return [*product(dev, a, b, out), *_plus(dev, out, bias)]


def _plus(dev: Device, rows: Array, bias: Any) -> list[Step]:
    return part(dev, "elementwise_add", {"X": rows, "Y": bias}, {"Out": rows}, {"axis": -1})


def epilogue(act: str, *, keeps: bool, bias: Any) -> str:
    """Return the library's name of an activation behind a product."""
    return f"{act}{'_aux' if keeps else ''}{'' if bias is None else '_bias'}"


def activated(
    dev: Device,
    a: Array,
    b: Array,
    bias: Any,
    out: Array,
    act: str,
    *,
    approximate: bool,
    before: Any = None,
) -> list[Step]:
    """Return the calls for out = act(a @ b + bias); ``before`` gets the activation's operand."""
    if act == "relu" or approximate:
        name = epilogue(act, keeps=before is not None, bias=bias)
        whole = finished(dev, a, b, out, name, bias=bias, aux=before)
        if whole is not None:
            return whole
    with dev.in_turn():
        total = dev.scratch(out.shape, out.dtype) if before is None else before
        attrs = {"approximate": approximate} if act == "gelu" else {}
        return [*linear(dev, a, b, bias, total), *part(dev, act, {"X": total}, {"Out": out}, attrs)]


def weight_gradient(
    dev: Device,
    a: Array,
    d: Any,
    d_weight: Any,
    d_bias: Any,
    *,
    transposed: bool = False,
    more: bool = False,
) -> list[Step]:
    """Return the calls for d_weight = a.T @ d (``transposed``: d.T @ a) and the sums of d's columns.

    Either may be None. With ``more`` the product is added to d_weight; d_bias is written in any case.
    """
    if d_weight is None:
        return [] if d_bias is None else column_sums(dev, d, d_bias)
    left, right = (d.T, a) if transposed else (a.T, d)
    if d_bias is not None:
        name = "bgrad_a" if transposed else "bgrad_b"
        whole = finished(dev, left, right, d_weight, name, bias=d_bias, more=more)
        if whole is not None:
            return whole
    sums = [] if d_bias is None else column_sums(dev, d, d_bias)
    return [*product(dev, left, right, d_weight, more=more), *sums]


@cublaslt(GEMM)
def fused_gemm_epilogue(dev: Device, a: FusedGemmEpilogue) -> list[Step]:
    a_MK, b_KN, out_MN = matrices(a, a.out)
    if a.activation == "none":
        return linear(dev, a_MK, b_KN, a.bias, out_MN)
    before = None if a.reserve_space is None else a.reserve_space.reshape(out_MN.shape)
    return activated(
        dev, a_MK, b_KN, a.bias, out_MN, a.activation, approximate=a.approximate, before=before
    )


@cublaslt(f"{GEMM}_grad")
def fused_gemm_epilogue_grad(dev: Device, a: FusedGemmEpilogueGrad) -> list[Step]:
    a_MK, b_KN, d_MN = matrices(a, a.d_out)
    steps: list[Step] = []
    if a.activation_grad != "none":
        d_activated, d_MN = d_MN, dev.scratch(d_MN.shape, a.d_out.dtype)
        steps += _slope(dev, a, d_activated, d_MN)
    if a.dx is not None:
        left, right, dx_2d = input_product(a, d_MN, b_KN)
        if a.activation_below == "none":
            steps += product(dev, left, right, dx_2d)
        else:
            steps += _through_gelu(dev, left, right, below_of(a).reshape(dx_2d.shape), dx_2d)
    return [*steps, *weight_gradient(dev, a_MK, d_MN, a.dy, a.d_bias, transposed=a.trans_y)]


def _through_gelu(dev: Device, a: Array, b: Array, before: Any, target: Any) -> list[Step]:
    """Return the calls for a product that is taken through gelu's tanh form, applied to ``before``."""
    whole = finished(dev, a, b, target, "dgelu", aux=before)
    if whole is not None:
        return whole
    operands = {"X": before, "Out@GRAD": target}
    through = part(dev, "gelu_grad", operands, {"X@GRAD": target}, {"approximate": True})
    return [*product(dev, a, b, target), *through]


def _slope(dev: Device, a: FusedGemmEpilogueGrad, d_activated: Array, target: Array) -> list[Step]:
    """Take a gradient through the activation; relu's slope is a function of Out, gelu's of its operand."""
    relu = a.activation_grad == "relu_grad"
    operands = {
        "Out" if relu else "X": slope_argument(a).reshape(d_activated.shape),
        "Out@GRAD": d_activated,
    }
    attrs = {} if relu else {"approximate": a.approximate}
    return part(dev, a.activation_grad, operands, {"X@GRAD": target}, attrs)
