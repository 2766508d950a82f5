"""The fleet of workers that share gradients, without servers."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from ...executor.compiled_program import ParallelForm
from ...executor.saving.models import save_inference_model
from ...executor.saving.programs import load_persistables, save_persistables
from ...graph.program.program import Program, default_startup_program
from ...graph.transpiler.config import DistributeTranspilerConfig
from ...graph.transpiler.distribute import DistributeTranspiler
from ...strategies.errors import (
    DamagedFile,
    InvalidArgument,
    InvalidState,
    InvalidType,
    MissingFile,
    Unsupported,
)
from ...strategies.log import log
from .files import LocalFS
from .fleet import DistributedOptimizer, Fleet, Mode
from .training import Training, training_of

if TYPE_CHECKING:
    from ...strategies.distributed import DistributedStrategy as Strategy2x
    from ...strategies.fleet import DistributedStrategy

_PREFIX = "__paddle_fleet_checkpoint__"
_PARAMETERS = "_paddle_fleet_param__"
_STATUS = "fleet_train_status"


class TrainStatus:
    """How far a training has come: the number of the last epoch that ended (-1: none)."""

    def __init__(self, epoch_no: int = -1) -> None:
        self._epoch_no = epoch_no

    def next(self) -> int:
        """Return the number of the next epoch."""
        return self._epoch_no + 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrainStatus) and self._epoch_no == other._epoch_no

    def __hash__(self) -> int:
        return hash(self._epoch_no)

    def __repr__(self) -> str:
        return f"TrainStatus(epoch_no={self._epoch_no})"


class Collective(Fleet):
    """The fleet of workers that share gradients. ``main_program`` is what ``exe.run`` runs."""

    _mistyped = InvalidArgument

    def __init__(self) -> None:
        super().__init__(Mode.COLLECTIVE)
        self.startup_program: Program | None = None
        self.main_program: Any = None
        self._form: ParallelForm | None = None
        self._origin_program: Program | None = None
        self._transpiled_program: Program | None = None

    def init_worker(self) -> None:
        """Do nothing but warn: there are no servers to connect to."""
        _warn("init_worker")

    def run_worker(self, main_programs: Any = None, scopes: Any = None) -> None:
        """Do nothing but warn: ``exe.run`` trains."""
        _warn("run_worker")

    def init_server(self, model_dir: str | None = None) -> None:
        """Do nothing but warn: there are no servers."""
        _warn("init_server")

    def run_server(self) -> None:
        """Do nothing but warn: there are no servers."""
        _warn("run_server")

    def stop_worker(self) -> None:
        """Do nothing but warn: there are no servers to say goodbye to."""
        _warn("stop_worker")

    def distributed_optimizer(
        self, optimizer: Any, strategy: DistributedStrategy | Strategy2x | None = None
    ) -> CollectiveOptimizer:
        """Return an optimizer whose ``minimize`` also makes :attr:`main_program`.

        Raises:
            InvalidType: this is no optimizer, or no DistributedStrategy.
        """
        self._optimizer = CollectiveOptimizer(optimizer, strategy, self)
        return self._optimizer

    def save_inference_model(
        self,
        executor: Any,
        dirname: str,
        feeded_var_names: Any = None,
        target_vars: Any = None,
        main_program: Any = None,
        export_for_deployment: bool = True,
    ) -> None:
        """Save what computes ``target_vars`` from what is fed, of the program as it was before this fleet.

        Raises:
            InvalidArgument: no Executor, or no Program.
        """
        program = self._checked(
            "save_inference_model", executor, main_program, self._origin_program
        )
        names = list(feeded_var_names or ())
        save_inference_model(
            dirname, names, target_vars, executor, program, None, None, export_for_deployment
        )

    def save_persistables(
        self, executor: Any, dirname: str, main_program: Any = None, filename: str | None = None
    ) -> None:
        """Save every persistable variable of the program as it was before this fleet.

        Raises:
            InvalidArgument: no Executor, or no Program.
        """
        program = self._checked("save_persistables", executor, main_program, self._origin_program)
        save_persistables(executor, dirname, program, filename=filename)

    def save_check_point(
        self,
        executor: Any,
        path: str,
        train_status: TrainStatus,
        main_program: Any = None,
        fs: LocalFS | None = None,
        local_cache_path: str = ".cache",
        remain_all_checkpoint: bool = True,
    ) -> None:
        """Save parameters and status in a new folder of ``path``, which has its name once it is whole.

        ``remain_all_checkpoint=False`` deletes the others. ``local_cache_path`` is for file systems that files
        are uploaded to.

        Raises:
            InvalidType: this is no TrainStatus.
        """
        fs = _file_system(fs)
        if not isinstance(train_status, TrainStatus):
            raise InvalidType(
                f"save_check_point takes a TrainStatus, got {type(train_status).__name__}."
            )
        fs.mkdir(path)
        number = _last_number(path, fs) + 1
        whole = os.path.join(path, f"{_PREFIX}.{number}")
        part = f"{whole}.tmp"
        fs.delete(part)
        self.save_persistables(executor, part, main_program, _PARAMETERS)
        with open(os.path.join(part, _STATUS), "w") as out:
            json.dump({"epoch_no": train_status._epoch_no}, out)
        fs.mv(part, whole)
        if not remain_all_checkpoint:
            self.clean_redundant_check_points(path, fs)

    def load_check_point(
        self,
        executor: Any,
        path: str,
        trainer_id: int,
        main_program: Any = None,
        fs: LocalFS | None = None,
        local_cache_path: str = ".cache",
        ignore_empty: bool = True,
    ) -> TrainStatus | None:
        """Load the last checkpoint of ``path``; return its status, or None where there is none.

        Raises:
            MissingFile: there is none, and ``ignore_empty`` is False.
            DamagedFile: its status cannot be read.
        """
        fs = _file_system(fs)
        number = _last_number(path, fs)
        if number < 0:
            if ignore_empty:
                return None
            raise MissingFile(f"load_check_point: {path!r} has no folder {_PREFIX}.<number>.")
        folder = os.path.join(path, f"{_PREFIX}.{number}")
        program = self._checked("load_check_point", executor, main_program, self._origin_program)
        load_persistables(executor, folder, program, filename=_PARAMETERS)
        return _read_status(os.path.join(folder, _STATUS))

    def clean_redundant_check_points(
        self, root_path: str, fs: LocalFS | None = None, checkpoint_num: int = 1
    ) -> None:
        """Delete all checkpoints but the last ``checkpoint_num``."""
        fs = _file_system(fs)
        last = _last_number(root_path, fs)
        for number in _numbers(root_path, fs):
            if number <= last - max(1, checkpoint_num):
                fs.rmr(os.path.join(root_path, f"{_PREFIX}.{number}"))


def _file_system(fs: Any) -> LocalFS:
    if fs is not None and not isinstance(fs, LocalFS):
        raise Unsupported(
            f"checkpoints are saved to this host's paths (LocalFS), not to {type(fs).__name__}: mount the file "
            f"system, or upload the folder (HDFSClient.upload)."
        )
    return LocalFS() if fs is None else fs


def _numbers(path: str, fs: LocalFS) -> list[int]:
    parts = [name.rpartition(".") for name in fs.list_dirs(path)]
    return [int(number) for prefix, _, number in parts if prefix == _PREFIX and number.isdecimal()]


def _last_number(path: str, fs: LocalFS) -> int:
    return max(_numbers(path, fs), default=-1)


def _read_status(file: str) -> TrainStatus:
    if not os.path.isfile(file):
        return TrainStatus()
    with open(file) as source:
        text = source.read()
    try:
        return TrainStatus(int(json.loads(text)["epoch_no"]))
    except (ValueError, KeyError, TypeError):
        raise DamagedFile(
            f'{file!r} is no status such as {{"epoch_no": 3}}: {text[:80]!r}.'
        ) from None


def _warn(method: str) -> None:
    log.warning(
        "fleet.%s does nothing in collective mode, which has no servers. Leave it out.", method
    )


class CollectiveOptimizer(DistributedOptimizer):
    """Appends a training step, and makes of the program what all workers run together.

    With one worker it is a data-parallel program on this process's places.

    Raises:
        InvalidType: this is no optimizer, or no DistributedStrategy.
    """

    def __init__(
        self,
        optimizer: Any,
        strategy: DistributedStrategy | Strategy2x | None = None,
        owner: Collective | None = None,
    ) -> None:
        from ...strategies.distributed import DistributedStrategy as Strategy2x
        from ...strategies.fleet import DistributedStrategy

        super().__init__(optimizer, DistributedStrategy() if strategy is None else strategy)
        if not isinstance(self._strategy, (DistributedStrategy, Strategy2x)):
            raise InvalidType(
                f"a collective fleet takes a DistributedStrategy, got {type(strategy).__name__}."
            )
        self._fleet = fleet if owner is None else owner
        self.print_config = False

    def minimize(
        self,
        loss: Any,
        startup_program: Program | None = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> Any:
        """Append a training step, and make ``fleet.main_program``.

        Raises:
            InvalidState: ``fleet.init`` was not called.
            InvalidValue: switches that do not go together.
            Unsupported: a switch that is not built, such as ``use_dist_fc``.
        """
        own = self._fleet
        if not own._is_initialized:
            raise InvalidState("minimize: call fleet.init(role_maker) first.")
        training = training_of(self._strategy, own.worker_num())
        self._optimizer = training.wrapped(self._optimizer)
        main = loss.block.program
        startup = default_startup_program() if startup_program is None else startup_program
        outcome = self._optimizer.minimize(loss, startup, parameter_list, no_grad_set)
        own.startup_program = startup
        own._origin_program = main.clone(for_test=False)
        own._transpiled_program = main
        if own.worker_num() > 1:
            self._transpile(training, startup, main)
        own._form = None if training.mode == "collective" else self._form(training, main, loss)
        own.main_program = main if own._form is None else own._form.compiled()
        return outcome

    def _transpile(self, training: Training, startup: Program, main: Program) -> None:
        own = self._fleet
        config = DistributeTranspilerConfig()
        config.mode = training.mode
        config.collective_mode = training.collective_mode or "grad_allreduce"
        config.nccl_comm_num = training.nccl_comm_num
        config.use_hierarchical_allreduce = training.use_hierarchical_allreduce
        config.hierarchical_allreduce_inter_nranks = training.hierarchical_allreduce_inter_nranks
        endpoints = own.worker_endpoints()
        DistributeTranspiler(config).transpile(
            trainer_id=own.worker_index(),
            trainers=",".join(endpoints),
            startup_program=startup,
            program=main,
            current_endpoint=endpoints[own.worker_index()],
        )

    def _form(self, training: Training, main: Program, loss: Any) -> ParallelForm:
        own, build = self._fleet, training.build
        build.num_trainers = own.worker_num()
        build.trainer_id = own.worker_index()
        if own.worker_num() > 1:
            build.trainers_endpoints = list(own.worker_endpoints())
        return ParallelForm(main, loss.name, build, training.execution, training.hints)


fleet = Collective()
