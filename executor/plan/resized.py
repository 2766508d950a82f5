"""Bind a program again for other sizes, on the very memory where a plan of it lies."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ...graph.ir.replica_program import NodeRecord
from ...graph.ops.collective import COLLECTIVES
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
from .template import PlanTemplate, Sized, SizedPlan

P = TypeVar("P", bound=Plan)
_ODD = 2  # templates that may turn out to be like no other plan
_ARRAYS_KNOWN = 1 << 12  # of inputs and of what is fetched


class _Bound(NamedTuple):
    """Instructions of nodes, the device that they are bound to, and what bound those that are new."""

    instructions: Sequence[Instruction]
    device: Device
    emission: Emission | None


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
        self._meeting = {k for k, node in enumerate(part.nodes) if node.op in COLLECTIVES}
        self._count, self._nbytes = memory.size()
        self._templates: dict[Hashable, PlanTemplate] = {}  # by kinds of what tells the sizes
        self._odd = Counter[Hashable]()  # templates that were like no other plan

    @staticmethod
    def suits(part: RankPart, memory: ValueMemory, device: Device) -> bool:
        """Tell whether plans of a part may differ in sizes alone: all nodes run, and each value has room."""
        whole = not part.skipped and not memory.fed and not memory.puts
        roomy = memory.arena.plan.layout is not None
        return whole and roomy and device.runtime is None and isinstance(device.memory, Memory)

    def plan(
        self, telling: Sequence[Spec | None], complete: Callable[[], Sequence[Spec]]
    ) -> Plan | None:
        """Return the plan for values of other sizes; None: some of them need another place.

        ``complete`` returns the specs of all values, which follow from the ``telling`` ones.
        """
        assert isinstance(self._device.memory, Memory)
        region, arena = self._device.memory, self._memory.arena
        if arena.plan.size > region.taken or address(region.arena(arena.plan.size)) != arena.begin:
            return None
        kinds = tuple([spec and (spec.dtype, len(spec.shape)) for spec in telling])
        sizes = np.array(
            [n for spec in telling if spec for n in (*spec.shape, math.prod(spec.shape))], np.int64
        )
        template = self._templates.get(kinds)
        if template is not None:
            values = template.values(sizes)
            if values is not None:
                return self._instance(template, values, complete)
        specs = complete()
        planned = arena.plan.resized(specs, region.taken)
        if planned is None:
            return None
        memory = self._memory.resized(specs, planned)
        bound = self._bound(specs, memory)
        program = self._part.program
        inputs = [self._array(i, specs, memory, False) for i in program.feeds]
        fetched = [self._array(i, specs, memory, True) for i in program.fetches]
        scratch = self._device.memory.scratch(0)
        sized = Sized(bound.instructions, scratch.capacity, inputs, fetched, planned.slack(specs))
        alike = template is not None and template.learn(sizes, sized)
        if template is None or (not alike and self._odd[kinds] < _ODD):
            self._odd[kinds] += template is not None
            buffers, latest = [region.arena(planned.size), scratch.bytes], self._cache.templates
            template = PlanTemplate(sizes, sized, buffers, self._meeting, latest.get(kinds))
            self._templates[kinds] = latest[kinds] = template
        return self._of(Plan, bound, inputs, fetched)

    def _instance(
        self,
        template: PlanTemplate,
        values: np.ndarray,
        complete: Callable[[], Sequence[Spec]],
    ) -> Plan:
        """Return the plan that a template makes, in which nodes of other kinds are bound."""
        bound = _Bound([], self._device, None)
        if template.apart:
            specs, planned = complete(), self._memory.arena.plan
            planned = replace(planned, specs=planned.usage.stored(specs))
            bound = self._bound(specs, self._memory.resized(specs, planned), template.apart)
        apart = dict(zip(sorted(template.apart), bound.instructions, strict=True))
        bound = bound._replace(instructions=template.instructions(values, apart))
        plan = self._of(SizedPlan, bound, *template.arrays(values))
        plan.words, plan.values = template.words, values
        return plan

    def _bound(
        self, specs: Sequence[Spec], memory: ValueMemory, which: Collection[int] | None = None
    ) -> _Bound:
        """Return the instructions of nodes (None: of all): those of an earlier plan, or new ones."""
        device = self._device.emptied()
        emission: Emission | None = None
        instructions = []
        nodes: Sequence[NodeRecord] = self._part.nodes
        for k in range(len(nodes)) if which is None else sorted(which):
            node, known = nodes[k], self._instructions[k]
            sizes = self._touched[k](specs)
            instruction = None if k in self._meeting else known.get(sizes)
            if instruction is None:
                emission = emission or Emission(self._part, memory, device, self._cache)
                device.tied = False
                instruction = emission.in_order(node)
                if not device.tied and k not in self._meeting:
                    if not instruction.calls:  # whatever the sizes: what it makes is there already
                        instruction = self._empty.setdefault(id(node), instruction)
                    known[sizes] = instruction
            else:
                device.reserve(instruction.scratch)
            instructions.append(instruction)
        return _Bound(instructions, device, emission)

    def _of(self, make: type[P], bound: _Bound, inputs: Sequence[Any], fetched: Sequence[Any]) -> P:
        """Return the plan of instructions, with a vote at the last collective."""
        instructions, device, emission = bound
        part, late = self._part, 0
        if part.vote_at is not None:
            assert emission is not None, "what meets peers is bound for each plan"
            at = max(self._meeting)
            early = emission.early_fetch(part.vote_at)
            before = [] if early is None else [early]
            late = at + len(before) + 1
            instructions = [*instructions[:at], *before, *instructions[at:]]
        return make(
            instructions,
            inputs,
            fetched,
            device,
            (self._count, self._nbytes + device.scratch_bytes),
            part.peers.rank,
            vote=None if emission is None else emission.vote,
            late=late,
            waited=part.peers.waited,
        )

    def _array(
        self, position: int, specs: Sequence[Spec], memory: ValueMemory, fetched: bool
    ) -> Any:
        """Return the array of an input, or of a value to fetch."""
        key = (position, specs[position], fetched)
        if key not in self._arrays:
            array = memory.fetched(position) if fetched else memory.arrays[position]
            self._arrays[key] = array
        return self._arrays[key]
