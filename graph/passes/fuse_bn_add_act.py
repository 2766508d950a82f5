"""Let batch norm add the other branch of a residual and apply the activation, forward and backward."""

from __future__ import annotations

from ..ir.graph import Graph, Node, Value
from ..ops.fused_norm import ACTIVATIONS, ADD_ACT
from ..ops.sync_norm import APPLY
from .fuse_bn_act import APART, with_norm
from .match import Change, GraphRewriter, nonempty_slots, other_operand, output_of, sole_value
from .target import Pass, Target

_NAME = "fuse_bn_add_act_ops"


def fuse_bn_add_act(graph: Graph, target: Target) -> Graph:
    """act(batch_norm(x) + z) becomes fused_bn_add_activation, and its three gradients one.

    The gradient of the sum reads the norm's result (for its shape), so both directions are fused together.
    """
    edit = GraphRewriter(graph, target)
    forward = backward = 0
    for norm in edit.nodes("batch_norm"):
        changes = _changes(edit, norm)
        if changes and edit.fuse_all(changes):
            forward += 1
            backward += len(changes) - 1
    counts = {"batch_norm with sum and activation": forward, "of their gradients": backward}
    absent = "no batch_norm is added to a branch and activated"
    return edit.result(_NAME, counts, APART if edit.nodes(APPLY) else absent)


def _changes(edit: GraphRewriter, norm: Node) -> list[Change]:
    y = sole_value(norm.outputs, "Y")
    add = None if y is None else next((n for n in edit.readers(y) if n.op == _ADD), None)
    total = None if add is None else sole_value(add.outputs, "Out")
    if y is None or add is None or total is None:
        return []
    act = next((n for n in edit.readers(total) if n.op in ACTIVATIONS), None)
    if act is None:
        return []
    z = other_operand(add, y)
    if z is None or z.spec != y.spec:
        edit.refuse(f"{output_of(norm)} is added to a value of another shape")
        return []
    fused = with_norm(norm, ADD_ACT, act.op, {"Z": (z,), "Y": act.outputs["Out"]})
    changes: list[Change] = [((norm, add, act), fused)]
    add_grad = edit.reader(y, f"{_ADD}_grad", "X") or edit.reader(y, f"{_ADD}_grad", "Y")
    if add_grad is not None:
        change = _backward(edit, y, act, add_grad)
        if change is None:
            return []
        changes.append(change)
    old = [node for nodes, _ in changes for node in nodes]
    return changes if edit.can_fuse_away(y, old) and edit.can_fuse_away(total, old) else []


def _backward(edit: GraphRewriter, y: Value, act: Node, add_grad: Node) -> Change | None:
    d_total = sole_value(add_grad.inputs, "Out@GRAD")
    act_grad = edit.writer(d_total, f"{act.op}_grad")
    slot, other_slot = ("X", "Y") if sole_value(add_grad.inputs, "X") is y else ("Y", "X")
    d_y = sole_value(add_grad.outputs, f"{slot}@GRAD")
    norm_grad = edit.reader(d_y, "batch_norm_grad", "Y@GRAD")
    if d_total is None or act_grad is None or norm_grad is None or d_y is None:
        return None
    old = (act_grad, add_grad, norm_grad)
    if not (edit.can_fuse_away(d_total, old) and edit.can_fuse_away(d_y, old)):
        return None
    slots = {
        **nonempty_slots(
            {
                "Y": sole_value(act_grad.inputs, "Out"),
                "Y@GRAD": sole_value(act_grad.inputs, "Out@GRAD"),
            }
        ),
        **nonempty_slots({"Z@GRAD": sole_value(add_grad.outputs, f"{other_slot}@GRAD")}),
    }
    return old, with_norm(norm_grad, f"{ADD_ACT}_grad", act.op, slots)


_ADD = "elementwise_add"
PASS = Pass(
    _NAME,
    fuse_bn_add_act,
    lambda target: target.strategy is not None and target.strategy.fuse_bn_add_act_ops,
    "a sum stands between norm and activation, so fuse_bn_act_ops left it",
)
