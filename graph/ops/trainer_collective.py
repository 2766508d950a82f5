"""Collectives in a user's program: trainers, each with a program of its own, meet in rings.

``ring_id`` numbers the rings; replicas of one program meet by the ops in ``collective.py`` instead. Slots,
attributes and defaults are Paddle's.
"""

from __future__ import annotations

from .collective import gathered_rows, like_input, scattered_rows
from .lod import no_sequences
from .operands import record_of
from .registry import define_message
from .rules import as_declared

_RING = {"ring_id": 0, "use_calc_stream": False}
_SHARES = record_of("x", "out", **_RING, nranks=1)

for _type, _record, _shape in (
    # the trainers of ``trainers`` (endpoints by rank) agree on a group, in ``nccl_comm_num`` copies
    (
        "gen_nccl_id",
        record_of(
            "",
            "nccl_id:NCCLID",
            trainers=[],
            trainer_id=0,
            nccl_comm_num=1,
            use_hierarchical_allreduce=False,
            hierarchical_allreduce_inter_nranks=-1,
        ),
        as_declared,
    ),
    (
        "c_gen_nccl_id",
        record_of("", "out", rank=0, endpoint="", other_endpoints=[], ring_id=0),
        as_declared,
    ),
    ("c_comm_init", record_of("x", nranks=1, rank=0, ring_id=0), as_declared),
    ("c_comm_init_all", record_of("", devices=[], ring_id=0), as_declared),
    ("c_broadcast", record_of("x", "out", **_RING, root=0), like_input),
    *(
        (f"c_allreduce_{kind}", record_of("x", "out", **_RING), like_input)
        for kind in ("sum", "max", "min", "prod")
    ),
    ("c_allgather", _SHARES, gathered_rows),
    ("c_reducescatter", _SHARES, scattered_rows),
    ("c_sync_calc_stream", record_of("x", "out"), like_input),
    ("c_sync_comm_stream", record_of("x", "out", ring_id=0), like_input),
):
    define_message(_type, _record, _shape, lod=no_sequences)

# They say who meets: what runs a program reads that before it runs.
INTRODUCTIONS = frozenset({"gen_nccl_id", "c_gen_nccl_id", "c_comm_init", "c_comm_init_all"})
# They order the streams of a GPU; nodes that follow each other are in order anyway.
STREAM_ORDERS = frozenset({"c_sync_calc_stream", "c_sync_comm_stream"})
REDUCTIONS = {
    "c_allreduce_sum": "sum",
    "c_allreduce_prod": "product",
    "c_allreduce_min": "min",
    "c_allreduce_max": "max",
}
MEETINGS = frozenset({*REDUCTIONS, "c_broadcast", "c_allgather", "c_reducescatter"})
RING_TYPES = INTRODUCTIONS | STREAM_ORDERS | MEETINGS
