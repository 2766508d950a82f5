"""Let an update add L2 decay itself, in float32, instead of two ops before it."""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Graph, Node
from .match import Change, GraphRewriter, sole_value
from .target import Pass, Target

_NAME = "fold_decay"
_UPDATES = ("sgd", "momentum", "adam")


def fold_decay(graph: Graph, target: Target) -> Graph:
    """sum(gradient, scale(parameter)) before an update becomes an attribute of the update.

    Parameters of low precision have a master, to which the decay is added before it is rounded.
    """
    if not any(node.op in _UPDATES for node in graph.nodes):
        return graph
    edit, count = GraphRewriter(graph, target), 0
    for update in edit.nodes(*_UPDATES):
        change = _change(edit, update)
        count += change is not None and edit.fuse_all([change])
    return edit.result(_NAME, {"decays into updates": count}, "no update has L2 decay")


def _change(edit: GraphRewriter, update: Node) -> Change | None:
    param, decayed = sole_value(update.inputs, "Param"), sole_value(update.inputs, "Grad")
    total = edit.writer(decayed, "sum")
    if decayed is None or total is None or len(total.reads()) != 2:
        return None
    grad, term = total.reads()
    scale = edit.writer(term, "scale")
    if scale is None or sole_value(scale.inputs, "X") is not param:
        return None
    if scale.attrs["bias"] != 0 or len(scale.reads()) != 1:
        return None
    old = (scale, total, update)
    if not (edit.can_fuse_away(term, old) and edit.can_fuse_away(decayed, old)):
        return None
    attrs = {**update.attrs, "l2_decay": scale.attrs["scale"]}
    return old, replace(update, inputs={**update.inputs, "Grad": (grad,)}, attrs=attrs)


PASS = Pass(
    _NAME,
    fold_decay,
    lambda target: True,
    "sums with rows are dense by then; an update that is fused with others has its decay already",
)
