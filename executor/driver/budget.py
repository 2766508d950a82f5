"""Budget: check that a step fits into the memory of a place, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...graph.ir.replica_program import ReplicaProgram
from ...graph.lowering.memory import (
    GPU_ALIGNMENT,
    MemoryOptions,
    Usage,
    largest_that_fits,
    nbytes,
    plan_memory,
)
from ...graph.ops.registry import Spec
from ...graph.report.memory_report import (
    MemoryReport,
    bucket_bytes,
    contributors,
    largest_persistables,
    persistable_bytes,
    report,
)
from ...strategies.errors import ResourceExhausted, ShapeError
from ..plan.dry import bound_dry, on_gpu
from ..plan.shapes import infer_specs

_SURE = 4  # scratch is taken to stay under so many times the temporaries, less one
_NO_BATCH = "Not even a batch of 1 fits: make the model smaller, or use places with more memory."
State = Callable[[str], Spec | None]


class Budget:
    """What one program may take of a replica's memory: ``limit`` bytes, temporaries and persistables."""

    def __init__(
        self,
        program: ReplicaProgram,
        memory_options: MemoryOptions,
        limit: int,
        whose: str,
        replicas: int,
    ) -> None:
        self.program, self.memory_options, self.limit, self.whose = (
            program,
            memory_options._replace(alignment=GPU_ALIGNMENT) if on_gpu(program) else memory_options,
            limit,
            whose,
        )
        self.replicas = replicas
        self.grouped = replicas > 1
        self._usage: Usage | None = None

    def check(self, feeds: Sequence[Spec], specs: Sequence[Spec], state: State) -> None:
        """Refuse shapes that need more than there is. What is far below is not looked at closely.

        Raises:
            ResourceExhausted: says what is needed, what there is, the largest values and a batch that fits.
        """
        if _SURE * sum(map(nbytes, specs)) <= self.limit:
            return
        needs = self.explain(specs)
        if needs.total > self.limit:
            raise ResourceExhausted(self._refusal(needs, feeds, specs, state))

    def explain(self, specs: Sequence[Spec]) -> MemoryReport:
        """Return what these shapes take. Where temporaries alone are too much, scratch is not counted."""
        plan = plan_memory(self._used(), specs, self.memory_options)
        scratch = 0
        if plan.size <= self.limit:
            scratch = bound_dry(self.program, specs, self.memory_options, grouped=self.grouped)[1]
        return report(plan, self.memory_options, scratch, self.grouped)

    def _used(self) -> Usage:
        if self._usage is None:
            nodes = [node for node in self.program.nodes if node.at in (-1, 0)]
            self._usage = Usage(self.program, nodes, grouped=self.grouped)
        return self._usage

    def _refusal(
        self, needs: MemoryReport, feeds: Sequence[Spec], specs: Sequence[Spec], state: State
    ) -> str:
        plan = plan_memory(self._used(), specs, self.memory_options)
        if needs.persistables > self.limit:
            largest = "; ".join(largest_persistables(self.program, specs, 3))
        else:
            largest = "; ".join(contributors(plan, 3))
        return (
            f"out of memory: a step needs {needs.total:,} bytes on each replica (temporaries {needs.arena:,}, "
            f"scratch {needs.scratch:,}, gradients {needs.buckets:,}, persistables {needs.persistables:,}) and "
            f"{self.whose} {self.limit:,}. Largest: {largest}. {self._advice(needs, feeds, state)}"
        )

    def _advice(self, needs: MemoryReport, feeds: Sequence[Spec], state: State) -> str:
        """Say which batch would fit: memory is planned for others."""
        if needs.persistables > self.limit:
            return _NO_BATCH
        varying = [self.program.values[i].varies for i in self.program.feeds]
        rows = {spec.shape[0] for spec, varies in zip(feeds, varying, strict=True) if varies}
        if len(rows) != 1:
            return "Feed less at a time."
        (now,) = rows
        best = largest_that_fits(lambda n: self._fits(self._specs(feeds, n, state)), now)
        if not best:
            return _NO_BATCH
        return (
            f"The largest batch that fits has {best} rows on each place ({best * self.replicas} in all); "
            f"{now} were fed."
        )

    def _specs(self, feeds: Sequence[Spec], rows: int, state: State) -> list[Spec] | None:
        """Return all specs for another batch; None: the program does not take it."""
        varying = (self.program.values[i].varies for i in self.program.feeds)
        fed = [
            spec._replace(shape=(rows, *spec.shape[1:])) if varies else spec
            for spec, varies in zip(feeds, varying, strict=True)
        ]
        try:
            return infer_specs(self.program, fed, state)
        except ShapeError:
            return None

    def _fits(self, specs: Sequence[Spec] | None) -> bool:
        if specs is None:
            return False
        lasting = persistable_bytes(self.program, specs)
        lasting += bucket_bytes(self.program) if self.grouped else 0
        left = self.limit - lasting - plan_memory(self._used(), specs, self.memory_options).size
        if left < 0:
            return False
        return bound_dry(self.program, specs, self.memory_options, grouped=self.grouped)[1] <= left
