"""Lowerings of ops that other passes fused: the parts, one after the other, which XLA fuses its own way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ....graph.ir.graph import Node
from ....graph.ops.expr import argument
from ....graph.ops.fused_activation import (
    slope_of,
    slope_reads,
    value_of,
)
from ....graph.ops.fused_linear import GEMM, leading
from ....graph.ops.fusion import FUSION
from ....graph.ops.region import infer_body
from ....graph.ops.registry import OPS, Spec
from ....strategies.types import to_var_type
from . import updates as _updates  # noqa: F401 - single updates must be known first
from .later import jnp
from .lowering import DIFFERENTIATED, LOWERINGS, Operands, evaluate, lower_body, lowering

Made = Mapping[str, Any]
Settings = Mapping[str, Any]


def _activated(act: str, settings: Settings, x: Any) -> Any:
    return evaluate(value_of(act, settings)(argument("x")), {"x": x})


def _sloped(act: str, settings: Settings, sides: Mapping[str, Any], d: Any) -> Any:
    """Take a gradient through an activation; ``sides`` are its X and its Out."""
    slope, reads = slope_of(act, settings), slope_reads(act)
    if not reads:
        return evaluate(slope(argument("d")), {"d": d})
    return evaluate(slope(argument("at"), argument("d")), {"at": sides[reads], "d": d})


def _matrices(x: Operands) -> tuple[Any, Any]:
    """Return X and Y as the matrices that are multiplied: M rows, K inner, N columns."""
    a, b = x["X"], x["Y"]
    rows = leading(a.ndim, x.attr("x_num_col_dims"))
    b_KN = b.T if x.attr("trans_y") else b
    height, width = math.prod(a.shape[:rows]), math.prod(a.shape[rows:])
    return (a.T if x.attr("trans_x") else a.reshape(height, width)), b_KN


@lowering(GEMM)
def fused_gemm_epilogue(x: Operands) -> Made:
    """A product, a bias row and an activation."""
    a_MK, b_KN = _matrices(x)
    before, act = a_MK @ b_KN + x["Bias"], x.attr("activation")
    out = before if act == "none" else _activated(act, _gelu(x, act), before)
    return {"Out": out, "ReserveSpace": before}


def _gelu(x: Operands, act: str) -> Settings:
    return {"approximate": x.attr("approximate")} if act == "gelu" else {}


@lowering(f"{GEMM}_grad")
def fused_gemm_epilogue_grad(x: Operands) -> Made:
    """Through the activation first; then two products and a sum of rows."""
    act, d = x.attr("activation_grad").removesuffix("_grad"), x["DOut"]
    if act != "none":
        d = _sloped(act, _gelu(x, act), {"X": x["ReserveSpace"], "Out": x["Out"]}, d)
    a_MK, b_KN = _matrices(x)
    d_MN = d.reshape(a_MK.shape[0], b_KN.shape[1])
    d_a, d_b = d_MN @ b_KN.T, a_MK.T @ d_MN
    if x.attr("activation_below") != "none":
        d_a = _sloped("gelu", {"approximate": True}, {"X": x["Below"].reshape(d_a.shape)}, d_a)
    return {
        "DX": d_a.T if x.attr("trans_x") else d_a,
        "DY": d_b.T if x.attr("trans_y") else d_b,
        "DBias": jnp.sum(d_MN, 0),
    }


def _all_lowered(node: Node) -> bool:
    """Tell whether the group's ops have lowerings; they are elementwise, of one type of numbers."""
    ops = {inner["op"] for inner in node.attrs["body"]}
    return all(op in LOWERINGS or op in DIFFERENTIATED or OPS[op].scalar for op in ops)


@lowering(FUSION, takes=_all_lowered)
def fusion_group(x: Operands) -> Made:
    """The ops of a group."""
    values = dict(enumerate(x.many("X")))
    specs = [Spec(array.shape, to_var_type(array.dtype)) for array in values.values()]
    lower_body(x.attr("body"), values, infer_body(x.attr("body"), specs), x.checks)
    return {"Out": [values[i] for i in x.attr("results")]}
