"""Ops that join the replicas. They are nodes like any other; the executor runs them on its group.

``bucket`` numbers the collectives of a program; ``roots`` names the rank that each value goes to or comes from.
"""

from __future__ import annotations

from collections.abc import Mapping

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


define(
    Op(
        type=ALL_REDUCE,
        inputs=("X*",),
        outputs=("Out*",),
        attrs={"bucket": 0},
        shape=like_operands,
        in_place={"Out": "X"},
    )
)
define(
    Op(
        type=REDUCE,
        inputs=("X*",),
        outputs=("Out*",),
        attrs={"bucket": 0, "roots": []},
        shape=rooted,
        in_place={"Out": "X"},
    )
)
define(
    Op(
        type=BROADCAST,
        inputs=("X*",),
        outputs=("Out*",),
        attrs={"bucket": 0, "roots": []},
        shape=rooted,
        in_place={"Out": "X"},
    )
)
define(
    Op(
        type=BARRIER,
        inputs=(),
        outputs=(),
        attrs={"bucket": 0},
        shape=lambda op: {},
    )
)
