"""Holdings: a replica's programs and device scopes, and the plans that are bound to their memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...graph.ir.replica_program import ReplicaProgram
from ...graph.ops.registry import Spec
from ...strategies.garbage import gc_paused
from ..cuda.memory import DeviceMemory
from ..cuda.runtime import Runtime
from ..device.device import Device
from ..device.device_scope import DeviceScope
from ..host.arena import Memory
from ..plan.bind import Binder
from ..plan.cuda_plan import CudaPlan
from ..plan.memory import SizedByStep
from ..plan.plan import Plan
from ..plan.sizes import Form, forms_of
from .loaded import BoundPlan, LastSegment, LoadedProgram, Segment
from .message import Message


class Holdings:
    """Programs and device scopes by number, and the plans of the programs.

    ``runtime`` is the GPU that holds scopes and temporaries (None: the host), and ``wait_for_gpu`` returns when
    it has decided on all steps. ``post`` sends the driver a message that must arrive even if this process ends
    before its answer.
    """

    def __init__(self, runtime: Runtime | None, wait_for_gpu: Callable[[], None]) -> None:
        self.runtime = runtime
        self._wait_for_gpu = wait_for_gpu
        self.scopes: defaultdict[int, DeviceScope] = defaultdict(partial(DeviceScope, runtime))
        self.programs: dict[int, LoadedProgram] = {}
        # One step runs at a time, so its plans can share memory.
        self.memory: Memory | DeviceMemory = (
            Memory() if runtime is None else DeviceMemory(runtime, self.forget_all_plans)
        )
        self.bindings = 0
        self.post: Callable[[Message], None] | None = None

    def keep_plan(
        self,
        loaded: LoadedProgram,
        segment: Segment,
        key: Hashable,
        feeds: Sequence[np.ndarray],
        lasting: bool = False,
        forms: Sequence[Form] | None = None,
    ) -> BoundPlan:
        """Cache a plan of a segment under ``key``: one for the same shapes that is there, or a new one.

        ``forms``: those of the feeds, if they are known.
        """
        self._wait_for_gpu()  # it may be asked to finish what it does
        scope = self.scopes[loaded.scope]
        if scope.migrate(segment.program.sides):
            self.forget_plans(loaded.scope)
        inferred = segment.infer(forms or forms_of(feeds), feeds, scope.spec)
        sizes = segment.cache.shapes.sizes(inferred)
        shapes: Hashable = None if lasting else sizes
        known: Mapping[int, np.ndarray] = {}
        if self.runtime is not None:
            # What a graph holds is the same whenever it is launched.
            known = segment.cache.shapes.met(inferred)
            shapes = sizes, *[a.tobytes() for a in known.values()]
        bound = segment.plans.alike(shapes)
        if bound is None:
            self.bindings += 1
            complete = partial(segment.cache.shapes.complete, inferred)
            # What is fed from lasting memory, or may be dealt to threads, is bound by itself.
            alone = lasting or (isinstance(segment, LastSegment) and loaded.measures_next())
            resized = None if alone else segment.resized(sizes, complete)
            if resized is not None:
                bound = BoundPlan(segment.program, resized, None, None, self.post)
            else:
                with gc_paused():
                    in_place = feeds if lasting else None
                    bound = self._bind(loaded, segment, complete(), known, in_place, not alone)
        segment.plans.keep(key, shapes, bound)
        return bound

    def _bind(
        self,
        loaded: LoadedProgram,
        segment: Segment,
        specs: Sequence[Spec],
        known: Mapping[int, np.ndarray],
        fed: Sequence[Any] | None,
        resizes: bool,
    ) -> BoundPlan:
        """Bind a segment; where it ``resizes``, plans for other sizes may lie on the same memory.

        ``fed``: the feeds that the plan reads in place.
        """
        scope, program = self.scopes[loaded.scope], segment.program
        captures = loaded.options.build.allow_cuda_graph_capture is not False
        binder = Binder(
            program,
            Device(
                seed=program.seed,
                math=program.math,
                memory=loaded.memory,
                writes=scope.writes,
                passes=scope.passes,
                runtime=self.runtime,
            ),
            specs,
            scope.allocate,
            segment.buckets,
            loaded.peers(segment),
            fed=fed,
            memory_options=loaded.options.memory_options,
            cache=segment.cache,
            make=partial(CudaPlan, captures=captures) if self.runtime else Plan,
            sized_by_step=self._sized_by_step(loaded, program),
            known=known,
        )
        bound = BoundPlan(program, binder.plan(), binder, fed, self.post)
        resizer = binder.resizer() if resizes else None
        if resizer is not None:
            segment.resize(resizer)
            bound.binder = None
        if isinstance(bound.plan, CudaPlan):
            bound.plan.settle = self._wait_for_gpu
        if self.runtime is not None:
            # Libraries timed what they can do on memory like the operands'.
            self.runtime.give_back()
        return bound

    def _sized_by_step(self, loaded: LoadedProgram, program: ReplicaProgram) -> SizedByStep | None:
        names, scope = program.sized_by_step(), self.scopes[loaded.scope]
        return SizedByStep(names, scope.new, partial(self._put, loaded.scope)) if names else None

    def _put(self, number: int, name: str, array: Any) -> None:
        """Make memory that a step wrote a persistable's; plans that read its old memory are bound again."""
        moved = self.scopes[number].put(name, array)
        for loaded in self.programs.values():
            if loaded.scope == number:
                loaded.forget_states()
                if moved and name in loaded.whole.needed_names():
                    loaded.forget_plans()

    def forget_fed(self) -> None:
        """Forget the plans that read feeds in place, from shared memory that is about to be released."""
        for loaded in self.programs.values():
            for bound in loaded.plans:
                if bound.fed is not None:
                    loaded.plans.forget(bound)
            loaded.alive = loaded.last = None

    def forget_all_plans(self) -> None:
        """Forget the plans of all programs."""
        for loaded in self.programs.values():
            loaded.forget_plans()

    def forget_plans(self, scope: int) -> None:
        """Forget the plans that use a device scope, as some of its memory has moved."""
        for loaded in self.programs.values():
            if loaded.scope == scope:
                loaded.forget_plans()
