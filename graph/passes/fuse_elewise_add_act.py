"""Join a sum and an activation, in either order, forward and backward.

Paddle takes relu, tanh and scale, and the gradient of relu; here any activation with an expression will do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...strategies.types import FLOATS
from ..ir.graph import Graph, Node, Value
from ..ops.fused_activation import FUSED, backward_attrs, foldable, slope_reads
from .match import Change, GraphRewriter, nonempty_slots, sole_value
from .target import Pass, Target

_NAME = "fuse_elewise_add_act_ops"
_ADD = "elementwise_add"
Rule = Callable[[GraphRewriter, Node], list[Change]]
_OUTER, _INNER = "X + act(Y)", "act(X + Y)"


def fuse_elewise_add_act(graph: Graph, target: Target) -> Graph:
    """X + act(Y) and act(X + Y) become fused_elemwise_activation, and so do their gradients."""
    edit = GraphRewriter(graph, target)
    counts = dict.fromkeys((_OUTER, _INNER, "of their gradients"), 0)
    # Paddle's order. Paddle leaves X + act(Y) with a gradient alone, so those come last.
    rules: Sequence[tuple[str, Rule]] = (
        (_OUTER, partial(_act_inside, trained=False)),
        (_INNER, _act_outside),
        (_OUTER, partial(_act_inside, trained=True)),
    )
    for kind, changes_of in rules:
        for add in edit.nodes(_ADD):
            changes = changes_of(edit, add)
            if changes and edit.fuse_all(changes):
                counts[kind] += 1
                counts["of their gradients"] += len(changes) - 1
    return edit.result(_NAME, counts, "no sum stands beside an activation")


def _act_inside(edit: GraphRewriter, add: Node, *, trained: bool) -> list[Change]:
    """Return the changes that fuse X + act(Y), preferring the second operand's activation if both have one."""
    for slot, other in (("Y", "X"), ("X", "Y")):
        middle, z = sole_value(add.inputs, slot), sole_value(add.inputs, other)
        act = edit.writer(middle)
        if middle is None or z is None or act is None or middle is z or not _acts(act):
            continue
        x, out = sole_value(act.inputs, "X"), sole_value(add.outputs, "Out")
        add_grad = edit.reader(middle, f"{_ADD}_grad", slot)
        if (add_grad is not None) is not trained:
            continue
        keep = add_grad is not None and slope_reads(act.op) == "Out"
        attrs = _attrs(add, act, [_ADD, act.op], keep)
        inputs = nonempty_slots({"X": z, "Y": x})
        outputs = nonempty_slots({"Out": out, "IntermediateOut": middle if keep else None})
        changes: list[Change] = [
            ((act, add), replace(add, op=FUSED, inputs=inputs, outputs=outputs, attrs=attrs))
        ]
        if add_grad is not None:
            operands = {"X": z, "Y": x, "IntermediateOut": middle if keep else None}
            changes += _gradient(edit, add_grad, act, slot, operands, attrs)
            if len(changes) == 1:
                continue
        old = [node for nodes, _ in changes for node in nodes]
        if edit.can_fuse_away(middle, old):
            return changes
    return []


def _gradient(
    edit: GraphRewriter,
    add_grad: Node,
    act: Node,
    slot: str,
    operands: dict[str, Value | None],
    attrs: dict[str, Any],
) -> list[Change]:
    """Return the change that fuses the gradients of the sum and of its activated operand, if they fit."""
    d_middle = sole_value(add_grad.outputs, f"{slot}@GRAD")
    grad_type = "scale" if act.op == "scale" else f"{act.op}_grad"
    seed_slot = "X" if act.op == "scale" else "Out@GRAD"
    act_grad = edit.reader(d_middle, grad_type, seed_slot)
    if act_grad is None or d_middle is None or not edit.can_fuse_away(d_middle, (act_grad,)):
        return []
    d_x = sole_value(act_grad.outputs, "Out" if act.op == "scale" else "X@GRAD")
    d_z = sole_value(add_grad.outputs, f"{'X' if slot == 'Y' else 'Y'}@GRAD")
    inputs = nonempty_slots({**operands, "Out@GRAD": sole_value(add_grad.inputs, "Out@GRAD")})
    outputs = nonempty_slots({"X@GRAD": d_z, "Y@GRAD": d_x})
    node = replace(
        add_grad, op=f"{FUSED}_grad", inputs=inputs, outputs=outputs, attrs=backward_attrs(attrs)
    )
    return [((add_grad, act_grad), node)]


