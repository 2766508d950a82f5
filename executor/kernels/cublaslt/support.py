"""How a kernel of cuBLASLt is registered; copies and sums beside its products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....graph.ir.graph import Node
from ....graph.ops.operands import Array
from ...device.device import Device
from ..cuda.support import floating, part
from ..registry import F, Step, kernel


def cublaslt(*op_types: str, takes: Callable[[Node], bool] | None = None) -> Callable[[F], F]:
    """Register a kernel for the floating-point nodes of ops, or those of them that ``takes`` accepts.

    It never sees arrays without elements: the array module's kernel gets those.
    """

    def accepts(node: Node) -> bool:
        return floating(node) and (takes is None or takes(node))

    return kernel(*op_types, on=("cublaslt",), takes=accepts, low=True, nonempty=True)


def copied(dev: Device, source: Array, target: Array) -> list[Step]:
    """Return the calls that copy elements, rounded to the target's type, to where they lie otherwise."""
    return part(dev, "assign", {"X": source}, {"Out": target})


def column_sums(dev: Device, rows: Array, sums: Any) -> list[Step]:
    """Return the calls for the sums of a matrix's columns."""
    attrs = {"dim": [0], "keep_dim": False, "reduce_all": False}
    return part(dev, "reduce_sum", {"X": rows}, {"Out": sums}, attrs)
