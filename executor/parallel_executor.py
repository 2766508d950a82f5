"""ParallelExecutor: Paddle 1.x's front for data-parallel training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..graph.program.program import Program, default_main_program
from ..graph.program.where import warn_user
from ..graph.report.report import CompileReport
from ..strategies.errors import InvalidType
from .compiled_program import CompiledProgram
from .device.place import Place, cpu_places, cuda_places
from .executor import Executor
from .feed.scope import Scope, global_scope

if TYPE_CHECKING:
    from ..strategies.build import BuildStrategy
    from ..strategies.execution import ExecutionStrategy
    from .driver.runnable import Future
    from .plan.run import Event


class ParallelExecutor:
    """Runs a program on every place; they are fixed here: all GPUs, or ``CPU_NUM`` CPU places.

    Raises:
        InvalidArgument: ``use_cuda`` without a GPU, or trainers without as many endpoints.
        EnforceNotMet: ``trainer_id`` is none of ``num_trainers``.
        InvalidType: ``share_vars_from`` is no ParallelExecutor.
    """

    def __init__(
        self,
        use_cuda: bool,
        loss_name: str | None = None,
        main_program: Program | None = None,
        share_vars_from: ParallelExecutor | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        build_strategy: BuildStrategy | None = None,
        num_trainers: int = 1,
        trainer_id: int = 0,
        scope: Scope | None = None,
    ) -> None:
        if share_vars_from is not None and not isinstance(share_vars_from, ParallelExecutor):
            raise InvalidType(
                f"share_vars_from must be a ParallelExecutor, got {type(share_vars_from).__name__}."
            )
        if num_trainers != 1 or trainer_id != 0:
            from ..strategies.build import BuildStrategy

            build_strategy = build_strategy if build_strategy is not None else BuildStrategy()
            build_strategy.num_trainers, build_strategy.trainer_id = num_trainers, trainer_id
        self._scope = global_scope() if scope is None else scope
        self._places: list[Place] = list(cuda_places() if use_cuda else cpu_places())
        self._executor = Executor(self._places[0] if self._places else None)
        program = default_main_program() if main_program is None else main_program
        self._compiled: CompiledProgram = CompiledProgram(program).with_data_parallel(
            loss_name=loss_name,
            build_strategy=build_strategy,
            exec_strategy=exec_strategy,
            share_vars_from=None if share_vars_from is None else share_vars_from._compiled,
            places=self._places,
        )

    @property
    def device_count(self) -> int:
        """Number of places."""
        return len(self._places)

    def run(
        self, fetch_list: Any, feed: Any = None, feed_dict: Any = None, return_numpy: bool = True
    ) -> list[Any]:
        """Run one step; see :meth:`Executor.run`. ``feed_dict`` is a deprecated name of ``feed``."""
        if feed_dict is not None:
            warn_user("feed_dict is deprecated: use feed", DeprecationWarning)
            feed = feed_dict if feed is None else feed
        return self._executor.run(
            self._compiled,
            feed=feed,
            fetch_list=fetch_list,
            scope=self._scope,
            return_numpy=return_numpy,
        )

    def run_async(self, fetch_list: Any, feed: Any = None, return_numpy: bool = True) -> Future:
        """Begin a step and return before it is done; see :meth:`Executor.run_async`."""
        return self._executor.run_async(
            self._compiled, feed, fetch_list, scope=self._scope, return_numpy=return_numpy
        )

    def drop_local_exe_scopes(self) -> None:
        """End the life of temporaries on every replica and give their memory back.

        Raises:
            InvalidType: nothing was run yet.
        """
        self._compiled.drop_local_exe_scopes()

    def explain(self) -> CompileReport:
        """Return what the compiler did; see :meth:`CompiledProgram.explain`."""
        return self._compiled.explain()

    def trace(self, on: bool = True) -> None:
        """Keep when instructions run, or no longer; see :meth:`CompiledProgram.trace`."""
        self._compiled.trace(on)

    def executed(self) -> list[list[Event]]:
        """Return the instructions of the last traced step; see :meth:`CompiledProgram.executed`."""
        return self._compiled.executed()

    def timeline(self, path: str) -> None:
        """Write the last traced steps to a file; see :meth:`CompiledProgram.timeline`."""
        self._compiled.timeline(path)

    def temporaries(self) -> tuple[int, int]:
        """Return how many temporaries are alive on all replicas, and their bytes."""
        return self._compiled.temporaries()
