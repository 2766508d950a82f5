"""Bind a ReplicaProgram to shapes and memory: the last step before running."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from ..graph.ir import FEED, STATE, TEMP
from ..graph.ops.registry import OPS, Inference, Spec
from ..graph.passes.collectives import ALL_REDUCE
from ..graph.replica_program import NodeRecord, ReplicaProgram
from ..strategies.types import to_numpy, to_var_type
from .arena import Arena, bytes_of, view
from .device import Device
from .kernels.registry import bind as bind_kernel
from .plan import Instruction, Plan


class AllReduce(Protocol):
    """What binding needs of a collective group: buffers to keep gradients in, and their sum."""

    def buffer(self, nbytes: int) -> Any:
        """Return memory that the peers can reach."""
        ...

    def all_reduce(self, array: Any, op: str = "sum", *, within: float, tag: str = "") -> None:
        """Sum an array over the ranks, in place."""
        ...


States = Callable[
    [str], np.ndarray | None
]  # name -> the array it lives in, None if it holds nothing
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


class Buckets:
    """The memory in which gradients meet: one buffer per collective, shared with the peers.

    Sizes are those of parameters, so they outlive any batch size.
    """

    def __init__(self, program: ReplicaProgram, group: AllReduce | None) -> None:
        self.arrays: dict[int, Any] = {}
        self.flat: list[Any] = []
        if group is None:
            return
        for positions in program.buckets:
            specs = [program.values[i].spec for i in positions]
            nbytes = bytes_of(specs)
            buffer = group.buffer(nbytes)
            offset = 0
            for i, spec in zip(positions, specs, strict=True):
                self.arrays[i], offset = view(buffer, offset, spec)
            self.flat.append(buffer[:nbytes].view(to_numpy(specs[0].dtype)))


class Binder:
    """Binds one program for one set of shapes."""

    def __init__(
        self,
        program: ReplicaProgram,
        device: Device,
        specs: Sequence[Spec],
        allocate: Allocate,
        buckets: Buckets,
        group: AllReduce | None = None,
        within: float = 60.0,
    ) -> None:
        self.program = program
        self.device = device
        self.group = group
        self.within = within
        self.buckets = buckets
        self.arrays = self._memory(specs, allocate)

    def _memory(self, specs: Sequence[Spec], allocate: Allocate) -> list[Any]:
        """Return one array per value: persistables in their scope, gradients in buckets, the rest here."""
        placed: dict[int, Any] = dict(self.buckets.arrays)
        for node in self.program.nodes:
            if node.op == ALL_REDUCE:  # a sum lives where its summands did
                pairs = zip(node.inputs["X"], node.outputs["Out"], strict=True)
                placed.update({out: placed[x] for x, out in pairs if x in placed})
        for i, value in enumerate(self.program.values):
            if value.kind == STATE:
                placed[i] = allocate(value.name, specs[i])
        loose = {i: specs[i] for i in range(len(specs)) if i not in placed}
        self.arena = Arena(self.device.xp, loose)
        placed.update(self.arena.arrays)
        return [placed[i] for i in range(len(specs))]

    def plan(self, replica: int | None = None) -> Plan:
        """Return the plan."""
        instructions = [self._instruction(node) for node in self.program.nodes]
        bucketed = list(self.buckets.arrays.values())
        count = self.arena.count + len(bucketed)
        nbytes = self.arena.nbytes + sum(a.nbytes for a in bucketed) + self.device.scratch_bytes
        return Plan(
            instructions,
            [self.arrays[i] for i in self.program.feeds],
            [self.arrays[i] for i in self.program.fetches],
            self.device,
            (count, nbytes),
            replica,
        )

    def _instruction(self, node: NodeRecord) -> Instruction:
        reads, writes = self._names(node.inputs), self._names(node.outputs)
        calls = self._collective(node) if node.op == ALL_REDUCE else self._kernel(node, writes)
        return Instruction(node.op, reads, writes, node.where, tuple(calls))

    def _names(self, slots: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
        return tuple(self.program.values[i].name for held in slots.values() for i in held if i >= 0)

    def _collective(self, node: NodeRecord) -> Iterable[Callable[[], Any]]:
        if self.group is None:
            return []
        number = node.attrs["bucket"]
        tag = f"{self.program.schedule}:{number}"
        return [
            partial(
                self.group.all_reduce, self.buckets.flat[number], "sum", within=self.within, tag=tag
            )
        ]

    def _kernel(self, node: NodeRecord, writes: Sequence[str]) -> list[Callable[[], Any]]:
        self.device.next_instruction(writes[0] if writes else "")
        inputs = {slot: self._held(held) for slot, held in node.inputs.items()}
        outputs = {slot: self._held(held) for slot, held in node.outputs.items()}
        copies = self._part(node, inputs, outputs)
        return [*bind_kernel(node.op, inputs, outputs, node.attrs, self.device), *copies]

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
    "AllReduce",
    "Binder",
    "Buckets",
    "States",
    "infer_specs",
    "spec_of",
]
