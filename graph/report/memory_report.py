"""The report of a step's memory on a replica, for people, with the cures when it is too much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ir.graph import EVERYWHERE, STATE
from ..ir.replica_program import NodeRecord, ReplicaProgram
from ..lowering.memory import MemoryOptions, MemoryPlan, nbytes, plan_memory
from ..ops.collective import COLLECTIVES
from ..ops.registry import Spec

_LYING = "their results lie where operands do"


@dataclass(frozen=True)
class MemoryReport:
    """Bytes that a step takes on one replica.

    ``arena``: temporaries and feeds; ``scratch``: memory of kernels while they run, workspaces of libraries
    included; ``buckets``: gradients to reduce; ``persistables``: parameters and optimizer state. ``largest``:
    the largest values in the arena when it is fullest. ``reuse`` and ``in_place``: bytes that these flags save.
    ``unmoved``: ops that do nothing, since their results lie where operands do: views, parts of a value or
    parts joined. ``host``: bytes on the host beside a GPU, where ops run there. Where instructions run in
    several lanes, temporaries may last longer than this.
    """

    arena: int
    scratch: int
    buckets: int
    persistables: int
    largest: tuple[str, ...] = ()
    reuse: int = 0
    in_place: int = 0
    host: int = 0
    unmoved: int = 0

    @property
    def peak(self) -> int:
        """Bytes of a step besides persistables."""
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
            *([f"  {self.unmoved} op(s) move nothing: {_LYING}"] if self.unmoved else []),
            "  largest when most is needed:",
            *(f"    {line}" for line in self.largest),
        ]
        if self.host:
            lines.append(f"  on the host of each GPU: {self.host:,} bytes")
        return "\n".join(lines)


def contributors(plan: MemoryPlan, count: int = 5) -> tuple[str, ...]:
    """Return a line for each of the largest storages that are needed when most bytes are."""
    lines = []
    total = max(plan.most[1], 1)
    for root, size in plan.largest(count):
        value = plan.usage.program.values[root]
        makers = (
            n for n in plan.usage.nodes if any(root in values for values in n.outputs.values())
        )
        origin = next(
            (f"made by {node.op}, built at {node.where}" for node in makers), "which is fed"
        )
        share = 100 * size / total
        lines.append(f"{value.name} ({plan.specs[root]}): {size:,} bytes, {share:.0f} %, {origin}")
    return tuple(lines)


def report(
    plan: MemoryPlan, memory_options: MemoryOptions, scratch: int, grouped: bool
) -> MemoryReport:
    """Return the bytes of a plan, and those that each flag saves: the arena without it, less this one."""
    without = {
        name: plan_memory(plan.usage, plan.specs, memory_options._replace(**{name: False})).size
        - plan.size
        for name in ("reuse", "in_place")
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
        sum(_unmoved(plan, node) for node in plan.usage.nodes),
    )


def _unmoved(plan: MemoryPlan, node: NodeRecord) -> bool:
    """Tell whether all results of a node that have elements are there already."""
    results = [i for ids in node.outputs.values() for i in ids if i >= 0 and nbytes(plan.specs[i])]
    return bool(results) and all(i in plan.views for i in results)


def bucket_bytes(program: ReplicaProgram) -> int:
    """Return the bytes of the buckets of all collectives."""
    positions = (i for n in program.nodes if n.op in COLLECTIVES for i in n.inputs.get("X", ()))
    return sum(nbytes(program.values[i].spec) for i in positions)


def persistable_bytes(program: ReplicaProgram, specs: Sequence[Spec]) -> int:
    """Return the bytes of the persistables on the replica that holds most of them."""
    by_owner: dict[int, int] = {EVERYWHERE: 0}
    owners, names = program.owners(), set()
    for value, spec in zip(program.values, specs, strict=True):
        if value.kind == STATE and value.name not in names and not value.host:
            names.add(value.name)
            owner = owners.get(value.name, EVERYWHERE)
            by_owner[owner] = by_owner.get(owner, 0) + nbytes(spec)
    everywhere = by_owner.pop(EVERYWHERE)
    return everywhere + max(by_owner.values(), default=0)


def largest_persistables(
    program: ReplicaProgram, specs: Sequence[Spec], count: int
) -> tuple[str, ...]:
    """Return a line for each of the largest persistables."""
    pairs = zip(program.values, specs, strict=True)
    by_name = {v.name: spec for v, spec in pairs if v.kind == STATE and not v.host}
    names = sorted(by_name, key=lambda name: -nbytes(by_name[name]))[:count]
    return tuple(f"{n} ({by_name[n]}): {nbytes(by_name[n]):,} bytes, persistable" for n in names)


def _host_bytes(program: ReplicaProgram, specs: Sequence[Spec]) -> int:
    """Return the bytes of the persistables that lie on the host beside a GPU."""
    pairs = zip(program.values, specs, strict=True)
    sizes = {v.name: nbytes(spec) for v, spec in pairs if v.kind == STATE and v.host}
    return sum(sizes.values())
