"""LocalRun: one program on a replica of the driver's own thread. A step is a function call, nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...graph.passes.target import Target
from ...strategies.bounded_dict import BoundedDict
from ...strategies.current import current_config
from ...strategies.errors import InvalidState
from ..device.tensor import Storage, Tensor
from ..feed.feeds import FeedShard, check, convert, refuse_empty, sequences_in, shapes_of
from ..feed.fetches import FetchedArray, Fetches
from ..feed.reader import batches_for
from ..feed.scope import Scope
from ..feed.splitting import SHAPES_KEPT, Portions
from ..gang.delivery import Share
from ..gang.gang import Gang
from ..gang.local import LocalGang
from ..gang.turns import Lock
from ..plan.numerics import checking
from ..replica.loaded import LoadedProgram
from .checks import set_scheduled_rate
from .future import InFlightSteps
from .parallel import ParallelRun
from .profiler import PROFILER
from .values import SharedValues, Values
from .variant import CompiledVariant

# Names, shapes and types of the feeds; what is fetched; whether results are checked
_Key = tuple[Any, tuple[Any, ...], bool]


class _Ready(NamedTuple):
    """What is run for certain feeds and fetches, and the tensors in use; ``moves`` of these had happened.

    Shapes depend on the elements of the feeds ``known``, by number.
    """

    variant: CompiledVariant
    loaded: LoadedProgram
    read: list[Tensor]
    written: list[Tensor]
    moves: int
    known: tuple[int, ...]


class LocalRun(ParallelRun):
    """Runs a program on the replica of a :class:`LocalGang`: nothing is cut, sent, reduced or gathered.

    What messages alone can do (several iterations, traces, feeds by place) goes the way of all gangs.
    """

    gang: LocalGang
    values: SharedValues

    def _set_up(self) -> None:
        super()._set_up()
        self._ready: BoundedDict[_Key, _Ready] = BoundedDict(SHAPES_KEPT)
        self._newest: _Ready | None = None

    def _new_values(self, scope: Scope) -> Values:
        return SharedValues(self.gang, scope)

    def run(self, feed: Any, fetches: Fetches) -> list[Any]:
        by_call = self.iterations == 1 and not self.tracing and self._together is None
        if not by_call or not (feed is None or type(feed) is dict):
            return super().run(feed, fetches)
        self._strategies.warn_of_edits()
        program, shard = self.program, None
        if program.readers:
            read = batches_for(program, feed, 1, 1, current_config().step_deadline_s)
            feed = {**(feed or {}), **read[0][0]} if read else feed
        arrays: dict[str, np.ndarray] = feed or {}
        key: _Key = (shapes_of(arrays), fetches.needs, checking())
        ready = self._ready.get(key)
        if ready is None:  # what was fed under these shapes before needs no conversion
            shard = FeedShard(convert(program, arrays), sequences_in(arrays))
            arrays = shard.complete()
            key = (shapes_of(arrays), *key[1:])
        with self.gang.turn, self.values.scope.turn:
            if self.gang.delivery.broken:
                raise InvalidState("this executor is closed. Make a new one.")
            if self.gang.under_way:
                self.gang.drain()
            if program.lr_scheduler is not None:
                set_scheduled_rate(program, self.values.scope)
            ready = ready or self._ready.get(key)
            if ready is None or not self._is_current(ready):
                ready = self._prepare(shard or FeedShard(arrays, {}), fetches)
                self._ready[key] = ready
            fetched = self._run_step(ready, key[0], list(arrays.values()))
            if not self._plain:
                self.last = ready.variant
                self._end_temporaries(fetches)
        names, as_numpy, merged, _ = fetches
        if self._plain and as_numpy and merged and len(fetched) == len(names):
            return [array.view(FetchedArray) for array in fetched]
        return fetches.of(self._joined(ready.variant, names, [fetched]))

    def _is_current(self, ready: _Ready) -> bool:
        """Bring the tensors that a step reads up to date; tell whether the scope has the same ones still."""
        for tensor in ready.read:
            if tensor.link is not None:  # other replicas may have made it newer
                tensor.memory()
        if self.values.shared.generation != Storage.generation:
            self.values.rebind()
        return ready.moves == self.values.moves

    def _run_step(
        self, ready: _Ready, shapes: tuple[Any, ...], arrays: list[np.ndarray]
    ) -> Sequence[np.ndarray]:
        """Have the replica run a step on these feeds; return what it fetches."""
        step = self.steps if self._count[1] else self._count[0]
        known = ready.known
        key = (shapes, *(arrays[k].tobytes() for k in known)) if known else shapes
        plan = self.gang.here.run_step(ready.loaded, key, arrays, step, PROFILER.on)
        if PROFILER.on:
            PROFILER.note(step, plan)
        fetched = plan.fetched(lent=self.lent)
        self._count = (step + 1, ())
        for tensor in ready.written:
            if tensor.link is not None:
                tensor.written()
        return fetched

    def _prepare(self, shard: FeedShard, fetches: Fetches) -> _Ready:
        """Compile and check the program that the replica runs for these feeds."""
        values, arrays = self.values, shard.complete()
        check(self.program, shard.arrays)
        refuse_empty(self.program, shard)
        whole = frozenset[str]() if self._plain else self._splitter.whole([Portions([shard])])
        _, variant = self._variant([shard], fetches, whole)
        loaded = self.gang.here.programs[variant.number]
        if not loaded.earlier:  # what is inferred to check what is fed is inferred to bind it, too
            variant.shapes = loaded.cache.shapes
        values.adopt(variant.states, variant.owners, variant.needed)
        variant.budget.limit, _ = self._room(variant.number, variant.states)
        variant.check([shard])
        if variant.stages:
            self._verify(variant, [Share(list(arrays.values()), [0], [1.0], [False])])
        newest = self._newest
        if newest is None or (newest.variant, newest.moves) != (variant, values.moves):
            read = values.tensors(variant.program.needed_names())
            written = values.tensors(variant.program.written_names())
            known = variant.shapes.known.feeds
            newest = self._newest = _Ready(variant, loaded, read, written, values.moves, known)
        return newest

    def _forget_variant(self, variant: CompiledVariant) -> None:
        super()._forget_variant(variant)
        for ready in [k for k, r in self._ready.items() if r.variant is variant]:
            del self._ready[ready]
        self._newest = None

    def _room(self, number: int, states: Sequence[str]) -> tuple[int, str]:
        """Return the bytes that a loaded program may take of this host, and what says so."""
        if self._plain:
            return self.values.room(number, states), "this host has"
        return super()._room(number, states)

    def _target(self) -> Target:
        if not self._plain:
            return super()._target()
        world = self._world
        return Target() if world is None else Target(replicas=world.size, trainers=world.size)

    @property
    def _first_turn(self) -> Lock:
        """Return the gang's lock: one executor runs one program at a time, whatever the scope."""
        return self.gang.turn

    def _begin(self, flight: InFlightSteps, becomes: InFlightSteps, ahead: bool) -> None:
        """Run a step by messages, too, before any other: it writes the user's own tensors."""
        super()._begin(flight, becomes, ahead=False)
        self.gang.drain()
        assert becomes.variant is not None
        self.values.stepped(becomes.variant.program.written_names())

    def _end_temporaries(self, fetches: Fetches) -> None:
        """After a step: end the life of temporaries if it is time."""
        if self._is_drop_due(1, fetches):
            self._since_drop = 0
            for variant in self.variants.values():
                self.gang.here.programs[variant.number].alive = None


def run_type(gang: Gang) -> type[ParallelRun]:
    """Return what runs programs on a gang: by calls if it is on the driver's thread, else by messages."""
    return LocalRun if isinstance(gang, LocalGang) else ParallelRun
