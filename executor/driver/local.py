"""LocalRun: one program on a replica of the driver's own thread. A step is a function call, nothing is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...graph.passes.target import Target
from ...strategies.current import current_config
from ...strategies.errors import InvalidState
from ..device.tensor import Storage, Tensor
from ..feed.feeds import FeedShard, check, convert, refuse_empty, sequences_in
from ..feed.fetches import FetchedArray, Fetches
from ..feed.reader import batches_for
from ..feed.scope import Scope
from ..feed.splitting import SHAPES_KEPT, Portions
from ..gang.delivery import Share
from ..gang.gang import Gang
from ..gang.local import LocalGang
from ..gang.turns import Lock
from ..host.bounded_dict import BoundedDict
from ..plan.numerics import checking
from ..replica.loaded import LoadedProgram
from .checks import set_scheduled_rate
from .future import InFlightSteps
from .parallel import ParallelRun
from .profiler import PROFILER
from .values import SharedValues, Values
from .variant import CompiledVariant


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
        self._ready: BoundedDict[tuple[Any, ...], _Ready] = BoundedDict(SHAPES_KEPT)
        self._newest: _Ready | None = None

    def _new_values(self, scope: Scope) -> Values:
        return SharedValues(self.gang, scope)

    def run(self, feed: Any, fetches: Fetches) -> list[Any]:
        values = self.values
        by_call = self.iterations == 1 and not self.tracing and self._together is None
        if not by_call or not (feed is None or type(feed) is dict):
            return super().run(feed, fetches)
        self._strategies.warn_of_edits()
        program, checks, needs = self.program, checking(), fetches.needs
        if program.readers:
            read = batches_for(program, feed, 1, 1, current_config().step_deadline_s)
            feed = {**(feed or {}), **read[0][0]} if read else feed
        arrays: dict[str, np.ndarray] = feed or {}
        ready, shard = None, None
        for value in arrays.values():
            if type(value) is not np.ndarray:
                break
        else:  # converting makes others only of what is fed under these shapes for the first time
            shapes = tuple([(name, a.shape, a.dtype) for name, a in arrays.items()])
            ready = self._ready.get((shapes, needs, checks))
        if ready is None:
            shard = FeedShard(convert(program, arrays), sequences_in(arrays))
            arrays = shard.complete()
            shapes = tuple([(name, a.shape, a.dtype) for name, a in arrays.items()])
        with self.gang.turn, values.scope.turn:
            if self.gang.delivery.broken:
                raise InvalidState("this executor is closed. Make a new one.")
            if self.gang.under_way:
                self.gang.drain()
            if program.lr_scheduler is not None:
                set_scheduled_rate(program, values.scope)
            if ready is None:
                ready = self._ready.get((shapes, needs, checks))
            if ready is not None:
                for tensor in ready.read:
                    if tensor.link is not None:  # other replicas may have made it newer
                        tensor.memory()
                if values.shared.generation != Storage.generation:
                    values.rebind()
            if ready is None or ready.moves != values.moves:
                ready = self._prepare(shard or FeedShard(arrays, {}), fetches)
                self._ready[shapes, needs, checks] = ready
            step = self.steps if self._count[1] else self._count[0]
            replica = self.gang.here
            fed = list(arrays.values())
            key = (shapes, *(fed[k].tobytes() for k in ready.known)) if ready.known else shapes
            plan = replica.run_step(ready.loaded, key, fed, step, PROFILER.on)
            if PROFILER.on:
                PROFILER.note(step, plan)
            fetched = plan.fetched(lent=self.lent)
            self._count = (step + 1, ())
            for tensor in ready.written:
                if tensor.link is not None:
                    tensor.written()
            if not self._plain:
                self.last = ready.variant
                self._end_temporaries(bool(fetches.names))
        names, as_numpy, merged, _ = fetches
        if self._plain and as_numpy and merged and len(fetched) == len(names):
            return [array.view(FetchedArray) for array in fetched]
        return fetches.of(self._joined(ready.variant, names, [fetched]))

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

    def _end_temporaries(self, fetches: bool) -> None:
        """After a step: end the life of temporaries if it is time, as :meth:`ParallelRun._begin` does."""
        self._since_drop += 1
        if fetches or self._since_drop >= self.execution.num_iteration_per_drop_scope > 0:
            self._since_drop = 0
            for variant in self.variants.values():
                self.gang.here.programs[variant.number].alive = None


def run_type(gang: Gang) -> type[ParallelRun]:
    """Return what runs programs on a gang: by calls if it is on the driver's thread, else by messages."""
    return LocalRun if isinstance(gang, LocalGang) else ParallelRun
