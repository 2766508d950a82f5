"""Ops that join the replicas. They are nodes like any other; the executor runs them on its group.

``bucket`` numbers the collectives of a program; ``roots`` names the rank that each value goes to or comes from.
"""

from __future__ import annotations

from .operands import Input, Operands, Output, record_of
from .registry import ShapeRule, define
from .rules import same
from .shapes import Sized

ALL_REDUCE, REDUCE, BROADCAST = "fused_all_reduce", "fused_reduce", "fused_broadcast"
BARRIER = "replica_barrier"
GATHER_ROWS, SPREAD_ROWS = "gather_rows", "spread_rows"  # declared in ``selected_rows.py``
# The feed of how many rows each place brings, by gradient: of a driver's own places the driver knows it.
ROW_COUNTS = "@ROW_COUNTS"
# Of users' own programs, on values of any size: they lie in no bucket.
RING_REDUCE, RING_BROADCAST = "ring_all_reduce", "ring_broadcast"
RING_GATHER, RING_SCATTER = "ring_all_gather", "ring_reduce_scatter"
RING_OPS = frozenset({RING_REDUCE, RING_BROADCAST, RING_GATHER, RING_SCATTER})
BUCKETED = frozenset({ALL_REDUCE, REDUCE, BROADCAST, BARRIER, GATHER_ROWS, SPREAD_ROWS})
COLLECTIVES = BUCKETED | RING_OPS


like_operands = Sized("X as X -> Out")


rooted = like_operands.extended("->", "len(roots) == len(X); roots must name a rank for each X")


# With ``step`` the one operand is sparse from ``rampup_begin_step`` on: see ``dgc.elements_sent``.
define(
    ALL_REDUCE,
    record_of("x* step?", "out*", bucket=0, sparsity=[], rampup_begin_step=0.0, rampup_step=1.0),
    like_operands,
    in_place={"Out": "X"},
)
_ROOTED = record_of("x*", "out*", bucket=0, roots=[])
define(REDUCE, _ROOTED, rooted, in_place={"Out": "X"})
define(BROADCAST, _ROOTED, rooted, in_place={"Out": "X"})
define(BARRIER, record_of("", bucket=0), lambda op: {})


class RingCollective(Operands):
    """``reduce`` is "sum", "product", "min" or "max"; ``root`` the rank whose value all get."""

    x: Input
    out: Output
    bucket: int = 0
    reduce: str = "sum"
    root: int = 0
    nranks: int = 1


like_input = same()
gathered_rows: ShapeRule = Sized("X [rows ...] -> Out [rows*nranks ...]")
scattered_rows: ShapeRule = Sized("X [rows ...] -> Out [rows/nranks ...]")


define(RING_REDUCE, RingCollective, like_input)
define(RING_BROADCAST, RingCollective, like_input)
define(RING_GATHER, RingCollective, gathered_rows)
define(RING_SCATTER, RingCollective, scattered_rows)
