"""Remove the casts of mixed precision that no arithmetic needs: float32 values that came from 16 bits.

Ops that only move elements move those of 16 bits, and the cast follows them. A cast back to the type before
widening is dropped. A pointwise op between casts on all sides runs in low precision, whose kernels compute in
float32 and round once. No bit changes, but for one case: with ``fused_attention`` softmax runs in low precision
between products that do, and its gradient reads the rounded result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ...strategies.types import LOW, VarType
from ..ir.graph import TEMP, Graph, Node, Value, cast_node
from ..ops.pointwise import pointwise
from ..ops.view import VIEWS
from ..program.role import OpRole
from .match import sole_value
from .target import Pass, Target

_NAME = "narrow_casts"
_BOTH_WAYS = (*VIEWS, "transpose", "transpose2", "concat", "stack", "slice")
_MOVING = {
    "split",
    "unstack",
    "assign",
    "lookup_table",
    "lookup_table_v2",
    *_BOTH_WAYS,
    *(f"{name}_grad" for name in _BOTH_WAYS),
}
_ROUND_ONCE = ("lookup_table_grad", "lookup_table_v2_grad", "softmax_grad")


def narrow_casts(graph: Graph, target: Target) -> Graph:
    """Remove casts that change no bit, and let ops between casts compute in low precision."""
    if not any(node.op == "cast" for node in graph.nodes):
        return graph
    return _Narrowing(graph, target).run()


def _widens(node: Node) -> bool:
    return (
        node.op == "cast" and not node.host and _types(node) in [(low, VarType.FP32) for low in LOW]
    )


def _types(cast: Node) -> tuple[VarType, VarType]:
    x, out = cast.reads()[0], cast.writes()[0]
    return x.spec.dtype, out.spec.dtype


def _empty(value: Value) -> bool:
    """Tell whether a value has a shape, but no elements: XShape of ``reshape2`` and its like."""
    return 0 in value.spec.shape


class _Narrowed(NamedTuple):
    """A type of 16 bits, and the values of that type that replace an op's operands."""

    dtype: VarType
    swap: dict[Value, Value]


