"""Which kernel computes each node, from what all replicas report they can do."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..strategies.errors import Unsupported
from .ir import Graph, Node

Capabilities = Mapping[str, Collection[str]]  # back end -> op types it has a kernel for


def select_kernels(graph: Graph, capabilities: Capabilities, back_end: str) -> dict[Node, str]:
    """Return the back end for each node.

    Raises:
        Unsupported: an op has no kernel on ``back_end``.
    """
    able = set(capabilities[back_end])
    for node in graph.nodes:
        if node.op not in able:
            raise Unsupported(f"{node.op} has no kernel on {back_end}. Built at {node.where}.")
    return dict.fromkeys(graph.nodes, back_end)
