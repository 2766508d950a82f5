"""Let batch norm apply the activation behind it, forward and backward."""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Graph, Node, Slots
from ..ops.fused_norm import ACT, ACTIVATIONS
from ..ops.registry import OPS
from ..ops.sync_norm import APPLY
from .match import GraphRewriter, sole_value
from .target import Pass, Target

_NAME = "fuse_bn_act_ops"
_GRADS = {f"{act}_grad": act for act in ACTIVATIONS}
APART = "sync_batch_norm split the batch norms, for their statistics are summed between the parts"


def fuse_bn_act(graph: Graph, target: Target) -> Graph:
    """batch_norm -> act becomes fused_batch_norm_act, act_grad -> batch_norm_grad its gradient.

    The gradient is a function of the activation's result, so each of the two is fused by itself.
    """
    edit = GraphRewriter(graph, target)
    forward = sum(_forward(edit, norm) for norm in edit.nodes("batch_norm"))
    backward = sum(_backward(edit, norm) for norm in edit.nodes("batch_norm_grad"))
    counts = {"batch_norm with its activation": forward, "of their gradients": backward}
    absent = APART if edit.nodes(APPLY) else "no activation stands behind a batch_norm"
    return edit.result(_NAME, counts, absent)


def _forward(edit: GraphRewriter, norm: Node) -> bool:
    y = sole_value(norm.outputs, "Y")
    if y is None:
        return False
    act = next((n for n in edit.readers(y) if n.op in ACTIVATIONS), None)
    if act is None or not edit.can_fuse_away(y, (act,)):
        return False
    fused = with_norm(norm, ACT, act.op, {"Y": act.outputs["Out"]})
    return edit.fuse((norm, act), fused)


def with_norm(norm: Node, op_type: str, act: str, slots: Slots) -> Node:
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
    fused = with_norm(norm, f"{ACT}_grad", _GRADS[act.op], slots)
    return edit.fuse((act, norm), fused)


PASS = Pass(
    _NAME,
    fuse_bn_act,
    lambda target: target.strategy is not None and target.strategy.fuse_bn_act_ops,
    "must know whether the statistics are of this place alone",
)
