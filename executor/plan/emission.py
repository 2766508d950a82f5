"""Emission: make the instructions of a plan: kernel calls, collectives, and the vote at the last one."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Hashable
from functools import cached_property, partial
from typing import Any

from ...graph.ir.replica_program import NodeRecord
from ...graph.lowering.memory import places
from ...graph.ops.collective import GATHER_ROWS, RING_OPS, SPREAD_ROWS
from ...strategies.errors import ExecutionError, SequenceError
from ..cuda.runtime import Fork, Waiting
from ..device.device import Device
from ..device.host_device import host_device_of
from ..host.arena import spec_of
from ..host.foreign import as_foreign
from ..kernels.cuda.copies import moved
from ..kernels.registry import bind_record
from .binding_cache import BindingCache, Form
from .collectives import bind_collective, bind_ring
from .group import CollectiveGroup, When
from .instruction import EARLY_FETCH, Instruction
from .memory import ValueMemory
from .numerics import looks
from .part import RankPart
from .plan import Vote
from .sparse import bind_rows

Call = Callable[[], Any]
_OURS = ("cuda", "cudnn")  # kernels of ours make all writes to persistables


class Emission:
    """Makes the instructions of one plan on ``device``; ``cache`` has those of earlier plans."""

    def __init__(
        self, part: RankPart, memory: ValueMemory, device: Device, cache: BindingCache
    ) -> None:
        self.part, self.memory, self.program = part, memory, part.program
        self.device, self.host = device, host_device_of(device)
        self._cache, self._schedule = cache, part.peers.schedule or part.program.schedule
        self.device.counts = self.host.counts = cache.counts
        self.vote = self._vote() if part.vote_at is not None else None

    @cached_property
    def _places(self) -> list[Hashable]:
        """Where each value lies; plans with the same places share instructions."""
        return self.memory.places

    def _vote(self) -> Vote:
        part, peers = self.part, self.part.peers
        early = part.early_fetches() if peers.decide else {}
        vote = Vote({k: self.memory.fetched(i) for k, i in early.items()})
        vote.on_device = part.device_vote
        if peers.group is not None and peers.group.asynchronous:
            when = When(peers.within, f"schedule {self._schedule}")
            vote.agree = peers.group.bound_agree(when)
            vote.reached = partial(peers.group.reached, when.about("a step of"))
        return vote

    def early_fetch(self, node: NodeRecord) -> Instruction | None:
        """Return the instruction that gives early fetches to the driver, if one belongs before this node."""
        if node is not self.part.vote_at or self.vote is None or not self.vote.early:
            return None
        return Instruction(EARLY_FETCH, (), (), node.where, (self.vote.hand_over,))

    def in_order(self, node: NodeRecord) -> Instruction:
        """Return the node's instruction for a plan that runs in order: that of an earlier plan where it fits.

        It fits if the node touches the same memory, with the same sizes, in both plans: updates of parameters
        always do.
        """
        form = self._cache.form(node)
        if form.collective:
            return self.in_lane(node, 0)
        key = form.of(self._places) + form.of(self.memory.stored)
        instruction = form.known.get(key)
        side = self.host if form.on_host else self.device
        if instruction is None:
            instruction = self.in_lane(node, 0)
            if not side.tied:
                form.known[key] = instruction
        else:
            side.reserve(instruction.scratch)
        return instruction

    def in_lane(self, node: NodeRecord, lane: int) -> Instruction:
        """Make the instruction of a node, with scratch memory of a lane."""
        form = self._cache.form(node)
        reads, writes, side = form.reads, form.writes, self.host if form.on_host else self.device
        output = writes[0] if writes else ""
        side.next_instruction(output, lane, reads, form.uneven, node.op, node.where)
        calls = self._collective(node) if form.collective else self._kernel(node, form, side)
        if self.program.checked:
            number = next(k for k, other in enumerate(self.program.nodes) if other is node)
            arrays, xp = self.memory.arrays, self.device.xp
            calls = [*calls, *looks(self.program, number, node, arrays, xp)]
        if self.memory.puts:
            puts = self.memory.puts
            calls = [*calls, *(puts[i] for i in form.written if i in puts)]
        if node is self.part.vote_at:
            calls = self._with_vote(node, calls)
        scratch, own = side.region_bytes, side.instruction_bytes
        parts = tuple(side.shared)
        return Instruction(node.op, reads, writes, node.where, tuple(calls), scratch, own, parts)

    def _with_vote(self, node: NodeRecord, calls: list[Call]) -> list[Call]:
        """Return the calls of the last collective, with those of the vote."""
        group, vote = self.part.peers.group, self.vote
        assert group is not None and vote is not None, "a rank without peers has no vote"
        if vote.on_device is not None:
            ends = [call.finish for call in calls if isinstance(call, Fork)]
            return [*calls, *ends, *group.bound_vote(self.device.asserts.word)]
        when = self._when(node)
        if group.asynchronous:
            calls = [*calls, Waiting(group.landed, when), *self._check()]
        else:  # a rank that leaves the collective knows that all peers do
            calls = [*self._check(), *calls]
        if not self.part.peers.decide:
            return calls
        return [*calls, vote.prepare, partial(group.vote, when), vote.commit]

    def _check(self) -> list[Call]:
        """Return the call that raises what kernels on a GPU found wrong with their operands."""
        if self.device.runtime is None:
            return []
        return [partial(self.device.asserts.check, self.part.peers.rank)]

    def _collective(self, node: NodeRecord) -> list[Call]:
        peers = self.part.peers
        sources, results = (
            self.memory.at(s.get(k, ())) for s, k in ((node.inputs, "X"), (node.outputs, "Out"))
        )
        if peers.group is None:  # no peers: what this place has is the result
            both = zip(sources, results, strict=True)
            return [partial(self.device.xp.copyto, out, x) for x, out in both if out is not x]
        if node.op in RING_OPS:
            (x,), (out,) = sources, results
            return bind_ring(node, peers.group, x, out, self.device, self._when(node))
        if node.op in (GATHER_ROWS, SPREAD_ROWS):
            return self._rows(node, peers.group)
        bucket = self.memory.buckets.by_number.get(node.attrs["bucket"])
        values = self.memory.at(node.inputs.get("X", ()))
        copy = self.device.xp.copyto
        (step,) = self.memory.at(node.inputs.get("Step", ())) or [None]
        return bind_collective(
            node, peers.group, bucket, values, peers.rank, copy, self._when(node), step
        )

    def _rows(self, node: NodeRecord, group: CollectiveGroup) -> list[Call]:
        copy, when = self.device.xp.copyto, self._when(node)
        calls = bind_rows(node, group, self.memory.at, self.memory.known, copy, when)
        if self.part.inputs.isdisjoint(i for ids in node.outputs.values() for i in ids):
            # Another rank needs the rows: here their memory is that of others from the next instruction on.
            calls += [call.finish for call in calls if isinstance(call, Fork)]
        return calls

    def _when(self, node: NodeRecord) -> When:
        number = node.attrs["bucket"]
        tag = f"schedule {self._schedule}, collective {number} of {self.part.collectives}"
        return When(self.part.peers.within, tag)

    def _kernel(self, node: NodeRecord, form: Form, dev: Device) -> list[Call]:
        op, written = form.op, form.written
        arrays, views = self.memory.arrays, self.memory.arena.plan.views
        instead: dict[int, Any] = {}
        if form.may_be_there:
            instead = {i: None for i in written if i in views}
            results = (arrays[i] for i in written if i not in instead)
            if not any(array is not None and array.size for array in results):
                return []  # all results are empty, or views of operands
        guarded = False
        if form.changes:  # in a program with a vote, those behind it alone do
            if self.vote is not None:
                dev.guard = self.vote.on_device
            elif self.device.runtime is not None and self.device.asserts:
                dev.guard, guarded = self.device.asserts, True
        try:
            copies = self._copies_beside(node, form, instead, dev) if form.may_meet else ()
            at = ChainMap(instead, arrays) if instead else arrays
            fields = form.fields.copy()
            for name, i in form.single:
                fields[name] = at[i]
            for name, ids in form.several:
                fields[name] = [None if i < 0 else at[i] for i in ids]
            calls = bind_record(op, op.record.of(fields), dev, node.kernel)
        # NumPy refuses shapes that no shape rule refused, and kernels numbers of sequences.
        except (IndexError, ValueError, SequenceError) as error:
            raise ExecutionError(
                f"operator {node.op} cannot run on these shapes: {error} (built at {node.where})"
            ) from error
        finally:
            dev.guard = None
        calls = [*dev.bound(node.op, [*calls, *copies])]
        if form.uneven and dev.runtime is None:
            calls = [as_foreign(call) for call in calls]
        # A library's writes cannot be held back: the host looks before it makes them.
        return [*self._check(), *calls] if guarded and node.kernel not in _OURS else calls

    def _copies_beside(
        self, node: NodeRecord, form: Form, instead: dict[int, Any], dev: Device
    ) -> list[Call]:
        """Let an op that overwrites its own operand, undeclared, write beside it and copy afterwards.

        ``instead`` has the results that are there already, and gets what is written in the place of others.
        """
        arrays, op = self.memory.arrays, form.op
        read = {id(arrays[i]) for i in form.read}
        written = {i for i in form.written if i not in instead and id(arrays[i]) in read}
        if not written:
            return []
        pairs = places(node, lambda i: spec_of(arrays[i]))
        allowed = {id(arrays[i]) for i, j in pairs if arrays[i] is arrays[j]}
        copies: list[Call] = []
        for slot, targets in node.outputs.items():
            for i in targets:
                if i not in written or id(array := arrays[i]) in allowed:
                    continue
                sources = {
                    s
                    for s, operands in node.inputs.items()
                    if any(k >= 0 and arrays[k] is array for k in operands)
                }
                if sources - {op.in_place.get(slot), op.in_place_else.get(slot)}:
                    instead[i] = dev.scratch(array.shape, array.dtype)
                    if dev.guard is not None:
                        copies += moved(dev, array, instead[i])
                    else:
                        copies.append(partial(dev.xp.copyto, array, instead[i]))
        return copies