class _Narrowing:
    """Walks the nodes in order; ``source`` maps a float32 value to the value it was cast from."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self.graph = graph
        self.fetches = graph.needed(target.fetches)
        build = target.strategy
        self.attends = build is not None and (
            build.fused_attention or build.fuse_dot_product_attention
        )
        self.readers = graph.readers()
        self.wide = {node.writes()[0]: node for node in graph.nodes if _widens(node)}
        self.source: dict[Value, Value] = {}
        self.swap: dict[Value, Value] = {}
        self.dropped: set[Node] = set()
        self.nodes: list[Node] = []

    def run(self) -> Graph:
        """Return the graph without needless casts (the same object if there are none)."""
        for node in self.graph.nodes:
            if node not in self.dropped:
                self._visit(node.reading(self.swap), node)
        nodes = self._without_unread()
        if nodes == list(self.graph.nodes):
            return self.graph
        old_count, new_count = (
            sum(n.op == "cast" for n in nodes_of) for nodes_of in (self.graph.nodes, nodes)
        )
        result = self.graph.with_nodes(nodes, self.swap)
        return result.noted(f"{_NAME}: {old_count} casts before, {new_count} after")

    def _visit(self, node: Node, before: Node) -> None:
        if _widens(node):
            self.source[node.writes()[0]] = node.reads()[0]
        elif node.op == "cast" and self._undoes(node):
            self.swap[node.writes()[0]] = self.source[node.reads()[0]]
            return
        narrowed = None if node.host else self._operands(node)
        if narrowed is not None and node.op in _MOVING:
            self._move(node, narrowed)
        elif narrowed is not None and self._rounds(node, before, narrowed.dtype):
            self._round(node, narrowed)
        else:
            self.nodes.append(node)

    def _undoes(self, cast: Node) -> bool:
        """Tell whether a cast restores the type before widening, and that value may replace its result."""
        x, out = cast.reads()[0], cast.writes()[0]
        source = self.source.get(x)
        same = source is not None and source.spec.dtype == out.spec.dtype
        return same and not cast.grads and out not in self.fetches and out.kind == TEMP

    def _operands(self, node: Node) -> _Narrowed | None:
        """Return the operands before widening; None if one was not widened, or two had different types."""
        swap, types = {}, set()
        for value in node.reads():
            if value.spec.dtype == VarType.FP32 and not _empty(value):
                if value not in self.source:
                    return None
                swap[value] = self.source[value]
                types.add(swap[value].spec.dtype)
            elif value.spec.dtype in LOW and not _empty(value):
                types.add(value.spec.dtype)
        lasting = any(value.kind != TEMP for value in node.writes())
        return _Narrowed(types.pop(), swap) if swap and len(types) == 1 and not lasting else None

    def _move(self, node: Node, narrowed: _Narrowed) -> None:
        """Let a node move elements of 16 bits, and widen its results behind it."""
        outputs: dict[Value, Value] = {}
        for value in node.writes():
            if value.spec.dtype == VarType.FP32:
                spec = value.spec._replace(dtype=narrowed.dtype)
                outputs[value] = Value(f"{value.name}.narrow", spec, version=value.version)
        self._append(node, narrowed, outputs)
        for wide, low in outputs.items():
            if _empty(wide):
                self.swap[wide] = low
                continue
            self.source[wide] = low
            own = tuple(pair for pair in node.grads if pair[1] == wide)
            self.nodes.append(replace(cast_node(low, wide, node), grads=own))

    def _rounds(self, node: Node, before: Node, dtype: VarType) -> bool:
        """Tell whether an op computes each result from 16 bits and only casts to 16 bits read its results."""
        rounds_once = pointwise(node.op) or node.op in _ROUND_ONCE
        if node.op == "softmax":
            rounds_once = self.attends and self._softmax(before, dtype)
        return rounds_once and all(
            value.spec.dtype == VarType.FP32 and self._cast_of(value, before, dtype) is not None
            for value in node.writes()
        )

    def _cast_of(self, value: Value, maker: Node, dtype: VarType) -> Node | None:
        """Return the only op that reads a value, if that is a cast to the type and part of the same phase."""
        finished = any(pair[1] == value for pair in maker.grads)
        readers = [] if finished or value in self.fetches else self.readers.get(value, [])
        if maker.op == "softmax":
            readers = [n for n in readers if n.op != "softmax_grad"]
        if len(readers) != 1:
            return None
        (cast,) = readers
        loss = ~int(OpRole.Loss)
        same = cast.at == maker.at and cast.role & loss == maker.role & loss
        fits = cast.op == "cast" and not cast.host and cast.writes()[0].spec.dtype == dtype and same
        return cast if fits and cast.writes()[0].kind == TEMP else None

    def _softmax(self, node: Node, dtype: VarType) -> bool:
        """Tell whether the gradient op of a softmax, if there is one, can read the rounded result."""
        result = node.writes()[0]
        for back in self.readers.get(result, []):
            if back.op == "softmax_grad":
                d_out, d_x = sole_value(back.inputs, "Out@GRAD"), back.writes()[0]
                wide = self.wide.get(d_out) if d_out is not None else None
                low = wide is not None and _types(wide)[0] == dtype and not back.host
                if not low or self._cast_of(d_x, back, dtype) is None:
                    return False
        return True

    def _round(self, node: Node, narrowed: _Narrowed) -> None:
        """Let an op write the results of the casts behind it."""
        outputs: dict[Value, Value] = {}
        for value in node.writes():
            cast = self._cast_of(value, node, narrowed.dtype)
            assert cast is not None
            outputs[value] = cast.writes()[0]
            node = replace(node, grads=(*node.grads, *cast.grads))
            self.dropped.add(cast)
            if node.op == "softmax":
                self.swap[value] = cast.writes()[0]
        self._append(node, narrowed, outputs)

    def _append(self, node: Node, narrowed: _Narrowed, outputs: dict[Value, Value]) -> None:
        node = node.reading(narrowed.swap).writing(outputs)
        results = node.writes()
        grads = tuple(pair for pair in node.grads if pair[1] in results)
        self.nodes.append(replace(node, grads=grads))

    def _without_unread(self) -> list[Node]:
        """Return the nodes without widening casts whose results have no readers left."""
        reads = set(self.fetches)
        nodes: list[Node] = []
        for node in reversed(self.nodes):
            if _widens(node) and not node.grads:
                result = node.writes()[0]
                if result not in reads and result.kind == TEMP:
                    continue
            nodes.append(node)
            reads.update(node.reads())
        return nodes[::-1]


PASS = Pass(
    _NAME,
    narrow_casts,
    lambda target: target.strategy is not None,
    "fusions behind it meet ops side by side, and not casts between them",
)
