"""Paddle 2.x's fleet: one object for both kinds, of which ``init`` chooses one."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...graph.program.program import Program
from ...strategies.errors import InvalidState, InvalidType
from .collective import Collective
from .fleet import DistributedOptimizer, Mode, NoRole
from .fleet import Fleet as _Fleet
from .roles import CloudRoleMaker, RoleMakerBase
from .servers import DistributedTranspiler

if TYPE_CHECKING:
    from ...strategies.distributed import DistributedStrategy


class Fleet(_Fleet):
    """A job's processes, as one of them sees them: workers alone, or workers and parameter servers.

    ``minimize`` distributes the program in place: users run the main and the startup program as they are.
    """

    def __init__(self) -> None:
        super().__init__(Mode.COLLECTIVE)
        self._kind: Collective | DistributedTranspiler | None = None
        self._strategy: DistributedStrategy | None = None
        self._util = UtilBase(self)

    def init(
        self,
        role_maker: RoleMakerBase | None = None,
        is_collective: bool = False,
        strategy: DistributedStrategy | None = None,
        log_level: int | str = "INFO",
    ) -> None:
        """Find out which part this process plays, and of which kind the job is.

        Without a role maker the environment says; a process whose environment names no job trains alone.
        ``strategy`` holds for optimizers that are given none. ``log_level`` is accepted as Paddle does.

        Raises:
            InvalidType: an argument of a wrong type.
            MissingVariable: the environment names a job, and not this process's part in it.
            InvalidValue: it says what cannot be.
        """
        if not isinstance(is_collective, bool):
            raise InvalidType(f"fleet.init: is_collective must be a bool, got {is_collective!r}.")
        maker = CloudRoleMaker(is_collective) if role_maker is None else role_maker
        if not isinstance(maker, RoleMakerBase):
            raise InvalidType(f"fleet.init takes a role maker, got {type(maker).__name__}.")
        maker.generate_role()
        kind: Collective | DistributedTranspiler = (
            DistributedTranspiler() if maker.server_num() else Collective()
        )
        kind.init(maker)
        self._strategy, self._kind, self._mode = _copied(strategy), kind, kind._mode
        super().init(maker)

    @property
    def _chosen(self) -> Collective | DistributedTranspiler:
        if self._kind is None:
            raise NoRole("the fleet knows no role: call fleet.init(is_collective=True) first.")
        return self._kind

    @property
    def util(self) -> UtilBase:
        """What workers count, gather and print together."""
        return self._util

    @property
    def main_program(self) -> Any:
        """What running the main program runs: of workers alone its CompiledProgram, which has ``explain()``."""
        kind = self._chosen
        form = kind._form if isinstance(kind, Collective) else None
        return kind.main_program if form is None else form.compiled()

    @property
    def startup_program(self) -> Program | None:
        """The startup program of this process, once ``minimize`` was called."""
        return self._chosen.startup_program

    def node_num(self) -> int:
        """Return on how many hosts there are workers, as their endpoints say."""
        return len({endpoint.rpartition(":")[0] for endpoint in self.worker_endpoints()}) or 1

    def all_reduce(self, input: Any, mode: str = "sum") -> Any:
        """Return the sum (or "max", "min") of all workers' numbers: see :meth:`UtilBase.all_reduce`."""
        return self._util.all_reduce(input, mode)

    def distributed_optimizer(
        self, optimizer: Any, strategy: DistributedStrategy | None = None
    ) -> DistributedOptimizer:
        """Return an optimizer whose ``minimize`` also distributes the program.

        Without a ``strategy``: that of ``init``.

        Raises:
            InvalidType: this is no optimizer, or no DistributedStrategy.
            NoRole: ``init`` was not called.
        """
        kind = self._chosen
        chosen = _copied(strategy) if strategy is not None else self._strategy
        inner = kind.distributed_optimizer(optimizer, chosen)
        self._optimizer = FleetOptimizer(kind, inner)
        return self._optimizer

    def minimize(
        self,
        loss: Any,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> Any:
        """Call ``minimize`` of the optimizer that :meth:`distributed_optimizer` returned last.

        Raises:
            InvalidState: it was not called.
        """
        if self._optimizer is None:
            raise InvalidState("fleet.minimize: call fleet.distributed_optimizer(optimizer) first.")
        return self._optimizer.minimize(loss, startup_program, parameter_list, no_grad_set)

    def init_worker(self, scopes: Any = None) -> None:
        """Make ready to train: of workers alone nothing is needed, and a warning says so."""
        self._chosen.init_worker()

    def init_server(self, model_dir: str | None = None, var_names: Any = None) -> None:
        """Make ready to serve; with ``model_dir`` from the parameters saved there."""
        self._chosen.init_server(model_dir)

    def run_server(self) -> None:
        """Serve until all workers have finished."""
        self._chosen.run_server()

    def stop_worker(self) -> None:
        """Say that this worker has finished."""
        self._chosen.stop_worker()

    def save_inference_model(
        self,
        executor: Any,
        dirname: str,
        feeded_var_names: Any = None,
        target_vars: Any = None,
        main_program: Any = None,
        export_for_deployment: bool = True,
        mode: int = 0,
    ) -> None:
        """Save what computes ``target_vars`` from what is fed; ``mode`` is accepted as Paddle does."""
        self._chosen.save_inference_model(
            executor, dirname, feeded_var_names, target_vars, main_program, export_for_deployment
        )

    def save_persistables(
        self, executor: Any, dirname: str, main_program: Any = None, mode: int = 0
    ) -> None:
        """Save every persistable variable; ``mode`` is accepted as Paddle does."""
        self._chosen.save_persistables(executor, dirname, main_program)


class FleetOptimizer(DistributedOptimizer):
    """The optimizer that :meth:`Fleet.distributed_optimizer` returns.

    Attributes that it lacks are those of the optimizer that it distributes, once ``minimize`` was called with
    mixed precision among them: ``amp_init``, ``get_loss_scaling``.
    """

    def __init__(
        self, kind: Collective | DistributedTranspiler, inner: DistributedOptimizer
    ) -> None:
        super().__init__(inner)
        self._kind = kind

    def minimize(
        self,
        loss: Any,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> Any:
        """Append a training step to the loss's program, and distribute it in place.

        Returns:
            The update ops, and (parameter, gradient) pairs.
        """
        outcome = self._optimizer.minimize(loss, startup_program, parameter_list, no_grad_set)
        if isinstance(self._kind, Collective):
            loss.block.program.parallel_form = self._kind._form
        return outcome

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_optimizer":
            raise AttributeError(name)
        return getattr(self._optimizer._optimizer, name)


class UtilBase:
    """What the processes of a fleet count, gather and print together: ``fleet.util``."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def all_reduce(self, input: Any, mode: str = "sum", comm_world: str = "worker") -> Any:
        """Return the sum (or "max", "min") over all workers of an array, element by element.

        Raises:
            InvalidValue: there is no such mode.
            TrainerLost: some workers did not come; names them.
        """
        import numpy as np

        array = np.asarray(input)
        output = np.zeros(array.size, array.dtype)
        self._fleet._role_maker.all_reduce_worker(array.ravel().tolist(), output, mode)
        return output.reshape(array.shape)

    def all_gather(self, input: Any, comm_world: str = "worker") -> list[Any]:
        """Return what each worker passed, by number."""
        return self._fleet.gather_workers(input)

    def barrier(self, comm_world: str = "worker") -> None:
        """Wait until every worker ("all": and every server) has come here."""
        if comm_world == "all":
            self._fleet._role_maker.barrier_all()
        else:
            self._fleet.barrier_worker()

    def get_file_shard(self, files: Sequence[str]) -> list[str]:
        """Return this worker's share of a list of files."""
        return self._fleet.split_files(files)

    def print_on_rank(self, message: str, rank_id: int) -> None:
        """Print a message on one worker."""
        if self._fleet.worker_index() == rank_id:
            print(message)


def _copied(strategy: Any) -> Any:
    """Return a copy of a user's strategy, so that later changes do not reach what was begun with it.

    Raises:
        InvalidType: this is no DistributedStrategy of Paddle 2.x.
    """
    from ...strategies.distributed import DistributedStrategy

    if strategy is not None and not isinstance(strategy, DistributedStrategy):
        raise InvalidType(
            f"the fleet takes a fleet.DistributedStrategy, got {type(strategy).__name__}."
        )
    return DistributedStrategy() if strategy is None else copy.copy(strategy)


fleet = Fleet()
