"""How a kernel of oneDNN is registered, and which nodes it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....graph.ir.graph import Node
from ....strategies.types import VarType
from ..registry import F, kernel, nonempty


def onednn(
    *op_types: str,
    takes: Callable[[Node], bool] | None = None,
    needs: Sequence[str] = (),
    yields: bool = False,
    any_order: bool = False,
) -> Callable[[F], F]:
    """Register a kernel for the single-precision nodes of ops, or those of them that ``takes`` accepts.

    ``yields``: compiled loops, where there are any, were measured to be faster.

    It never sees arrays without elements (the library computes nothing then, not even zeros): NumPy's
    kernel gets those.
    """

    def accepts(node: Node) -> bool:
        return single(node) and (takes is None or takes(node))

    def register(function: F) -> F:
        for op_type in op_types:
            how: dict[str, Any] = {"needs": needs, "yields": yields, "any_order": any_order}
            kernel(op_type, on=("onednn",), takes=accepts, **how)(nonempty(op_type, function))
        return function

    return register


def single(node: Node) -> bool:
    """Tell whether everything that a node reads and writes is float32."""
    return all(v.spec.dtype == VarType.FP32 for v in (*node.reads(), *node.writes()))
