"""The part of a program that a place without rows runs: all nodes that do not depend on the batch.

The place takes part in the same collectives as its peers, in the same order, and makes the updates behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ops.collective import COLLECTIVES
from ..ops.registry import OPS
from .graph import STATE, TEMP
from .replica_program import NodeRecord, ReplicaProgram, ValueRecord
from .segments import Part

_ON_HOST = "numpy"  # the kernel of what lies beside a GPU; "" is that of any device


def idle_parts(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts of a program for a place without rows.

    They lack the nodes and host calls that depend on the batch, whose persistables stay as they are.
    Collectives read zeros, or no rows, instead of their results.
    """
    whole = parts[0]
    assert isinstance(whole, ReplicaProgram), "the first part is fed the batch"
    absent = {i for i in whole.feeds if whole.values[i].varies}
    idle: list[Part] = []
    for part in parts:
        if isinstance(part, NodeRecord):
            idle += _independent([part], whole.values, absent)
            continue
        segment = _without_rows(part, absent)
        if part is parts[-1]:
            idle.append(segment)
        elif segment.nodes:
            fetches = tuple(i for i in segment.fetches if i not in absent)
            idle.append(replace(segment, fetches=fetches))
    return tuple(idle)


def _independent(
    nodes: Sequence[NodeRecord], values: Sequence[ValueRecord], absent: set[int]
) -> list[NodeRecord]:
    """Return the collectives, and the nodes that read no ``absent`` value; add the results of others to it."""
    independent = []
    for node in nodes:
        reads = {i for positions in node.inputs.values() for i in positions}
        if node.op in COLLECTIVES or absent.isdisjoint(reads):
            independent.append(node)
        else:
            absent.update(i for i in node.writes() if values[i].kind != STATE)
    return independent


def _without_rows(segment: ReplicaProgram, absent: set[int]) -> ReplicaProgram:
    """Return a segment without the nodes that read ``absent`` values, and add their results to ``absent``."""
    values, nodes = list(segment.values), list[NodeRecord]()
    for node in _independent(segment.nodes, segment.values, absent):
        for i in dict.fromkeys(i for positions in node.inputs.values() for i in positions):
            if i in absent and values[i] is segment.values[i]:
                shape = tuple(max(size, 0) for size in values[i].shape)
                values[i] = replace(values[i], shape=shape, kind=TEMP)
                nodes.append(_zeros(i, values[i], node.where))
        nodes.append(node)
    checked = {id(segment.nodes[k]) for k in segment.checked}
    return replace(
        segment,
        values=tuple(values),
        nodes=tuple(nodes),
        feeds=tuple(i for i in segment.feeds if i not in absent),
        checked=tuple(k for k, node in enumerate(nodes) if id(node) in checked),
    )


def _zeros(position: int, value: ValueRecord, where: str) -> NodeRecord:
    """Return the node that makes a value zeros."""
    op, kernel = "fill_constant", _ON_HOST if value.host else ""
    attrs = {**OPS[op].attrs, "shape": list(value.shape), "dtype": value.dtype, "value": 0.0}
    return NodeRecord(op, {}, {"Out": [position]}, attrs, kernel, where)
