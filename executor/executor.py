"""Executor: runs a program in this process, on a GPU's replica, or hands a compiled one to its replicas."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from ..graph.compile import Compiled, compile_program
from ..graph.ir.lod import lod_sources
from ..graph.ir.replica_program import ReplicaProgram
from ..graph.lowering.memory import ALL_MEMORY_OPTIONS
from ..graph.ops.registry import Spec
from ..graph.passes.target import Target
from ..graph.program.program import Program, default_main_program
from ..strategies.current import current_config
from ..strategies.errors import InvalidArgument, InvalidState, InvalidType, Unsupported
from ..strategies.types import to_numpy
from .device.device import Device
from .device.place import CUDAPlace, Place, default_place
from .device.tensor import Storage, Tensor
from .driver.budget import Budget
from .driver.checks import check_initialized, set_scheduled_rate
from .driver.profiler import PROFILER
from .feed.feeds import check, convert, refuse_empty, sequences_in
from .feed.fetches import Joined, as_fetched, fetch_names_of
from .feed.reader import batches_for
from .feed.scope import Scope, global_scope
from .host.arena import Memory, spec_of
from .host.memory import available_memory
from .kernels.capabilities import capabilities
from .plan.bind import Binder
from .plan.binding_cache import BindingCache
from .plan.buckets import Buckets
from .plan.numerics import checking
from .plan.plan import Plan

PLANS_KEPT = 64
_Known = tuple[Compiled, Memory, BindingCache]
COMPILED_KEPT = 64

if TYPE_CHECKING:
    from .driver.future import StepFuture
    from .driver.plain_runs import PlainRuns


class _Bound:
    """A plan bound to the tensors of one scope."""

    def __init__(
        self, plan: Plan, tensors: dict[str, Tensor], program: ReplicaProgram, scope: Scope
    ) -> None:
        read = set(program.needed_names())
        self.plan = plan
        self.program = program
        self.scope = scope  # kept alive: its id is part of the cache key
        self.read = [tensor for name, tensor in tensors.items() if name in read]
        self.memory = [(tensor, tensor.memory(newest=False)) for tensor in tensors.values()]
        self.written = [tensors[name] for name in program.written_names()]
        self.generation = Storage.generation

    def current(self) -> bool:
        """Tell whether every tensor still lives where the plan reads it; fetch what replicas made newer."""
        for tensor in self.read:
            if tensor.link is not None:
                tensor.memory()
        if self.generation != Storage.generation:
            if any(tensor.memory(newest=False) is not array for tensor, array in self.memory):
                return False
            self.generation = Storage.generation
        return True


class Executor:
    """Runs programs on a place (that of ``paddle.set_device`` if none is named: ``CPUPlace()``).

    Compiled programs are kept by program, feed names and fetches; plans also by the shapes fed, so another
    batch size binds again without compiling again.
    """

    def __init__(self, place: Place | None = None) -> None:
        if place is not None and not isinstance(place, Place):
            raise InvalidType(f"Executor takes a place such as CPUPlace(), got {place!r}.")
        self.place = default_place() if place is None else place
        self._on_gpu: PlainRuns | None = None
        self._closed = False
        self._turn = threading.RLock()
        # With the memory that its plans share: another program may run at the same time, on other replicas.
        self._compiled: OrderedDict[tuple[Any, ...], _Known] = OrderedDict()
        self._bound: OrderedDict[tuple[Any, ...], _Bound] = OrderedDict()
        self._steps: dict[int, int] = {}
        self.compilations = 0
        self.bindings = 0

    def __repr__(self) -> str:
        return f"<Executor on {self.place}{', closed' if self._closed else ''}>"

    def run(
        self,
        program: Any = None,
        feed: Any = None,
        fetch_list: Any = None,
        feed_var_name: str = "feed",
        fetch_var_name: str = "fetch",
        scope: Scope | None = None,
        return_numpy: bool = True,
        use_program_cache: bool = False,
        return_merged: bool = True,
        use_prune: bool = False,
    ) -> list[Any]:
        """Run every op of ``program`` once and return the values of ``fetch_list``.

        Args:
            program: a Program, or a CompiledProgram (which may run on many places); default: the main program.
            feed: arrays by variable name. For a data-parallel program also a list of such dicts, one a place.
            fetch_list: variables or names; a result is a NumPy array each (a Tensor with
                ``return_numpy=False``). Results of several places are joined on dim 0 unless
                ``return_merged`` is False.
            scope: where persistables live; default: the global scope.
            use_prune: run only the ops that ``fetch_list`` needs. An optimize op in ``fetch_list`` asks for
                the same, and is run too.
            feed_var_name, fetch_var_name, use_program_cache: accepted as Paddle does; there are no feed and
                fetch variables here, and plans are always kept.

        Raises:
            FeedError: a feed is missing, misnamed, or does not fit the program.
            NotInitialized: a parameter holds no value: the startup program was not run.
            ExecutionError: an operator failed.
        """
        if self._closed:
            raise InvalidState("this executor is closed.")
        program = default_main_program() if program is None else program
        scope = global_scope() if scope is None else scope
        if not isinstance(scope, Scope):
            raise InvalidType(f"Executor.run: scope must be a Scope, got {type(scope).__name__}.")
        fetch_names, updates = fetch_names_of(fetch_list)
        if not isinstance(program, Program):
            begin = getattr(program, "_start", None)
            if begin is None:
                raise InvalidType(
                    f"Executor.run takes a Program or CompiledProgram, got {type(program).__name__}."
                )
            if use_prune or updates:
                raise Unsupported("use_prune, and fetching an optimize op, need a plain Program.")
            begun: StepFuture = begin(self, feed, fetch_names, scope, return_numpy, return_merged)
            return begun.result()
        keep = (*fetch_names, *updates) if use_prune or updates else None
        if isinstance(self.place, CUDAPlace) and (fetch_names or not only_initialises(program)):
            return self._gpu(self.place).run(program, feed, fetch_names, scope, return_numpy, keep)
        return self._run_program(program, _one_feed(feed), fetch_names, scope, return_numpy, keep)

    def run_async(
        self,
        program: Any,
        feed: Any = None,
        fetch_list: Any = None,
        scope: Scope | None = None,
        return_numpy: bool = True,
        return_merged: bool = True,
    ) -> StepFuture:
        """Begin what :meth:`run` does for a data-parallel program, and return before it is done.

        The next step can be fed meanwhile; ``ClusterConfig.steps_in_flight`` of them wait at one time, then
        the oldest is waited for. Steps happen in the order in which they were begun, and whatever else is
        asked of the program (its parameters, a plain ``run``) waits for them. What is fed is copied unless it
        cannot be written, so arrays may be filled anew at once.

        Returns:
            An object with ``result()``, which returns or raises what ``run`` would, and ``done()``.

        Raises:
            InvalidType: ``program`` is not data parallel.
        """
        if self._closed:
            raise InvalidState("this executor is closed.")
        begin = getattr(program, "_start", None)
        if begin is None:
            raise InvalidType(
                f"Executor.run_async takes a CompiledProgram, got {type(program).__name__}: a step on this "
                f"process's own place is done when run returns."
            )
        fetch_names, updates = fetch_names_of(fetch_list)
        if updates:
            raise Unsupported("fetching an optimize op needs a plain Program.")
        scope = global_scope() if scope is None else scope
        future: StepFuture = begin(
            self, feed, fetch_names, scope, return_numpy, return_merged, ahead=True
        )
        return future

    def close(self) -> None:
        """Forget every plan; the executor cannot be used again."""
        self._closed = True
        self._compiled.clear()
        self._bound.clear()

    def _gpu(self, place: CUDAPlace) -> PlainRuns:
        from .driver.plain_runs import PlainRuns

        with self._turn:
            if self._on_gpu is None:
                self._on_gpu = PlainRuns(place)
            return self._on_gpu

    def _run_program(
        self,
        program: Program,
        feed: Any,
        fetch_names: tuple[str, ...],
        scope: Scope,
        return_numpy: bool,
        keep: tuple[str, ...] | None = None,
    ) -> list[Any]:
        """Run one step; ``keep``: only the ops that make these variables."""
        if program.readers:
            read = batches_for(program, feed, 1, 1, current_config().step_deadline_s)
            feed = {**(feed or {}), **read[0][0]} if read else feed
        arrays = convert(program, feed) if feed else {}
        with self._turn, scope.turn:
            bound, fetched = self._step(program, arrays, fetch_names, scope, keep)
        lods = sequences_in(feed) if feed else {}
        if return_numpy and not lods:
            return [as_fetched(array) for array in fetched]
        sources = lod_sources(bound.program, lods)
        held = [lods.get(source, ()) if source else () for source in sources]
        joined = (
            Joined(*one)
            for one in zip(fetch_names, [[a] for a in fetched], [[h] for h in held], strict=True)
        )
        return [one.merged(return_numpy) for one in joined]

    def _step(
        self,
        program: Program,
        arrays: dict[str, np.ndarray],
        fetch_names: tuple[str, ...],
        scope: Scope,
        keep: tuple[str, ...] | None,
    ) -> tuple[_Bound, list[np.ndarray]]:
        """Run one step on converted arrays; return what ran, and what it fetched."""
        if program.lr_scheduler is not None:
            set_scheduled_rate(program, scope)
        shapes = tuple([(name, a.shape, a.dtype) for name, a in arrays.items()])
        key = (program.id, program.version, fetch_names, shapes, id(scope), keep, checking())
        bound = self._bound.get(key)
        if bound is None or not bound.current():
            bound = self._bind(key, program, arrays, fetch_names, scope, keep)
        step = self._steps.get(program.id, 0)
        bound.plan.device.clock.step = step
        if bound.program.changes:
            Storage.writes.note()
        bound.plan.run(list(arrays.values()), timed=PROFILER.on)
        if PROFILER.on:
            PROFILER.note(step, bound.plan)
        fetched = list(bound.plan.fetched())
        self._steps[program.id] = step + 1
        for tensor in bound.written:
            if tensor.link is not None:
                tensor.written()
        return bound, fetched

    def _compile(
        self,
        program: Program,
        feeds: tuple[str, ...],
        fetches: tuple[str, ...],
        keep: tuple[str, ...] | None,
    ) -> _Known:
        key = (program.id, program.version, feeds, fetches, keep, checking())
        known = self._compiled.get(key)
        if known is None:
            self.compilations += 1
            compiled = compile_program(
                program, feeds, fetches, Target(checks=checking()), capabilities(), keep=keep
            )
            known = compiled, Memory(), BindingCache(compiled.program)
            _remember(self._compiled, key, known, COMPILED_KEPT)
        return known

    def _bind(
        self,
        key: tuple[Any, ...],
        program: Program,
        arrays: dict[str, np.ndarray],
        fetch_names: tuple[str, ...],
        scope: Scope,
        keep: tuple[str, ...] | None,
    ) -> _Bound:
        check(program, arrays)
        refuse_empty(program, arrays)
        entry, memory, shared = self._compile(program, tuple(arrays), fetch_names, keep)
        compiled = entry.program
        check_initialized(compiled, scope)
        held = {name: scope.find_var(name) for name in compiled.state_names()}
        read = set(compiled.needed_names())

        def state(name: str) -> Spec | None:
            found = held[name]
            return (
                spec_of(found.get_tensor().memory())
                if found and found.get_tensor().initialized
                else None
            )

        def allocate(name: str, spec: Spec) -> np.ndarray:
            tensor = scope.home(name).get_tensor()
            if name in read:
                return tensor.memory()
            if tensor.initialized and tensor.memory(newest=False).dtype == to_numpy(spec.dtype):
                return tensor.memory(newest=False)
            return tensor.allocate(spec.shape, to_numpy(spec.dtype))

        fed = [spec_of(a) for a in arrays.values()]
        specs = shared.shapes.infer(fed, state)
        there = (found.get_tensor() for found in held.values() if found is not None)
        nbytes = sum(one.memory(newest=False).nbytes for one in there if one.initialized)
        limit = available_memory() + nbytes + memory.taken
        Budget(compiled, ALL_MEMORY_OPTIONS, limit, "this host has", 1).check(fed, specs, state)
        device = Device(
            seed=compiled.seed, math=compiled.math, memory=memory, writes=Storage.writes
        )
        buckets = Buckets(compiled, None)
        plan = Binder(compiled, device, specs, allocate, buckets, shared=shared).plan()
        self.bindings += 1
        tensors = {name: scope.home(name).get_tensor() for name in compiled.state_names()}
        bound = _Bound(plan, tensors, compiled, scope)
        _remember(self._bound, key, bound, PLANS_KEPT)
        return bound


def only_initialises(program: Program) -> bool:
    """Tell whether a program reads only what it makes: from its seed, the same on every place."""
    made: set[str] = set()
    for op in program.global_block().ops:
        if not made.issuperset(name for slot in op.input_names for name in op.input(slot)):
            return False
        made.update(name for slot in op.output_names for name in op.output(slot))
    return not program.readers


def _remember(
    cache: OrderedDict[tuple[Any, ...], Any], key: tuple[Any, ...], value: Any, limit: int
) -> None:
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > limit:
        cache.popitem(last=False)


def _one_feed(feed: Any) -> Any:
    """Return the only dict of a feed for one place."""
    if isinstance(feed, (list, tuple)):
        if len(feed) != 1:
            raise InvalidArgument(
                f"a program that is not data parallel takes one feed, got a list of {len(feed)}. "
                f"Use CompiledProgram(...).with_data_parallel(...) to run on several places."
            )
        feed = feed[0]
    if feed is not None and not isinstance(feed, dict):
        raise InvalidType(
            f"feed must be a dict of arrays by variable name, got {type(feed).__name__}."
        )
    return feed
