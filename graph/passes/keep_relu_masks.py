"""Let batch norm with a sum and a relu keep a bit an element, from which its gradient is one call.

Without it the gradient first goes through the relu, by a call that reads the result and writes an image.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Graph, Node, Value
from ..ops.fused_norm import ADD_ACT, MASKED, mask_spec
from .match import GraphRewriter, sole_value
from .target import Pass, Target

_NAME = "keep_relu_masks"


def keep_relu_masks(graph: Graph, target: Target) -> Graph:
    """fused_bn_add_activation and its gradient become masked_bn_add_activation and its gradient."""
    edit = GraphRewriter(graph, target)
    masks = sum(_keep(edit, norm, target) for norm in edit.nodes(ADD_ACT))
    absent = (
        "no gradient of a batch_norm with sum and relu in low precision, with channels in eights"
    )
    return edit.result(_NAME, {"batch_norm with sum, relu and its gradient": masks}, absent)


def _keep(edit: GraphRewriter, norm: Node, target: Target) -> bool:
    x, y = sole_value(norm.inputs, "X"), sole_value(norm.outputs, "Y")
    grad = edit.reader(y, f"{ADD_ACT}_grad", "Y")
    assert target.keeps_masks is not None
    if x is None or y is None or grad is None:
        return False
    mask = (Value(f"{y.name}@MASK", mask_spec(x.spec), version=y.version),)
    masked = replace(norm, op=MASKED, outputs={**norm.outputs, "Mask": mask})
    slope = replace(grad, op=f"{MASKED}_grad", inputs={**grad.inputs, "Mask": mask})
    if norm.host or not target.keeps_masks(masked):
        return False
    return edit.fuse_all([((norm,), masked), ((grad,), slope)])


PASS = Pass(
    _NAME,
    keep_relu_masks,
    lambda target: target.keeps_masks is not None,
    "behind the fusion of batch norms with what follows them",
)
