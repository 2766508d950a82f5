"""ProgramOnGang: a program with its strategies and values on a gang; it is compiled for what is fed to it."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...graph.compile import Compiled, compile_program
from ...graph.ir.segments import first_segment
from ...graph.passes.target import Target
from ...graph.program.program import Program
from ...graph.report.report import CompileReport
from ...strategies.cluster import CPU_BUCKET_BYTES, GPU_BUCKET_BYTES
from ...strategies.current import current_config
from ...strategies.errors import EnforceNotMet, PlacementError
from ...strategies.flags import flag_value
from ...strategies.log import log
from ..device.place import CUDAPlace, Place
from ..device.tensor import Storage
from ..feed.feeds import FeedShard, fed_names, with_rows
from ..feed.fetches import Fetches
from ..feed.scope import Scope
from ..gang.delivery import Share
from ..gang.gang import Gang
from ..gang.trainers import Trainers
from ..gang.worlds import World
from ..kernels.capabilities import capabilities
from ..plan.numerics import checking
from ..replica.options import RunOptions
from ..replica.orders import Trace
from .budget import Budget
from .checks import check_initialized
from .choice import chosen
from .future import InFlightSteps
from .sized import SizedPrograms
from .together import Together
from .validation import StrategyCopies
from .values import DeviceValues, Values
from .variant import VARIANTS_KEPT, CompiledVariant, VariantKey

if TYPE_CHECKING:
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


class ProgramOnGang:
    """A program on the replicas of ``gang``, which stand on ``places``, and its variants compiled so far.

    Args:
        trainers: other drivers that train the same program; None: this driver alone does.
        build_strategy, exec_strategy: None where the program is plain.
        share_with: the program whose values on the replicas this one uses, too.
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
        share_with: ProgramOnGang | None = None,
        plain: bool = False,
        compile: Callable[..., Compiled] = compile_program,
    ) -> None:
        from ...strategies.build import BuildStrategy
        from ...strategies.execution import ExecutionStrategy

        self.program = program
        self._plain = plain
        self.has_loss = bool(loss_name)
        execution = exec_strategy or ExecutionStrategy(num_threads=1)
        capped = execution.resolve_num_threads(len(places))
        self._strategies = StrategyCopies(build_strategy or BuildStrategy(), execution)
        self.build, self.execution = self._strategies.build, self._strategies.execution
        within = current_config().step_deadline_s
        self.options = RunOptions(self.build, self.execution, capped, within=within)
        self.gang = gang
        self.places = gang.left_of(places)
        self._together = None if trainers is None else self._with_trainers(trainers)
        if share_with is not None:
            self._check_shared(share_with)
        gang.users.add(self)
        self._refuse_other_trainers()
        self._compile = compile
        self._sized = SizedPrograms(program)
        self.values = self._new_values(scope) if share_with is None else share_with.values
        # Steps that happened, and what was begun since: all that has yet to happen is there.
        self._count: tuple[int, tuple[InFlightSteps, ...]] = (program.first_step, ())
        self.compilations = 0
        self.report: CompileReport | None = None
        self.tracing = False
        self.variants: dict[VariantKey, CompiledVariant] = {}
        self.last: CompiledVariant | None = None
        self._set_up()

    def _set_up(self) -> None:
        """Set what a class derived from this one has beside: it is made of the same arguments."""

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

    def _check_shared(self, source: ProgramOnGang) -> None:
        if len(source.places) != len(self.places):
            raise EnforceNotMet(
                f"share_vars_from: that program runs on {len(source.places)} places, this one on "
                f"{len(self.places)}; they must be as many."
            )

    def _new_values(self, scope: Scope) -> Values:
        return DeviceValues(self.gang, scope)

    @property
    def _world(self) -> World | None:
        """Where the trainers met last; None: this driver trains alone."""
        return None if self._together is None else self._together.world

    @property
    def _by_rings(self) -> bool:
        """Whether the program meets other trainers by ops of its own."""
        return self._together is not None and self._together.rings

    def _explaining(self) -> AbstractContextManager[None]:
        """Name the trainer at fault, if there are several, in an error that is raised inside."""
        return nullcontext() if self._together is None else self._together.explaining()

    @property
    def steps(self) -> int:
        """Number of the next step: all steps before it have happened, or are in flight."""
        steps, flights = self._count
        return steps + sum([flight.steps for flight in flights])

    @steps.setter
    def steps(self, steps: int) -> None:
        self._count = (steps, ())

    def _variant(
        self, shards: Sequence[FeedShard], fetches: Fetches, whole: frozenset[str]
    ) -> tuple[VariantKey, CompiledVariant]:
        """Return the variant for these feeds and fetches; compile and load it if there is none."""
        feeds, checks = fed_names(shards), checking()
        program, sizes = self._sized.of(shards)
        key = (feeds, fetches.needs, whole, checks, sizes)
        known = self.variants.get(key)
        if known is None or not known.alike.isdisjoint(self.values.own):
            target = replace(
                self._target(),
                whole_feeds=whole,
                own_states=frozenset(self.values.own),
                keeps=self.gang.keeps and not self._by_rings,
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
        self, program: Program, fed: Mapping[str, Any], fetches: Fetches, target: Target
    ) -> Compiled:
        """Compile a program; choose kernels by measurement, and agree on them with other trainers."""
        supported, began = capabilities(self._libraries()), time.perf_counter()
        compiled = self._compile(
            program,
            tuple(fed),
            fetches.names,
            target,
            supported,
            "cupy" if isinstance(self.places[0], CUDAPlace) else "numpy",
            keep=fetches.updates,
        )
        if self._measures():
            compiled = chosen(compiled, fed, self.values.spec, self.gang)
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
            *(self.program, compiled.program, number, budget, compiled.stages, self.values),
            generation=generation,
        )
        variant.unload = weakref.finalize(self, self.gang.forget, "programs", number)
        self.values.written.update(compiled.program.written_names())
        self.values.note_own(variant.own, variant.results.own_names)
        return variant

    def _libraries(self) -> frozenset[str]:
        """Return the libraries that all replicas have, those of other trainers too."""
        if self._world is None or self._by_rings:
            return self.gang.libraries()
        return self._world.libraries()

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
        assert self.report is not None
        graph = self.report.graph.noted(variant.verify(shares, self.steps))
        self.report = replace(self.report, graph=graph)

    def _room(self, number: int, states: Sequence[str]) -> tuple[int, str]:
        """Return the bytes that a loaded program may take of a place, and whose limit that is."""
        return self.gang.memory(number)

    def _target(self) -> Target:
        members = flag_value("FLAGS_fuse_parameter_groups_size")
        world = self._world
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

    def check_reachable(self) -> None:
        """Refuse to run a program that needs values which were lost with their replicas.

        Raises:
            InvalidState: names them.
        """
        needed = dict.fromkeys(n for v in self.variants.values() for n in v.states if n in v.needed)
        self.values.check_reachable(needed)
