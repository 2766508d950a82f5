"""Make a step happen on every replica or on none: nothing that lasts is written before the last collective.

A replica that comes to the last collective of a step has done all that its peers need of it; once all have
come, each can finish by itself. So that meeting is the vote, and the writes to persistables follow it.

What a replica alone can tell of a step (its rows' losses, its statistics) must outlive it as soon as the step
has happened, so it is computed before the vote, and handed over there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..ir.graph import STATE, TEMP, Graph, Node, Value
from ..ops.collective import BARRIER, COLLECTIVES
from ..ops.registry import OPS
from ..program.role import OpRole
from .replicated import kept_states, replicated
from .target import Pass, Target


def write_after_vote(graph: Graph, target: Target) -> Graph:
    """Order the graph: what needs no more peers, the last collective, then every write to a persistable.

    A persistable that an earlier op must write (batch-norm statistics, counters, the first of two updates,
    what an owner updates and broadcasts) is written beside the old value and copied over it at the end. A
    program that writes without any collective gets a barrier to vote at; so does one in which a place's own
    rows meet what the last collective made, for what it fetches of that must be known before the vote.
    """
    written = [value for node in graph.nodes for value in _changed(node)]
    meetings = [node for node in graph.nodes if node.op in COLLECTIVES]
    if not written and not meetings:
        return graph
    own = _own(graph, target)
    if not written and not own:
        return graph
    if target.checks or not meetings or meetings[-1] in _needed(graph, own):
        meetings.append(_barrier())
    vote = meetings[-1]
    early = _before_the_vote(graph, meetings, own)
    if target.checks:  # all that is made is looked at before the vote
        early = {*graph.nodes, vote}
    nodes = [node for node in graph.nodes if node in early and node is not vote]
    late = [node for node in graph.nodes if node not in early]
    beside = _beside([*nodes, vote], {value.name: value for value in written})
    swap = {value: aside for value, (aside, _) in beside.items()}
    last = {value: copied for value, (_, copied) in beside.items() if copied is not None}
    nodes = [_redirected(node, swap) for node in [*nodes, vote, *late]]
    nodes += _copies(beside, [*graph.nodes, vote])
    same = nodes == list(graph.nodes)
    return graph if same else graph.with_nodes(nodes, {**swap, **last})


def _changed(node: Node) -> list[Value]:
    """Return the persistables that a node changes; a batch norm that only uses its statistics changes none."""
    written = [value for value in node.writes() if value.kind == STATE]
    read = {value.name for value in node.reads() if value.kind == STATE}
    uses = all(value.name in read for value in written) and OPS[node.op].only_uses(node.attrs)
    return [] if uses else written


def _own(graph: Graph, target: Target) -> set[Value]:
    """Return the values that differ by place and are fetched, or kept by the driver for each place."""
    alike = replicated(graph, target)
    return {*kept_states(graph, alike, target), *graph.needed(target.fetches) - alike}


def _barrier() -> Node:
    return Node(BARRIER, {}, {}, {"bucket": 0}, int(OpRole.Optimize), "the end of the step")


def _needed(graph: Graph, wanted: Iterable[Value], more: Iterable[Node] = ()) -> set[Node]:
    """Return the nodes that some values, and some nodes, need."""
    maker = {value: node for node in graph.nodes for value in node.writes()}
    needed: set[Node] = set()
    waiting = [*more, *(maker[value] for value in wanted if value in maker)]
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += [maker[value] for value in node.reads() if value in maker]
    return needed


def _before_the_vote(graph: Graph, meetings: Iterable[Node], own: Iterable[Value]) -> set[Node]:
    """Return what the collectives and each place's ``own`` values need, and what needs no collective and
    writes nothing that lasts."""
    early = _needed(graph, own, meetings)
    reduced = {value for node in early if node.op in COLLECTIVES for value in node.writes()}
    for node in graph.nodes:
        if reduced.intersection(node.reads()) or (_changed(node) and node not in early):
            reduced.update(node.writes())
        else:
            early.add(node)
    return early


Beside = dict[Value, tuple[Value, Value | None]]


def _beside(early: Iterable[Node], newest: dict[str, Value]) -> Beside:
    """Return, per persistable value written before the vote, a temporary to write instead.

    With it comes what the temporary is copied to at the end, if no later write makes that needless.
    """
    found: Beside = {}
    for node in early:
        for value in _changed(node):
            kept = replace(value, version=value.version + 1)
            found[value] = (
                replace(value, kind=TEMP),
                kept if newest[value.name] is value else None,
            )
    return found


def _redirected(node: Node, swap: dict[Value, Value]) -> Node:
    node = node.reading(swap)
    if not any(value in swap for value in node.writes()):
        return node
    outputs = {
        slot: tuple(swap.get(v, v) if v else None for v in values)
        for slot, values in node.outputs.items()
    }
    return replace(node, outputs=outputs)


def _copies(beside: Beside, nodes: Iterable[Node]) -> list[Node]:
    maker = {value: node for node in nodes for value in node.writes()}
    return [
        Node(
            "assign",
            {"X": (aside,)},
            {"Out": (kept,)},
            {},
            int(OpRole.Optimize),
            maker[value].where,
            at=maker[value].at,
            host=maker[value].host,
        )
        for value, (aside, kept) in beside.items()
        if kept is not None
    ]


PASS = Pass(
    "write_after_vote",
    write_after_vote,
    lambda target: target.replicas > 1 or target.checks,
    "must see every collective; only their numbers come after it",
)
