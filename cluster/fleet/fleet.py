"""What the fleets of a job have in common, whether they share gradients or parameter servers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from ...executor.device.place import CPUPlace
from ...executor.executor import Executor
from ...graph.program.program import Program
from ...graph.training.optimizer.base import Optimizer
from ...strategies.errors import InvalidState, InvalidType, InvalidValue, RowlockError
from .roles import RoleMakerBase


class Mode:
    """What a fleet's workers share parameters by."""

    TRANSPILER = 1
    PSLIB = 2
    COLLECTIVE = 3


class NoRole(InvalidState, AttributeError):
    """A fleet was asked before ``fleet.init``."""


class Fleet(ABC):
    """A job's processes, as one of them sees them. ``init`` says which part this one plays."""

    _mistyped: type[RowlockError] = InvalidType
    """What a method raises that is given a wrong type to save: Paddle's fleets differ in it."""

    def __init__(self, mode: int) -> None:
        self._mode = mode
        self._is_initialized = False
        self._maker: RoleMakerBase | None = None
        self._executor: Executor | None = None
        self._optimizer: DistributedOptimizer | None = None

    def __repr__(self) -> str:
        return f"<fleet: {self._maker!r}>" if self._maker is not None else "<fleet before init>"

    def init(self, role_maker: RoleMakerBase | None = None) -> None:
        """Find out which part this process plays.

        Raises:
            InvalidType: this is no role maker.
            MissingVariable: the environment does not say.
            InvalidValue: it says what cannot be, or the role is one of the other kind of fleets.
        """
        if role_maker is None:
            raise NoRole(
                "fleet.init needs a role maker, such as role_maker.PaddleCloudRoleMaker()."
            )
        if not isinstance(role_maker, RoleMakerBase):
            raise InvalidType(f"fleet.init takes a role maker, got {type(role_maker).__name__}.")
        role_maker.generate_role()
        self._check_kind(role_maker)
        self._maker = role_maker
        self._executor = Executor(CPUPlace())
        self._is_initialized = True

    def _check_kind(self, maker: RoleMakerBase) -> None:
        if self._mode != Mode.COLLECTIVE:
            if not maker.get_pserver_endpoints():
                raise InvalidValue(
                    f"fleet.init: this fleet has servers, and {maker!r} names none. Use "
                    f"PaddleCloudRoleMaker() or UserDefinedRoleMaker, or the fleet of "
                    f"fluid.incubate.fleet.collective."
                )
        elif maker.is_server() or (maker.worker_num() > 1 and not maker.get_trainer_endpoints()):
            raise InvalidValue(
                f"fleet.init: a collective fleet has workers with endpoints alone, and {maker!r} is of a "
                f"job with servers. Use PaddleCloudRoleMaker(is_collective=True) or "
                f"UserDefinedCollectiveRoleMaker, or the fleet of "
                f"fluid.incubate.fleet.parameter_server.distribute_transpiler."
            )

    @property
    def _role_maker(self) -> RoleMakerBase:
        if self._maker is None:
            raise NoRole("the fleet knows no role: call fleet.init(role_maker) first.")
        return self._maker

    def is_first_worker(self) -> bool:
        """Tell whether this is worker 0, which saves models."""
        return self._role_maker.is_first_worker()

    def is_worker(self) -> bool:
        """Tell whether this process trains."""
        return self._role_maker.is_worker()

    def is_server(self) -> bool:
        """Tell whether this process keeps parameters."""
        return self._role_maker.is_server()

    def worker_index(self) -> int:
        """Return this worker's number."""
        return self._role_maker.worker_index()

    def worker_num(self) -> int:
        """Return how many workers there are."""
        return self._role_maker.worker_num()

    def worker_endpoints(self, to_string: bool = False) -> Any:
        """Return the workers' endpoints: a list, or a text with commas."""
        endpoints = self._role_maker.get_trainer_endpoints()
        return ",".join(endpoints) if to_string else endpoints

    def server_index(self) -> int:
        """Return this server's number."""
        return self._role_maker.server_index()

    def server_num(self) -> int:
        """Return how many servers there are."""
        return len(self._role_maker.get_pserver_endpoints())

    def server_endpoints(self, to_string: bool = False) -> Any:
        """Return the servers' endpoints: a list, or a text with commas."""
        endpoints = self._role_maker.get_pserver_endpoints()
        return ",".join(endpoints) if to_string else endpoints

    def split_files(self, files: Sequence[str]) -> list[str]:
        """Return this worker's share: consecutive files, the first workers one more if there is a rest.

        Raises:
            InvalidType: this is no list of paths.
        """
        if not isinstance(files, (list, tuple)) or not all(isinstance(f, str) for f in files):
            raise InvalidType(f"split_files takes a list of paths, got {files!r}.")
        whole, rest = divmod(len(files), self.worker_num())
        index = self.worker_index()
        first = index * whole + min(index, rest)
        return list(files[first : first + whole + (index < rest)])

    def all_reduce_worker(self, input: Any, output: Any) -> None:
        """Write the sums of all workers' numbers into ``output``."""
        self._role_maker.all_reduce_worker(input, output)

    def barrier_worker(self) -> None:
        """Wait until every worker has come here."""
        self._role_maker.barrier_worker()

    def gather_workers(self, values: Any) -> list[Any]:
        """Return what each worker passed, by number: numbers, words, and lists of them."""
        return self._role_maker.gather_workers(values)

    def gather_bytes(self, array: Any) -> list[Any]:
        """Return what array of bytes each worker passed, by number."""
        return self._role_maker.gather_bytes(array)

    def _checked(
        self, method: str, executor: Any, program: Any, default: Program | None
    ) -> Program:
        """Return ``program``, or the ``default`` that ``minimize`` made, if a method can save it."""
        if not isinstance(executor, Executor):
            raise self._mistyped(
                f"fleet.{method} takes an Executor, got {type(executor).__name__}."
            )
        program = default if program is None else program
        if program is None:
            raise self._mistyped(f"fleet.{method}: minimize was not called, name a main_program.")
        if not isinstance(program, Program):
            raise self._mistyped(
                f"fleet.{method} takes a Program as main_program, got {type(program).__name__}. Leave it out, "
                f"or pass compiled.program."
            )
        return program

    @abstractmethod
    def init_worker(self) -> None:
        """Make ready to train."""

    @abstractmethod
    def init_server(self, model_dir: str | None = None) -> None:
        """Make ready to serve; with ``model_dir`` from the parameters saved there."""

    @abstractmethod
    def run_server(self) -> None:
        """Serve until all workers have finished."""

    @abstractmethod
    def stop_worker(self) -> None:
        """Say that this worker has finished."""

    @abstractmethod
    def distributed_optimizer(self, optimizer: Any, strategy: Any = None) -> DistributedOptimizer:
        """Return an optimizer whose ``minimize`` distributes the program."""

    @abstractmethod
    def save_inference_model(
        self,
        executor: Any,
        dirname: str,
        feeded_var_names: Any,
        target_vars: Any,
        main_program: Any = None,
        export_for_deployment: bool = True,
    ) -> None:
        """Save what computes ``target_vars`` from what is fed."""

    @abstractmethod
    def save_persistables(self, executor: Any, dirname: str, main_program: Any = None) -> None:
        """Save every persistable variable."""


