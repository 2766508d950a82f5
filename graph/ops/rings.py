"""Collectives that stand for ops of ``trainer_collective.py`` when a trainer's program runs."""

from __future__ import annotations

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
