"""ParallelRun: one program on the replicas of a gang. It compiles, feeds, steps and fetches."""

from __future__ import annotations

import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...graph.compile import Compiled, compile_program
from ...graph.ir.segments import first_segment
from ...graph.ops.registry import Spec
from ...graph.passes.target import Target
from ...graph.program.program import Program
from ...graph.program.where import user_frames
from ...graph.report.report import CompileReport
from ...strategies.cluster import CPU_BUCKET_BYTES, GPU_BUCKET_BYTES
from ...strategies.current import current_config
from ...strategies.errors import EnforceNotMet, PlacementError, ShapeError
from ...strategies.flags import flag_value
from ...strategies.log import log
from ..device.device import Clock
from ..device.place import CUDAPlace, Place
from ..device.tensor import LoD, Storage
from ..feed.feeds import FeedShard, check, fed_names, rows_of, with_rows
from ..feed.fetches import Fetches, Joined
from ..feed.scope import Scope
from ..feed.splitting import SHAPES_KEPT, Portions, Splitter
from ..gang.assign import Change, assign
from ..gang.delivery import GangChanged, Owner, Request, Share
from ..gang.gang import Gang
from ..gang.trainers import Trainers
from ..gang.turns import HasTurn, Lock, NeedsTurn, in_turn
from ..host.arena import spec_of
from ..host.bounded_dict import BoundedDict
from ..kernels.capabilities import capabilities
from ..plan.numerics import checking
from ..replica.message import Message, Stacked
from ..replica.options import RunOptions
from ..replica.orders import Drop, Order, Trace
from .budget import Budget
from .checks import check_initialized, set_scheduled_rate
from .choice import chosen
from .copies import Copies
from .future import InFlightSteps, StepFuture
from .profiler import PROFILER
from .sized import SizedPrograms
from .timeline import Spans
from .together import Together
from .values import DeviceValues, Values
from .variant import VARIANTS_KEPT, CompiledVariant, KnownStep, VariantKey
from .verify import Batch, verify

if TYPE_CHECKING:
    from ...strategies.base import Strategy
    from ...strategies.build import BuildStrategy
    from ...strategies.execution import ExecutionStrategy


def bucket_bytes(place: Place) -> int:
    """Return how many bytes of gradients travel together, as chosen or by the kind of places."""
    megabytes = flag_value("FLAGS_fuse_parameter_memory_size")
    if megabytes > 0:
        return int(megabytes * 2**20)
    wanted = current_config().bucket_bytes
    if wanted is not None:
        return wanted
    return GPU_BUCKET_BYTES if isinstance(place, CUDAPlace) else CPU_BUCKET_BYTES