class DistributedOptimizer(ABC):
    """An optimizer whose ``minimize`` distributes the program.

    Raises:
        InvalidType: ``optimizer`` is none.
    """

    def __init__(self, optimizer: Any, strategy: Any = None) -> None:
        if not is_optimizer(optimizer):
            raise InvalidType(
                f"a fleet's distributed_optimizer takes an optimizer, got {type(optimizer).__name__}."
            )
        self._optimizer = optimizer
        self._strategy = strategy

    def backward(
        self,
        loss: Any,
        startup_program: Any = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
        callbacks: Any = None,
    ) -> Any:
        """Append gradients; see :meth:`Optimizer.backward`."""
        return self._optimizer.backward(
            loss, startup_program, parameter_list, no_grad_set, callbacks
        )

    def apply_gradients(self, params_grads: Any) -> Any:
        """Append updates; see :meth:`Optimizer.apply_gradients`."""
        return self._optimizer.apply_gradients(params_grads)

    @abstractmethod
    def minimize(
        self,
        loss: Any,
        startup_program: Any = None,
        parameter_list: Any = None,
        no_grad_set: Any = None,
    ) -> Any:
        """Append the ops of a training step, and distribute the program."""


def is_optimizer(value: Any) -> bool:
    """Tell whether this is an optimizer, or one that wraps one."""
    return isinstance(value, Optimizer) or callable(getattr(value, "minimize", None))
