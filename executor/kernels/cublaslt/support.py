"""How a kernel of cuBLASLt is registered, and the elementwise parts beside its products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ....graph.ir.graph import Node
from ....graph.ops.operands import Array
from ....graph.ops.registry import OPS
from ...device.device import Device
from ..cuda.support import floating
from ..registry import KERNELS, F, Step, bind, kernel, nonempty


def cublaslt(*op_types: str, takes: Callable[[Node], bool] | None = None) -> Callable[[F], F]:
    """Register a kernel for the floating-point nodes of ops, or those of them that ``takes`` accepts.

    It never sees arrays without elements: the array module's kernel gets those.
    """

    def accepts(node: Node) -> bool:
        return floating(node) and (takes is None or takes(node))

    def register(function: F) -> F:
        for op_type in op_types:
            kernel(op_type, on=("cublaslt",), takes=accepts, low=True)(nonempty(op_type, function))
        return function

    return register


def part(
    dev: Device,
    op: str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    attrs: Mapping[str, Any] | None = None,
) -> list[Step]:
    """Return the calls of another op on these arrays: a generated kernel's, where there is one."""
    back_end = "cuda" if (op, "cuda") in KERNELS else ""
    sources, targets = ({slot: [a] for slot, a in slots.items()} for slots in (inputs, outputs))
    return bind(op, sources, targets, {**OPS[op].attrs, **(attrs or {})}, dev, back_end)


def copied(dev: Device, source: Array, target: Array) -> list[Step]:
    """Return the calls that copy elements, rounded to the target's type, to where they lie otherwise."""
    if source.dtype == target.dtype:
        return part(dev, "assign", {"X": source}, {"Out": target})
    return [partial(dev.xp.copyto, target, source, casting="unsafe")]


def column_sums(dev: Device, rows: Array, sums: Any) -> list[Step]:
    """Return the calls for the sums of a matrix's columns."""
    attrs = {"dim": [0], "keep_dim": False, "reduce_all": False}
    return part(dev, "reduce_sum", {"X": rows}, {"Out": sums}, attrs)