class ParallelRun:
    """Runs a program in lockstep on the replicas of ``gang``, which stand on ``places``.

    Args:
        trainers: other drivers that train the same program; None: this driver alone does.
        share_with: the run whose values on the replicas this one uses, too.
        keep: run only the ops that these variables need.
        plain: the program has no strategies, and reads the newest values of the scope, whichever program wrote
            them.
        compile: compiles the program; takes the arguments of :func:`compile_program`.
    """

    values: Values

    def __init__(
        self,
        program: Program,
        places: Sequence[Place],
        scope: Scope,
        *,
        gang: Gang,
        trainers: Trainers | None = None,
        loss_name: str | None = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_with: ParallelRun | None = None,
        keep: Sequence[str] | None = None,
        plain: bool = False,
        compile: Callable[..., Compiled] = compile_program,
    ) -> None:
        from ...strategies.build import BuildStrategy
        from ...strategies.execution import ExecutionStrategy

        self.program = program
        self._plain = plain
        self.places = list(places)
        self.has_loss = bool(loss_name)
        build = build_strategy if build_strategy is not None else BuildStrategy()
        threads = 1 if plain else 0  # 0: decided below
        execution = exec_strategy or ExecutionStrategy(num_threads=threads)
        capped = execution.resolve_num_threads(len(self.places))
        # What the user changes from now on has no effect on this program.
        self.build, self.execution = build.model_copy(deep=True), execution.model_copy(deep=True)
        within = current_config().step_deadline_s
        self.options = RunOptions(self.build, self.execution, capped, within=within)
        self._originals: list[tuple[Strategy, Strategy]] = [
            (build, self.build),
            (execution, self.execution),
        ]
        self._edits = build.edits, execution.edits
        self._edits_seen = self._edit_count()
        self.gang = gang
        self.places = gang.left_of(self.places)
        self._together = None if trainers is None else self._with_trainers(trainers)
        if share_with is not None:
            self._check_shared(share_with)
        gang.users.add(self)
        self._refuse_other_trainers()
        self._keep = keep
        self._compile = compile
        self.superseded = plain  # another version of the program was run since, or none
        if share_with is not None:
            self.values = share_with.values
        else:
            self.values = self._new_values(scope)
        self.report: CompileReport | None = None
        # Steps that happened, and what was begun since: all that has yet to happen is there.
        self._count: tuple[int, tuple[InFlightSteps, ...]] = (program.first_step, ())
        self._itself: weakref.ref[Owner] = weakref.ref(self)
        self._splitting = threading.RLock()
        self.compilations = 0
        self._since_drop = 0
        self._shrunk = len(self.gang.shrunk)
        self._splitter = self._make_splitter(len(self.places))
        self._copies = Copies()
        self._sized = SizedPrograms(program)
        self.iterations = max(self.execution.num_iteration_per_run, 1)
        self.lent = 0  # how many of the last fetches need not outlive the next step, nor be copied
        self.tracing, self.spans = False, Spans()
        self.last: CompiledVariant | None = None
        self.variants: dict[VariantKey, CompiledVariant] = {}
        self._known_steps: BoundedDict[tuple[Any, ...], KnownStep] = BoundedDict(SHAPES_KEPT)

    def _with_trainers(self, trainers: Trainers) -> Together:
        device = "GPU" if isinstance(self.places[0], CUDAPlace) else "CPU"
        within = current_config().step_deadline_s
        return Together(trainers, self.gang, device, within, rings=self._plain)

    def _refuse_other_trainers(self) -> None:
        """Refuse a gang that another of these trainers uses, as when both name one GPU.

        Raises:
            PlacementError: one does. Each would wait for the other, and only one has the gang's turn.
        """
        if self._together is None:
            return
        ours = self._together.trainers
        for other in self.gang.users:
            theirs = ours if other._together is None else other._together.trainers
            if ours.endpoints == theirs.endpoints and ours.trainer != theirs.trainer:
                first, second = sorted((ours.trainer, theirs.trainer))
                raise PlacementError(
                    f"trainers {first} and {second} of {', '.join(ours.endpoints)} would share the replica on "
                    f"{self.places[0]} of this process. Give each a place of its own."
                )

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

    def _explaining(self) -> AbstractContextManager[None]:
        """Name the trainer at fault, if there are several, in an error that is raised inside."""
        return nullcontext() if self._together is None else self._together.explaining()

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
        if self._edit_count() != self._edits_seen:
            self._warn_of_edits()
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

    def _new_values(self, scope: Scope) -> Values:
        return DeviceValues(self.gang, scope)

    def _edit_count(self) -> int:
        """Return how often the user assigned fields of the strategies that this program copied."""
        return self._edits[0].count + self._edits[1].count

    def _warn_of_edits(self) -> None:
        """Warn, once for each change, that the program does not follow fields changed after it was compiled."""
        self._edits_seen = self._edit_count()
        for original, copied in self._originals:
            names = original.differing_fields(copied)
            if names:
                warnings.warn(
                    f"{type(copied).__name__}.{', '.join(names)} changed after this program was compiled, and "
                    f"the change has no effect on it. Make a new CompiledProgram.",
                    stacklevel=user_frames() + 1,
                )

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

    @property
    def steps(self) -> int:
        """Number of the next step: all steps before it have happened, or are in flight."""
        steps, flights = self._count
        return steps + sum([flight.steps for flight in flights])

    @steps.setter
    def steps(self, steps: int) -> None:
        self._count = (steps, ())

    def _begin(self, flight: InFlightSteps, becomes: InFlightSteps, ahead: bool) -> None:
        """Compile, check and send the steps of ``flight``, and have ``becomes`` stand for them from then on."""
        batches, fetch_names, together = flight.batches, flight.fetches.names, self._together
        with self._explaining():
            self.gang.make_way(ahead)
            if together is not None:
                self._meet_trainers(together)
        preparing = time.perf_counter()
        known = self._known_step(batches, fetch_names)
        shares: Sequence[Share]
        if known is None:
            variant, shares, known = self._new_step(batches, fetch_names)
        else:
            variant, shares = known.variant, known.shares(batches[0])
        self.values.adopt(variant.states, variant.owners, variant.needed)
        if self.program.lr_scheduler is not None:
            set_scheduled_rate(self.program, self.values.scope)
        if variant.stages:
            self._verify(variant, shares)
        self.values.flush()
        if together is not None:
            with together.explaining():
                self._spread_values(together, variant)
        if self.tracing:
            self.spans.note("prepare", self.steps, preparing)
        self._since_drop += flight.iterations
        drop = (
            bool(fetch_names) or self._since_drop >= self.execution.num_iteration_per_drop_scope > 0
        )
        dropped = [v.number for v in self.variants.values()] if drop else []
        if variant.writes:
            self.values.version += 1  # now: a step that is interrupted may have written, too
        counted, earlier = self._count
        others = []
        for other in earlier:
            if other.open and other is not becomes:
                others.append(other)
            else:
                counted += other.steps
        step = counted + sum([other.steps for other in others])
        results, iterations = variant.results, flight.iterations
        request = Request(
            *(variant.number, shares, step, iterations, dropped, variant.votes, results),
            owner=self._itself,
            heads=None if known is None else known.heads,
        )
        becomes.variant = self.last = variant
        changes: list[Change] = [
            (self, "_count", (counted, (*others, becomes))),
            (becomes, "request", request),
        ]
        if becomes is not flight:
            changes += [(becomes, "batches", batches), (becomes, "iterations", iterations)]
        if len(self.gang.shrunk) > self._shrunk:
            raise GangChanged
        sending = time.perf_counter()
        with self._explaining():
            self.gang.begin(request, ahead, *changes)
        if self.tracing:
            self.spans.note("send", step, sending)
        if drop:
            self._since_drop = 0

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

    def check_reachable(self) -> None:
        """Refuse to run a program that needs values which were lost with their replicas.

        Raises:
            InvalidState: names them.
        """
        needed = dict.fromkeys(n for v in self.variants.values() for n in v.states if n in v.needed)
        self.values.check_reachable(needed)

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

    def _check_shared(self, source: ParallelRun) -> None:
        if len(source.places) != len(self.places):
            raise EnforceNotMet(
                f"share_vars_from: that program runs on {len(source.places)} places, this one on "
                f"{len(self.places)}; they must be as many."
            )

    def _known_step(
        self, batches: Sequence[Portions], fetches: tuple[str, ...]
    ) -> KnownStep | None:
        """Return what is known of steps with feeds of these shapes, if their variant is up to date."""
        if len(batches) > 1:
            return None
        known = self._known_steps.get((id(batches[0].cuts), fetches, checking()))
        if known is None:
            return None
        variant = known.variant
        if self.variants.get(known.key) is not variant:
            return None
        fresh = variant.generation == Storage.generation
        return known if fresh and variant.alike.isdisjoint(self.values.own) else None

    def _new_step(
        self, batches: Sequence[Portions], fetches: tuple[str, ...]
    ) -> tuple[CompiledVariant, list[Share], KnownStep | None]:
        """Return the variant for these feeds, the share of each place, and a record for steps like it."""
        shards = batches[0] if len(batches) == 1 else [s for portions in batches for s in portions]
        key, variant = self._variant(shards, fetches, self._splitter.whole(batches))
        shares, counts = self._shares(variant, batches)
        cuts = batches[0].cuts
        if cuts is None or not self._splitter.cut_alike(batches):
            return variant, shares, None
        known = KnownStep(batches[0], key, variant, shares, counts)
        self._known_steps[id(cuts), fetches, checking()] = known
        return variant, shares, known

    def _shares(
        self, variant: CompiledVariant, batches: Sequence[Portions]
    ) -> tuple[list[Share], list[np.ndarray]]:
        """Check the feeds; return the share of each place, and the row counts that follow the fed arrays."""
        weights = [self._splitter.parts(portions) for portions in batches]
        shares = [Share([], [], [], []) for _ in self.places]
        counts: list[np.ndarray] = []
        for portions, parts in zip(batches, weights, strict=True):
            counts = self._row_counts(variant, portions)
            self._check(variant, portions, counts)
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

    def _row_counts(
        self, variant: CompiledVariant, portions: Sequence[FeedShard]
    ) -> list[np.ndarray]:
        """Return how many rows of sparse gradients each place brings, as a feed; none without such gradients.

        Other trainers are taken to bring as many as the first place here, until replicas tell each other.
        """
        if not variant.gathered:
            return []
        world = None if self._together is None else self._together.world
        first, places = (0, len(portions)) if world is None else (world.first, world.size)
        counts = np.zeros((len(variant.gathered), places), np.int64)
        for place, portion in enumerate(portions):
            arrays = [*portion.complete().values(), np.zeros_like(counts)]
            if portion.has_samples:
                specs = self._inferred(variant, arrays, portion, portions)
                counts[:, first + place] = [
                    sum(prod(specs[i].shape) for i in counted) for counted in variant.gathered
                ]
        counts[:, :first] = counts[:, first + len(portions) :] = counts[:, first : first + 1]
        return [counts]

    def _variant(
        self, shards: Sequence[FeedShard], fetches: tuple[str, ...], whole: frozenset[str]
    ) -> tuple[VariantKey, CompiledVariant]:
        """Return the variant for these feeds and fetches; compile and load it if there is none."""
        feeds, checks = fed_names(shards), checking()
        program, sizes = self._sized.of(shards)
        key = (feeds, fetches, whole, checks, sizes)
        known = self.variants.get(key)
        if known is None or not known.alike.isdisjoint(self.values.own):
            target = replace(
                self._target(),
                whole_feeds=whole,
                own_states=frozenset(self.values.own),
                keeps=self.gang.keeps and not (self._together and self._together.rings),
                checks=checks,
            )
            variant = self._loaded(self._compiled(program, with_rows(shards), fetches, target))
            self._forget_variants()
            self.variants[key] = variant
            if self.tracing:
                self.gang.all(Trace(variant.number, True))
        variant = self.variants[key]
        if variant.generation != Storage.generation:
            generation = Storage.generation
            check_initialized(variant.program, self.values.scope)
            variant.generation = generation
        return key, variant

    def _compiled(
        self, program: Program, fed: Mapping[str, Any], fetches: tuple[str, ...], target: Target
    ) -> Compiled:
        """Compile a program; choose kernels by measurement, and agree on them with other trainers."""
        supported, began = capabilities(self._libraries()), time.perf_counter()
        compiled = self._compile(
            program,
            tuple(fed),
            fetches,
            target,
            supported,
            "cupy" if isinstance(self.places[0], CUDAPlace) else "numpy",
            keep=self._keep,
        )
        if self._measures():
            compiled = chosen(compiled, fed, self._held, self.gang)
        if self._together is not None:
            with self._explaining():
                compiled = self._together.agree(compiled, self.steps)
        self.compilations += 1
        self.report = compiled.report
        took = time.perf_counter() - began
        (log.debug if self.variants or self._plain else log.info)(
            "compiled a step of %d ops for %d replica(s) in %.2f s",
            len(compiled.program.nodes),
            len(self.places),
            took,
        )
        return compiled

    def _loaded(self, compiled: Compiled) -> CompiledVariant:
        """Load a compiled program on the replicas; return the variant, with its memory budget."""
        generation = Storage.generation
        check_initialized(compiled.program, self.values.scope)
        with self._explaining():
            number = self.gang.load(
                *(compiled.program, self.values.id, self.options),
                compiled.program.functions(),
            )
        limit, whose = self._room(number, compiled.program.state_names())
        budget = Budget(
            first_segment(compiled.program),
            self.options.memory_options,
            limit,
            whose,
            len(self.places),
        )
        variant = CompiledVariant(
            compiled.program, number, budget, compiled.stages, self.values.id, generation
        )
        variant.unload = weakref.finalize(self, self.gang.forget, "programs", number)
        self.values.written.update(compiled.program.written_names())
        self.values.note_own(variant.own, variant.results.own_names)
        return variant

    def _libraries(self) -> frozenset[str]:
        """Return the libraries that all replicas have, those of other trainers too."""
        together = self._together
        world = None if together is None or together.rings else together.world
        return self.gang.libraries() if world is None else world.libraries()

    def _forget_variants(self) -> None:
        """Make room for another variant: forget the oldest ones that have no step in flight."""
        _, flights = self._count
        under_way = [flight.variant for flight in flights if flight.open]
        for key, variant in list(self.variants.items())[: 1 - VARIANTS_KEPT]:
            if all(variant is not other for other in under_way):
                del self.variants[key]
                self._forget_variant(variant)

    def _forget_variant(self, variant: CompiledVariant) -> None:
        variant.unload()

    def _measures(self) -> bool:
        """Tell whether kernels are chosen by measurement, here."""
        together = self._together
        if together is not None and (together.agreed or not together.chooses):
            return False
        wanted = self.build.measure_kernels
        return bool(flag_value("FLAGS_measure_kernels") if wanted is None else wanted)

    def _verify(self, variant: CompiledVariant, shares: Sequence[Share]) -> None:
        """Compute what the passes changed, before and after, on the rows of the first place that has some."""
        rank = next((i for i, share in enumerate(shares) if not share.idle[0]), 0)
        share, program = shares[rank], variant.program
        names = [program.values[i].name for i in program.feeds]
        batch = Batch(
            dict(zip(names, share.arrays, strict=False)),
            lambda name: np.array(self.values.scope.find_var(name).get_tensor()),  # type: ignore[union-attr]
            rank,
            program.seed,
            Clock(self.steps, share.rows[0], share.parts[0]),
        )
        assert self.report is not None
        graph = self.report.graph.noted(verify(variant.stages, batch))
        self.report = replace(self.report, graph=graph)
        variant.stages = ()

    def _room(self, number: int, states: Sequence[str]) -> tuple[int, str]:
        """Return the bytes that a loaded program may take of a place, and whose limit that is."""
        return self.gang.memory(number)

    def _target(self) -> Target:
        members = flag_value("FLAGS_fuse_parameter_groups_size")
        world = None if self._together is None else self._together.world
        return Target(
            replicas=len(self.places) if world is None else world.size,
            trainers=1 if world is None else len(world.cards),
            strategy=self.build,
            has_loss=self.has_loss,
            bucket_bytes=bucket_bytes(self.places[0]),
            bucket_members=members if members > 1 else 0,
            delay_collectives=self.execution.allow_op_delay,
            barrier=self.execution.use_thread_barrier,
        )

    def _check(
        self,
        variant: CompiledVariant,
        portions: Sequence[FeedShard],
        counts: Sequence[np.ndarray] = (),
    ) -> None:
        """Infer all shapes from the feeds, once per combination, and refuse feeds for which that fails."""
        for portion in portions:
            arrays = [*portion.complete().values(), *counts]
            key = variant.shapes.key(arrays)
            if key in variant.checked:
                continue
            check(self.program, portion.arrays)
            if portion.has_samples:
                variant.specs = self._inferred(variant, arrays, portion, portions)
                variant.budget.check(list(map(spec_of, arrays)), variant.specs, self._held)
            variant.checked[key] = None

    def _inferred(
        self,
        variant: CompiledVariant,
        arrays: Sequence[np.ndarray],
        portion: FeedShard,
        portions: Sequence[FeedShard],
    ) -> list[Spec]:
        """Return the exact specs of all values; an error about a place's rows tells those of all places."""
        try:
            return variant.shapes.infer(list(map(spec_of, arrays)), self._held, arrays)
        except ShapeError as error:
            check(self.program, portion.arrays)  # tells what is not fed as declared first
            rows = rows_of(self.program, portions)
            if len(portions) == 1 or not rows:
                raise
            place = next(i for i, other in enumerate(portions) if other is portion)
            counts = ", ".join(f"{c[place]} of the {sum(c)} rows of {n!r}" for n, c in rows.items())
            raise ShapeError(
                f"{error} Place {place} of {len(portions)} is fed {counts}."
            ) from error

    def _held(self, name: str) -> Spec | None:
        variable = self.values.scope.find_var(name)
        tensor = variable.get_tensor() if variable else None
        return spec_of(tensor.memory(newest=False)) if tensor and tensor.initialized else None

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
