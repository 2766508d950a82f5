"""Make the gradient of a loss of low precision from its scores, not from a softmax in low precision.

Where mixed precision widened the scores for the loss alone, it reads them as they were, and writes their
gradient in low precision: neither the scores nor the softmax lie in memory in float32.
"""

from __future__ import annotations

from typing import Any

from ...strategies.types import LOW, VarType
from ..ir.graph import Graph, Node, Slots, Value
from ..ops.score_loss import SCORE_LOSS
from .match import Change, GraphRewriter, sole_value
from .target import Pass, Target

_NAME = "score_loss"
_LOSS = "softmax_with_cross_entropy"


def score_loss(graph: Graph, target: Target) -> Graph:
    """Replace softmax_with_cross_entropy of low scores, and its gradient, and casts around them."""
    if not any(node.op == _LOSS for node in graph.nodes):
        return graph
    edit, count = GraphRewriter(graph, target), 0
    for loss in edit.nodes(_LOSS):
        changes = _changes(edit, loss)
        count += bool(changes) and edit.fuse_all(changes)
    return edit.result(_NAME, {_LOSS: count}, "no loss is of scores in low precision")


def _changes(edit: GraphRewriter, loss: Node) -> list[Change]:
    logits, softmax = sole_value(loss.inputs, "Logits"), sole_value(loss.outputs, "Softmax")
    grad = edit.reader(softmax, f"{_LOSS}_grad", "Softmax")
    if grad is None or logits is None or softmax is None or loss.attrs["soft_label"]:
        return []
    last = loss.attrs["axis"] in (-1, len(logits.spec.shape) - 1)
    d_logits = sole_value(grad.outputs, "Logits@GRAD")
    if not last or d_logits is None or not edit.can_fuse_away(softmax, (grad,)):
        return []
    forward, backward = [loss], [grad]
    if logits.spec.dtype not in LOW:
        widens, narrows = _casts(edit, logits, loss, d_logits)
        if widens is None or narrows is None:
            return []
        forward, backward = [widens, loss], [grad, narrows]
        logits, d_logits = widens.reads()[0], narrows.writes()[0]
    rows = softmax.spec._replace(shape=(*softmax.spec.shape[:-1], 1), dtype=VarType.FP32)
    reads = {"Logits": (logits,), "Label": loss.inputs["Label"]}
    sums = {"LogSum": (Value(f"{softmax.name}.log_sum", rows, version=softmax.version),)}
    slopes = {"Logits@GRAD": (d_logits,)}
    attrs = {"ignore_index": loss.attrs["ignore_index"], "wide": len(forward) > 1}
    scored = _like(loss, SCORE_LOSS, reads, {"Loss": loss.outputs["Loss"], **sums}, attrs)
    reads = {**reads, **sums, "Loss@GRAD": grad.inputs["Loss@GRAD"]}
    return [(forward, scored), (backward, _like(grad, f"{SCORE_LOSS}_grad", reads, slopes, attrs))]


def _casts(
    edit: GraphRewriter, logits: Value, loss: Node, d_logits: Value
) -> tuple[Node | None, Node | None]:
    """Return the cast that widens the scores for a loss alone, and that of their gradient back."""
    widens = edit.writer(logits, "cast")
    if widens is None or widens.reads()[0].spec.dtype not in LOW:
        return None, None
    narrows = edit.reader(d_logits, "cast", "X")
    if narrows is None or narrows.writes()[0].spec.dtype != widens.reads()[0].spec.dtype:
        return None, None
    alone = edit.can_fuse_away(logits, (loss,)) and edit.can_fuse_away(d_logits, (narrows,))
    return (widens, narrows) if alone else (None, None)


def _like(node: Node, op: str, inputs: Slots, outputs: Slots, attrs: dict[str, Any]) -> Node:
    return Node(op, inputs, outputs, attrs, node.role, node.where, (), node.at, node.scope)


PASS = Pass(
    _NAME,
    score_loss,
    lambda target: True,
    "the casts that are left are those that arithmetic needs",
)
