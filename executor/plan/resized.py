"""Resizer: bind a program for other sizes on the memory of an earlier plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from operator import or_
from typing import Any, NamedTuple

from ...graph.ir.replica_program import NodeRecord
from ...graph.ops.collective import COLLECTIVES
from ...graph.ops.registry import Spec
from ...strategies.bounded_dict import BoundedDict
from ...strategies.garbage import gc_paused
from ..device.device import Device
from ..host.arena import Memory
from .binding_cache import BindingCache, Instructions
from .emission import Emission
from .instruction import Instruction
from .memory import ValueMemory
from .node_shapes import picked
from .part import RankPart
from .plan import Plan, Vote
from .sizes import Sizes
from .template import PlanTemplate, Prediction, Sized

_ODD = 2  # templates that may turn out to be like no other plan
_ARRAYS_KNOWN = 1 << 12  # of inputs and of what is fetched


Complete = Callable[..., Sequence[Spec]]  # see :meth:`Shapes.complete`


class _Bound(NamedTuple):
    """Instructions of nodes, by their numbers, the device that they are bound to, and the vote.

    Several instructions stand for the last collective, at which ranks vote; ``late`` ones follow it.
    """

    instructions: Mapping[int, Sequence[Instruction]]
    device: Device
    vote: Vote | None = None
    late: int = 0


class Resizer:
    """Makes plans whose values begin at the addresses of an earlier plan's, and have other sizes.

    No value is placed anew. A node whose values have the same sizes in another of these plans shares that
    plan's instruction: a round of a loop binds only the nodes whose sizes no earlier round had. ``memory`` and
    ``device`` are those of the earlier plan.
    """

    def __init__(
        self, part: RankPart, memory: ValueMemory, device: Device, cache: BindingCache
    ) -> None:
        assert isinstance(device.memory, Memory), "what suits is on the host"
        self._part, self._memory, self._device, self._cache = part, memory, device, cache
        self._region = device.memory
        self._instructions = [Instructions() for _ in part.nodes]  # by sizes of what each touches
        self._empty: dict[int, Instruction] = {}
        self._touched = [picked(node.touches()) for node in part.nodes]
        self._arrays = BoundedDict[tuple[int, Spec, bool], Any](_ARRAYS_KNOWN)
        self._meeting = {k for k, node in enumerate(part.nodes) if node.op in COLLECTIVES}
        self._met = [i for k in self._meeting for i in part.nodes[k].touches()]
        self._count, self._nbytes = memory.size()
        self._waited = part.peers.waited
        # By kinds of what tells the sizes
        self._templates: dict[tuple[int, ...], PlanTemplate] = {}
        self._odd = Counter[tuple[int, ...]]()  # templates that were like no other plan

    @staticmethod
    def suits(memory: ValueMemory, device: Device) -> bool:
        """Tell whether plans on this memory may differ in sizes alone: each value has room."""
        own = not memory.fed and not memory.puts
        roomy = memory.arena.plan.layout is not None
        return own and roomy and device.runtime is None and isinstance(device.memory, Memory)

    def plan(self, sizes: Sizes, complete: Complete) -> Plan | None:
        """Return the plan for values of other sizes; None: some of them need another address.

        ``complete`` returns the specs of all values, which follow from the sizes, or of some alone.
        """
        arena = self._memory.arena
        if not self._region.reaches(arena.begin, arena.plan.size):
            return None
        template = self._templates.get(sizes.kinds)
        if template is not None:
            prediction = template.predict(sizes.numbers)
            if prediction is not None:
                return self._instance(template, sizes, prediction, complete)
        with gc_paused():
            return self._learned(sizes, template, complete)

    def _learned(
        self,
        sizes: Sizes,
        template: PlanTemplate | None,
        complete: Complete,
    ) -> Plan | None:
        """Return a bound plan, from which the template learns."""
        kinds, point = sizes.kinds, sizes.point
        region, arena = self._region, self._memory.arena
        fresh = self._fresh(complete())
        if fresh is None:
            return None
        bound, sized = fresh
        alike = template is not None and template.learn(point, sized)
        if template is None or (not alike and self._odd[kinds] < _ODD):
            self._odd[kinds] += template is not None
            buffers = [region.arena(arena.plan.size), region.scratch(0).bytes]
            latest, read = self._cache.templates, self._read(kinds)
            template = PlanTemplate(point, read, sized, buffers, self._meeting, latest.get(kinds))
            self._templates[kinds] = latest[kinds] = template
        instructions = [
            instruction for group in bound.instructions.values() for instruction in group
        ]
        return Plan(instructions, sized.inputs, sized.fetched, **self._others_of(bound))

    def _fresh(self, specs: Sequence[Spec]) -> tuple[_Bound, Sized] | None:
        """Bind all nodes for values of other sizes; None: some of these need another address."""
        memory = self._resized(specs)
        if memory is None:
            return None
        bound = self._bound(specs, memory)
        instructions = [group[-1] for group in bound.instructions.values()]
        return bound, self._sized(specs, memory, instructions)

    def _resized(self, specs: Sequence[Spec]) -> ValueMemory | None:
        """Return the memory of values of other sizes; None: some of these need another address."""
        planned = self._memory.arena.plan.resized(specs, self._region.taken)
        return None if planned is None else self._memory.resized(specs, planned)

    def _sized(
        self, specs: Sequence[Spec], memory: ValueMemory, instructions: Sequence[Instruction]
    ) -> Sized:
        """Return the bound instructions with all arrays."""
        program = self._part.program
        inputs = [
            self._array(i, specs, memory, False) if i in program.read else None
            for i in program.feeds
        ]
        fetched = [self._array(i, specs, memory, True) for i in program.fetches]
        capacity = self._region.scratch(0).capacity
        return Sized(instructions, capacity, inputs, fetched, memory.arena.plan.slack(specs))

    def _read(self, kinds: tuple[int, ...]) -> list[int]:
        """Return the sizes from which the calls of each node follow, and last those of arrays, as bits."""
        program, sources = self._part.program, self._cache.shapes.sources(kinds)
        touched = [
            *(node.touches() for node in self._part.nodes),
            (*program.feeds, *program.fetches),
        ]
        return [reduce(or_, (sources[i] for i in values), 0) for values in touched]

    def _instance(
        self,
        template: PlanTemplate,
        sizes: Sizes,
        prediction: Prediction,
        complete: Complete,
    ) -> Plan | None:
        """Return the plan that a template makes, with the unknown parts bound; None: as for :meth:`plan`."""
        if not prediction.parts:
            return template.plan(prediction.values, {}, **self._others)
        anew = bool(prediction.beyond) or template.arrays in prediction.parts
        with gc_paused():
            # What lies in buckets has the same specs for all sizes.
            specs = complete(self._met) if self._meeting >= prediction.parts else complete()
            arrays = None
            if anew:
                memory = self._resized(specs)
                if memory is None:
                    return None
            else:
                planned = self._memory.arena.plan
                planned = replace(planned, specs=planned.usage.stored(specs))
                memory = self._memory.resized(specs, planned)
            bound = self._bound(specs, memory, [k for k in prediction.parts if k < template.arrays])
            if anew:
                beyond = [
                    bound.instructions[k][-1] for k in prediction.beyond if k < template.arrays
                ]
                sized = self._sized(specs, memory, beyond)
                template.widen(sizes.point, prediction, sized)
                arrays = sized.inputs, sized.fetched
            return template.plan(
                prediction.values, bound.instructions, arrays, **self._others_of(bound)
            )

    def _bound(
        self, specs: Sequence[Spec], memory: ValueMemory, which: Collection[int] | None = None
    ) -> _Bound:
        """Return the instructions of some nodes (None: of all): those of an earlier plan, or new ones."""
        device = self._device.emptied()
        emission: Emission | None = None
        instructions: dict[int, Sequence[Instruction]] = {}
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
            instructions[k] = [instruction]
        if self._part.vote_at is None:
            return _Bound(instructions, device)
        assert emission is not None, "what meets peers is bound for each plan"
        at, early = max(self._meeting), emission.early_fetch(self._part.vote_at)
        if early is not None:
            instructions[at] = [early, *instructions[at]]
        return _Bound(instructions, device, emission.vote, at + len(instructions[at]))

    def _others_of(self, bound: _Bound) -> dict[str, Any]:
        """Return the arguments of :class:`Plan` beside instructions and arrays."""
        return {
            "device": bound.device,
            "temporaries": (self._count, self._nbytes + bound.device.scratch_bytes),
            "replica": self._part.peers.rank,
            "vote": bound.vote,
            "late": bound.late,
            "waited": self._waited,
        }

    @cached_property
    def _others(self) -> dict[str, Any]:
        """The same for a plan that only the template makes."""
        return self._others_of(_Bound({}, self._device))

    def _array(
        self, position: int, specs: Sequence[Spec], memory: ValueMemory, fetched: bool
    ) -> Any:
        """Return the array of an input, or of a value to fetch."""
        key = (position, specs[position], fetched)
        if key not in self._arrays:
            array = memory.fetched(position) if fetched else memory.arrays[position]
            self._arrays[key] = array
        return self._arrays[key]
