"""fused_feedforward: linear, activation, linear as one op, with the layer norm, dropouts and residual around.

The backward pass computes the hidden layer again instead of storing it (see ``graph/ops/feedforward.py``). The
switch trades the time of one product and the activation for the memory of the hidden layer and its gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...strategies.types import FLOATS
from ..ir.graph import Graph, Node, Value
from .match import GraphRewriter, nonempty_slots, output_of, sole_value
from .path import Hop, can_fuse_away, derives_same, with_gradients
from .target import Pass, Target

FUSED, FUSED_GRAD = "fused_feedforward", "fused_feedforward_grad"
_ACTIVATIONS = ("relu", "gelu")
_LINEAR = ("mul", "matmul")
_SLOTS = (
    "X",
    "Linear1Weight",
    "Linear1Bias",
    "Linear2Weight",
    "Linear2Bias",
    "Ln1Scale",
    "Ln1Bias",
    "Residual",
)
Path = list[tuple[Node, str]]


def fused_feedforward(graph: Graph, target: Target) -> Graph:
    """Fuse every pair of linear layers with a relu or gelu in between."""
    edit = GraphRewriter(graph, target)
    fused = sum(_fuse(edit, node) for node in edit.nodes(*_ACTIVATIONS))
    back = len(edit.nodes(FUSED_GRAD)) if fused else 0
    counts = {"feed-forward(s)": fused, "of their gradients": back}
    absent = "the program has no relu or gelu between two linear layers"
    return edit.result("fused_feedforward", counts, absent)


def _fuse(edit: GraphRewriter, activation: Node) -> bool:
    """Fuse the two layers around an activation, with as many of their neighbours as fit."""
    core = _core(edit, activation)
    if core is None:
        return False
    head, tails = _norm_before(edit, core), _tails(edit, core)
    for path in [
        [*head, *core, *tail] for head in ([head, []] if head else [[]]) for tail in tails
    ]:
        refusals = edit.refusals.copy()
        hops = with_gradients(edit, path)
        if hops is not None and can_fuse_away(edit, hops) and _fuse_hops(edit, hops, core):
            return True
        if len(path) > len(core):
            # a shorter path may still fit, so this is no reason for the report
            edit.refusals = refusals
    return False


def _core(edit: GraphRewriter, activation: Node) -> Path | None:
    """Return the ops of product, bias, activation, dropout, product (bias and dropout optional), or None."""
    x, out = sole_value(activation.inputs, "X"), sole_value(activation.outputs, "Out")
    before = edit.writer(x)
    path: Path = [(activation, "X")]
    if before is not None and _is_bias(before):
        path.insert(0, (before, "X"))
        before = edit.writer(sole_value(before.inputs, "X"))
    if before is None or columns(before) is None:
        return None
    path.insert(0, (before, "X"))
    dropout = edit.reader(out, "dropout", "X")
    if dropout is not None:
        path.append((dropout, "X"))
        out = sole_value(dropout.outputs, "Out")
    after = next((n for op in _LINEAR if (n := edit.reader(out, op, "X")) is not None), None)
    if after is None or columns(after) is None or out is None:
        return None
    if columns(before) != columns(after):
        edit.refuse(
            f"the layers around {activation.op} (built at {activation.where}) differ in rows"
        )
        return None
    if out.spec.dtype not in FLOATS:
        edit.refuse(f"{output_of(activation)} is {out.spec.dtype.name}")
        return None
    return [*path, (after, "X")]


def columns(node: Node) -> int | None:
    """Return how many dimensions of X are rows in a product with a matrix of weights, None for other ops."""
    x, y = sole_value(node.inputs, "X"), sole_value(node.inputs, "Y")
    if node.op not in _LINEAR or x is None or y is None or len(y.spec.shape) != 2:
        return None
    rank = len(x.spec.shape)
    if node.op == "mul":
        n = node.attrs["x_num_col_dims"]
        return int(n) if node.attrs["y_num_col_dims"] == 1 else None
    plain = not (node.attrs["transpose_X"] or node.attrs["transpose_Y"])
    return rank - 1 if plain and node.attrs["alpha"] == 1.0 and rank > 1 else None


def _is_bias(node: Node) -> bool:
    """Tell whether a node adds one number to each column."""
    if node.op != "elementwise_add":
        return False
    x, y = sole_value(node.inputs, "X"), sole_value(node.inputs, "Y")
    if x is None or y is None or len(y.spec.shape) != 1:
        return False
    last = len(x.spec.shape) - 1
    return last > 0 and node.attrs["axis"] in (-1, last) and x.spec.shape[-1] == y.spec.shape[0]


def _norm_before(edit: GraphRewriter, core: Path) -> Path:
    """Return the layer norm before the first layer, if it norms the same rows."""
    first = core[0][0]
    x = sole_value(first.inputs, "X")
    norm = edit.writer(x, "layer_norm")
    if norm is None or norm.attrs["begin_norm_axis"] != columns(first):
        return []
    return [(norm, "X")]


def _tails(edit: GraphRewriter, core: Path) -> list[Path]:
    """Return what may follow the second layer (bias, dropout, residual), longest first."""
    tail: Path = []
    tails: list[Path] = [[]]
    value = sole_value(core[-1][0].outputs, "Out")
    for find in (_bias_after, _dropout_after, _residual_after):
        hop = None if value is None else find(edit, value)
        if hop is not None:
            tail = [*tail, hop]
            tails.insert(0, tail)
            value = sole_value(hop[0].outputs, "Out")
    return tails


def _bias_after(edit: GraphRewriter, value: Value) -> tuple[Node, str] | None:
    node = edit.reader(value, "elementwise_add", "X")
    return (node, "X") if node is not None and _is_bias(node) else None


def _dropout_after(edit: GraphRewriter, value: Value) -> tuple[Node, str] | None:
    node = edit.reader(value, "dropout", "X")
    return None if node is None else (node, "X")


def _residual_after(edit: GraphRewriter, value: Value) -> tuple[Node, str] | None:
    for slot, other in (("Y", "X"), ("X", "Y")):
        node = edit.reader(value, "elementwise_add", slot)
        residual = None if node is None else sole_value(node.inputs, other)
        if node is not None and residual is not None and residual.spec == value.spec:
            return None if residual is value else (node, slot)
    return None


def _fuse_hops(edit: GraphRewriter, hops: Sequence[Hop], core: Path) -> bool:
    """Put the fused ops in; return False and record the reason if they do not fit."""
    operands = _operands(hops, core)
    values = {slot: hop.read(name) for slot, (hop, name) in operands.items()}
    gradients = {f"{slot}@GRAD": hop.d(name) for slot, (hop, name) in operands.items()}
    statistics: dict[str, Value | None] = {}
    norm = hops[0].node
    if norm.op == "layer_norm":
        statistics = {
            "Ln1Mean": norm.outputs["Mean"][0],
            "Ln1Variance": norm.outputs["Variance"][0],
        }
    out = {"Out": hops[-1].result()}
    attrs = _attrs(hops, core)
    where = core[0][0].where
    node = Node(
        FUSED, nonempty_slots(values), nonempty_slots({**out, **statistics}), attrs, where=where
    )
    if not derives_same(edit, node):
        return False
    pairs = [([hop.node for hop in hops], node)]
    backward = [hop.grad for hop in hops if hop.grad is not None]
    if backward:
        inputs = nonempty_slots({**values, **statistics, "Out@GRAD": hops[-1].d_result()})
        grad = replace(node, op=FUSED_GRAD, inputs=inputs, outputs=nonempty_slots(gradients))
        pairs.append((backward, grad))
    return edit.fuse_all(pairs)


def _operands(hops: Sequence[Hop], core: Path) -> dict[str, tuple[Hop, str]]:
    """Return, by slot of the fused op, the hop that reads the operand and its slot there."""
    operands: dict[str, tuple[Hop, str]] = {"X": (hops[0], "X")}
    layer = 0
    for hop in hops:
        if hop.node.op == "layer_norm":
            operands |= {"Ln1Scale": (hop, "Scale"), "Ln1Bias": (hop, "Bias")}
        elif hop.node in (core[0][0], core[-1][0]):
            layer += 1
            operands[f"Linear{layer}Weight"] = (hop, "Y")
        elif hop.node.op == "elementwise_add" and hop.slot == "X" and _is_bias(hop.node):
            operands[f"Linear{layer}Bias"] = (hop, "Y")
        elif hop.node.op == "elementwise_add":
            operands["Residual"] = (hop, "Y" if hop.slot == "X" else "X")
    return {slot: operands[slot] for slot in _SLOTS if slot in operands}


def _attrs(hops: Sequence[Hop], core: Path) -> dict[str, Any]:
    norm, second = hops[0].node, core[-1][0]
    normed = norm.op == "layer_norm"
    activation = next(hop.node for hop in hops if hop.node.op in _ACTIVATIONS)
    dropouts: dict[str, dict[str, Any]] = {"dropout1": {}, "dropout2": {}}
    name = "dropout1"
    for hop in hops:
        name = "dropout2" if hop.node is second else name
        if hop.node.op == "dropout":
            dropouts[name] = {**hop.node.attrs, "name": hop.result().name}
    return {
        "x_num_col_dims": columns(core[0][0]),
        "pre_layer_norm": normed,
        "ln1_epsilon": norm.attrs["epsilon"] if normed else 1e-5,
        "act_method": activation.op,
        "approximate": bool(activation.attrs.get("approximate", False)),
        **dropouts,
    }


PASS = Pass(
    "fused_feedforward",
    fused_feedforward,
    lambda target: target.strategy is not None and target.strategy.fused_feedforward,
    "its products must not have become part of fused products before",
)
