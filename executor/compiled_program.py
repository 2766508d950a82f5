"""CompiledProgram: a program with strategies, to be run on one place or data-parallel on many."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..graph.program.program import Program
from ..graph.program.program_graph import ProgramGraph, snapshot
from ..graph.program.role import OpRole
from ..graph.program.where import warn_user
from ..graph.report.report import CompileReport
from ..graph.transpiler.exchange import Exchange, exchange_of, exchanges
from ..graph.transpiler.server_program import serves
from ..strategies.errors import InvalidArgument, InvalidState, InvalidType, InvalidValue, nearest
from .device.place import (
    NO_PLACES,
    CPUPlace,
    CUDAPlace,
    Place,
    check_place,
    cpu_places,
    cuda_places,
)
from .driver.insight import executed, explain, temporaries, timeline
from .driver.local import run_type
from .driver.parallel import ParallelRun
from .driver.rings import refuse_rings
from .driver.runnable import Runnable, Steps
from .driver.together import trainers_of
from .driver.validation import validate_strategies, validate_types
from .feed.scope import Scope
from .gang.gang import Gang
from .gang.launchers import gang_at, gang_for, launching
from .gang.local import LocalGang
from .gang.trainers import Trainers
from .plan.run import Event
from .servers.trainer import TrainerRun

if TYPE_CHECKING:
    from ..strategies.build import BuildStrategy
    from ..strategies.execution import ExecutionStrategy


class CompiledProgram(Runnable):
    """Wraps a Program as it is now; what is needed to run it is compiled at the first ``Executor.run``.

    Ops that are added to the program later are not seen. A graph (``core.Graph(program)``) is as good as the
    program it was made from.

    Raises:
        InvalidType: ``program_or_graph`` is neither Program nor Graph, or a strategy is none.
        InvalidValue: it is a parameter server's program.
    """

    def __init__(
        self, program_or_graph: Program | ProgramGraph, build_strategy: BuildStrategy | None = None
    ) -> None:
        if isinstance(program_or_graph, ProgramGraph):
            self._program = self._snapshot = program_or_graph.program
        elif isinstance(program_or_graph, Program):
            self._program = program_or_graph
            self._snapshot = snapshot(program_or_graph)
        else:
            raise InvalidType(
                f"CompiledProgram takes a Program or a Graph, got {type(program_or_graph).__name__}."
            )
        validate_types(build_strategy)
        if serves(self._snapshot):
            raise InvalidValue(
                "this is a parameter server's program, which has no steps to be compiled: run it as it is, "
                "exe.run(program). It serves until its trainers have finished."
            )
        self._compiled_version = self._program.version
        self._exchange: Exchange | None = None
        if exchanges(self._snapshot):
            self._exchange = exchange_of(self._snapshot)
            self._snapshot = self._exchange.compute
        self._trainer_run: TrainerRun | None = None
        self._build_strategy = build_strategy
        self._exec_strategy: ExecutionStrategy | None = None
        self._loss_name: str | None = None
        self._share_vars_from: CompiledProgram | None = None
        self._places: list[Place] | None = None
        self._data_parallel = False
        self._parallel: ParallelRun | None = None
        self._scope: Scope | None = None
        self._place: Place | None = None
        self._tracing = False
        self._hints: tuple[str, ...] = ()  # a fleet's switches without effect

    def __repr__(self) -> str:
        how = "one place"
        if self._data_parallel:
            places = self._parallel.places if self._parallel is not None else self._places
            how = f"data parallel on {len(places) if places is not None else 'all'} places"
        state = "was run" if self._parallel is not None else "was not run yet"
        return f"<CompiledProgram: {how}, {state}, of {self._snapshot!r}>"

    @property
    def program(self) -> Program:
        """The user's program."""
        return self._program

    @property
    def trains(self) -> bool:
        """Whether its ops update parameters."""
        return any(op.role & OpRole.Optimize for op in self._snapshot.global_block().ops)

    def with_data_parallel(
        self,
        loss_name: str | None = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_vars_from: CompiledProgram | None = None,
        places: Any = None,
    ) -> CompiledProgram:
        """Run replicas of the program on several places.

        Args:
            loss_name: the loss; needed if the program trains.
            build_strategy: replaces the constructor's if given.
            exec_strategy: how a step is run.
            share_vars_from: a program that ran before; its parameters are used (test beside training).
            places: a place or a list of them; default: ``cpu_places()``.

        Raises:
            InvalidArgument: called twice, no places, a program with gradients without ``loss_name``, or
                trainers without as many endpoints.
            InvalidType: ``loss_name`` is no string, or a strategy is none.
            InvalidValue: an endpoint of a trainer is none, or another's.
            EnforceNotMet: ``trainer_id`` is none of ``num_trainers``.
            Unsupported: a strategy that several trainers cannot follow.
        """
        if self._data_parallel:
            raise InvalidArgument(
                "with_data_parallel was called before on this CompiledProgram. Make a new one."
            )
        self._check_loss_name(loss_name)
        validate_types(build_strategy, exec_strategy)
        if share_vars_from is not None and not isinstance(share_vars_from, CompiledProgram):
            raise InvalidType(
                f"share_vars_from must be a CompiledProgram, got {type(share_vars_from).__name__}. Give the "
                f"one that trains: what with_data_parallel returned."
            )
        if self._parallel is not None:
            warn_user(
                "with_data_parallel has no effect: this CompiledProgram ran on one place before. "
                "Make a new CompiledProgram."
            )
            return self
        self._data_parallel, self._loss_name = True, loss_name
        if build_strategy is not None:
            self._build_strategy = build_strategy
        self._exec_strategy, self._share_vars_from = exec_strategy, share_vars_from
        self._check_trainers()
        if places is not None:
            places = list(places) if isinstance(places, (list, tuple)) else [places]
            if not places:
                raise InvalidArgument(NO_PLACES)
            self._places = [check_place(place) for place in places]
        return self

    def _check_trainers(self) -> None:
        """Refuse trainers that cannot be now: the first step would wait for them."""
        from ..strategies.build import BuildStrategy

        trainers = None
        if isinstance(self._build_strategy, BuildStrategy):
            trainers = trainers_of(self._build_strategy, self._snapshot, bool(self._loss_name))
        count = len(self._snapshot._trainers_endpoints)
        if trainers is None and self._loss_name and count > 1:
            warn_user(
                f"transpile wrote this program for {count} trainers, and num_trainers is 1: this one trains "
                f"alone. Set num_trainers = {count} and trainer_id, of BuildStrategy or of ParallelExecutor."
            )

    def _check_loss_name(self, loss_name: str | None) -> None:
        if loss_name is not None and not isinstance(loss_name, str):
            raise InvalidType(
                f"loss_name must be a str such as loss.name, got {type(loss_name).__name__}."
            )
        block = self._snapshot.global_block()
        if not loss_name and any(op.type.endswith("_grad") for op in block.ops):
            raise InvalidArgument(
                "the program has gradient operators: say which loss they serve (loss_name=loss.name)."
            )
        if loss_name and not block.has_var(loss_name):
            warn_user(
                f"loss_name {loss_name!r} is no variable of the program.{nearest(loss_name, block.vars)} "
                f"The loss is taken to be the one that the program's gradients belong to."
            )

    def trace(self, on: bool = True) -> None:
        """Keep from now on when each instruction of a step runs, or no longer; see :meth:`executed`."""
        self._tracing = on
        if self._parallel is not None:
            self._parallel.trace(on)

    def executed(self) -> list[list[Event]]:
        """Return, per place, the instructions of the last traced step in the order in which they began.

        Each tells its op, the variables written, its lane (thread), and when it began and ended, in seconds
        since the step began on that place.

        Raises:
            InvalidState: no step ran since :meth:`trace` was called.
        """
        events = executed(self._parallel)[0] if self._parallel is not None and self._tracing else []
        if not any(events):
            raise InvalidState("executed() tells about a traced step: call trace(), then run.")
        return [sorted(place, key=lambda event: event.began) for place in events]

    def timeline(self, path: str) -> None:
        """Write the last traced steps to a file that chrome://tracing and Perfetto show (a Chrome trace, JSON).

        The driver is a process, and so is each replica, with a thread for each lane: ``compute``, and
        ``communication`` where collectives run beside it. Instructions tell their op, the variables written and
        where they were built; slices named ``waiting`` say for how long peers, or another lane, were waited
        for. All times are the driver's: replicas' clocks are compared with its own.

        Raises:
            InvalidState: no step ran since :meth:`trace` was called.
            NotSaved: the file cannot be written.
        """
        if self._parallel is None or not self._tracing or not any(executed(self._parallel)[0]):
            raise InvalidState("timeline() tells about traced steps: call trace(), then run.")
        timeline(self._parallel, path)

    def signals(self) -> list[int]:
        """Return, per place, how many hand-overs between threads a step of the last program needs."""
        return [] if self._parallel is None else executed(self._parallel)[1]

    def explain(self) -> CompileReport:
        """Return what the compiler did, which flags have no effect yet, and what memory a step takes.

        Raises:
            InvalidState: the program was not run yet.
        """
        report = explain(self._parallel) if self._parallel is not None else None
        if report is None:
            raise InvalidState("explain() tells about a program that has run; run it first.")
        report = replace(report, ignored=(*report.ignored, *self._hints))
        if self._trainer_run is not None:
            for line in self._trainer_run.describe():
                report = replace(report, graph=report.graph.noted(line))
        return report

    def temporaries(self) -> tuple[int, int]:
        """Return how many temporaries are alive on all replicas, and their bytes."""
        return (0, 0) if self._parallel is None else temporaries(self._parallel)

    def drop_local_exe_scopes(self) -> None:
        """End the life of temporaries on every replica and give their memory back.

        Raises:
            InvalidType: the program was not run yet.
        """
        if self._parallel is None:
            raise InvalidType("drop_local_exe_scopes: nothing was run yet.")
        self._parallel.drop()

    def _prepared(self, place: Place, scope: Scope) -> Steps:
        if not self._ready():
            with launching():  # threads that come together prepare it once
                if not self._ready():
                    if self._parallel is not None:
                        self._parallel.check_reachable()
                    self._parallel = self._prepare(place, scope)
        assert self._parallel is not None
        if self._scope is not scope and self._share_vars_from is None:
            raise InvalidValue(
                "this CompiledProgram ran in another scope before; compile it again for this one."
            )
        if place is not self._place and place != self._place:
            raise InvalidValue(
                f"this CompiledProgram ran on {self._place} before, now on {place}; "
                f"compile it again for this place."
            )
        if self._program.version != self._compiled_version:
            self._compiled_version = self._program.version
            warn_user(
                "the program was changed after it was compiled, and the change has no effect. "
                "Make a new CompiledProgram."
            )
        if self._exchange is None:
            return self._parallel
        return self._exchanging(self._exchange, self._parallel, scope)

    def _exchanging(self, exchange: Exchange, run: ParallelRun, scope: Scope) -> TrainerRun:
        """Return what runs a trainer's program, whose parameters are on servers."""
        trainer_run = self._trainer_run
        if trainer_run is None or trainer_run.inner is not run or not trainer_run.session.open:
            self._trainer_run = trainer_run = TrainerRun(exchange, run, scope)
        return trainer_run

    def _ready(self) -> bool:
        """Tell whether it was prepared, and its gang is there."""
        if self._parallel is None:
            return False
        self._parallel.gang.check_owner()
        return not self._parallel.gang.delivery.broken

    def _prepare(self, own: Place, scope: Scope) -> ParallelRun:
        from ..strategies.build import BuildStrategy
        from ..strategies.execution import ExecutionStrategy

        places = self._places if self._places is not None else self._default_places(own)
        if any(type(place) is not type(own) for place in places):
            raise InvalidArgument(f"places {places} are of another kind than the executor's {own}.")
        if self._share_vars_from is not None and scope is not self._share_vars_from._scope:
            print(
                "share_vars_from is given: the variables are that program's, the scope is not used.",
                file=sys.stderr,
            )
        self._scope, self._place = scope, own
        if self._data_parallel:
            self._places = places  # trainers of libraries count them
        shared = self._shared_run(own)
        build = self._build_strategy if self._build_strategy is not None else BuildStrategy()
        execution = self._exec_strategy or ExecutionStrategy()
        validate_strategies(build, execution)
        trainers = trainers_of(build, self._snapshot, bool(self._loss_name))
        refuse_rings(self._snapshot)
        gang = self._gang(places, trainers) if shared is None else shared.gang
        run = run_type(gang)(
            self._snapshot,
            places,
            scope,
            gang=gang,
            trainers=trainers,
            loss_name=self._loss_name,
            build_strategy=build,
            exec_strategy=execution,
            share_with=shared,
        )
        if not self._data_parallel:
            gang.guests.add(run)
        run.trace(self._tracing)
        return run

    def _gang(self, places: list[Place], trainers: Trainers | None) -> Gang:
        """Return the gang on these places; a program that is not data parallel runs in this process, or on
        its GPU."""
        if self._data_parallel:
            return gang_for(places, trainers)
        if isinstance(places[0], CUDAPlace):
            return gang_at(places[0])
        return LocalGang(places[0])

    def _place_count(self, own: Place) -> int:
        return len(self._places if self._places is not None else self._default_places(own))

    def _default_places(self, own: Place) -> list[Place]:
        if not self._data_parallel:
            return [own]
        return list(cpu_places() if isinstance(own, CPUPlace) else cuda_places())

    def _shared_run(self, own: Place) -> ParallelRun | None:
        source = self._share_vars_from
        if source is None:
            return None
        if not source._data_parallel:
            raise InvalidValue(
                "share_vars_from: that program is not data parallel, its variables cannot be shared."
            )
        if source._parallel is None:
            raise InvalidValue(
                "share_vars_from: that program was not run yet, there is nothing to share. Run a step of it "
                "first."
            )
        if source._parallel.gang.delivery.broken and source._scope is not None:
            source._parallel = source._prepare(own, source._scope)
        return source._parallel


class ParallelForm:
    """How a program that a fleet distributed is run: compiled, and compiled anew when it has changed.

    ``Executor.run`` finds it at the program (``Program.parallel_form``), which users run as it is.
    ``hints`` are switches of the fleet without effect, which ``explain()`` then lists.
    """

    def __init__(
        self,
        program: Program,
        loss_name: str,
        build: BuildStrategy,
        execution: ExecutionStrategy,
        hints: Sequence[str] = (),
    ) -> None:
        self._program, self._loss_name, self._hints = program, loss_name, tuple(hints)
        self._build, self._execution = build, execution
        self._compiled: CompiledProgram | None = None

    def compiled(self) -> CompiledProgram:
        """Return the compiled form of the program as it is now."""
        compiled = self._compiled
        if compiled is None or compiled._compiled_version != self._program.version:
            build, execution = self._build.model_copy(), self._execution.model_copy()
            compiled = CompiledProgram(self._program)
            compiled.with_data_parallel(self._loss_name, build, execution)
            compiled._hints = self._hints
            self._compiled = compiled
        return compiled
