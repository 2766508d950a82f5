"""Collectives that stand in a user's program: trainers, each with a program of its own, meet in rings.

``ring_id`` numbers the rings; replicas of one program meet by the ops in ``collective.py`` instead. Slots,
attributes and defaults are Paddle's.
"""

from __future__ import annotations

from collections.abc import Sequence

from .collective import gathered_rows, like_operand, scattered_rows
from .lod import no_sequences
from .operands import Input, Operands, Output, named
from .registry import MESSAGE_OPS, Op
from .rules import as_declared


class GenNcclId(Operands):
    """The trainers of ``trainers`` (endpoints by rank) agree on a group, in ``nccl_comm_num`` copies."""

    nccl_id: Output = named("NCCLID")
    trainers: Sequence[str] = []
    trainer_id: int = 0
    nccl_comm_num: int = 1
    use_hierarchical_allreduce: bool = False
    hierarchical_allreduce_inter_nranks: int = -1


class CGenNcclId(Operands):
    out: Output
    rank: int = 0
    endpoint: str = ""
    other_endpoints: Sequence[str] = []
    ring_id: int = 0


class CCommInit(Operands):
    x: Input
    nranks: int = 1
    rank: int = 0
    ring_id: int = 0


class CCommInitAll(Operands):
    devices: Sequence[int] = []
    ring_id: int = 0


class InRing(Operands):
    x: Input
    out: Output
    ring_id: int = 0
    use_calc_stream: bool = False


class CBroadcast(InRing):
    root: int = 0


class Shares(InRing):
    nranks: int = 1


class CSyncCalcStream(Operands):
    x: Input
    out: Output


class CSyncCommStream(Operands):
    x: Input
    out: Output
    ring_id: int = 0


for _type, _record, _shape in (
    ("gen_nccl_id", GenNcclId, as_declared),
    ("c_gen_nccl_id", CGenNcclId, as_declared),
    ("c_comm_init", CCommInit, as_declared),
    ("c_comm_init_all", CCommInitAll, as_declared),
    ("c_broadcast", CBroadcast, like_operand),
    *((f"c_allreduce_{kind}", InRing, like_operand) for kind in ("sum", "max", "min", "prod")),
    ("c_allgather", Shares, gathered_rows),
    ("c_reducescatter", Shares, scattered_rows),
    ("c_sync_calc_stream", CSyncCalcStream, like_operand),
    ("c_sync_comm_stream", CSyncCommStream, like_operand),
):
    MESSAGE_OPS[_type] = Op(_type, _record, _shape, lod=no_sequences)
