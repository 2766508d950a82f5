"""When and how collectives happen: delayed past other compute if allowed, numbered alike."""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Graph, Node
from ..ops.collective import BARRIER, COLLECTIVES
from ..program.role import OpRole
from .target import Pass, Target


def delay_collectives(graph: Graph, target: Target) -> Graph:
    """Move each collective behind the compute that does not need its result (``allow_op_delay``)."""
    nodes: list[Node] = []
    delayed: list[Node] = []
    for node in graph.nodes:
        if node.op in COLLECTIVES:
            delayed.append(node)
            continue
        last = max(
            (i for i, collective in enumerate(delayed) if _conflict(collective, node)), default=-1
        )
        nodes += [*delayed[: last + 1], node]  # collectives keep their own order
        delayed = delayed[last + 1 :]
    nodes += delayed
    return graph if nodes == list(graph.nodes) else graph.with_nodes(nodes)


def _conflict(collective: Node, node: Node) -> bool:
    """Tell whether a node must not run before a collective: it reads its result, or overwrites its operand."""
    writes = {value.name for value in collective.writes()}
    return bool(writes.intersection(v.name for v in (*node.reads(), *node.writes())))


def add_barrier(graph: Graph, target: Target) -> Graph:
    """Let every rank wait for the others at the end of the step (``use_thread_barrier``)."""
    barrier = Node(BARRIER, {}, {}, {"bucket": 0}, int(OpRole.Optimize), "the end of the step")
    return graph.with_nodes([*graph.nodes, barrier])


def order_collectives(graph: Graph, target: Target) -> Graph:
    """Number the collectives in the order in which every rank runs them."""
    number = 0
    nodes = []
    for node in graph.nodes:
        if node.op in COLLECTIVES:
            node = replace(node, attrs={**node.attrs, "bucket": number})
            number += 1
        nodes.append(node)
    return graph.with_nodes(nodes) if number else graph


DELAY = Pass(
    "delay_collectives",
    delay_collectives,
    lambda target: target.many and target.delay_collectives and not target.in_program_order,
    "moves buckets, not single gradients",
)
BARRIER_AT_END = Pass(
    "add_barrier",
    add_barrier,
    lambda target: target.barrier and target.replicas > 1,
    "must be the last to meet",
)
ORDER = Pass(
    "order_collectives",
    order_collectives,
    lambda target: target.replicas > 1,
    "numbers what all others left",
)
