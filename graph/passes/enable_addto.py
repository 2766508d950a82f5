"""Add up gradients as they are computed, so that the parts of a sum do not wait for each other in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..ir.graph import TEMP, Graph, Node, Value
from ..program.role import OpRole
from .target import Pass, Target


def add_as_made(graph: Graph, target: Target) -> Graph:
    """sum(a, b, c) -> a + b right behind the maker of the later one, then + c: same order, same bits."""
    sums = [node for node in graph.nodes if _adds_gradients(node)]
    number = {node: k for k, node in enumerate(graph.nodes)}
    maker_index = {value: k for node, k in number.items() for value in node.writes()}
    behind: dict[int, list[Node]] = {}
    for node in sums:
        for addition in _additions(node):
            at = max(maker_index.get(value, -1) for value in addition.reads())
            behind.setdefault(at, []).append(addition)
            maker_index.update(dict.fromkeys(addition.writes(), at))
    others = set(graph.nodes) - set(sums)
    nodes = list(behind.get(-1, ()))
    for k, node in enumerate(graph.nodes):
        nodes += [node] if node in others else []
        nodes += behind.get(k, ())
    if [str(node) for node in nodes] == [str(node) for node in graph.nodes]:
        return graph.noted(f"enable_addto: {_why_nothing(sums)}")
    parts = sum(len(node.reads()) for node in sums)
    text = f"{len(sums)} sum(s) of gradients became running additions; they have {parts} parts"
    return graph.with_nodes(nodes).noted(f"enable_addto: {text}")


def _adds_gradients(node: Node) -> bool:
    """Tell whether a node adds up partial gradients, of one shape and type, that live for this step alone."""
    values = [*node.reads(), *node.writes()]
    return (
        node.op == "sum"
        and bool(node.role & OpRole.Backward)
        and len(node.reads()) > 1
        and all(v.kind == TEMP and v.spec == values[0].spec for v in values)
    )


def _additions(node: Node) -> Iterator[Node]:
    """Yield a sum as additions of two; the last writes the sum's result."""
    first, *others = node.reads()
    (out,) = node.writes()
    so_far = first
    for k, term in enumerate(others, 1):
        last = k == len(others)
        partial = out if last else Value(f"{out.name}@PART@{k}", out.spec, TEMP, out.version)
        grads = node.grads if last else ()
        yield replace(node, inputs={"X": (so_far, term)}, outputs={"Out": (partial,)}, grads=grads)
        so_far = partial


def _why_nothing(sums: list[Node]) -> str:
    if not sums:
        return "nothing to do: no gradient is a sum of parts"
    return f"nothing to do: {len(sums)} sums of two stand right behind their parts already"


PASS = Pass(
    "enable_addto",
    add_as_made,
    lambda target: target.strategy is not None and target.strategy.enable_addto,
    "before gradients are put into buckets, and before anything is fused with a sum",
)
