"""Add the other branch's gradient in the call that computes the gradient of a convolution's images.

Where a residual block branches, two gradients meet in a sum, which reads both and writes a third image.
"""

from __future__ import annotations

from ..ir.graph import Graph, Node
from ..ops.conv import GRAD_ADD
from ..ops.registry import OPS
from .match import GraphRewriter, other_operand, sole_value
from .target import Pass, Target

_NAME = "fold_conv_grad_sums"
_SUMS = ("sum", "elementwise_add")
_SLOTS = ("Input", "Filter", "Output@GRAD")


def fold_conv_grad_sums(graph: Graph, target: Target) -> Graph:
    """conv2d_grad of images -> sum of two becomes conv2d_grad_add; of two convolutions the later one adds."""
    edit = GraphRewriter(graph, target)
    folded = sum(_fold(edit, node, target) for node in reversed(edit.nodes("conv2d_grad")))
    absent = "no sum of two adds to the gradient of a convolution's images, or no library does both"
    return edit.result(_NAME, {"sums into gradients of images": folded}, absent)


def _fold(edit: GraphRewriter, grad: Node, target: Target) -> bool:
    d_x = sole_value(grad.outputs, "Input@GRAD")
    if d_x is None or grad.writes() != [d_x] or grad.attrs["fuse_relu_before_depthwise_conv"]:
        return False
    total = next((node for node in edit.readers(d_x) if node.op in _SUMS), None)
    addend = None if total is None else other_operand(total, d_x)
    if total is None or addend is None or addend.spec != d_x.spec:
        return False
    inputs = {**{slot: grad.inputs[slot] for slot in _SLOTS}, "Addend": (addend,)}
    attrs = {name: grad.attrs[name] for name in OPS[GRAD_ADD].attrs}
    outputs = {"Input@GRAD": total.outputs["Out"]}
    fused = Node(GRAD_ADD, inputs, outputs, attrs, grad.role, grad.where)
    assert target.adds_gradients is not None
    if grad.host or not target.adds_gradients(fused):
        return False
    return edit.can_fuse_away(d_x, (total,)) and edit.fuse((grad, total), fused)


PASS = Pass(
    _NAME,
    fold_conv_grad_sums,
    lambda target: target.adds_gradients is not None,
    "behind the fusion of what reads a sum, and when gradients of images have nodes of their own",
)