def _act_outside(edit: GraphRewriter, add: Node) -> list[Change]:
    """Return the changes that fuse act(X + Y)."""
    middle = sole_value(add.outputs, "Out")
    act = None if middle is None else next((n for n in edit.readers(middle) if _acts(n)), None)
    if middle is None or act is None:
        return []
    x, y, out = (
        sole_value(add.inputs, "X"),
        sole_value(add.inputs, "Y"),
        sole_value(act.outputs, "Out"),
    )
    back = _backward_pair(edit, act, x, y, middle)
    old = (add, act, *(back or ()))
    reads_sum = back is not None and slope_reads(act.op) == "X"
    # To form the sum again takes X and Y: two values, unless one is a row or so.
    keep = reads_sum and _shape(x) == _shape(y)
    attrs = _attrs(add, act, [act.op, _ADD], keep)
    inputs = nonempty_slots({"X": x, "Y": y})
    outputs = nonempty_slots({"Out": out, "IntermediateOut": middle if keep else None})
    fused = replace(add, op=FUSED, inputs=inputs, outputs=outputs, attrs=attrs)
    if not edit.can_fuse_away(middle, old):
        return []
    changes: list[Change] = [((add, act), fused)]
    if back is not None:
        act_grad, add_grad = back
        above = sole_value(act_grad.inputs, "X" if act.op == "scale" else "Out@GRAD")
        # X tells a shape only, unless the sum is formed again.
        needs_x = (reads_sum and not keep) or _shape(x) != _shape(above)
        grad_inputs = {"X": x if needs_x else None, "Y": y}
        grad_inputs["Out"] = out if slope_reads(act.op) == "Out" else None
        grad_inputs["IntermediateOut"] = middle if keep else None
        grad_inputs["Out@GRAD"] = above
        node = replace(
            add_grad,
            op=f"{FUSED}_grad",
            inputs=nonempty_slots(grad_inputs),
            attrs=backward_attrs(attrs),
        )
        changes.append(((act_grad, add_grad), node))
    return changes


def _backward_pair(
    edit: GraphRewriter, act: Node, x: Value | None, y: Value | None, middle: Value
) -> tuple[Node, Node] | None:
    """Return the gradient ops of the activation and of the sum, None if they cannot be fused."""
    for add_grad in edit.readers(x) if x is not None else ():
        if add_grad.op != f"{_ADD}_grad" or sole_value(add_grad.inputs, "Y") is not y:
            continue
        d_middle = sole_value(add_grad.inputs, "Out@GRAD")
        act_grad = edit.writer(d_middle)
        if d_middle is None or act_grad is None or not _is_gradient(act_grad, act, middle):
            continue
        if edit.can_fuse_away(d_middle, (add_grad,)):
            return act_grad, add_grad
    return None


def _is_gradient(node: Node, act: Node, middle: Value) -> bool:
    """Tell whether a node is the gradient of this very activation."""
    if act.op == "scale":
        return node.op == "scale" and all(
            node.attrs[name] == value
            for name, value in (("scale", act.attrs["scale"]), ("bias", 0.0))
        )
    reads = slope_reads(act.op)
    operand = middle if reads == "X" else sole_value(act.outputs, "Out")
    return node.op == f"{act.op}_grad" and (not reads or sole_value(node.inputs, reads) is operand)


def _acts(node: Node) -> bool:
    x = sole_value(node.inputs, "X")
    return x is not None and x.spec.dtype in FLOATS and foldable(node.op)


def _shape(value: Value | None) -> tuple[int, ...]:
    return () if value is None else value.spec.shape


def _attrs(add: Node, act: Node, functors: list[str], keep: bool) -> dict[str, Any]:
    return {
        "axis": add.attrs["axis"],
        "scale": act.attrs.get("scale", 0.0) if act.op == "scale" else 0.0,
        "save_intermediate_out": keep,
        "functor_list": functors,
        "act_attrs": dict(act.attrs),
    }


PASS = Pass(
    _NAME,
    fuse_elewise_add_act,
    lambda target: target.strategy is not None and target.strategy.fuse_elewise_add_act_ops,
    "takes the sums that norms and products left",
)
