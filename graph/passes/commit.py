"""Make a step commit on every replica or on none: persistables are written behind the last collective.

A replica that reaches the last collective of a step has computed all that its peers need of it; once all have
reached it, each can finish by itself. So that collective is the vote, and the writes to persistables follow it.

Results that only one replica has (its rows' losses, its statistics) must outlive it once the step is committed,
so they are computed before the vote and handed over there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..ir.graph import STATE, TEMP, Graph, Node, Value
from ..ops.collective import BARRIER, COLLECTIVES
from ..ops.host_call import HOST_CALL
from ..ops.registry import OPS
from ..program.role import OpRole
from .replicated import place_states, replicated
from .target import Pass, Target


def write_after_vote(graph: Graph, target: Target) -> Graph:
    """Order the graph: nodes that later collectives need, the last collective, the writes to persistables.

    A persistable that an earlier op must write (batch-norm statistics, counters, the first of two updates,
    what an owner updates and broadcasts) is written beside the old value and copied over it at the end. A
    program that writes without any collective gets a barrier as its vote; so does one that fetches a value
    computed from a place's own rows and the last collective's results, for that must be known before the vote;
    and one that is cut behind its last collective, where a place may fail.
    """
    states = [value for node in graph.nodes for value in _changed_states(node)]
    collectives = [node for node in graph.nodes if node.op in COLLECTIVES]
    if not states and not collectives:
        return graph
    own_values = _own_values(graph, target)
    if not states and not own_values:
        return graph
    cuts = [*filter(_may_cut, graph.nodes)]
    needed = _needed_nodes(graph, own_values, cuts)
    if target.checks or not collectives or collectives[-1] in needed:
        collectives.append(_barrier())
    vote = collectives[-1]
    early = _before_the_vote(graph, [*collectives, *cuts], own_values)
    if target.checks:  # every result is checked before the vote
        early = {*graph.nodes, vote}
    nodes = [node for node in graph.nodes if node in early and node is not vote]
    late = [node for node in graph.nodes if node not in early]
    beside = _beside([*nodes, vote], {value.name: value for value in states})
    swap = {value: aside for value, (aside, _) in beside.items()}
    last = {value: copied for value, (_, copied) in beside.items() if copied is not None}
    nodes = [node.reading(swap).writing(swap) for node in [*nodes, vote, *late]]
    nodes += _copies(beside, [*graph.nodes, vote])
    same = nodes == list(graph.nodes)
    return graph if same else graph.with_nodes(nodes, {**swap, **last})


def _changed_states(node: Node) -> list[Value]:
    """Return the persistables that a node changes; a batch norm that only uses its statistics changes none."""
    writes = [value for value in node.writes() if value.kind == STATE]
    reads = {value.name for value in node.reads() if value.kind == STATE}
    only_uses = all(value.name in reads for value in writes) and OPS[node.op].only_uses(node.attrs)
    return [] if only_uses else writes


def _may_cut(node: Node) -> bool:
    """Tell whether a step may be cut at a node (see ``graph/ir/segments.py``); what collectives read is fed."""
    reads = OPS[node.op].values_read(node.attrs, node.inputs)
    return node.op == HOST_CALL or (node.op not in COLLECTIVES and bool(reads))


def _own_values(graph: Graph, target: Target) -> set[Value]:
    """Return the values that differ by place and are fetched, or stored by the driver for each place."""
    alike = replicated(graph, target)
    return {*place_states(graph, alike, target), *graph.needed(target.fetches) - alike}


def _barrier() -> Node:
    return Node(BARRIER, {}, {}, {"bucket": 0}, int(OpRole.Optimize), "the end of the step")


def _needed_nodes(graph: Graph, values: Iterable[Value], extra: Iterable[Node] = ()) -> set[Node]:
    """Return the nodes that compute ``values``, the nodes ``extra``, and all that these depend on."""
    maker = graph.writers()
    ancestors: set[Node] = set()
    queue = [*extra, *(maker[value] for value in values if value in maker)]
    while queue:
        node = queue.pop()
        if node not in ancestors:
            ancestors.add(node)
            queue += [maker[value] for value in node.reads() if value in maker]
    return ancestors


def _before_the_vote(graph: Graph, first: Iterable[Node], own_values: Iterable[Value]) -> set[Node]:
    """Return the nodes ``first`` (collectives, and where a step may be cut), what these and ``own_values``
    need, and the nodes that depend on no collective and write no persistable."""
    early = _needed_nodes(graph, own_values, first)
    reduced = {value for node in early if node.op in COLLECTIVES for value in node.writes()}
    for node in graph.nodes:
        if reduced.intersection(node.reads()) or (_changed_states(node) and node not in early):
            reduced.update(node.writes())
        else:
            early.add(node)
    return early


Beside = dict[Value, tuple[Value, Value | None]]


def _beside(early: Iterable[Node], newest: dict[str, Value]) -> Beside:
    """Return, per persistable value written before the vote, a temporary to write instead and its copy.

    The copy is the value that the temporary is copied to at the end, None if a later write makes it needless.
    """
    temporaries: Beside = {}
    for node in early:
        for value in _changed_states(node):
            copied = replace(value, version=value.version + 1)
            temporaries[value] = (
                replace(value, kind=TEMP),
                copied if newest[value.name] is value else None,
            )
    return temporaries


def _copies(beside: Beside, nodes: Iterable[Node]) -> list[Node]:
    maker = {value: node for node in nodes for value in node.writes()}
    return [
        Node(
            "assign",
            {"X": (aside,)},
            {"Out": (copied,)},
            {},
            int(OpRole.Optimize),
            maker[value].where,
            at=maker[value].at,
            host=maker[value].host,
        )
        for value, (aside, copied) in beside.items()
        if copied is not None
    ]


PASS = Pass(
    "write_after_vote",
    write_after_vote,
    lambda target: target.replicas > 1 or target.checks,
    "must see every collective; only their numbering comes after it",
)
