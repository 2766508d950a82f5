"""Plain programs on a GPU: each runs on the replica of that place, with the persistables of its scope."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from typing import Any

from ...graph.program.program import Program
from ...graph.program.program_graph import snapshot
from ..device.place import CUDAPlace
from ..feed.scope import Scope
from ..gang.launchers import gang_at
from .parallel import ParallelRun

_KEPT = 64


class PlainRuns:
    """Runs programs on one GPU. Programs in one scope share the replica's values."""

    def __init__(self, place: CUDAPlace) -> None:
        self.place = place
        self._runs: OrderedDict[tuple[Any, ...], ParallelRun] = OrderedDict()
        self._first: weakref.WeakKeyDictionary[Scope, ParallelRun] = weakref.WeakKeyDictionary()
        self._last: dict[int, ParallelRun] = {}  # of each program, whatever its version
        self._turn = threading.RLock()

    def run(
        self,
        program: Program,
        feed: Any,
        fetch_names: tuple[str, ...],
        scope: Scope,
        return_numpy: bool,
        keep: tuple[str, ...] | None,
    ) -> list[Any]:
        """Run one step; ``keep``: only the ops that make these variables."""
        with self._turn:
            run = self._run_of(program, scope, keep)
            last = self._last.get(program.id, run)
            if last is not run:
                run.steps = last.steps
                self._last[program.id] = run
        results = run.start(feed, fetch_names, return_numpy).result()
        run.values.fill()
        return list(results)

    def _run_of(self, program: Program, scope: Scope, keep: tuple[str, ...] | None) -> ParallelRun:
        key = (program.id, program.version, id(scope), keep)
        gang = gang_at(self.place)
        found = self._runs.get(key)
        if found is not None and found.gang is gang and not gang.delivery.broken:
            self._runs.move_to_end(key)
            return found
        first = self._first.get(scope)
        shared = first if first is not None and first.gang is gang else None
        made = ParallelRun(
            snapshot(program),
            [self.place],
            scope,
            share_with=shared,
            gang=gang,
            keep=keep,
            follows=True,
        )
        self._runs[key] = made
        if shared is None:
            self._first[scope] = made
        if len(self._runs) > _KEPT:
            self._runs.popitem(last=False)
        return made
