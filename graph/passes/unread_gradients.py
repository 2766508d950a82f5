"""Leave out gradients that nothing reads: those of masks and other constants, with the sums on their way."""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import TEMP, Graph, Node, Value
from ..program.role import GRAD_SUFFIX, OpRole
from .target import Pass, Target

_NAME = "unread_gradients"
_SUMS = ("sum", "cast")


def leave_out_unread(graph: Graph, target: Target) -> Graph:
    """A gradient that no op reads, no fetch asks for and no parameter has is not computed."""
    reads = set(graph.needed(target.fetches))
    nodes: list[Node] = []
    count = 0
    for node in reversed(graph.nodes):
        reads.update(value for _, value in node.grads)
        remainder = _without(node, reads) if _computes_gradients(node) else node
        count += len(node.writes()) - (0 if remainder is None else len(remainder.writes()))
        if remainder is not None:
            reads.update(remainder.reads())
            nodes.append(remainder)
    if not count:
        return graph
    return graph.with_nodes(reversed(nodes)).noted(f"{_NAME}: left out {count}")


def _computes_gradients(node: Node) -> bool:
    """Tell whether a node is known to do nothing but compute temporaries."""
    declared = node.op.endswith("_grad") or node.op in _SUMS
    return bool(node.role & OpRole.Backward) and declared and not node.host


def _without(node: Node, reads: set[Value]) -> Node | None:
    """Return a node that computes only what is read; None if that is nothing."""

    def unread(value: Value | None) -> bool:
        return (
            value is not None
            and value.kind == TEMP
            and GRAD_SUFFIX in value.name
            and value not in reads
        )

    if not any(map(unread, node.writes())):
        return node
    outputs = {
        slot: tuple(None if unread(value) else value for value in values)
        for slot, values in node.outputs.items()
    }
    outputs = {slot: values for slot, values in outputs.items() if any(values)}
    return replace(node, outputs=outputs) if outputs else None


PASS = Pass(
    _NAME,
    leave_out_unread,
    lambda target: True,
    "before anything is fused with a gradient that nothing needs",
)
