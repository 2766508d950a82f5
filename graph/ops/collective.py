"""Ops that join the replicas. They are nodes like any other; the executor runs them on its group.

``bucket`` numbers the collectives of a program; ``roots`` names the rank that each value goes to or comes from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .operands import Inputs, Operands, Outputs
from .registry import Inference, Op, Specs, define

ALL_REDUCE, REDUCE, BROADCAST = "fused_all_reduce", "fused_reduce", "fused_broadcast"
BARRIER = "replica_barrier"
COLLECTIVES = frozenset({ALL_REDUCE, REDUCE, BROADCAST, BARRIER})


def like_operands(op: Inference) -> Mapping[str, Specs]:
    """Every result is like its operand; one bucket holds one dtype."""
    specs = op.specs("X")
    op.require(len({spec.dtype for spec in specs}) == 1, "a bucket holds values of one dtype")
    return {"Out": specs}


def rooted(op: Inference) -> Mapping[str, Specs]:
    """Like :func:`like_operands`, with one root for each operand."""
    op.require(len(op.attr("roots")) == len(op.specs("X")), "roots must name a rank for each X")
    return like_operands(op)


class FusedAllReduce(Operands):
    x: Inputs
    out: Outputs
    bucket: int = 0


define(Op(type=ALL_REDUCE, record=FusedAllReduce, shape=like_operands, in_place={"Out": "X"}))


class RootedCollective(Operands):
    x: Inputs
    out: Outputs
    bucket: int = 0
    roots: Sequence[int] = []


define(Op(type=REDUCE, record=RootedCollective, shape=rooted, in_place={"Out": "X"}))


define(Op(type=BROADCAST, record=RootedCollective, shape=rooted, in_place={"Out": "X"}))


class ReplicaBarrier(Operands):
    bucket: int = 0


define(Op(type=BARRIER, record=ReplicaBarrier, shape=lambda op: {}))
