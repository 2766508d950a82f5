"""A path of ops, each of which reads the result of the one before, with the gradient ops back along it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...strategies.errors import ShapeError
from ..ir.graph import Node, Value, infer_node
from ..ops.registry import OPS
from .match import GraphRewriter, output_of, sole_value


@dataclass(frozen=True)
class Hop:
    """One op of a path: the slot through which the path enters it, and its gradient op, if it has one."""

    node: Node
    slot: str
    grad: Node | None = None

    def read(self, slot: str) -> Value | None:
        """Return an operand."""
        return sole_value(self.node.inputs, slot)

    def result(self) -> Value:
        """Return the result."""
        value = sole_value(self.node.outputs, "Out")
        assert value is not None
        return value

    def d(self, slot: str) -> Value | None:
        """Return the gradient of an operand (None: it is not computed)."""
        return None if self.grad is None else gradient_written(self.node, self.grad, slot)

    def d_result(self) -> Value | None:
        """Return the gradient of the result."""
        return None if self.grad is None else gradient_read(self.node, self.grad)


def gradient_written(node: Node, grad: Node, slot: str) -> Value | None:
    """Return the value in which an op's gradient op writes the gradient of operand ``slot``."""
    rule = OPS[node.op].grad
    assert rule is not None
    for name, target in rule.writes().items():
        if target == f"{slot}@GRAD":
            return sole_value(grad.outputs, name)
    return None


def gradient_read(node: Node, grad: Node) -> Value | None:
    """Return the gradient of ``Out`` that an op's gradient op reads."""
    rule = OPS[node.op].grad
    assert rule is not None
    return next(
        (sole_value(grad.inputs, s) for s, t in rule.reads().items() if t == "Out@GRAD"), None
    )


def gradient_op(edit: GraphRewriter, node: Node, d_out: Value | None = None) -> Node | None:
    """Return an op's gradient op: the one that reads ``d_out``, or, without it, the op's own values."""
    rule = OPS[node.op].grad
    if rule is None:
        return None
    for slot, source in rule.reads().items():
        is_seed = source.endswith("@GRAD")
        own = sole_value(node.inputs, source) or sole_value(node.outputs, source)
        value = d_out if is_seed else own
        if value is not None and is_seed == (d_out is not None):
            grad = edit.reader(value, rule.type, slot)
            if grad is not None and _belongs(node, grad):
                return grad
    return None


def _belongs(node: Node, grad: Node) -> bool:
    """Tell whether a gradient op reads an op's own operands and results."""
    rule = OPS[node.op].grad
    assert rule is not None
    for slot, source in rule.reads().items():
        values = node.inputs.get(source, node.outputs.get(source))
        if "@GRAD" not in source and values and tuple(grad.inputs.get(slot, ())) != tuple(values):
            return False
    return True


def with_gradients(edit: GraphRewriter, path: Sequence[tuple[Node, str]]) -> list[Hop] | None:
    """Return the hops of a path with their gradient ops, from its end back as far as gradients are computed.

    Returns None and records the reason if a gradient takes another way.
    """
    hops: list[Hop] = []
    grad = gradient_op(edit, path[-1][0])
    for i, (node, slot) in reversed(list(enumerate(path))):
        hop = Hop(node, slot, grad)
        hops.append(hop)
        d, grad = hop.d(slot), None
        if d is not None and i > 0:
            grad = gradient_op(edit, path[i - 1][0], d)
            if grad is None:
                _refuse_detour(edit, path[i - 1][0], node)
                return None
    return hops[::-1]


def _refuse_detour(edit: GraphRewriter, node: Node, after: Node) -> None:
    """Record why a gradient takes another way: mostly because another forward op reads the value too."""
    for value in node.writes():
        back = [n for n in edit.readers(value) if n.role != node.role]
        if not edit.can_fuse_away(value, [after, *back]):
            return
    edit.refuse(f"the gradient of {output_of(node)} takes another way")


def can_fuse_away(edit: GraphRewriter, hops: Sequence[Hop], extra: Sequence[Node] = ()) -> bool:
    """Tell whether only the path's own ops need what lies between its ends, forward and back."""
    group = {n for hop in hops for n in (hop.node, hop.grad) if n is not None} | set(extra)
    between = [v for hop in hops[:-1] for v in hop.node.writes()]
    between += [v for v in hops[-1].node.writes() if v is not hops[-1].result()]
    between += [d for hop in hops[1:] if (d := hop.d(hop.slot)) is not None]
    return all(edit.can_fuse_away(value, group) for value in between)


def derives_same(edit: GraphRewriter, node: Node) -> bool:
    """Tell whether a new node derives the specs of its outputs; if not, record the reason."""
    try:
        specs = infer_node(node, lambda value: value.spec)
    except ShapeError as error:
        return edit.refuse(str(error))
    for slot, values in node.outputs.items():
        for value, spec in zip(values, specs.get(slot, ()), strict=False):
            if value is not None and value.spec != spec:
                return edit.refuse(f"{value} is {value.spec}, fused it would be {spec}")
    return True
