"""ValueMemory: where values lie: persistables in scopes, gradients in buckets, others in an arena."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...graph.ir.graph import TEMP
from ...graph.lowering.memory import MemoryOptions, MemoryPlan, Usage, plan_memory
from ...graph.ops.collective import BUCKETED
from ...graph.ops.registry import Spec
from ...graph.report.memory_report import contributors
from ...strategies.errors import ResourceExhausted, ShapeError
from ...strategies.types import to_numpy
from ..device.device import Device
from ..host.arena import Arena, Memory
from ..host.memory import total_memory
from ..host.writes import address
from .binding_cache import BindingCache
from .buckets import Buckets
from .part import RankPart

Allocate = Callable[[str, Spec], np.ndarray]


class _Arrays(dict[int, Any]):
    """The array of each value, by position: that ``outside`` the arena, or one in it; None: it has none."""

    def __init__(self, outside: Mapping[int, Any], arena: Arena) -> None:
        super().__init__(outside)
        self._arena = arena

    def __missing__(self, position: int) -> Any:
        planned, array = self._arena.plan, None
        if position in planned.same:
            array = self[planned.same[position]]
        elif position in planned.roots:
            array = self._arena.array(position)
        self[position] = array
        return array


class SizedByStep(NamedTuple):
    """Persistables whose sizes follow from the feeds, so that each plan has memory of its own for them.

    ``new`` allocates it; ``put`` makes it the persistable's memory once a step has written there.
    """

    names: frozenset[str]
    new: Allocate
    put: Callable[[str, Any], None]


class ValueMemory:
    """The array of each value, by position.

    Arrays are made on first use, as most instructions come from plans of other shapes. ``fed``: arrays that
    hold feeds in every step, by position; ``allocate`` returns a persistable's memory. ``known``: values that
    are the same in every step of the plan, by position. ``puts``: the calls that follow a write to a
    persistable of ``sized_by_step``.

    Raises:
        ExecutionError: the program would write what lasts before all ranks have agreed to.
        ShapeError: a persistable would be written in another size than it has.
    """

    def __init__(
        self,
        part: RankPart,
        specs: Sequence[Spec],
        allocate: Allocate,
        buckets: Buckets,
        fed: Mapping[int, Any],
        cache: BindingCache,
        sized_by_step: SizedByStep | None,
        known: Mapping[int, np.ndarray],
    ) -> None:
        self._part, self.program, self.known = part, part.program, known
        self.puts: dict[int, Callable[[], None]] = {}
        self.specs, self.buckets, self.fed = specs, buckets, fed
        self._usage = self._usage_of(part, cache)
        self._outside = self._outside_arena(allocate, sized_by_step)

    @property
    def constant(self) -> frozenset[int]:
        """The addresses of persistables, if no step of the program changes one."""
        if self.program.changes:
            return frozenset()
        return frozenset(address(self._outside[i]) for i in self._part.states)

    def _outside_arena(
        self, allocate: Allocate, sized_by_step: SizedByStep | None
    ) -> dict[int, Any]:
        """Return the arrays of persistables and of what travels in buckets or is fed in place."""
        part, program = self._part, self.program
        placed: dict[int, Any] = {**self.buckets.parts_of, **self.fed}
        lasting: dict[str, Any] = {}  # all versions of a persistable have one memory
        for i in part.states:
            name, spec = program.values[i].name, self.specs[i]
            own = sized_by_step if sized_by_step and name in sized_by_step.names else None
            if name not in lasting:
                lasting[name] = (own.new if own else allocate)(name, spec)
            placed[i] = lasting[name]
            if own:
                self.puts[i] = partial(own.put, name, lasting[name])
            if math.prod(spec.shape) != lasting[name].size:
                raise ShapeError(
                    f"variable {name!r} lasts, and has the shape {list(lasting[name].shape)} where a step "
                    f"writes {list(spec.shape)}. Write another variable."
                )
        if part.peers.group is not None:
            for node in program.nodes:
                if node.op in BUCKETED:
                    both = zip(node.inputs.get("X", ()), node.outputs.get("Out", ()), strict=True)
                    placed.update(
                        (out, placed[x]) for x, out in both if out not in placed and x in placed
                    )
        return placed

    def _usage_of(self, part: RankPart, cache: BindingCache) -> Usage:
        """Return how long this rank needs each value; what no shapes change is checked on the way."""
        grouped, fed = part.peers.group is not None, bool(self.fed)

        def usage() -> Usage:
            if grouped:
                part.refuse_early_writes()
            return Usage(self.program, part.nodes, grouped=grouped, fed=fed)

        return cache.usage((grouped, fed), usage)

    def plan(self, options: MemoryOptions, memory: Any = None) -> MemoryPlan:
        """Return where temporaries lie if instructions run in order; ``memory`` has the arenas of all plans."""
        taken = memory.taken if isinstance(memory, Memory) else None
        planned = plan_memory(self._usage, self.specs, options, taken)
        if taken is not None and planned.size > total_memory():
            planned = plan_memory(self._usage, self.specs, options)
        return planned

    def lay_out(self, planned: MemoryPlan, device: Device) -> None:
        """Give every temporary its place in the arena.

        Raises:
            ResourceExhausted: the device has not as much memory.
        """
        try:
            if device.runtime is None and planned.size > total_memory():
                raise MemoryError
            self.arena = Arena(device.xp, planned, device.memory)
        except MemoryError as error:
            largest = "; ".join(contributors(planned, 3))
            raise ResourceExhausted(
                f"out of memory: the temporaries take {planned.size:,} bytes, and {device.room()}. "
                f"Largest: {largest}."
            ) from error
        self.arrays = _Arrays(self._outside, self.arena)

    def resized(self, specs: Sequence[Spec], planned: MemoryPlan) -> ValueMemory:
        """Return a copy with values of other sizes, which begin at the same addresses."""
        memory = copy(self)
        memory.specs, memory.arena = specs, self.arena.resized(planned)
        memory.forget()
        return memory

    @property
    def places(self) -> list[Hashable]:
        """By position, what identifies the memory of each value, together with :attr:`stored`."""
        places: list[Hashable] = [None] * len(self.specs)
        for i, array in self._outside.items():
            places[i] = _place(array)
        for i, at in self.arena.addresses.items():
            places[i] = at
        return places

    @property
    def stored(self) -> Sequence[Spec]:
        """The specs of values as they lie in memory."""
        return self.arena.plan.specs

    def forget(self) -> None:
        """Drop the arrays made so far; the bound plan holds those that it needs."""
        self.arrays = _Arrays(self._outside, self.arena)

    def at(self, positions: Sequence[int]) -> list[Any]:
        """Return the arrays of values; None for those that a node does without."""
        return [None if i < 0 else self.arrays[i] for i in positions]

    def storages(self, slots: Mapping[str, Sequence[int]]) -> list[int]:
        """Return where values lie: pieces of storages in the arena as negative numbers, else addresses.

        Two storages that overlap in the arena are no dependency: those of instructions that may run side by
        side never overlap.
        """
        pieces, storages = self.arena.plan.pieces, []
        for i in (i for positions in slots.values() for i in positions if i >= 0):
            array = self.arrays[i]
            if array is not None and array.size:
                known = pieces.get(i)
                storages += [address(array)] if known is None else [-1 - k for k in known]
        return storages

    def fetched(self, position: int) -> Any:
        """Return the array to fetch; it has no rows if this rank does not compute it."""
        array, value = self.arrays[position], self.program.values[position]
        here = position in self._part.outputs or position in self.buckets.parts_of
        if array is not None and (here or value.kind != TEMP):
            return array
        spec = self.specs[position]
        # Sizes may be unknown of what this place does not compute.
        sizes = (max(size, 0) for size in spec.shape[1:])
        return np.empty((0, *sizes), to_numpy(spec.dtype))

    def size(self) -> tuple[int, int]:
        """Return how many temporaries, gradients and feeds in place there are, and their bytes."""
        bucketed = list(self.buckets.parts_of.values())
        nbytes = self.arena.nbytes + sum(array.nbytes for array in bucketed)
        nbytes += sum(array.nbytes for array in self.fed.values())
        return self.arena.count + len(bucketed), nbytes


def _place(array: Any) -> Hashable:
    """Return what identifies an array: its address, shape, strides and dtype."""
    return address(array), array.shape, array.strides, array.dtype
