"""Rings: the trainers that meet in collective ops (``c_allreduce_sum``) of a program on one place."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ...graph.ops.trainer_collective import MEETINGS, RING_TYPES
from ...graph.program.operator import Operator
from ...graph.program.program import Program
from ...strategies.errors import (
    EnforceNotMet,
    InvalidArgument,
    InvalidState,
    InvalidValue,
    Unsupported,
)
from ..feed.scope import Ring, Scope
from ..gang.trainers import ENDPOINTS, Trainers, listed_endpoints

_NUMBER = "PADDLE_TRAINER_ID"


def rings_of(program: Program, scope: Scope) -> Trainers | None:
    """Return the trainers that a program's own collectives meet, None if it has none or they are one.

    Rings are those that a startup program made in the scope (``c_gen_nccl_id``, ``c_comm_init``), this one's
    among them; else that of the environment.

    Raises:
        InvalidState: no ring has the number of an op.
        InvalidValue: the environment's number is none of its trainers.
        InvalidArgument: the rings' ops contradict each other.
        Unsupported: the program's rings have other members.
    """
    ops = [op for block in program.blocks for op in block.ops if op.type in RING_TYPES]
    if not ops:
        return None
    scope.rings.update(_rings_made(ops))
    rings: dict[int, Ring] = {}
    for op in ops:
        if op.type in MEETINGS:
            number = op.attrs.get("ring_id", 0)
            rings[number] = _ring(number, op, scope)
    if len(set(rings.values())) > 1:
        listed = "; ".join(f"{number}: {', '.join(r.endpoints)}" for number, r in rings.items())
        raise Unsupported(
            f"rings of one program must have the same trainers, in one order ({listed}). Put collectives of "
            f"other groups into a program of their own."
        )
    for ring in rings.values():
        if len(ring.endpoints) > 1:
            return Trainers(ring.endpoints, ring.rank, "rings")
    return None


def refuse_rings(program: Program) -> None:
    """Refuse a data-parallel program that has collectives of its own.

    Raises:
        Unsupported: names the first, and where it was built.
    """
    for op in program.global_block().ops:
        if op.type in MEETINGS:
            raise Unsupported(
                f"{op.type} stands in the program, so each trainer has one place: run it by "
                f"Executor.run(program), not data-parallel. Built at {op.where}."
            )


def _rings_made(ops: list[Operator]) -> Iterator[tuple[int, Ring]]:
    """Yield the rings that a program makes, by number."""
    by_name: dict[str, Ring] = {}
    for op in ops:
        if op.type == "c_gen_nccl_id":
            endpoints = list(op.attrs["other_endpoints"])
            rank = op.attrs["rank"]
            if not 0 <= rank <= len(endpoints):
                raise EnforceNotMet(
                    f"{op.type}: rank {rank} must be at least 0 and below the number of trainers "
                    f"({len(endpoints) + 1}). Built at {op.where}."
                )
            endpoints.insert(rank, op.attrs["endpoint"])
            by_name[op.output("Out")[0]] = Ring(tuple(endpoints), rank)
        elif op.type == "c_comm_init":
            ring, (name,) = op.attrs, op.input("X")
            known = by_name.get(name)
            if known is None:
                raise InvalidState(
                    f"{op.type}: no c_gen_nccl_id makes {name!r}. Built at {op.where}."
                )
            if (ring["nranks"], ring["rank"]) != (len(known.endpoints), known.rank):
                raise InvalidArgument(
                    f"{op.type}: rank {ring['rank']} of {ring['nranks']}, but c_gen_nccl_id has {known.rank} "
                    f"of {len(known.endpoints)}. Built at {op.where}."
                )
            yield ring["ring_id"], known


def _ring(number: int, op: Operator, scope: Scope) -> Ring:
    ring = scope.find_ring(number)
    if ring is not None:
        return ring
    endpoints = listed_endpoints()
    rank = os.environ.get(_NUMBER, "")
    if endpoints and rank.isdecimal() and int(rank) < len(endpoints):
        return Ring(endpoints, int(rank))
    if endpoints:
        is_set = f"is {rank!r}" if rank else "is not set"
        raise InvalidValue(
            f"{op.type}: {_NUMBER} {is_set}, and {ENDPOINTS} lists {len(endpoints)} trainers: it must be "
            f"from 0 to {len(endpoints) - 1}. Built at {op.where}."
        )
    raise InvalidState(
        f"{op.type}: nobody made ring {number}. Run the startup program that has its c_gen_nccl_id and "
        f"c_comm_init in this scope, or set {ENDPOINTS} and {_NUMBER}. Built at {op.where}."
    )
