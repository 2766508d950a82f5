"""The fleet with parameter servers."""

from __future__ import annotations

import os
from typing import Any

from ...executor.executor import Executor
from ...executor.feed.scope import global_scope
from ...executor.saving.distributed import served_value
from ...executor.saving.models import save_inference_model
from ...executor.saving.programs import load_persistables, save_persistables
from ...executor.servers.session import Session, session_for
from ...graph.program.program import Program, default_startup_program
from ...graph.transpiler.distribute import DistributeTranspiler
from ...graph.transpiler.exchange import exchange_of
from ...graph.transpiler.plan import Distribution
from ...graph.transpiler.server_program import serves
from ...strategies.errors import (
    InvalidState,
    InvalidType,
    InvalidValue,
    MissingFile,
    Unsupported,
)
from .fleet import DistributedOptimizer, Fleet, Mode, is_optimizer
from .strategies import DistributedStrategy, strategy_of


class DistributedTranspiler(Fleet):
    """The fleet with parameter servers.

    ``main_program`` and ``startup_program`` are this process's own, once ``minimize`` was called.
    """

    def __init__(self) -> None:
        super().__init__(Mode.TRANSPILER)
        self.main_program: Program | None = None
        self.startup_program: Program | None = None
        self._origin_program: Program | None = None
        self._transpiler: DistributeTranspiler | None = None
        self._distribution: Distribution | None = None

    def init_worker(self) -> None:
        """Check that ``minimize`` was called: the startup program opens the connections to servers.

        Raises:
            InvalidValue: it was not.
            InvalidState: this process is a server.
        """
        if serves(self._own_program("init_worker")):
            raise InvalidState(
                f"fleet.init_worker: this process is a server: {self._maker!r}. Ask fleet.is_worker() first; a "
                f"server calls fleet.init_server() and fleet.run_server()."
            )

    def init_server(self, model_dir: str | None = None) -> None:
        """Run this server's startup program; with ``model_dir``, load its rows of the parameters saved there.

        Raises:
            InvalidValue: ``minimize`` was not called.
            InvalidState: ``minimize`` made a worker's program.
            MissingFile: there is no such folder, or no file of a parameter.
        """
        self._server_program("init_server")
        if model_dir and not os.path.isdir(model_dir):
            raise MissingFile(f"init_server: there is no folder {model_dir!r} to load from.")
        self._own_executor().run(self.startup_program)
        if model_dir:
            load_persistables(self._executor, model_dir, self.main_program)

    def run_server(self) -> None:
        """Serve until all workers have finished.

        Raises:
            InvalidValue: ``minimize`` was not called.
            InvalidState: ``minimize`` made a worker's program.
            TrainerLost: a worker was lost.
        """
        self._own_executor().run(self._server_program("run_server"))

    def stop_worker(self) -> None:
        """Say that this worker has finished: servers whose workers all have, end."""
        self._own_program("stop_worker")
        self._session().close()

    def shrink_sparse_table(self) -> None:
        """Refuse: tables keep the rows that they were declared with."""
        raise Unsupported(
            "shrink_sparse_table is PSLib's: tables keep the rows they were declared with."
        )

    def _own_executor(self) -> Executor:
        self._role_maker  # noqa: B018 - raises before init
        assert self._executor is not None
        return self._executor

    def _own_program(self, method: str) -> Program:
        self._role_maker  # noqa: B018 - raises before init
        if self.main_program is None:
            raise InvalidValue(
                f"fleet.{method}: there is no program yet: call minimize of fleet.distributed_optimizer first."
            )
        return self.main_program

    def _server_program(self, method: str) -> Program:
        program = self._own_program(method)
        if not serves(program):
            raise InvalidState(
                f"fleet.{method}: this process was a worker when minimize was called: {self._maker!r}. Ask "
                f"fleet.is_server() first, and call fleet.init once, before minimize."
            )
        return program

    def _session(self) -> Session:
        """Return this worker's connections to the servers."""
        return session_for(exchange_of(self._own_program("session")))

    def _parts(self) -> Distribution:
        """Return which server has which rows of which parameter."""
        assert self._distribution is not None, "there is one once minimize was called"
        return self._distribution

    def distributed_optimizer(self, optimizer: Any, strategy: Any = None) -> TranspilerOptimizer:
        """Return an optimizer whose ``minimize`` also makes this process's programs.

        ``strategy``: of :class:`StrategyFactory`, or a DistributeTranspilerConfig; None: sync.

        Raises:
            InvalidValue: this is no optimizer, or ``init`` was not called.
            InvalidType: the strategy is another thing.
        """
        if not is_optimizer(optimizer):
            raise InvalidValue(
                f"fleet.distributed_optimizer takes an optimizer, got {type(optimizer).__name__}."
            )
        if not self._is_initialized:
            raise InvalidValue("fleet.distributed_optimizer: call fleet.init(role_maker) first.")
        self._optimizer = TranspilerOptimizer(optimizer, strategy, self)
        return self._optimizer

    def _transpile(self, strategy: DistributedStrategy, main: Program, startup: Program) -> None:
        """Write this process's programs."""
        config = strategy.transpiler_config()
        self._origin_program = main.clone(for_test=False)
        self._transpiler = DistributeTranspiler(config)
        worker = self.is_worker()
        own = "" if worker else self.server_endpoints()[self.server_index()]
        self._transpiler.transpile(
            trainer_id=self.worker_index() if worker else 0,
            program=main,
            pservers=self.server_endpoints(to_string=True),
            trainers=self.worker_num(),
            sync_mode=config.sync_mode,
            startup_program=startup,
            current_endpoint=own or "127.0.0.1:6174",
        )
        self._distribution = main.distribution
        # The startup program waits for servers itself, wherever they are.
        if worker:
            self.main_program = self._transpiler.get_trainer_program(wait_port=False)
            self.startup_program = startup
        else:
            self.main_program, self.startup_program = self._transpiler.get_pserver_programs(own)

    def save_inference_model(
        self,
        executor: Any,
        dirname: str,
        feeded_var_names: Any,
        target_vars: Any,
        main_program: Any = None,
        export_for_deployment: bool = True,
    ) -> None:
        """Save what computes ``target_vars`` from what is fed; tables on servers are fetched for it.

        Raises:
            InvalidType: no Executor, or no Program.
        """
        program = self._checked(
            "save_inference_model", executor, main_program, self._origin_program
        )
        tables = self._fetch_tables()
        try:
            save_inference_model(
                dirname,
                feeded_var_names,
                target_vars,
                executor,
                program,
                None,
                None,
                export_for_deployment,
            )
        finally:
            global_scope().erase(tables)

    def save_persistables(self, executor: Any, dirname: str, main_program: Any = None) -> None:
        """Save what this worker trains, and of the first worker what servers hold: see ``fluid.io``.

        Raises:
            InvalidType: no Executor, or no Program.
            InvalidValue: the program was not distributed.
            InvalidState: the worker has not run its startup program, or was stopped.
        """
        program = self._checked("save_persistables", executor, main_program, self.main_program)
        if not program._is_distributed:
            raise InvalidValue(
                "fleet.save_persistables saves a program that minimize distributed; use "
                "fluid.io.save_persistables for others."
            )
        save_persistables(executor, dirname, program)

    def _fetch_tables(self) -> list[str]:
        """Write the tables that servers keep into the scope; return their names."""
        exchange = exchange_of(self._own_program("save"))
        names = sorted(self._parts().tables)
        for name in names:
            value = served_value(self._session(), exchange, name, self._parts().shards[name])
            global_scope().var(name).get_tensor().set(value)
        return names


class TranspilerOptimizer(DistributedOptimizer):
    """Appends a training step, and writes the program of this process's role.

    Raises:
        InvalidType: this is no optimizer, or no strategy.
    """

    def __init__(
        self, optimizer: Any, strategy: Any = None, owner: DistributedTranspiler | None = None
    ) -> None:
        super().__init__(optimizer, strategy_of(strategy))
        self._fleet = fleet if owner is None else owner

    def minimize(
        self,
        loss: Any,
        startup_program: Any = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> Any:
        """Append a training step, and make ``fleet.main_program`` and ``fleet.startup_program``.

        Raises:
            InvalidType: several losses or startup programs.
        """
        if isinstance(loss, (list, tuple)) or isinstance(startup_program, (list, tuple)):
            raise InvalidType("a fleet with servers trains one program: minimize takes one loss.")
        startup = default_startup_program() if startup_program is None else startup_program
        outcome = self._optimizer.minimize(loss, startup, parameter_list, no_grad_set)
        self._fleet._transpile(self._strategy, loss.block.program, startup)
        return outcome


fleet = DistributedTranspiler()
