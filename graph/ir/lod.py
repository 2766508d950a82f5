"""Find the fed variable whose sequences a value has: ops that preserve rows pass the rows' LoD on."""

from __future__ import annotations

from collections.abc import Collection

from .replica_program import ReplicaProgram


def lod_sources(program: ReplicaProgram, fed: Collection[str]) -> list[str | None]:
    """Return, per fetch, the fed variable whose LoD it has (None: no sequences); ``fed`` have one.

    An op whose result has as many rows as its first operand with a LoD (both unknown until fed) passes the
    LoD on, as Paddle's shape functions do.
    """
    source: dict[int, str] = {}
    for i in program.feeds:
        if program.values[i].name in fed:
            source[i] = program.values[i].name
    for node in program.nodes:
        reads = [i for positions in node.inputs.values() for i in positions if i >= 0]
        name = next((source[i] for i in reads if i in source), None)
        if name is None:
            continue
        for i in (i for positions in node.outputs.values() for i in positions if i >= 0):
            if program.values[i].varies:
                source[i] = name
    return [source.get(i) for i in program.user_fetches]
