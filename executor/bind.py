"""Bind a ReplicaProgram to shapes and memory: the last step before running."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..graph.ir import EVERYWHERE, FEED, STATE, TEMP
from ..graph.ops.collective import ALL_REDUCE, BARRIER, COLLECTIVES, REDUCE
from ..graph.ops.registry import OPS, Inference, Spec
from ..graph.replica_program import NodeRecord, ReplicaProgram
from ..strategies.errors import ExecutionError
from ..strategies.types import to_numpy, to_var_type
from .arena import Arena, bytes_of
from .buckets import Buckets, Collectives
from .device import Device
from .kernels.registry import bind as bind_kernel
from .plan import HAND_OVER, Instruction, Plan, Vote
from .run import dependencies

Allocate = Callable[[str, Spec], np.ndarray]


def spec_of(array: Any) -> Spec:
    """Return the spec of an array."""
    return Spec(tuple(array.shape), to_var_type(array.dtype))


def infer_specs(
    program: ReplicaProgram, feeds: Sequence[Spec], state: Callable[[str], Spec | None]
) -> list[Spec]:
    """Return the exact spec of every value, given what is fed and what the persistables hold.

    Raises:
        ShapeError: what is fed does not fit the program; the message names the op and the user's line.
    """
    specs: list[Spec | None] = [None] * len(program.values)
    for position, spec in zip(program.feeds, feeds, strict=True):
        specs[position] = spec
    for i, value in enumerate(program.values):
        if value.kind == STATE and value.version == 0:
            specs[i] = state(value.name) or value.spec
    for node in program.nodes:
        _infer_node(program, node, specs)
    return [spec or value.spec for spec, value in zip(specs, program.values, strict=True)]


def _infer_node(program: ReplicaProgram, node: NodeRecord, specs: list[Spec | None]) -> None:
    read = {slot: [None if i < 0 else specs[i] for i in held] for slot, held in node.inputs.items()}
    names = {
        slot: ["" if i < 0 else program.values[i].name for i in held]
        for slot, held in node.inputs.items()
    }
    made = OPS[node.op].infer(Inference(OPS[node.op], read, node.attrs, names, node.where))
    for slot, positions in node.outputs.items():
        for i, spec in zip(positions, made.get(slot, ()), strict=False):
            if i >= 0:
                specs[i] = spec


def address(array: Any) -> int:
    """Return where an array's memory begins."""
    found: int = array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
    return found


def batch_dependent(program: ReplicaProgram) -> frozenset[int]:
    """Return the positions of the nodes that compute from the batch's rows, collectives aside."""
    varying = {i for i in program.feeds if program.values[i].varies}
    found = set()
    for k, node in enumerate(program.nodes):
        reads = {i for held in node.inputs.values() for i in held}
        if node.op not in COLLECTIVES and varying & reads:
            found.add(k)
            made = {i for held in node.outputs.values() for i in held}
            varying |= {i for i in made if i >= 0 and program.values[i].kind != STATE}
    return frozenset(found)


