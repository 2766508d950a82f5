"""How a kernel of oneDNN is registered, and which nodes it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType

from ....graph.ir.capabilities import IN_ORDER, Factors, Layout
from ....graph.ir.graph import Node
from ....strategies.types import VarType
from ..registry import F, kernel, nonempty


def onednn(
    *op_types: str,
    name: str = "onednn",
    takes: Callable[[Node], bool] | None = None,
    needs: Sequence[str] = (),
    prefer_loops: bool = False,
    any_order: bool = False,
    layout: Layout = IN_ORDER,
    factors: Factors = MappingProxyType({}),
    low: bool = False,
) -> Callable[[F], F]:
    """Register a kernel for the single-precision nodes of ops, or those of them that ``takes`` accepts.

    ``name``: of the library, or of another of its kernels for these ops (``back_ends.py`` ``VARIANTS``);
    ``prefer_loops``: compiled loops, where there are any, were measured to be faster.

    It never sees arrays without elements (the library computes nothing then, not even zeros): NumPy's
    kernel gets those.
    """

    def accepts(node: Node) -> bool:
        return single(node) and (takes is None or takes(node))

    def register(function: F) -> F:
        for op_type in op_types:
            kernel(
                op_type,
                on=(name,),
                takes=accepts,
                needs=needs,
                prefer_loops=prefer_loops,
                any_order=any_order,
                layout=layout,
                factors=factors,
                low=low,
            )(nonempty(op_type, function))
        return function

    return register


def single(node: Node) -> bool:
    """Tell whether everything that a node reads and writes is float32."""
    return all(v.spec.dtype == VarType.FP32 for v in (*node.reads(), *node.writes()))
