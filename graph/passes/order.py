"""When and how collectives happen: delayed past other compute if allowed, numbered alike, dealt to rings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...strategies.errors import InvalidArgument
from ..ir.graph import Graph, Node
from ..ops.collective import ALL_REDUCE, BARRIER, COLLECTIVES, HOST
from ..program.role import OpRole
from .target import Pass, Target


def delay_collectives(graph: Graph, target: Target) -> Graph:
    """Move each collective behind the compute that does not need its result (``allow_op_delay``)."""
    nodes: list[Node] = []
    waiting: list[Node] = []
    for node in graph.nodes:
        if node.op in COLLECTIVES:
            waiting.append(node)
            continue
        last = max((i for i, late in enumerate(waiting) if _conflict(late, node)), default=-1)
        nodes += [*waiting[: last + 1], node]  # collectives keep their own order
        waiting = waiting[last + 1 :]
    nodes += waiting
    return graph if nodes == list(graph.nodes) else graph.with_nodes(nodes)


def _conflict(collective: Node, node: Node) -> bool:
    """Tell whether a node must not run before a collective: it reads its result, or overwrites its operand."""
    written = {value.name for value in collective.writes()}
    return bool(written.intersection(v.name for v in (*node.reads(), *node.writes())))


def add_barrier(graph: Graph, target: Target) -> Graph:
    """Let every rank wait for the others at the end of the step (``use_thread_barrier``)."""
    barrier = Node(BARRIER, {}, {}, {"bucket": 0}, int(OpRole.Optimize), "the end of the step")
    return graph.with_nodes([*graph.nodes, barrier])


def order_collectives(graph: Graph, target: Target) -> Graph:
    """Number the collectives in the order in which every rank will meet them."""
    number = 0
    nodes = []
    for node in graph.nodes:
        if node.op in COLLECTIVES:
            node = replace(node, attrs={**node.attrs, "bucket": number})
            number += 1
        nodes.append(node)
    return graph.with_nodes(nodes) if number else graph


def spread_collectives(graph: Graph, target: Target) -> Graph:
    """Deal collectives to rings in turn (``nccl_comm_num``), and combine in two levels if that is asked for.

    Raises:
        InvalidArgument: the replicas cannot be put in groups of that size.
    """
    build = target.strategy
    assert build is not None
    inner = 0
    if build.use_hierarchical_allreduce:
        inner = build.hierarchical_allreduce_inter_nranks or HOST
        if target.replicas % inner:
            raise InvalidArgument(
                f"hierarchical_allreduce_inter_nranks={inner} does not divide {target.replicas} replicas: "
                f"every group must have as many."
            )
    nodes, turn = [], 0
    for node in graph.nodes:
        if node.op in COLLECTIVES and node.op != BARRIER:
            how = {"ring": turn % build.nccl_comm_num}
            if node.op == ALL_REDUCE:
                how["inner"] = inner
            node = replace(node, attrs={**node.attrs, **how})
            turn += 1
        nodes.append(node)
    where = f"{turn} collectives go round {build.nccl_comm_num} communicator(s) of NCCL"
    levels = f" in two levels, groups of {inner if inner > 0 else 'a host'} first" if inner else ""
    return graph.with_nodes(nodes).noted(where + levels)


def without_effect(target: Target) -> Iterator[str]:
    """Say of what was asked of :func:`spread_collectives` that it changes nothing, and why."""
    build = target.strategy
    if build is None:
        return
    asked = [f"nccl_comm_num={build.nccl_comm_num}"] if build.nccl_comm_num > 1 else []
    asked += ["use_hierarchical_allreduce"] if build.use_hierarchical_allreduce else []
    if target.replicas == 1:
        why = "one replica meets nobody"
    elif not target.nccl:
        why = "it is for replicas on GPUs that meet by Rowlock's NCCL group; others are joined by hosts anyway"
    elif build.hierarchical_allreduce_inter_nranks in (1, target.replicas):
        asked, why = asked[-1:] * build.use_hierarchical_allreduce, "all would be one group"
    else:
        return
    for name in asked:
        yield f"{name}: without effect ({why})"


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
SPREAD = Pass(
    "spread_collectives",
    spread_collectives,
    lambda target: (
        target.nccl
        and target.replicas > 1
        and target.strategy is not None
        and (target.strategy.nccl_comm_num > 1 or target.strategy.use_hierarchical_allreduce)
    ),
    "deals in the order that was numbered",
)
