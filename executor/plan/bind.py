"""Bind a ReplicaProgram to shapes and memory: the last step before running.

``part.py`` has what one rank computes of it, ``memory.py`` where its values lie, ``dependencies.py`` what
instructions wait for, and ``emission.py`` their calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...graph.ir.replica_program import ReplicaProgram
from ...graph.lowering.memory import ALL_MEMORY_OPTIONS, GPU_ALIGNMENT, MemoryOptions
from ...graph.ops.registry import Spec
from ..device.device import Device
from ..host.arena import Arena
from .binding_cache import BindingCache
from .buckets import Buckets
from .dependencies import Dependencies
from .emission import Emission
from .instruction import Instruction
from .memory import Allocate, SizedByStep, ValueMemory
from .part import ALONE, Peers
from .plan import Plan
from .resized import Resizer


class Binder:
    """Binds one program for one set of shapes on one rank.

    ``peers`` are the ranks that it meets. ``fed`` are arrays in which feeds will stand in every step; without
    them a plan has buffers of its own, and copies what it is fed. ``memory_options``: how temporaries may share
    memory. ``cache`` is what other plans of this program and rank have as well. ``make`` is the kind of plan.
    ``sized_by_step``: persistables that the plan has memory of its own for. ``known``: elements of values that
    are the same in every step of the plan, by position.
    """

    def __init__(
        self,
        program: ReplicaProgram,
        device: Device,
        specs: Sequence[Spec],
        allocate: Allocate,
        buckets: Buckets,
        peers: Peers = ALONE,
        *,
        fed: Sequence[Any] | None = None,
        memory_options: MemoryOptions = ALL_MEMORY_OPTIONS,
        cache: BindingCache | None = None,
        make: Callable[..., Plan] = Plan,
        sized_by_step: SizedByStep | None = None,
        known: Mapping[int, np.ndarray] | None = None,
    ) -> None:
        self.program, self._device, self._make = program, device, make
        self._cache = cache if cache is not None else BindingCache(program)
        self._part = self._cache.part(peers)
        in_place = dict(zip(program.feeds, fed, strict=True)) if fed is not None else {}
        self._memory = ValueMemory(
            self._part, specs, allocate, buckets, in_place, self._cache, sized_by_step, known or {}
        )
        if device.runtime is not None:
            memory_options = memory_options._replace(alignment=GPU_ALIGNMENT)
        self._memory.lay_out(self._memory.plan(memory_options, device.memory), device)
        device.constant = self._memory.constant

    @property
    def arena(self) -> Arena:
        """Where temporaries lie."""
        return self._memory.arena

    def resizer(self) -> Resizer | None:
        """Return a resizer, which binds the program for other sizes on the same memory, if there can be one."""
        if not Resizer.suits(self._memory, self._device):
            return None
        return Resizer(self._part, self._memory, self._device, self._cache)

    def plan(self, lanes: Sequence[int] | None = None) -> Plan:
        """Return the plan; ``lanes``: the thread of each instruction, None to run them in order."""
        part, memory = self._part, self._memory
        device = self._device = self._device.emptied()
        instructions: list[Instruction] = []
        dependencies = Dependencies(part, memory)
        if lanes is not None:
            memory.lay_out(dependencies.spread(lanes), device)
        emission = Emission(part, memory, device, self._cache)
        late = 0
        for node in part.nodes:
            early = emission.early_fetch(node)
            if early is not None:
                instructions.append(early)
            if lanes is None:
                instructions.append(emission.in_order(node))
            else:
                instructions.append(emission.in_lane(node, lanes[len(instructions)]))
            if node is part.vote_at:
                late = len(instructions)
        count, nbytes = memory.size()
        copied = self.program.read.difference(memory.fed)
        inputs = [memory.arrays[i] if i in copied else None for i in self.program.feeds]
        fetched = [memory.fetched(i) for i in self.program.fetches]
        memory.forget()
        return self._make(
            instructions,
            inputs,
            fetched,
            device,
            (count, nbytes + device.scratch_bytes),
            part.peers.rank,
            vote=emission.vote,
            late=late,
            needs=dependencies.needs,
            waited=part.peers.waited,
        )
