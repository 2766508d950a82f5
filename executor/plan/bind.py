"""Bind a ReplicaProgram to shapes and memory: the last step before running."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...graph.ir.graph import EVERYWHERE, STATE, TEMP
from ...graph.ir.replica_program import NodeRecord, ReplicaProgram
from ...graph.lowering.memory import (
    ALL_MEMORY_OPTIONS,
    MemoryOptions,
    MemoryPlan,
    Usage,
    places,
    plan_memory,
)
from ...graph.lowering.select import ON_HOST
from ...graph.ops.collective import COLLECTIVES
from ...graph.ops.registry import OPS, Spec
from ...graph.report.memory_report import contributors
from ...strategies.errors import ExecutionError, ResourceExhausted
from ...strategies.types import to_numpy
from ..cuda.runtime import Waiting
from ..device.device import Device
from ..device.host_device import host_device_of
from ..host.arena import Arena, spec_of
from ..host.memory import total_memory
from ..host.writes import address, constant
from ..kernels.registry import bind as bind_kernel
from .binding_cache import BindingCache
from .buckets import Buckets, Collectives
from .collectives import bind_collective
from .instruction import EARLY_FETCH, Instruction
from .numerics import looks
from .plan import Plan, Vote
from .run import dependencies, last_concurrent
from .shapes import batch_dependent

Allocate = Callable[[str, Spec], np.ndarray]


class Binder:
    """Binds one program for one set of shapes on one rank.

    ``idle`` is for a rank that gets no rows: it leaves out every op that depends on the batch, and meets its
    peers with zeros. ``fed`` are arrays in which feeds will stand in every step; without them a plan has
    buffers of its own, and copies what it is fed. ``memory_options``: how temporaries may share memory.
    ``shared`` is what other plans of this program and rank have as well. ``make`` is the kind of plan.
    """

    def __init__(
        self,
        program: ReplicaProgram,
        device: Device,
        specs: Sequence[Spec],
        allocate: Allocate,
        buckets: Buckets,
        group: Collectives | None = None,
        *,
        rank: int | None = None,
        within: float = 60.0,
        idle: bool = False,
        fed: Sequence[Any] | None = None,
        memory_options: MemoryOptions = ALL_MEMORY_OPTIONS,
        shared: BindingCache | None = None,
        make: Callable[..., Plan] = Plan,
    ) -> None:
        self._make = make
        self.program = program
        self.shared = shared if shared is not None else BindingCache(program)
        self.device, self.host = device, host_device_of(device)
        self.group = group
        self.rank = rank
        self.within = within
        self.buckets = buckets
        self.skipped = batch_dependent(program) if idle else frozenset()
        self.nodes = [
            node
            for i, node in enumerate(program.nodes)
            if node.at in (EVERYWHERE, rank) and i not in self.skipped
        ]
        meetings = [node for node in self.nodes if node.op in COLLECTIVES]
        self._meetings = len(meetings)
        self._vote_at = meetings[-1] if meetings and group is not None else None
        self.specs = specs
        self._fed = dict(zip(program.feeds, fed, strict=True)) if fed is not None else {}
        self.usage = self._usage()
        self.arrays = self._placed(allocate)
        self._lay_out(self._planned(memory_options))
        device.constant = constant(program, self.arrays)

    def _refuse_early_writes(self) -> None:
        """Nothing that lasts may be written before all ranks came to the last collective."""
        for node in self.nodes:
            if node is self._vote_at:
                return
            if not self.program.changed_by(node):
                continue
            for i in (i for held in node.outputs.values() for i in held if i >= 0):
                if self.program.values[i].kind == STATE:
                    raise ExecutionError(
                        f"operator {node.op} would write {self.program.values[i].name!r} before all replicas "
                        f"have agreed to (built at {node.where})"
                    )

    def _usage(self) -> Usage:
        """Return how long this rank needs each value; what no shapes change is checked on the way."""
        feeds = [i for i in self.program.feeds if not self._from_batch(i)]
        grouped, fed = self.group is not None, bool(self._fed)

        def make() -> Usage:
            if grouped:
                self._refuse_early_writes()
            return Usage(self.program, self.nodes, grouped=grouped, fed=fed, feeds=feeds)

        return self.shared.usage((grouped, fed, bool(self.skipped)), make)

    def _placed(self, allocate: Allocate) -> list[Any]:
        """Return the arrays that lie outside the arena: persistables in their scope, gradients in buckets."""
        used = {i for node in self.nodes for i in node.touches()}
        placed: dict[int, Any] = {**self.buckets.held, **self._fed}
        for i, value in enumerate(self.program.values):
            if value.kind == STATE and (i in used or (i in self.program.fetches and self._mine(i))):
                placed[i] = allocate(value.name, self.specs[i])
        if self.group is not None:
            for node in self.program.nodes:
                if node.op in COLLECTIVES:
                    both = zip(node.inputs.get("X", ()), node.outputs.get("Out", ()), strict=True)
                    placed.update(
                        (out, placed[x]) for x, out in both if out not in placed and x in placed
                    )
        return [placed.get(i) for i in range(len(self.specs))]

    def _planned(self, memory_options: MemoryOptions) -> MemoryPlan:
        return plan_memory(self.usage, self.specs, memory_options)

    def _lay_out(self, planned: MemoryPlan) -> None:
        """Give every temporary its place in the arena."""
        try:
            if self.device.runtime is None and planned.size > total_memory():
                raise MemoryError
            self.arena = Arena(self.device.xp, planned, self.device.memory)
        except MemoryError as error:
            raise self._too_large(planned) from error
        for i, array in self.arena.arrays.items():
            self.arrays[i] = array

    def _too_large(self, planned: MemoryPlan) -> ResourceExhausted:
        largest = "; ".join(contributors(planned, 3))
        return ResourceExhausted(
            f"out of memory: the temporaries take {planned.size:,} bytes, and {self.device.room()}. "
            f"Largest: {largest}."
        )

    def _mine(self, position: int) -> bool:
        """Tell whether this rank holds a persistable."""
        owner = self.program.owners().get(self.program.values[position].name, EVERYWHERE)
        return owner in (EVERYWHERE, self.rank)

    def _from_batch(self, position: int) -> bool:
        """Tell whether a value is missing because it would be computed from the batch this rank lacks."""
        return bool(self.skipped) and self.program.values[position].varies

    def plan(self, lanes: Sequence[int] | None = None) -> Plan:
        """Return the plan; ``lanes`` gives each instruction a thread, if they are not to run in order."""
        chosen = iter(lanes) if lanes is not None else itertools.repeat(0)
        self.device = self.device.emptied()
        self.host = host_device_of(self.device)
        if lanes is not None:
            self._lay_out(self._spread(lanes))
        vote = self._vote() if self._vote_at is not None else None
        instructions = self._zeroing()
        late = 0
        for _ in instructions:
            next(chosen)
        for node in self.nodes:
            if node is self._vote_at and vote is not None and vote.early:
                next(chosen)
                instructions.append(Instruction(EARLY_FETCH, (), (), node.where, (vote.hand_over,)))
            if lanes is None:
                instructions.append(self._in_any_plan(node, vote))
            else:
                instructions.append(self._instruction(node, next(chosen), vote))
            if node is self._vote_at:
                late = len(instructions)
        bucketed = list(self.buckets.held.values())
        count = self.arena.count + len(bucketed)
        nbytes = self.arena.nbytes + sum(a.nbytes for a in bucketed) + self.device.scratch_bytes
        nbytes += sum(array.nbytes for array in self._fed.values())
        return self._make(
            instructions,
            [None if i in self._fed else self.arrays[i] for i in self.program.feeds],
            [self._fetched(i) for i in self.program.fetches],
            self.device,
            (count, nbytes),
            self.rank,
            vote=vote,
            late=late,
            needs=self.needs,
            waited=partial(getattr, self.group, "waited", 0.0),
        )

    def _vote(self) -> Vote:
        vote = Vote(self._early())
        agree = getattr(self.group, "agree", None)
        if agree is not None:
            vote.agree = partial(agree, within=self.within, tag=f"schedule {self.program.schedule}")
        return vote

    def _early(self) -> dict[int, Any]:
        """Return what is fetched and known before the vote: arrays by place in the fetch list."""
        return {k: self._fetched(i) for k, i in self._early_positions().items()}

    def _early_positions(self) -> dict[int, int]:
        """Return where it stands. What is not copied on an idle rank stays as it is there."""
        made = {i for node in self.nodes for held in node.outputs.values() for i in held}
        fetches = self.program.fetches
        return {k: i if fetches[k] in made else fetches[k] for k, i in self.program.early.items()}

    def needs(self) -> list[set[int]]:
        """Return, per instruction of the plan, those that it must wait for (see :func:`dependencies`)."""
        first = len(self._zeroing())
        zeroed = [list({address(a) for a in self.buckets.held.values()})] * first
        reads: list[list[int]] = [[] for _ in range(first)]
        writes = zeroed
        meetings: list[int] = []
        handed = self._storages({"": list(self._early_positions().values())})
        for node in self.nodes:
            if node is self._vote_at and self._early():
                reads.append(handed)
                writes.append([])
                meetings.append(len(writes) - 1)  # it must precede the collective, like another one
            if node.op in COLLECTIVES:
                meetings.append(len(writes))
            reads.append(self._storages(node.inputs))
            writes.append(self._storages(node.outputs))
        found = dependencies(reads, writes, meetings)
        if self._vote_at is not None:
            vote = meetings[-1]
            # Who comes to the vote can make its writes alone: all that they are made of is there.
            found[vote].update(range(vote))
            for late in range(vote + 1, len(found)):
                found[late].add(vote)
        return found

    def _storages(self, slots: Mapping[str, Sequence[int]]) -> list[int]:
        """Return where values lie: the storage in the arena, as a negative number, or the address outside.

        That two storages overlap in the arena is no dependency: they never do among what may run side by side.
        """
        roots, found = self.arena.plan.roots, []
        for i in (i for held in slots.values() for i in held if i >= 0):
            array = self.arrays[i]
            if array is not None and array.size:
                found.append(-1 - roots[i] if i in roots else address(array))
        return found

    def _spread(self, lanes: Sequence[int]) -> MemoryPlan:
        """Return the arena for several lanes: storages last until all that follows waits for their users."""
        at = self._instruction_numbers()
        last = len(lanes)
        users: dict[int, int] = {}
        spans: dict[int, tuple[int, int]] = {}
        planned = self.arena.plan
        for k, node in enumerate(self.nodes):
            for i in node.touches():
                if i in planned.roots:
                    root = planned.roots[i]
                    users[root] = users.get(root, 0) | 1 << at[k]
        after = last_concurrent(self.needs(), lanes)
        for root, (first, final) in planned.spans.items():
            begin = at[first] if first >= 0 else first
            end = last if final == self.usage.end else at[final] if final >= 0 else final
            spans[root] = (begin, max(end, after(users.get(root, 0))))
        return planned.spread(spans)

    def _instruction_numbers(self) -> list[int]:
        """Return the number of each node's instruction."""
        number, found = len(self._zeroing()), []
        for node in self.nodes:
            number += bool(node is self._vote_at and self._early())
            found.append(number)
            number += 1
        return found

    def _fetched(self, position: int) -> Any:
        """Return the array to fetch; what this rank does not compute contributes no rows."""
        array = self.arrays[position]
        made_here = any(position in held for node in self.nodes for held in node.outputs.values())
        given = self.program.values[position]
        if array is not None and (made_here or given.kind != TEMP or position in self.buckets.held):
            return array
        spec = self.specs[position]
        return np.empty((0, *spec.shape[1:]), to_numpy(spec.dtype))

    def _zeroing(self) -> list[Instruction]:
        """An idle rank's part in every sum is zero."""
        missing = {
            i for k in self.skipped for held in self.program.nodes[k].outputs.values() for i in held
        }
        calls = [partial(a.fill, 0) for i, a in self.buckets.held.items() if i in missing]
        return (
            [Instruction("no_rows", (), (), "a place without rows", tuple(calls))] if calls else []
        )

    def _in_any_plan(self, node: NodeRecord, vote: Vote | None) -> Instruction:
        """Return the instruction of a plan that runs in order; another plan may have made it.

        What depends on nothing but memory that lasts is the same in all of them: updates of parameters are.
        """
        positions = node.touches()
        if node.op in COLLECTIVES or any(i in self.arena.plan.roots for i in positions):
            return self._instruction(node, 0, vote)
        arrays = [self.arrays[i] for i in positions]
        found = self.shared.instruction(node, arrays)
        if found is None:
            found = self._instruction(node, 0, vote)
            if not self._side(node).tied:
                self.shared.keep(node, arrays, found)
        return found

    def _instruction(self, node: NodeRecord, lane: int, vote: Vote | None) -> Instruction:
        reads, writes = self.shared.names(node)
        self._side(node).next_instruction(writes[0] if writes else "", lane)
        calls = self._collective(node) if node.op in COLLECTIVES else self._kernel(node)
        if self.program.checked:
            number = next(k for k, other in enumerate(self.program.nodes) if other is node)
            calls = [*calls, *looks(self.program, number, node, self.arrays, self.device.xp)]
        if node is self._vote_at and vote is not None and self.group is not None:
            when = self._when(node)
            landed = getattr(self.group, "landed", None)  # results may be under way on a GPU
            calls += [Waiting(landed, **when)] if landed is not None else []
            calls += [vote.come, partial(self.group.vote, **when), vote.go]
        return Instruction(node.op, reads, writes, node.where, tuple(calls))

    def _collective(self, node: NodeRecord) -> list[Callable[[], Any]]:
        if self.group is None:
            return []
        bucket = self.buckets.by_number.get(node.attrs["bucket"])
        held = self._held(node.inputs.get("X", ()))
        copy = self.device.xp.copyto
        return bind_collective(node, self.group, bucket, held, self.rank, copy, self._when(node))

    def _when(self, node: NodeRecord) -> dict[str, Any]:
        number = node.attrs["bucket"]
        tag = f"schedule {self.program.schedule}, collective {number} of {self._meetings}"
        return {"within": self.within, "tag": tag}

    def _kernel(self, node: NodeRecord) -> list[Callable[[], Any]]:
        inputs = {slot: self._held(held) for slot, held in node.inputs.items()}
        views = self.arena.plan.views
        outputs = {
            slot: [None if i < 0 or i in views else self.arrays[i] for i in held]
            for slot, held in node.outputs.items()
        }
        if OPS[node.op].views and not any(
            a is not None and a.size for v in outputs.values() for a in v
        ):
            return []  # nothing to do: what is made is there already
        copies, dev = self._part(node, inputs, outputs), self._side(node)
        try:
            calls = bind_kernel(node.op, inputs, outputs, node.attrs, dev, node.kernel)
        except ValueError as error:  # NumPy's word on shapes that no shape rule refused
            raise ExecutionError(
                f"operator {node.op} cannot run on these shapes: {error} (built at {node.where})"
            ) from error
        return [*dev.bound(node.op, [*calls, *copies])]

    def _side(self, node: NodeRecord) -> Device:
        """Return the device that computes a node: this one, or the host beside it."""
        return self.host if node.kernel in ON_HOST else self.device

    def _held(self, positions: Sequence[int]) -> list[Any]:
        return [None if i < 0 else self.arrays[i] for i in positions]

    def _part(
        self, node: NodeRecord, inputs: dict[str, list[Any]], outputs: dict[str, list[Any]]
    ) -> list[Callable[[], Any]]:
        """Let an op that overwrites its own operand, undeclared, write beside it and copy afterwards."""
        declared = OPS[node.op].in_place
        pairs = places(node, lambda i: spec_of(self.arrays[i]))
        allowed = {id(self.arrays[i]) for i, j in pairs if self.arrays[i] is self.arrays[j]}
        copies: list[Callable[[], Any]] = []
        dev = self._side(node)
        for slot, held in outputs.items():
            for k, array in enumerate(held):
                for source, operands in inputs.items():
                    if (
                        array is not None
                        and declared.get(slot) != source
                        and any(a is array for a in operands)
                        and id(array) not in allowed
                    ):
                        held[k] = dev.scratch(array.shape, array.dtype)
                        copies.append(partial(dev.xp.copyto, array, held[k]))
                        break
        return copies
