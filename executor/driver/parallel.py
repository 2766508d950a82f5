"""ParallelRun: the steps of one program on a gang. It splits feeds, sends steps and joins what they fetch."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ...strategies.bounded_dict import BoundedDict
from ..device.tensor import LoD, Storage
from ..feed.fetches import Fetches, Joined
from ..feed.splitting import SHAPES_KEPT, Portions, Splitter
from ..gang.assign import Change, assign
from ..gang.delivery import GangChanged, Owner, Request, Share, StepHeads
from ..gang.turns import HasTurn, Lock, NeedsTurn, in_turn
from ..plan.numerics import checking
from ..replica.message import Message, Stacked
from ..replica.orders import Drop, Order, Trace
from .checks import set_scheduled_rate
from .copies import Copies
from .future import InFlightSteps, StepFuture
from .profiler import PROFILER
from .program_on_gang import ProgramOnGang
from .timeline import Spans
from .together import Together
from .variant import CompiledVariant, KnownStep


class ParallelRun(ProgramOnGang):
    """Runs a program in lockstep on the replicas of its gang."""

    def _set_up(self) -> None:
        super()._set_up()
        self._itself: weakref.ref[Owner] = weakref.ref(self)
        self._splitting = threading.RLock()
        self.superseded = self._plain  # another version of the program was run since, or none
        self._since_drop = 0
        self._shrunk = len(self.gang.shrunk)
        self._splitter = self._make_splitter(len(self.places))
        self._copies = Copies()
        self.iterations = max(self.execution.num_iteration_per_run, 1)
        self.lent = 0  # how many of the last fetches need not outlive the next step, nor be copied
        self.spans = Spans()
        self._known_steps: BoundedDict[tuple[Any, ...], KnownStep] = BoundedDict(SHAPES_KEPT)

    def _meet_trainers(self, together: Together) -> None:
        """Meet the other trainers; if they met anew, forget what was compiled for those before."""
        if together.meet():
            assert together.world is not None
            self.variants, self.last = {}, None
            name = together.world.name
            self.options = replace(self.options, trainers=name, rings=together.rings)

    def _spread_values(self, together: Together, variant: CompiledVariant) -> None:
        """Copy the values of the trainer furthest on to all replicas, and count on from its steps."""
        if together.spread(self.values.id, sorted(variant.needed)):
            self.gang.ledger.place_values.forget(self.values.id)
            self.values.version += 1
            if together.steps > self.steps:
                self.steps = together.steps

    def run(self, feed: Any, fetches: Fetches) -> list[Any]:
        """Run a step (or ``num_iteration_per_run``); return what the last fetches, as :meth:`start` has it."""
        results = self.start(feed, fetches).result()
        if self._plain:
            self.values.fill()
        return results

    def start(self, feed: Any, fetches: Fetches, ahead: bool = False) -> StepFuture:
        """Begin a step on every place (or ``num_iteration_per_run``); the future has what the last one fetches.

        Results are joined on dim 0 in place order, unless ``fetches`` asks for each place's. ``ahead``: return
        although this step, or steps before it, are in flight.
        """
        self._strategies.warn_of_edits()
        if PROFILER.on:
            PROFILER.follow(self)
        iterations, copies = self.iterations, self._copies if ahead else None
        began = time.perf_counter()
        # A reader may have to be waited for: other threads have their turn meanwhile.
        with self._splitting:
            splitter = self._splitter
            if copies is None:
                flight = InFlightSteps(splitter.batches(feed, iterations), fetches, iterations)
            else:  # the user may change arrays while steps are under way, which may have to be sent again
                copies.begin()
                batches = splitter.batches(feed, iterations, copies.copy)
                flight = InFlightSteps(batches, fetches, iterations)
                copies.lend(flight)
        if self.tracing:
            self.spans.note("split", self.steps, began)
        self._in_turn(self._start, flight, splitter, ahead)
        return StepFuture(self, flight)

    def _start(self, flight: InFlightSteps, splitter: Splitter, ahead: bool) -> None:
        while flight.request is None:
            if self.gang.voided:  # they come first
                raise NeedsTurn(self.gang)
            if len(self.gang.shrunk) > self._shrunk:
                self._follow_gang()
            if self._splitter is not splitter:
                splitter = self._splitter
                flight.batches = [splitter.again(portions) for portions in flight.batches]
            try:
                self._begin(flight, flight, ahead)
            except GangChanged:
                continue

    def _in_turn(self, call: Callable[..., None], *args: Any) -> None:
        """Call with the locks of the scope, of the gang, and of other gangs whose values the call needs.

        Locks of scopes come before those of gangs, and gangs have one order, so that no two threads wait for
        each other.
        """
        self.gang.check_caller()
        gangs: list[HasTurn] = [self.gang]
        try:
            with self._first_turn, self.values.scope.turn, self.gang.turn:
                call(*args)
            return
        except NeedsTurn as needed:
            gangs.append(needed.gang)
        while True:
            if gangs[-1] is self.gang:
                self.gang.go_on()
            try:
                with self._first_turn, self.values.scope.turn:
                    turns = [gang.turn for gang in sorted(gangs, key=id)]
                    in_turn(turns, partial(call, *args))
                return
            except NeedsTurn as needed:
                gangs.append(needed.gang)

    @property
    def _first_turn(self) -> Lock:
        return self.values.scope.turn

    def _begin(self, flight: InFlightSteps, becomes: InFlightSteps, ahead: bool) -> None:
        """Compile, check and send the steps of ``flight``, and have ``becomes`` stand for them from then on."""
        with self._explaining():
            self.gang.make_way(ahead)
            if self._together is not None:
                self._meet_trainers(self._together)
        preparing = time.perf_counter()
        variant, shares, heads = self._step_of(flight.batches, flight.fetches)
        self._send_values(variant, shares)
        if self.tracing:
            self.spans.note("prepare", self.steps, preparing)
        drop = self._is_drop_due(flight.iterations, flight.fetches)
        dropped = [v.number for v in self.variants.values()] if drop else []
        if variant.writes:
            self.values.version += 1  # now: a step that is interrupted may have written, too
        counted, others = self._count_beside(becomes)
        step = counted + sum([other.steps for other in others])
        request = Request(
            *(variant.number, shares, step, flight.iterations, dropped, variant.votes),
            results=variant.results,
            owner=self._itself,
            heads=heads,
        )
        becomes.variant = self.last = variant
        changes: list[Change] = [
            (self, "_count", (counted, (*others, becomes))),
            (becomes, "request", request),
        ]
        if becomes is not flight:
            changes += [(becomes, "batches", flight.batches)]
            changes += [(becomes, "iterations", flight.iterations)]
        if len(self.gang.shrunk) > self._shrunk:
            raise GangChanged
        sending = time.perf_counter()
        with self._explaining():
            self.gang.begin(request, ahead, *changes)
        if self.tracing:
            self.spans.note("send", step, sending)
        if drop:
            self._since_drop = 0

    def _send_values(self, variant: CompiledVariant, shares: Sequence[Share]) -> None:
        """Give replicas the newest values: what the user wrote, the scheduled rate, those of other trainers."""
        self.values.adopt(variant.states, variant.owners, variant.needed)
        if self.program.lr_scheduler is not None:
            set_scheduled_rate(self.program, self.values.scope)
        if variant.stages:
            self._verify(variant, shares)
        self.values.flush()
        if self._together is not None:
            with self._explaining():
                self._spread_values(self._together, variant)

    def _is_drop_due(self, iterations: int, fetches: Fetches) -> bool:
        """Count steps, and tell whether temporaries end their life with the last of them."""
        self._since_drop += iterations
        period = self.execution.num_iteration_per_drop_scope
        return bool(fetches.names) or self._since_drop >= period > 0

    def _count_beside(self, flight: InFlightSteps) -> tuple[int, list[InFlightSteps]]:
        """Return how many steps have happened, and what else is in flight beside ``flight``."""
        counted, flights = self._count
        open_flights = [other for other in flights if other.open and other is not flight]
        closed = [other.steps for other in flights if other is flight or not other.open]
        return counted + sum(closed), open_flights

    def finish(self, flight: InFlightSteps) -> list[Joined]:
        """Wait for steps in flight, after all that were begun before them; return what they fetch."""
        while True:
            request = flight.request
            assert request is not None and flight.variant is not None
            waiting = time.perf_counter()
            try:
                with self._explaining():
                    fetched = self.gang.finish(request)
            except GangChanged:
                self.gang.go_on()
                continue
            if self.tracing:
                self.spans.note("wait", request.step, waiting)
            return self._joined(flight.variant, flight.fetches.names, fetched)

    def go_on(self, request: Request) -> None:
        """Split the rest of a void request over the places that are left, and send it."""
        for flight in self._count[1]:
            if flight.request is request:
                self._in_turn(self._resume, flight, request)

    def _resume(self, flight: InFlightSteps, request: Request) -> None:
        """Split the steps that have not happened over the places that are left, and send them."""
        if flight.request is not request:  # another thread did
            return
        if len(self.gang.shrunk) > self._shrunk:
            self._follow_gang()
        left = flight.batches if len(flight.batches) == 1 else flight.batches[request.done :]
        batches = [self._splitter.again(portions) for portions in left]
        rest = InFlightSteps(batches, flight.fetches, request.iterations - request.done)
        self._begin(rest, flight, ahead=False)

    def _follow_gang(self) -> None:
        """Forget what was compiled for more replicas than there are now."""
        shrunk, places = self.gang.shrunk, self.places
        for ranks in shrunk[self._shrunk :]:
            places = [places[rank] for rank in ranks]
        self.values.follow(shrunk)
        changes: list[Change] = [(self, "_shrunk", len(shrunk))]
        if places != self.places:
            splitter = self._make_splitter(len(places))
            changes += [(self, "places", places), (self, "_splitter", splitter)]
            changes += [(self, "variants", {}), (self, "last", None)]
        assign(*changes)

    def _make_splitter(self, places: int) -> Splitter:
        weighted = self.build.gradient_scale_strategy.name == "SampleWeighted"
        partial = not self.has_loss or weighted
        return Splitter(self.program, places, weighted=weighted and self.has_loss, partial=partial)

    def drop(self) -> None:
        """End the life of temporaries on every replica and give their memory back."""
        self.tell(Drop)
        self._since_drop = 0

    def tell(
        self, about: Callable[[int], Order], variants: Iterable[CompiledVariant] | None = None
    ) -> list[list[Message]]:
        """Send an order about variants of the program (None: about each), by number.

        Return the answers about those that replicas have: none of what was loaded on more replicas, or met
        other trainers who are gone.
        """
        with self._first_turn, self.values.scope.turn, self.gang.turn:
            if self.gang.delivery.broken:
                return []
            try:
                if len(self.gang.shrunk) > self._shrunk:
                    raise GangChanged
                loaded = self.gang.ledger.programs
                wanted = list(self.variants.values() if variants is None else variants)
                return [self.gang.all(about(v.number)) for v in wanted if v.number in loaded]
            except GangChanged:
                self._follow_gang()
                return []

    def trace(self, on: bool) -> None:
        """Keep the times of instructions from the next step on, or no longer."""
        self.tracing = on
        self.spans.switch(on)
        self.tell(partial(Trace, on=on))

    def _step_of(
        self, batches: Sequence[Portions], fetches: Fetches
    ) -> tuple[CompiledVariant, Sequence[Share], StepHeads | None]:
        """Return the variant for these feeds, the share of each place, and the heads of steps fed alike."""
        known = self._known_step(batches, fetches)
        if known is not None:
            return known.variant, known.shares(batches[0]), known.heads
        shards = batches[0] if len(batches) == 1 else [s for portions in batches for s in portions]
        key, variant = self._variant(shards, fetches, self._splitter.whole(batches))
        shares, counts = self._shares(variant, batches)
        if not self._splitter.cut_alike(batches):
            return variant, shares, None
        known = KnownStep(batches[0], key, variant, shares, counts)
        self._known_steps[id(known.cuts), fetches.needs, checking()] = known
        return variant, shares, known.heads

    def _known_step(self, batches: Sequence[Portions], fetches: Fetches) -> KnownStep | None:
        """Return what is known of steps with feeds of these shapes, if their variant is up to date."""
        if len(batches) > 1:
            return None
        known = self._known_steps.get((id(batches[0].cuts), fetches.needs, checking()))
        if known is None or self.variants.get(known.key) is not known.variant:
            return None
        fresh = known.variant.generation == Storage.generation
        return known if fresh and known.variant.alike.isdisjoint(self.values.own) else None

    def _shares(
        self, variant: CompiledVariant, batches: Sequence[Portions]
    ) -> tuple[list[Share], list[np.ndarray]]:
        """Check the feeds; return the share of each place, and the row counts that follow the fed arrays."""
        weights = [self._splitter.parts(portions) for portions in batches]
        shares = [Share([], [], [], []) for _ in self.places]
        counts: list[np.ndarray] = []
        world = self._world
        span = (0, len(self.places)) if world is None else (world.first, world.size)
        for portions, parts in zip(batches, weights, strict=True):
            counts = variant.row_counts(portions, *span)
            variant.check(portions, counts)
            first = 0
            for share, portion, weight in zip(shares, portions, parts, strict=True):
                arrays = list(portion.complete().values())
                count = 0 if variant.batch else 1
                for k in variant.batch:
                    shape = arrays[k].shape
                    count = max(count, shape[0] if shape else 0)
                share.arrays.extend([*arrays, *counts])
                share.rows.append(first)
                share.parts.append(weight)
                share.idle.append(count == 0 and not portion.has_sequences)
                first += count
            if self._together is not None:
                # As if the batches of all trainers stood behind each other.
                for share in shares:
                    share.rows[-1] += self._together.trainers.trainer * first
        return shares, counts

    def _joined(
        self,
        variant: CompiledVariant,
        names: Sequence[str],
        fetched: Sequence[Sequence[np.ndarray]],
    ) -> list[Joined]:
        """Return the values of each fetch by place, with the sequences that they lie in."""
        joined = []
        by_fetch: Iterable[Any] = (
            fetched.arrays if isinstance(fetched, Stacked) else zip(*fetched, strict=False)
        )
        for name, lods, parts in zip(names, variant.program.fetch_lods, by_fetch, strict=False):
            levels: list[LoD] = []
            if lods:
                levels = [
                    tuple([tuple(place[k].tolist()) for k in lods if place[k].size])
                    for place in fetched
                ]
            joined.append(Joined(name, parts, levels))
        return joined
