"""Executor: runs a program on the replica of its place, or hands a compiled one to its replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..graph.program.program import Program, default_main_program
from ..strategies.errors import (
    InvalidArgument,
    InvalidState,
    InvalidType,
    InvalidValue,
)
from .dataset_runs import DatasetPass, FetchHandler, Printing, check_dataset
from .device.place import CPUPlace, CUDAPlace, Place, default_place
from .driver.program_runs import ProgramRuns
from .driver.runnable import Future, Runnable
from .feed.fetches import Fetches, fetch_names_of, fetches_of
from .feed.reader import Batch
from .feed.scope import Scope, global_scope
from .servers.running import TrainerRuns, serve


class Executor:
    """Runs programs on a place (that of ``paddle.set_device`` if none is named: ``CPUPlace()``).

    It is a gang of one: the driver, replica and plan are those of data-parallel programs, but its replica is
    called on the caller's thread and works on the tensors of the scope. Compiled programs are kept by program,
    feed names and fetches; plans also by the shapes fed, so another batch size binds again without compiling
    again.
    """

    def __init__(self, place: Place | None = None) -> None:
        if place is not None and not isinstance(place, Place):
            raise InvalidType(f"Executor takes a place such as CPUPlace(), got {place!r}.")
        self.place = default_place() if place is None else place
        self._on_gpu = isinstance(self.place, CUDAPlace)
        self._runs = ProgramRuns(self.place)
        self._host_runs = ProgramRuns(CPUPlace()) if self._on_gpu else self._runs
        self._trainer_runs = TrainerRuns()
        self._closed = False

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
                A parameter server's program serves until its trainers have finished.
            feed: arrays by variable name. For a data-parallel program also a list of such dicts, one a place.
            fetch_list: variables or names; a result is a NumPy array each (a Tensor with
                ``return_numpy=False``). Results of several places are joined on dim 0 unless
                ``return_merged`` is False.
            scope: where persistables live; default: the global scope.
            use_prune: run only the ops that ``fetch_list`` and the program's optimizers need; these are left
                out, too, where what they need is not fed. Optimize ops in ``fetch_list`` ask for the same, and
                are the only ones that are run.
            feed_var_name, fetch_var_name, use_program_cache: accepted as Paddle does; there are no feed and
                fetch variables here, and plans are always kept.

        Raises:
            FeedError: a feed is missing, misnamed, or does not fit the program.
            NotInitialized: a parameter holds no value: the startup program was not run.
            ExecutionError: an operator failed.
            ServerLost, TrainerLost: of parameter servers and their trainers, one is not there.
        """
        if self._closed:
            raise InvalidState("this executor is closed. Make a new one.")
        program = default_main_program() if program is None else program
        scope = global_scope() if scope is None else scope
        if not isinstance(scope, Scope):
            raise InvalidType(f"Executor.run: scope must be a Scope, got {type(scope).__name__}.")
        fetch_names, updates = fetch_names_of(fetch_list)
        only = updates if use_prune or updates else None
        fetches = fetches_of(fetch_names, return_numpy, return_merged, only)
        program = runnable_form(program)
        if isinstance(program, Program):
            return self._run_program(program, feed, fetches, scope)
        if not isinstance(program, Runnable):
            raise InvalidType(
                f"Executor.run takes a Program or CompiledProgram, got {type(program).__name__}."
            )
        steps = program._prepared(self.place, scope)
        self._trainer_runs.note(steps)
        return steps.run(feed, fetches)

    def _run_program(
        self, program: Program, feed: Any, fetches: Fetches, scope: Scope
    ) -> list[Any]:
        """Run a program on this executor's place; what a parameter server's does is serve."""
        serving, exchange = self._trainer_runs.role_of(program)
        if serving:
            serve(program, scope)
            return []
        if exchange is not None:
            program = exchange.compute
        on_host = self._on_gpu and not fetches.names and only_initialises(program)
        run = (self._host_runs if on_host else self._runs).run_of(program, scope)
        feed = feed if type(feed) is dict else _one_feed(feed)
        if exchange is not None:
            return self._trainer_runs.run_of(exchange, run, scope).run(feed, fetches)
        return run.run(feed, fetches)

    def run_async(
        self,
        program: Any,
        feed: Any = None,
        fetch_list: Any = None,
        scope: Scope | None = None,
        return_numpy: bool = True,
        return_merged: bool = True,
    ) -> Future:
        """Begin what :meth:`run` does for a data-parallel program, and return before it is done.

        The next step can be fed meanwhile; ``ClusterConfig.steps_in_flight`` of them wait at one time, then
        the oldest is waited for. Steps happen in the order in which they were begun, and whatever else is
        asked of the program (its parameters, a plain ``run``) waits for them. What is fed is copied unless it
        cannot be written, so arrays may be filled anew at once. On this process's own place, whose tensors the
        user reads, the step is done when this returns.

        Returns:
            An object with ``result()``, which returns or raises what ``run`` would, and ``done()``.

        Raises:
            InvalidType: ``program`` is not data parallel.
        """
        if self._closed:
            raise InvalidState("this executor is closed. Make a new one.")
        program = runnable_form(program)
        if not isinstance(program, Runnable):
            raise InvalidType(
                f"Executor.run_async takes a CompiledProgram, got {type(program).__name__}: a step on this "
                f"process's own place is done when run returns."
            )
        fetch_names, updates = fetch_names_of(fetch_list)
        scope = global_scope() if scope is None else scope
        steps = program._prepared(self.place, scope)
        self._trainer_runs.note(steps)
        fetches = fetches_of(fetch_names, return_numpy, return_merged, updates or None)
        return steps.start(feed, fetches, ahead=True)

    def train_from_dataset(
        self,
        program: Any = None,
        dataset: Any = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Any = None,
        fetch_info: Any = None,
        print_period: int = 100,
        fetch_handler: FetchHandler | None = None,
    ) -> None:
        """Run a step for each batch of a dataset of files, one pass over it.

        Args:
            program: a Program or CompiledProgram; a data-parallel one cuts each batch over its places.
            dataset: of ``fluid.DatasetFactory``.
            scope: where persistables live; default: the global scope.
            thread: how many threads read, in place of the dataset's own number. Steps happen one after the
                other, whatever it is.
            debug: print how long the pass took, and samples per second.
            fetch_list: variables to print.
            fetch_info: a heading for each of them.
            print_period: print those of every so many batches, the first one's first.
            fetch_handler: is shown values each ``period_secs`` seconds.

        Raises:
            InvalidState: ``dataset`` is None, or has no files, variables or (in memory) samples.
            InvalidArgument: ``fetch_info`` has not one heading for each variable.
            MissingFile: a file of the dataset is not there.
            DamagedFile: a line of it is malformed, or the pipe command failed.
        """
        check_dataset(dataset)
        printing = Printing.of(fetch_list, fetch_info, print_period)
        program = runnable_form(default_main_program() if program is None else program)

        def step(batch: Batch, names: Sequence[str]) -> list[Any]:
            return self.run(program, dict(batch), list(names), scope=scope, return_numpy=False)

        least = program._place_count(self.place) if isinstance(program, Runnable) else 1
        DatasetPass(step, printing, fetch_handler, debug).run(dataset, thread, least)

    def infer_from_dataset(
        self,
        program: Any = None,
        dataset: Any = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Any = None,
        fetch_info: Any = None,
        print_period: int = 100,
        fetch_handler: FetchHandler | None = None,
    ) -> None:
        """Do what :meth:`train_from_dataset` does without training: parameters stay as they are.

        Of a plain Program that trains, its clone for testing is run.
        """
        program = default_main_program() if program is None else program
        if isinstance(program, Program):
            program = program.clone(for_test=True)
        elif isinstance(program, Runnable) and program.trains:
            raise InvalidValue(
                "infer_from_dataset: this compiled program trains. Compile program.clone(for_test=True), with "
                "share_vars_from the one that trains."
            )
        settings = (scope, thread, debug, fetch_list, fetch_info, print_period, fetch_handler)
        self.train_from_dataset(program, dataset, *settings)

    def close(self) -> None:
        """Forget every plan; the executor cannot be used again. Parameter servers are told goodbye."""
        if not self._closed:
            self._trainer_runs.close()
        self._closed = True
        for runs in (self._runs, self._host_runs):
            runs.close()

    @property
    def compilations(self) -> int:
        """How many times plain programs that are still kept were compiled."""
        return sum(runs.compilations for runs in {self._runs, self._host_runs})

    @property
    def bindings(self) -> int:
        """How many times plain programs were bound to memory in this process."""
        return self._host_runs.bindings


def runnable_form(program: Any) -> Any:
    """Return what is run where a user names ``program``: a fleet's compiled form of it, or itself."""
    form = program.parallel_form if isinstance(program, Program) else None
    return program if form is None else form.compiled()


def only_initialises(program: Program) -> bool:
    """Tell whether a program reads only what it makes: from its seed, the same on every place."""
    results: set[str] = set()
    for op in program.global_block().ops:
        if not results.issuperset(name for slot in op.input_names for name in op.input(slot)):
            return False
        results.update(name for slot in op.output_names for name in op.output(slot))
    return not program.readers


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
    return None if feed is None else dict(feed)
