"""Startup programs that make rings, in which trainers of one place meet."""

from __future__ import annotations

import rowlock.fluid as fluid
from rowlock.graph.program.program import Program


def add_ring(startup: Program, rank: int, ends: list[str], ring: int = 0) -> None:
    """Have a startup program make a ring."""
    block = startup.global_block()
    kind = fluid.core.VarDesc.VarType.RAW
    number = block.create_var(name=f"NCCLID_{ring}", persistable=True, type=kind)
    others = [end for end in ends if end != ends[rank]]
    block.append_op(
        type="c_gen_nccl_id",
        inputs={},
        outputs={"Out": [number]},
        attrs={"rank": rank, "endpoint": ends[rank], "other_endpoints": others},
    )
    attrs = {"nranks": len(ends), "rank": rank, "ring_id": ring}
    block.append_op(type="c_comm_init", inputs={"X": [number]}, outputs={}, attrs=attrs)
