"""``fluid.incubate.fleet.parameter_server.distribute_transpiler``: the fleet with parameter servers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ......executor.executor import Executor
from ......executor.feed.scope import global_scope
from ......executor.saving.variables import read_values
from ......executor.servers.session import Session, session_for
from ......graph.program.program import Program, default_startup_program
from ......graph.transpiler.distribute import DistributeTranspiler
from ......graph.transpiler.exchange import TableLookup, exchange_of
from ......graph.transpiler.plan import Distribution
from ......graph.transpiler.server_program import serves
from ......names import listing, missing
from ......strategies.errors import (
    InvalidState,
    InvalidType,
    InvalidValue,
    MissingFile,
    StateMismatch,
    Unsupported,
)
from ..... import io
from ...base.fleet_base import DistributedOptimizer, Fleet, Mode, is_optimizer
from . import distributed_strategy
from .distributed_strategy import (
    AsyncStrategy,
    DistributedStrategy,
    GeoStrategy,
    HalfAsyncStrategy,
    StrategyFactory,
    SyncStrategy,
    TrainerRuntimeConfig,
    strategy_of,
)


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
        self._trainer_program: Program | None = None
        self._transpile_config: DistributedStrategy | None = None

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
        """Run this server's startup program; with ``model_dir`` load its rows of the parameters saved there.

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
            self._load_rows(model_dir)

    def _load_rows(self, folder: str) -> None:
        """Load this server's parts of the parameters from files that hold them whole."""
        own = self.server_endpoints()[self.server_index()]
        for name, shards in self._parts().shards.items():
            if not any(shard.endpoint == own for shard in shards):
                continue
            whole = read_values(os.path.join(folder, name), [name])[name]
            for part, rows in self._rows(name, own):
                _fill(part, whole if rows is None else whole[rows], name)

    def _rows(self, name: str, endpoint: str) -> Iterator[tuple[str, Any]]:
        """Yield the names of a server's parts of a parameter, and the numbers of their rows (None: all)."""
        shards = self._parts().shards[name]
        if name in self._parts().tables:
            lookup = self._lookup(name)
            numbers = np.arange(lookup.height)
            for piece in lookup.pieces:
                if piece.endpoint == endpoint:
                    yield piece.name, numbers[piece.holds(numbers)]
            return
        for shard in shards:
            if shard.endpoint == endpoint:
                whole = len(shards) == 1
                yield (
                    shard.parameter,
                    None if whole else slice(shard.begin, shard.begin + shard.rows),
                )

    def _lookup(self, name: str) -> TableLookup:
        """Return which server has which rows of a table."""
        names = {shard.parameter for shard in self._parts().shards[name]}
        assert self._trainer_program is not None, "there is one once minimize was called"
        lookups = exchange_of(self._trainer_program).lookups
        return next(one for one in lookups if one.pieces[0].name in names)

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
        """Refuse: tables keep the rows that they were declared with.

        Raises:
            Unsupported: always.
        """
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
        self._trainer_program = self._transpiler.get_trainer_program(wait_port=False)
        if worker:
            self.main_program, self.startup_program = self._trainer_program, startup
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
        program = self._checked("save_inference_model", executor, main_program)
        source = self._origin_program if main_program is None else program
        tables = self._fetch_tables()
        try:
            io.save_inference_model(
                dirname,
                feeded_var_names,
                target_vars,
                executor,
                source,
                None,
                None,
                export_for_deployment,
            )
        finally:
            global_scope().erase(tables)

    def save_persistables(self, executor: Any, dirname: str, main_program: Any = None) -> None:
        """Save the parameters, as they are here; tables on servers are fetched for it.

        What optimizers keep is on the servers: ``ClusterConfig.server_snapshot_folder`` has them save it.

        Raises:
            InvalidType: no Executor, or no Program.
            InvalidValue: the program was not distributed.
        """
        program = self._checked("save_persistables", executor, main_program)
        if not program._is_distributed:
            raise InvalidValue(
                "fleet.save_persistables saves a program that minimize distributed; use "
                "fluid.io.save_persistables for others."
            )
        tables = self._fetch_tables()
        try:
            parameters = [
                p for p in self._origin().all_parameters() if p.name in self._parts().shards
            ]
            io.save_vars(executor, dirname, self._origin(), vars=parameters)
        finally:
            global_scope().erase(tables)

    def _origin(self) -> Program:
        assert self._origin_program is not None, "there is one once minimize was called"
        return self._origin_program

    def _checked(self, method: str, executor: Any, program: Any) -> Program:
        if not isinstance(executor, Executor):
            raise InvalidType(f"fleet.{method} takes an Executor, got {type(executor).__name__}.")
        program = self._own_program(method) if program is None else program
        if not isinstance(program, Program):
            raise InvalidType(
                f"fleet.{method} takes a Program as main_program, got {type(program).__name__}. Leave it "
                f"out, or pass compiled.program."
            )
        return program

    def _fetch_tables(self) -> list[str]:
        """Write the tables that servers keep into the scope; return their names."""
        exchange = exchange_of(self._own_program("save"))
        names = sorted(self._parts().tables)
        for name in names:
            every = replace(self._lookup(name), padding_idx=-1, drops_last=False)
            rows = self._session().lookup(exchange, every, np.arange(every.height))
            global_scope().var(name).get_tensor().set(rows)
        return names


def _fill(part: str, rows: Any, name: str) -> None:
    """Write rows over those that a server's startup program made; there may be spare ones behind."""
    tensor = global_scope().var(part).get_tensor()
    value = np.array(tensor)
    if value.shape[1:] != rows.shape[1:] or len(value) < len(rows):
        raise StateMismatch(
            f"init_server: parameter {name!r} has a part {list(value.shape)} here, the file has rows "
            f"{list(rows.shape)} for it. Build the program as it was when it was saved."
        )
    value[: len(rows)] = rows
    tensor.set(value)


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

__all__ = [
    "AsyncStrategy",
    "DistributedStrategy",
    "DistributedTranspiler",
    "GeoStrategy",
    "HalfAsyncStrategy",
    "StrategyFactory",
    "SyncStrategy",
    "TrainerRuntimeConfig",
    "TranspilerOptimizer",
    "distributed_strategy",
    "fleet",
]
__dir__ = listing(__name__)
__getattr__ = missing(__name__)
