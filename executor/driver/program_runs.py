"""Plain programs on one place: each runs on the replica of that place, with the persistables of its scope."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from contextlib import nullcontext
from typing import Any

from ...graph.compile import Compiled, compile_program
from ...graph.passes.target import Target
from ...graph.program.program import Program
from ...strategies.bounded_dict import BoundedDict
from ..device.place import CUDAPlace, Place
from ..feed.scope import Scope
from ..gang.gang import Gang
from ..gang.launchers import gang_at, launching
from ..gang.local import LocalGang
from .local import run_type
from .parallel import ParallelRun
from .rings import rings_of

_RUNS_KEPT = 64


class _Compiler:
    """Compiles a program once for all scopes, and keeps as many; called in the turn of the gang.

    Runs refer to it, and not to what keeps the runs: both go as soon as they are not used.
    """

    def __init__(self, capacity: int) -> None:
        self.count = 0
        # With the capabilities and the back end that they were compiled for.
        self.programs: BoundedDict[tuple[Any, ...], tuple[tuple[Any, ...], Compiled]]
        self.programs = BoundedDict(capacity)

    def __call__(
        self,
        program: Program,
        feeds: tuple[str, ...],
        fetches: tuple[str, ...],
        target: Target,
        *others: Any,
        keep: Any,
    ) -> Compiled:
        """Return the compiled program."""
        own = target.whole_feeds, target.own_states, target.keeps, target.checks
        key = (program.id, program.version, feeds, fetches, keep, own)
        before, compiled = self.programs.pop(key, ((), None))
        if compiled is None or before != others:
            compiled = compile_program(program, feeds, fetches, target, *others, keep=keep)
            self.count += 1
        self.programs[key] = others, compiled  # behind all others: dropped after them
        return compiled


class ProgramRuns:
    """The runs of plain programs on one place. Programs in one scope share the replica's values."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._local: LocalGang | None = None
        self._on_gpu = isinstance(place, CUDAPlace)
        self._runs: OrderedDict[tuple[Any, ...], ParallelRun] = OrderedDict()
        # A run of each scope, whose id stands for it as long as the run is there.
        self._by_scope: weakref.WeakValueDictionary[int, ParallelRun] = (
            weakref.WeakValueDictionary()
        )
        self._last: dict[int, ParallelRun] = {}  # of each program, whatever its version
        self._steps: dict[int, int] = {}  # of programs whose last run is forgotten
        self._compiler = _Compiler(capacity=0 if self._on_gpu else _RUNS_KEPT)
        self._turn = threading.RLock()

    def run_of(self, program: Program, scope: Scope) -> ParallelRun:
        """Return the run of a program as it is now."""
        key = (program.id, program.version, id(scope))
        run = self._runs.get(key)
        if run is None or run.superseded or self._on_gpu:
            # A gang that another thread starts meanwhile would end this one: nothing uses it yet.
            with launching() if self._on_gpu else nullcontext(), self._turn:
                run = self._runs.get(key)
                gang = self._gang()
                if run is None or run.gang is not gang or gang.delivery.broken:
                    run = self._runs[key] = self._new_run(program, scope, gang)
                self._runs.move_to_end(key)
                last = self._last.get(program.id)
                if last is not run:
                    run.steps = (
                        last.steps if last else self._steps.get(program.id, program.first_step)
                    )
                    if last is not None:
                        last.superseded = True
                    self._last[program.id] = run
                    self._steps.pop(program.id, None)
                run.superseded = False  # last: until then, whatever an interrupt left is done again
                while len(self._runs) > _RUNS_KEPT:
                    _, old = self._runs.popitem(last=False)
                    if self._last.get(old.program.id) is old:
                        self._steps[old.program.id] = self._last.pop(old.program.id).steps
                    old.superseded = True
        return run

    def _gang(self) -> Gang:
        if self._on_gpu:
            return gang_at(self.place)
        self._local = self._local or LocalGang(self.place)
        return self._local

    def _new_run(self, program: Program, scope: Scope, gang: Gang) -> ParallelRun:
        other = self._by_scope.get(id(scope))
        shared = other if other is not None and other.gang is gang else None
        run = run_type(gang)(
            program,
            [self.place],
            scope,
            share_with=shared,
            gang=gang,
            trainers=rings_of(program, scope),
            plain=True,
            compile=self._compiler,
        )
        gang.guests.add(run)
        self._by_scope[id(scope)] = run
        return run

    @property
    def compilations(self) -> int:
        """How many times programs were compiled."""
        return self._compiler.count

    @property
    def bindings(self) -> int:
        """How many times programs were bound on this thread's replica."""
        return 0 if self._local is None else self._local.here.bindings

    def close(self) -> None:
        """Forget every run."""
        self._runs.clear()
        self._compiler.programs.clear()
        self._last.clear()
        if self._local is not None:
            self._local.close()