class Binder:
    """Binds one program for one set of shapes on one rank.

    ``idle`` is for a rank that gets no rows: it leaves out every op that depends on the batch, and meets its
    peers with zeros. ``fed`` are arrays in which feeds will stand in every step; without them a plan has
    buffers of its own, and copies what it is fed.
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
    ) -> None:
        self.program = program
        self.device = device
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
        if group is not None:
            self._refuse_early_writes()
        self.specs = specs
        self._fed = dict(zip(program.feeds, fed, strict=True)) if fed is not None else {}
        self.arrays = self._memory(specs, allocate)

    def _refuse_early_writes(self) -> None:
        """Nothing that lasts may be written before all ranks came to the last collective."""
        for node in self.nodes:
            if node is self._vote_at:
                return
            for i in (i for held in node.outputs.values() for i in held if i >= 0):
                if self.program.values[i].kind == STATE:
                    raise ExecutionError(
                        f"operator {node.op} would write {self.program.values[i].name!r} before all replicas "
                        f"have agreed to (built at {node.where})"
                    )

    def _memory(self, specs: Sequence[Spec], allocate: Allocate) -> list[Any]:
        """Return one array per value (None: not on this rank).

        Persistables lie in their scope, gradients in buckets, the rest in an arena.
        """
        used = {i for node in self.nodes for i in node.touches()}
        used |= {i for i in self.program.feeds if not self._from_batch(i)}
        placed: dict[int, Any] = {**self.buckets.held, **self._fed}
        loose: dict[int, Spec] = {}
        for i, value in enumerate(self.program.values):
            if value.kind == STATE and (i in used or (i in self.program.fetches and self._mine(i))):
                placed[i] = allocate(value.name, specs[i])
            elif i in used and i not in placed:
                loose[i] = specs[i]
        aliases = self._aliases(placed)
        wanted = {i: s for i, s in loose.items() if i not in aliases}
        try:
            self.arena = Arena(self.device.xp, wanted)
        except MemoryError as error:
            raise self._too_large(wanted) from error
        placed.update(self.arena.arrays)
        for made, source in aliases.items():
            if source in placed:
                placed[made] = placed[source]
        return [placed.get(i) for i in range(len(specs))]

    def _too_large(self, wanted: Mapping[int, Spec]) -> ExecutionError:
        largest = max(wanted, key=lambda i: bytes_of([wanted[i]]))
        made = (n for n in self.nodes if any(largest in held for held in n.outputs.values()))
        by = next((f"made by {node.op}, built at {node.where}" for node in made), "which is fed")
        return ExecutionError(
            f"out of memory: the temporaries take {bytes_of(list(wanted.values())):,} bytes; the largest is "
            f"{self.program.values[largest].name!r} ({wanted[largest]}), {by}."
        )

    def _aliases(self, placed: Mapping[int, Any]) -> dict[int, int]:
        """What a collective makes lies where its operand does: result -> operand, by position."""
        pairs: dict[int, int] = {}
        for node in self.program.nodes:
            if node.op in COLLECTIVES and self.group is not None:
                for x, out in zip(
                    node.inputs.get("X", ()), node.outputs.get("Out", ()), strict=True
                ):
                    if out not in placed:
                        pairs[out] = pairs.get(x, x)
        return pairs

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
        vote = Vote(self._early()) if self._vote_at is not None else None
        instructions = self._zeroing()
        late = 0
        for _ in instructions:
            next(chosen)
        for node in self.nodes:
            if node is self._vote_at and vote is not None and vote.early:
                next(chosen)
                instructions.append(Instruction(HAND_OVER, (), (), node.where, (vote.hand_over,)))
            instructions.append(self._instruction(node, next(chosen), vote))
            if node is self._vote_at:
                late = len(instructions)
        bucketed = list(self.buckets.held.values())
        count = self.arena.count + len(bucketed)
        nbytes = self.arena.nbytes + sum(a.nbytes for a in bucketed) + self.device.scratch_bytes
        return Plan(
            instructions,
            [None if i in self._fed else self.arrays[i] for i in self.program.feeds],
            [self._fetched(i) for i in self.program.fetches],
            self.device,
            (count, nbytes),
            self.rank,
            vote=vote,
            late=late,
            waited=partial(getattr, self.group, "waited", 0.0),
        )

    def _early(self) -> dict[int, Any]:
        """Return what is fetched and known before the vote: arrays by place in the fetch list."""
        late: set[int] = set()
        for node in reversed(self.nodes):
            late.update(i for held in node.outputs.values() for i in held)
            if node is self._vote_at:
                break
        return {
            k: self._fetched(i)
            for k, i in enumerate(self.program.fetches)
            if i not in late and self.program.values[i].kind != STATE
        }

    def needs(self) -> list[set[int]]:
        """Return, per instruction of the plan, those that it must wait for (see :func:`dependencies`)."""
        first = len(self._zeroing())
        zeroed = [list({address(a) for a in self.buckets.held.values()})] * first
        reads: list[list[int]] = [[] for _ in range(first)]
        writes = zeroed
        meetings: list[int] = []
        handed = [address(array) for array in self._early().values() if array.size]
        for node in self.nodes:
            if node is self._vote_at and self._early():
                reads.append(handed)
                writes.append([])
                meetings.append(len(writes) - 1)  # it must precede the collective, like another one
            if node.op in COLLECTIVES:
                meetings.append(len(writes))
            reads.append(self._addresses(node.inputs))
            writes.append(self._addresses(node.outputs))
        found = dependencies(reads, writes, meetings)
        if self._vote_at is not None:
            vote = meetings[-1]
            # Who comes to the vote can make its writes alone: all that they are made of is there.
            found[vote].update(range(vote))
            for late in range(vote + 1, len(found)):
                found[late].add(vote)
        return found

    def _addresses(self, slots: Mapping[str, Sequence[int]]) -> list[int]:
        arrays = (self.arrays[i] for held in slots.values() for i in held if i >= 0)
        return [address(a) for a in arrays if a is not None and a.size]

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

    def _instruction(self, node: NodeRecord, lane: int, vote: Vote | None) -> Instruction:
        reads, writes = self._names(node.inputs), self._names(node.outputs)
        self.device.next_instruction(writes[0] if writes else "", lane)
        calls = list(self._collective(node) if node.op in COLLECTIVES else self._kernel(node))
        if node is self._vote_at and vote is not None and self.group is not None:
            calls += [vote.come, partial(self.group.vote, **self._when(node)), vote.go]
        return Instruction(node.op, reads, writes, node.where, tuple(calls))

    def _names(self, slots: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
        return tuple(self.program.values[i].name for held in slots.values() for i in held if i >= 0)

    def _collective(self, node: NodeRecord) -> Iterable[Callable[[], Any]]:
        if self.group is None:
            return []
        when = self._when(node)
        if node.op == BARRIER:
            return [partial(self.group.barrier, **when)]
        bucket = self.buckets.by_number[node.attrs["bucket"]]
        if node.op == ALL_REDUCE:
            return [self.group.bound_all_reduce(bucket.flat, "sum", **when)]
        roots = node.attrs["roots"]
        if node.op == REDUCE:
            return [partial(self.group.reduce_parts, bucket.flat, bucket.ends, roots, **when)]
        held = list(zip(roots, bucket.parts, self._held(node.inputs["X"]), strict=True))
        copy = self.device.xp.copyto
        return [
            *(partial(copy, part, array) for root, part, array in held if root == self.rank),
            partial(self.group.broadcast_parts, bucket.flat, bucket.ends, roots, **when),
            *(partial(copy, array, part) for root, part, array in held if root != self.rank),
        ]

    def _when(self, node: NodeRecord) -> dict[str, Any]:
        number = node.attrs["bucket"]
        tag = f"schedule {self.program.schedule}, collective {number} of {self._meetings}"
        return {"within": self.within, "tag": tag}

    def _kernel(self, node: NodeRecord) -> list[Callable[[], Any]]:
        inputs = {slot: self._held(held) for slot, held in node.inputs.items()}
        outputs = {slot: self._held(held) for slot, held in node.outputs.items()}
        copies = self._part(node, inputs, outputs)
        try:
            calls = bind_kernel(node.op, inputs, outputs, node.attrs, self.device)
        except ValueError as error:  # NumPy's word on shapes that no shape rule refused
            raise ExecutionError(
                f"operator {node.op} cannot run on these shapes: {error} (built at {node.where})"
            ) from error
        return [*calls, *copies]

    def _held(self, positions: Sequence[int]) -> list[Any]:
        return [None if i < 0 else self.arrays[i] for i in positions]

    def _part(
        self, node: NodeRecord, inputs: dict[str, list[Any]], outputs: dict[str, list[Any]]
    ) -> list[Callable[[], Any]]:
        """Let an op that overwrites its own operand, undeclared, write beside it and copy afterwards."""
        declared = OPS[node.op].in_place
        copies: list[Callable[[], Any]] = []
        for slot, held in outputs.items():
            for k, array in enumerate(held):
                for source, operands in inputs.items():
                    if (
                        array is not None
                        and declared.get(slot) != source
                        and any(a is array for a in operands)
                    ):
                        held[k] = self.device.scratch(array.shape, array.dtype)
                        copies.append(partial(self.device.xp.copyto, array, held[k]))
                        break
        return copies


__all__ = [
    "FEED",
    "STATE",
    "TEMP",
    "Binder",
    "Buckets",
    "Collectives",
    "infer_specs",
    "spec_of",
]
