"""Bind a program again for other sizes, on the very memory where a plan of it lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...graph.ir.replica_program import NodeRecord
from ...graph.ops.registry import Spec
from ..device.device import Device
from ..host.arena import Memory
from ..host.bounded_dict import BoundedDict
from ..host.writes import address
from .binding_cache import BindingCache, Instructions
from .emission import Emission
from .instruction import Instruction
from .memory import ValueMemory
from .part import RankPart
from .plan import Plan
from .shapes import picked

_ARRAYS_KNOWN = 1 << 12  # of inputs and of what is fetched


class Resizer:
    """Makes plans whose values begin where those of an earlier plan do, and have other sizes.

    Nothing is placed anew, and a node whose values have the sizes that they have in another of these plans has
    its very instruction: what a round of a loop costs to bind is what no other round had. ``memory`` and
    ``device`` are those of the earlier plan.
    """

    def __init__(
        self, part: RankPart, memory: ValueMemory, device: Device, cache: BindingCache
    ) -> None:
        self._part, self._memory, self._device, self._cache = part, memory, device, cache
        self._instructions = [Instructions() for _ in part.nodes]  # by sizes of what each touches
        self._empty: dict[int, Instruction] = {}
        self._touched = [picked(node.touches()) for node in part.nodes]
        self._arrays = BoundedDict[tuple[int, Spec, bool], Any](_ARRAYS_KNOWN)
        self._count, self._nbytes = memory.size()

    @staticmethod
    def suits(part: RankPart, memory: ValueMemory, device: Device) -> bool:
        """Tell whether plans of a part may differ in sizes alone: nobody is met, and each value has room."""
        alone = not part.collectives and not part.skipped and not memory.fed
        roomy = memory.arena.plan.layout is not None
        return alone and roomy and device.runtime is None and isinstance(device.memory, Memory)

    def plan(self, specs: Sequence[Spec]) -> Plan | None:
        """Return the plan for values of these shapes; None: some of them need another place."""
        assert isinstance(self._device.memory, Memory)
        region, arena = self._device.memory, self._memory.arena
        planned = arena.plan.resized(specs, region.taken)
        if planned is None or address(region.arena(planned.size)) != arena.begin:
            return None
        memory = self._memory.resized(specs, planned)
        device = self._device.emptied()
        instructions = self._bound(specs, memory, device)
        program = self._part.program
        inputs = [self._array(i, specs, memory, False) for i in program.feeds]
        fetched = [self._array(i, specs, memory, True) for i in program.fetches]
        peers = self._part.peers
        temporaries = self._count, self._nbytes + device.scratch_bytes
        return Plan(
            instructions, inputs, fetched, device, temporaries, peers.rank, waited=peers.waited
        )

    def _bound(
        self, specs: Sequence[Spec], memory: ValueMemory, device: Device
    ) -> list[Instruction]:
        """Return the instruction of each node: that of an earlier plan, or a new one."""
        emission: Emission | None = None
        instructions = []
        nodes: Sequence[NodeRecord] = self._part.nodes
        for node, touched, known in zip(nodes, self._touched, self._instructions, strict=True):
            sizes = touched(specs)
            instruction = known.get(sizes)
            if instruction is None:
                emission = emission or Emission(self._part, memory, device, self._cache)
                device.tied = False
                instruction = emission.in_order(node)
                if not device.tied:
                    if not instruction.calls:  # whatever the sizes: what it makes is there already
                        instruction = self._empty.setdefault(id(node), instruction)
                    known[sizes] = instruction
            else:
                device.reserve(instruction.scratch)
            instructions.append(instruction)
        return instructions

    def _array(
        self, position: int, specs: Sequence[Spec], memory: ValueMemory, fetched: bool
    ) -> Any:
        """Return the array of an input, or of a value to fetch."""
        key = (position, specs[position], fetched)
        if key not in self._arrays:
            array = memory.fetched(position) if fetched else memory.arrays[position]
            self._arrays[key] = array
        return self._arrays[key]
