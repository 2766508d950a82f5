"""Keep the loss of low scores in float32, to the mean over rows that is fetched, and its gradient back to them.

At level O2 of mixed precision a loss is in low precision, so one of 10 would move in steps of 1/16. The rows'
losses, what sums them, and the gradients of these are small: float32 costs nothing. Others read the loss
rounded, as the program says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ...strategies.types import LOW, VarType
from ..ir.graph import TEMP, Graph, Node, Value, cast_node
from ..ops.score_loss import SCORE_LOSS
from .target import Pass, Target

_NAME = "wide_loss"
_SUMS = ("mean", "reduce_mean", "reduce_sum", "scale")
_SLOPES = tuple(f"{name}_grad" for name in ("mean", "reduce_mean", "reduce_sum"))


def wide_loss(graph: Graph, target: Target) -> Graph:
    """Widen the values between a loss of low scores and the scalar computed from it, and their gradients."""
    if not any(node.op == SCORE_LOSS and not node.attrs["wide"] for node in graph.nodes):
        return graph
    swap = _widened(graph)
    if not swap:
        return graph
    nodes = _unread_casts_removed(_rewritten(graph, swap), graph.needed(target.fetches))
    return graph.with_nodes(nodes, swap).noted(f"{_NAME}: {len(swap)} values are in float32")


def _widened(graph: Graph) -> dict[Value, Value]:
    """Return each value of the chains from a loss and back to it, and the one in float32 in its place."""
    swap: dict[Value, Value] = {}
    for node in graph.nodes:
        loss = node.op == SCORE_LOSS and not node.attrs["wide"]
        chain = node.op in _SUMS and node.reads()[0] in swap
        slope = node.op in _SLOPES and node.inputs["X"][0] in swap
        if loss or chain or slope:
            results = node.outputs["Loss"] if loss else node.writes()
            swap.update((value, _wide(value)) for value in results if value and _narrow(value))
    return swap


def _narrow(value: Value) -> bool:
    return value.kind == TEMP and value.spec.dtype in LOW


def _wide(value: Value) -> Value:
    return replace(value, spec=value.spec._replace(dtype=VarType.FP32))


def _rewritten(graph: Graph, swap: Mapping[Value, Value]) -> Iterator[Node]:
    """Yield the nodes of the chains in float32, and casts where others read their results."""
    sources = {n.writes()[0]: n.reads()[0] for n in graph.nodes if n.op == "cast"}
    rounded: dict[Value, Value] = {}
    for node in graph.nodes:
        if node.op.startswith(SCORE_LOSS) or swap.keys() & set(node.writes()):
            reads = swap
            for value in node.inputs.get("Out@GRAD", ()):
                if value is not None and value not in swap and _narrow(value):
                    source = sources.get(value)
                    if source is None or source.spec.dtype != VarType.FP32:
                        source = Value(
                            f"{value.name}.wide", _wide(value).spec, version=value.version
                        )
                        yield cast_node(value, source, node)
                    reads = {**swap, value: source}
            yield _in_float32(node.reading(reads), swap)
            continue
        if node.op == "cast" and node.reads()[0] in swap:
            wide = node.reading(swap)
            yield replace(wide, attrs={**node.attrs, "in_dtype": int(VarType.FP32)})
            continue
        for value in dict.fromkeys(node.reads()):
            if value in swap and value not in rounded:
                rounded[value] = replace(value, name=f"{value.name}.narrow")
                yield cast_node(swap[value], rounded[value], node)
        yield node.reading(rounded)


def _in_float32(node: Node, swap: Mapping[Value, Value]) -> Node:
    attrs = {**node.attrs, "wide": True} if node.op.startswith(SCORE_LOSS) else node.attrs
    return replace(node.writing(swap), attrs=attrs)


def _unread_casts_removed(nodes: Iterable[Node], fetches: frozenset[Value]) -> list[Node]:
    """Return the nodes without casts from float32 that nothing reads any more."""
    nodes = list(nodes)
    reads = {value for node in nodes for value in node.reads()} | fetches
    return [
        node for node in nodes
        if node.op != "cast" or node.grads or node.writes()[0] in reads or node.writes()[0].kind != TEMP
    ]  # fmt: skip


PASS = Pass(
    _NAME,
    wide_loss,
    lambda target: True,
    "it widens the losses that score_loss made of scores in low precision",
)
