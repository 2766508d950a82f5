"""Fold the sum of a residual into the layer norm that reads it, and backwards into the norm's gradient.

Both save a trip to memory and back. What ``enable_auto_fusion`` groups with the sum before a
norm (an activation) stays with it: a group moves less than a sum in the norm and the rest alone.
"""

from __future__ import annotations

from ..ir.graph import Graph, Node, Slots
from ..ops.registry import OPS
from ..ops.residual_norm import ADD_NORM, NORM_GRAD_ADD
from .match import GraphRewriter, other_operand, sole_value
from .target import Pass, Target

_SUMS = ("sum", "elementwise_add")


def fold_gradients(graph: Graph, target: Target) -> Graph:
    """layer_norm_grad -> sum of two becomes layer_norm_grad_add."""
    edit = GraphRewriter(graph, target)
    folded = sum(_fold_gradient(edit, grad, target) for grad in edit.nodes("layer_norm_grad"))
    return edit.result(
        _GRADIENTS,
        {"sums into gradients of layer norms": folded},
        f"{_ABSENT} behind the gradient of one",
    )


def fold_sums(graph: Graph, target: Target) -> Graph:
    """elementwise_add -> layer_norm becomes add_layer_norm, which writes the sum, too."""
    edit = GraphRewriter(graph, target)
    folded = sum(_fold_sum(edit, norm, target) for norm in edit.nodes("layer_norm"))
    return edit.result(_RESIDUALS, {"sums into layer norms": folded}, f"{_ABSENT} before one")


def _fold_gradient(edit: GraphRewriter, grad: Node, target: Target) -> bool:
    d_x = sole_value(grad.outputs, "X@GRAD")
    total = next((node for node in edit.readers(d_x) if node.op in _SUMS), None) if d_x else None
    if d_x is None or total is None:
        return False
    addend = other_operand(total, d_x)
    if addend is None or addend.spec != d_x.spec:
        return False
    outputs = {**grad.outputs, "X@GRAD": total.outputs["Out"]}
    fused = _node(NORM_GRAD_ADD, grad, {**grad.inputs, "Addend": (addend,)}, outputs)
    return edit.can_fuse_away(d_x, (total,)) and _put(edit, (grad, total), fused, target)


def _fold_sum(edit: GraphRewriter, norm: Node, target: Target) -> bool:
    x = sole_value(norm.inputs, "X")
    add = edit.writer(x, "elementwise_add")
    if x is None or add is None or len(add.reads()) != 2:
        return False
    first, second = add.reads()
    if not first.spec == second.spec == x.spec:
        return edit.refuse("a sum broadcasts an operand")
    inputs = {**norm.inputs, "X": (first,), "Z": (second,)}
    fused = _node(ADD_NORM, norm, inputs, {**norm.outputs, "Out": (x,)})
    return _put(edit, (add, norm), fused, target)


def _node(op_type: str, norm: Node, inputs: Slots, outputs: Slots) -> Node:
    attrs = {name: norm.attrs[name] for name in OPS[op_type].attrs}
    return Node(op_type, inputs, outputs, attrs, norm.role, norm.where)


def _put(edit: GraphRewriter, old: tuple[Node, Node], fused: Node, target: Target) -> bool:
    assert target.folds_residuals is not None
    if any(node.host for node in old) or not target.folds_residuals(fused):
        return False
    return edit.fuse(old, fused)


def _is_on(target: Target) -> bool:
    fuses = target.strategy is not None and target.strategy.enable_auto_fusion
    return fuses and target.folds_residuals is not None


_GRADIENTS, _RESIDUALS = "fold_residual_gradients", "fold_residuals"
_ABSENT = "the program has no layer_norm, or no sum of two values of one shape stands"
GRADIENTS = Pass(
    _GRADIENTS, fold_gradients, _is_on, "a group would read the gradient that is not written then"
)
SUMS = Pass(_RESIDUALS, fold_sums, _is_on, "takes the sums that no group has taken")
