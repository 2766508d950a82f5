"""fuse_all_optimizer_ops: updates by one rule with the same attributes become one op over many parameters.

Attributes that a fused op keeps for each parameter may differ. ``fuse_adamw`` does the same for adamw alone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from ..ir.graph import Graph, Node, Value
from ..ops.fused_optimize import FUSED, OWN, SOMETIMES, fused_slots
from ..ops.registry import OPS
from .target import Pass, Target

Key = tuple[str, str, tuple[str, ...], int, int, bool]


def fuse_optimizers(graph: Graph, target: Target) -> Graph:
    """Gather updates into groups, each in the place of its last member.

    A group ends before a node that must stay behind one of its members. Each parameter keeps its rate and
    powers. Updates at different ranks, of different types or with different attributes stay apart.
    """
    return _gather_updates(graph, FUSED, "fuse_all_optimizer_ops")


def fuse_adamw(graph: Graph, target: Target) -> Graph:
    """Gather updates by AdamW; each keeps its decay and its part of the learning rate."""
    return _gather_updates(graph, ("adamw",), "fuse_adamw")


def _gather_updates(graph: Graph, rules: Collection[str], name: str) -> Graph:
    """Fuse the updates by these rules, and note the result under a switch's name."""
    gatherer = _Gatherer(rules)
    for node in graph.nodes:
        gatherer.take(node)
    nodes = list(gatherer.finish())
    if len(nodes) == len(graph.nodes):
        return graph.noted(f"{name}: nothing fused: {_describe_absence(graph, rules)}")
    old_ids = {id(node) for node in graph.nodes}
    fused = [n for n in nodes if id(n) not in old_ids]
    counts = ", ".join(f"{len(n.inputs['Param'])} updates in one {n.op}" for n in fused)
    return graph.with_nodes(nodes).noted(f"{name}: fused {counts}")


def _describe_absence(graph: Graph, rules: Collection[str]) -> str:
    updates = [n for n in graph.nodes if n.op in rules]
    if not updates:
        fused = sorted({n.op for n in graph.nodes} & {FUSED[rule] for rule in rules})
        if fused:
            return f"all updates are in {' and '.join(fused)} already"
        if len(rules) < len(FUSED):
            return f"the program has no update by {' or '.join(sorted(rules))}"
        return "the program updates no parameter with dense gradients"
    if len(updates) == 1:
        return f"there is one update only, of {updates[0].inputs['Param'][0]}"
    return "no two updates are alike in rule, type, attributes and rank"


class _Gatherer:
    """Holds updates back in groups until a node depends on them, or the graph ends."""

    def __init__(self, rules: Collection[str]) -> None:
        self._rules = rules
        self.nodes: list[Node | list[Node]] = []
        self._open: dict[Key, list[Node]] = {}

    def take(self, node: Node) -> None:
        for key, group in list(self._open.items()):
            if _depends(node, group):
                del self._open[key]
        if node.op not in self._rules or not _fusible(node):
            self.nodes.append(node)
            return
        key = _key(node)
        group = self._open.setdefault(key, [])
        # A group takes the place of its last member, so it moves behind every node since.
        self.nodes = [n for n in self.nodes if n is not group]
        group.append(node)
        self.nodes.append(group)

    def finish(self) -> Iterator[Node]:
        for entry in self.nodes:
            if isinstance(entry, Node):
                yield entry
            elif len(entry) == 1:
                yield entry[0]
            else:
                yield _merge(entry)


def _depends(node: Node, group: Iterable[Node]) -> bool:
    """Tell whether a node must stay behind a group: it touches the group's results, or writes its operands."""
    written = {v.name for member in group for v in member.writes()}
    read = {v.name for member in group for v in member.reads()}
    writes = {v.name for v in node.writes()}
    return bool(written.intersection(v.name for v in node.reads()) or writes & (written | read))


def _fusible(node: Node) -> bool:
    """Tell whether an update has each operand of its rule once, and none that a fused update cannot have."""
    required = {slot.name for slot in fused_slots(OPS[node.op], OPS[node.op].input_slots)}
    slots = {slot for slot, values in node.inputs.items() if values}
    single_results = all(len(vs) == 1 and vs[0] is not None for vs in node.outputs.values() if vs)
    return required.difference(SOMETIMES) <= slots <= required and single_results


def _key(node: Node) -> Key:
    param = node.inputs["Param"][0]
    assert param is not None
    shared = {k: v for k, v in node.attrs.items() if k not in OWN[node.op]}
    attrs = json.dumps(shared, sort_keys=True, default=str)
    in_use = {**node.inputs, **node.outputs}
    extra = tuple(slot for slot in SOMETIMES if in_use.get(slot))
    return node.op, attrs, extra, int(param.spec.dtype), node.at, node.host


def _merge(group: list[Node]) -> Node:
    first = group[0]
    own = {name: [n.attrs[name] for n in group] for name in OWN[first.op]}
    return replace(
        first,
        op=FUSED[first.op],
        attrs={**first.attrs, **own},
        inputs={s: _column([n.inputs[s] for n in group]) for s, vs in first.inputs.items() if vs},
        outputs={
            s: _column([n.outputs[s] for n in group]) for s, vs in first.outputs.items() if vs
        },
        grads=tuple(pair for n in group for pair in n.grads),
    )


def _column(values: list[tuple[Value | None, ...]]) -> tuple[Value | None, ...]:
    return tuple(value for slot in values for value in slot)


ADAMW = Pass(
    "fuse_adamw",
    fuse_adamw,
    lambda target: target.strategy is not None and target.strategy.fuse_adamw,
    "owners of updates are known; stands before the pass that gathers the other updates",
)
ALL = Pass(
    "fuse_all_optimizer_ops",
    fuse_optimizers,
    lambda target: target.strategy is not None and target.strategy.fuse_all_optimizer_ops,
    "owners of updates are known; its ops are ordered behind the vote like any update",
)
