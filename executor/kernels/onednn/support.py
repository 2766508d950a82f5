"""How a kernel of oneDNN is registered, and which nodes it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....graph.ir.graph import Node
from ....strategies.types import VarType
from ..registry import F, kernel, of_types


def onednn(
    *op_types: str,
    name: str = "onednn",
    takes: Callable[[Node], bool] | None = None,
    **how: Any,
) -> Callable[[F], F]:
    """Register a kernel for the single-precision nodes of ops, or those of them that ``takes`` accepts.

    ``name``: of the library, or of another of its kernels for these ops (``back_ends.py`` ``VARIANTS``);
    ``how``: more of what :func:`kernel` takes.

    It never sees arrays without elements: the library computes nothing then, not even zeros.
    """

    def accepts(node: Node) -> bool:
        return single(node) and (takes is None or takes(node))

    return kernel(*op_types, on=(name,), takes=accepts, nonempty=True, **how)


single = of_types(VarType.FP32)
