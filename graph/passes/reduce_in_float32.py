"""Widen gradients in low precision before they meet those of other replicas: they are rounded once, behind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...strategies.types import LOW, VarType
from ..ir.graph import Graph, Node, Value, cast_node
from ..program.role import OpRole
from .collectives import newest_versions
from .target import Pass, Target

_NAME = "reduce_in_float32"


def reduce_in_float32(graph: Graph, target: Target) -> Graph:
    """Cast what finishes a gradient to float32, and its sum back before the first node that reads it."""
    widener = _Widener(graph)
    nodes = [node for old in graph.nodes for node in widener.visit(old)]
    nodes += widener.waiting.values()  # a sum that is only fetched
    if not widener.swap:
        return graph.noted(f"{_NAME}: no gradient is in low precision")
    result = graph.with_nodes(nodes, widener.swap)
    return result.noted(f"{_NAME}: {len(widener.swap)} gradients meet in float32")


class _Widener:
    """``swap`` has the rounded sum of each gradient, ``waiting`` the casts to those not read so far."""

    def __init__(self, graph: Graph) -> None:
        self._newest = newest_versions(graph)
        self.swap: dict[Value, Value] = {}
        self.waiting: dict[Value, Node] = {}

    def visit(self, node: Node) -> Iterator[Node]:
        """Yield a node between the casts of the sums that it reads and of the gradients that it finishes."""
        node = node.reading(self.swap)
        for value in dict.fromkeys(node.reads()):
            if value in self.waiting:
                yield self.waiting.pop(value)
        low = [pair for pair in node.grads if pair[1].spec.dtype in LOW]
        if not (low and node.role & OpRole.Backward):
            yield node
            return
        yield replace(node, grads=tuple(pair for pair in node.grads if pair not in low))
        for parameter, grad in low:
            yield self._widen(parameter, grad, node)

    def _widen(self, parameter: str, grad: Value, node: Node) -> Node:
        wide = Value(f"{grad.name}.wide", grad.spec._replace(dtype=VarType.FP32))
        self._newest[grad.name] += 1
        rounded = self.swap[grad] = replace(grad, version=self._newest[grad.name])
        self.waiting[rounded] = replace(cast_node(wide, rounded, node), role=int(OpRole.Optimize))
        return replace(cast_node(grad, wide, node), grads=((parameter, wide),))


PASS = Pass(
    _NAME,
    reduce_in_float32,
    lambda target: (
        target.many and target.strategy is not None and target.strategy.reduce_in_float32
    ),
    "collectives are inserted behind what finishes a gradient",
)
