"""Batch norm with statistics over all replicas: split each, with an all-reduce of its sums in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...strategies.errors import Unsupported
from ...strategies.types import VarType
from ..ir.graph import Graph, Node, Value
from ..ops.collective import ALL_REDUCE
from ..ops.registry import Spec
from ..ops.sync_norm import APPLY, GRAD_APPLY, GRAD_PARTIAL, PARTIAL, SYNC, SYNC_GRAD
from .collectives import make_collective
from .target import Pass, Target

_NOTE = "sync_batch_norm: {} batch norm(s) share their statistics"
_TWICE = "batch_norm_grad_grad"
_PLAIN = {SYNC: "batch_norm", SYNC_GRAD: "batch_norm_grad"}


def expand_sync_ops(graph: Graph, target: Target) -> Graph:
    """Expand the ops ``sync_batch_norm`` of a program; on one place, or of fixed statistics, they are plain."""
    if all(node.op != SYNC for node in graph.nodes):
        return graph
    stats: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == SYNC and target.replicas > 1 and _of_the_batch(node):
            nodes += _forward(node, stats)
        elif node.op == SYNC_GRAD and node.inputs["SavedMean"][0] in stats:
            nodes += _backward(node, stats)
        else:
            nodes.append(replace(node, op=_PLAIN.get(node.op, node.op)))
    graph = graph.with_nodes(nodes)
    return graph.noted(_NOTE.format(len(stats))) if stats else graph


def sync_batch_norm(graph: Graph, target: Target) -> Graph:
    """Expand every batch_norm that takes its statistics from the batch, and its gradient."""
    stats: dict[Value, Value] = {}  # SavedMean of an expanded batch_norm -> its reduced statistics
    nodes: list[Node] = []
    fixed = 0
    for node in graph.nodes:
        if node.op == "batch_norm" and _of_the_batch(node):
            nodes += _forward(node, stats)
        elif node.op == "batch_norm_grad" and node.inputs["SavedMean"][0] in stats:
            nodes += _backward(node, stats)
        elif node.op == _TWICE and node.inputs["SavedMean"][0] in stats:
            raise Unsupported(
                "sync_batch_norm: gradients of a batch norm's gradients are of one place's statistics alone"
            )
        else:
            fixed += node.op == "batch_norm"
            nodes.append(node)
    if not stats:
        why = "its batch norms use fixed statistics" if fixed else "the program has no batch_norm"
        return replace(graph, notes=(*graph.notes, f"sync_batch_norm: nothing to do, {why}"))
    return graph.with_nodes(nodes).noted(_NOTE.format(len(stats)))


def _of_the_batch(node: Node) -> bool:
    attrs = node.attrs
    fixed = attrs["use_global_stats"] or (attrs["is_test"] and not attrs["trainable_statistics"])
    return not fixed


def _forward(node: Node, stats: dict[Value, Value]) -> Iterator[Node]:
    (x,), (y,) = node.inputs["X"], node.outputs["Y"]
    (scale,), (saved,) = node.inputs["Scale"], node.outputs["SavedMean"]
    assert x is not None and y is not None and scale is not None and saved is not None
    layout = {"data_layout": node.attrs["data_layout"]}
    sums = _vector(f"{y.name}@STATS", 2 * scale.spec.shape[0] + 1)
    yield Node(PARTIAL, {"X": (x,)}, {"Stats": (sums,)}, layout, node.role, node.where)
    collective, sums_of = make_collective(ALL_REDUCE, [sums], node.where, node.role, {})
    yield collective
    stats[saved] = sums_of[sums]
    slots = ("X", "Scale", "Bias", "Mean", "Variance")
    attrs = {
        name: node.attrs[name] for name in ("momentum", "epsilon", "data_layout", "fuse_with_relu")
    }
    yield replace(
        node,
        op=APPLY,
        inputs={**{slot: node.inputs[slot] for slot in slots}, "Stats": (stats[saved],)},
        outputs={slot: values for slot, values in node.outputs.items() if slot != "ReserveSpace"},
        attrs=attrs,
    )


def _backward(node: Node, stats: dict[Value, Value]) -> Iterator[Node]:
    (saved,), (dy,), (scale,) = (node.inputs[s] for s in ("SavedMean", "Y@GRAD", "Scale"))
    assert saved is not None and dy is not None and scale is not None
    layout = {"data_layout": node.attrs["data_layout"]}
    local = _vector(f"{dy.name}@SUMS", 2 * scale.spec.shape[0])
    total = _vector(f"{dy.name}@TOTALS", 2 * scale.spec.shape[0])
    slots = ("X", "SavedMean", "SavedVariance", "Y@GRAD")
    yield Node(
        GRAD_PARTIAL,
        {slot: node.inputs[slot] for slot in slots},
        {"Local": (local,), "Total": (total,)},
        layout,
        node.role,
        node.where,
    )
    collective, sums_of = make_collective(ALL_REDUCE, [total], node.where, node.role, {})
    yield collective
    yield replace(
        node,
        op=GRAD_APPLY,
        inputs={
            **{slot: node.inputs[slot] for slot in (*slots, "Scale")},
            "Local": (local,),
            "Total": (sums_of[total],),
            "Stats": (stats[saved],),
        },
        attrs=layout,
    )


def _vector(name: str, size: int) -> Value:
    return Value(name, Spec((size,), VarType.FP64))


PASS = Pass(
    "sync_batch_norm",
    sync_batch_norm,
    lambda target: (
        target.strategy is not None and target.strategy.sync_batch_norm and target.replicas > 1
    ),
    "a gradient's operands must be known before gradients are reduced",
)
