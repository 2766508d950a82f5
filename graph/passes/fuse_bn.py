"""Let batch norm apply the activation behind it, and add the other branch of a residual before that."""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Graph, Node, Slots, Value
from ..ops.fused_norm import ACT, ACTIVATIONS, ADD_ACT
from ..ops.registry import OPS
from ..ops.sync_norm import APPLY
from .match import Change, GraphRewriter, nonempty_slots, other_operand, output_of, sole_value
from .target import Pass, Target

_NAME, _ADD_NAME = "fuse_bn_act_ops", "fuse_bn_add_act_ops"
_ADD = "elementwise_add"
_GRADS = {f"{act}_grad": act for act in ACTIVATIONS}
_APART = "sync_batch_norm split the batch norms, for their statistics are summed between the parts"


def fuse_bn_act(graph: Graph, target: Target) -> Graph:
    """batch_norm -> act becomes fused_batch_norm_act, act_grad -> batch_norm_grad its gradient.

    The gradient is a function of the activation's result, so each of the two is fused by itself.
    """
    edit = GraphRewriter(graph, target)
    forward = sum(_forward(edit, norm) for norm in edit.nodes("batch_norm"))
    backward = sum(_backward(edit, norm) for norm in edit.nodes("batch_norm_grad"))
    counts = {"batch_norm with its activation": forward, "of their gradients": backward}
    absent = _APART if edit.nodes(APPLY) else "no activation stands behind a batch_norm"
    return edit.result(_NAME, counts, absent)


def _forward(edit: GraphRewriter, norm: Node) -> bool:
    y = sole_value(norm.outputs, "Y")
    if y is None:
        return False
    act = next((n for n in edit.readers(y) if n.op in ACTIVATIONS), None)
    if act is None or not edit.can_fuse_away(y, (act,)):
        return False
    fused = _with_norm(norm, ACT, act.op, {"Y": act.outputs["Out"]})
    return edit.fuse((norm, act), fused)


def _with_norm(norm: Node, op_type: str, act: str, slots: Slots) -> Node:
    """Return a batch norm as another op that also applies ``act``; ``slots`` are added or replaced."""
    op = OPS[op_type]
    slots_by_name = {**norm.inputs, **norm.outputs, **slots}
    return replace(
        norm,
        op=op_type,
        inputs={s.name: slots_by_name[s.name] for s in op.input_slots if slots_by_name.get(s.name)},
        outputs={
            s.name: slots_by_name[s.name] for s in op.output_slots if slots_by_name.get(s.name)
        },
        attrs={**norm.attrs, "act_type": act},
    )


def _backward(edit: GraphRewriter, norm: Node) -> bool:
    d_middle = sole_value(norm.inputs, "Y@GRAD")
    act = edit.writer(d_middle, *_GRADS)
    if d_middle is None or act is None or not edit.can_fuse_away(d_middle, (norm,)):
        return False
    slots = {"Y": act.inputs["Out"], "Y@GRAD": act.inputs["Out@GRAD"]}
    fused = _with_norm(norm, f"{ACT}_grad", _GRADS[act.op], slots)
    return edit.fuse((act, norm), fused)


def fuse_bn_add_act(graph: Graph, target: Target) -> Graph:
    """act(batch_norm(x) + z) becomes fused_bn_add_activation, and its three gradients one.

    The gradient of the sum reads the norm's result (for its shape), so both directions are fused together.
    """
    edit = GraphRewriter(graph, target)
    forward = backward = 0
    for norm in edit.nodes("batch_norm"):
        changes = _changes_with_sum(edit, norm)
        if changes and edit.fuse_all(changes):
            forward += 1
            backward += len(changes) - 1
    counts = {"batch_norm with sum and activation": forward, "of their gradients": backward}
    absent = "no batch_norm is added to a branch and activated"
    return edit.result(_ADD_NAME, counts, _APART if edit.nodes(APPLY) else absent)


def _changes_with_sum(edit: GraphRewriter, norm: Node) -> list[Change]:
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
    fused = _with_norm(norm, ADD_ACT, act.op, {"Z": (z,), "Y": act.outputs["Out"]})
    changes: list[Change] = [((norm, add, act), fused)]
    add_grad = edit.reader(y, f"{_ADD}_grad", "X") or edit.reader(y, f"{_ADD}_grad", "Y")
    if add_grad is not None:
        change = _backward_with_sum(edit, y, act, add_grad)
        if change is None:
            return []
        changes.append(change)
    old = [node for nodes, _ in changes for node in nodes]
    return changes if edit.can_fuse_away(y, old) and edit.can_fuse_away(total, old) else []


def _backward_with_sum(edit: GraphRewriter, y: Value, act: Node, add_grad: Node) -> Change | None:
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
    return old, _with_norm(norm_grad, f"{ADD_ACT}_grad", act.op, slots)


ALONE = Pass(
    _NAME,
    fuse_bn_act,
    lambda target: target.strategy is not None and target.strategy.fuse_bn_act_ops,
    "must know whether the statistics are of this place alone",
)
WITH_SUM = Pass(
    _ADD_NAME,
    fuse_bn_add_act,
    lambda target: target.strategy is not None and target.strategy.fuse_bn_add_act_ops,
    "a sum stands between norm and activation, so fuse_bn_act_ops left it",
)
