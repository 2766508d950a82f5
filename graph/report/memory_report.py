"""What a step takes of a replica's memory, for people, and what to do when it is too much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.graph import EVERYWHERE, STATE
from ..ir.replica_program import ReplicaProgram
from ..lowering.memory import MemoryOptions, MemoryPlan, nbytes, plan_memory
from ..ops.collective import COLLECTIVES
from ..ops.registry import Spec


@dataclass(frozen=True)
class MemoryReport:
    """Bytes that a step takes on one replica.

    ``arena``: temporaries and what is fed; ``scratch``: what kernels use while they run, workspaces of
    libraries included; ``buckets``: gradients that meet; ``persistables``: parameters and optimizer state.
    ``largest``: what is in the arena when it is fullest. ``reuse`` and ``in_place`` are what these flags
    saved. ``host``: what lies on the host beside a GPU, where ops run there. Where instructions run in several
    lanes, temporaries may last longer than this.
    """

    arena: int
    scratch: int
    buckets: int
    persistables: int
    largest: tuple[str, ...] = ()
    reuse: int = 0
    in_place: int = 0
    host: int = 0

    @property
    def peak(self) -> int:
        """What a step takes besides persistables."""
        return self.arena + self.scratch + self.buckets

    @property
    def total(self) -> int:
        """All that a replica must hold."""
        return self.peak + self.persistables

    def __str__(self) -> str:
        lines = [
            f"memory of a step, planned: {self.peak:,} bytes a replica (temporaries {self.arena:,}, scratch "
            f"{self.scratch:,}, gradients {self.buckets:,}), and persistables of {self.persistables:,}",
            f"  memory_optimize saves {self.reuse:,} bytes, enable_inplace {self.in_place:,}",
            "  largest when most is needed:",
            *(f"    {line}" for line in self.largest),
        ]
        if self.host:
            lines.append(f"  on the host of each GPU: {self.host:,} bytes")
        return "\n".join(lines)


def contributors(plan: MemoryPlan, count: int = 5) -> tuple[str, ...]:
    """Return a line for each of the largest storages that are needed when most bytes are."""
    lines = []
    whole = max(plan.most[1], 1)
    for root, size in plan.largest(count):
        value = plan.usage.program.values[root]
        made = (n for n in plan.usage.nodes if any(root in held for held in n.outputs.values()))
        by = next((f"made by {node.op}, built at {node.where}" for node in made), "which is fed")
        share = 100 * size / whole
        lines.append(f"{value.name} ({plan.specs[root]}): {size:,} bytes, {share:.0f} %, {by}")
    return tuple(lines)


def report(
    plan: MemoryPlan, memory_options: MemoryOptions, scratch: int, grouped: bool
) -> MemoryReport:
    """Return what a plan takes, and what each flag saves: the arena without it, less this one."""
    without = {
        name: plan_memory(plan.usage, plan.specs, memory_options._replace(**{name: False})).size
        - plan.size
        for name in MemoryOptions._fields
    }
    program = plan.usage.program
    return MemoryReport(
        plan.size,
        scratch,
        bucket_bytes(program) if grouped else 0,
        persistable_bytes(program, plan.specs),
        contributors(plan),
        without["reuse"],
        without["in_place"],
        plan.host_size + _host_bytes(program, plan.specs),
    )


def bucket_bytes(program: ReplicaProgram) -> int:
    """Return the bytes of all buckets in which values meet."""
    met = (i for n in program.nodes if n.op in COLLECTIVES for i in n.inputs.get("X", ()))
    return sum(nbytes(program.values[i].spec) for i in met)


def persistable_bytes(program: ReplicaProgram, specs: Sequence[Spec]) -> int:
    """Return the bytes of the persistables on the replica that holds most of them."""
    held: dict[int, int] = {EVERYWHERE: 0}
    owners, seen = program.owners(), set()
    for value, spec in zip(program.values, specs, strict=True):
        if value.kind == STATE and value.name not in seen and not value.host:
            seen.add(value.name)
            owner = owners.get(value.name, EVERYWHERE)
            held[owner] = held.get(owner, 0) + nbytes(spec)
    everywhere = held.pop(EVERYWHERE)
    return everywhere + max(held.values(), default=0)


def _host_bytes(program: ReplicaProgram, specs: Sequence[Spec]) -> int:
    """Return the bytes of the persistables that lie on the host beside a GPU."""
    pairs = zip(program.values, specs, strict=True)
    held = {v.name: nbytes(spec) for v, spec in pairs if v.kind == STATE and v.host}
    return sum(held.values())
