"""How trainers and parameter servers keep step: sync, async, half async and geo."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...executor.device.place import cpu_num
from ...graph.transpiler.config import DistributeTranspilerConfig
from ...strategies.errors import InvalidType, InvalidValue, Unsupported, nearest

if TYPE_CHECKING:
    from ...strategies.build import BuildStrategy
    from ...strategies.distributed import DistributedStrategy as Strategy2x
    from ...strategies.execution import ExecutionStrategy

_COMMUNICATOR = {  # Paddle's settings of the threads that send and receive
    "communicator_max_merge_var_num": "CPU_NUM",
    "communicator_send_queue_size": "CPU_NUM",
    "communicator_independent_recv_thread": "1",
    "communicator_min_send_grad_num_before_recv": "CPU_NUM",
    "communicator_thread_pool_size": "5",
    "communicator_send_wait_times": "5",
    "communicator_is_sgd_optimizer": "1",
    "rpc_deadline": "180000",
    "rpc_retry_times": "3",
}


class TrainerRuntimeConfig:
    """Paddle's settings of the threads that send and receive, as its environment or a user sets them.

    They are kept as they are set, and have no effect: steps send and receive on connections that need none;
    ClusterConfig has deadlines, and ``staleness_bound``.
    """

    def __init__(self) -> None:
        cpus = os.environ.get("CPU_NUM", "1")
        self.mode: str | None = None
        self.runtime_configs = {
            name: os.environ.get(f"FLAGS_{name}", cpus if default == "CPU_NUM" else default)
            for name, default in _COMMUNICATOR.items()
        }

    def get_communicator_flags(self) -> dict[str, str]:
        """Return the settings as text."""
        return {name: str(value) for name, value in self.runtime_configs.items()}

    def __repr__(self) -> str:
        settings = (f"{name}={value}" for name, value in self.get_communicator_flags().items())
        return f"TrainerRuntimeConfig({', '.join(settings)})"


class ServerRuntimeConfig:
    """Paddle's numbers of a server's threads; kept as they are set, and without effect, for there are none."""

    def __init__(self) -> None:
        self._rpc_send_thread_num = 12
        self._rpc_get_thread_num = 12
        self._rpc_prefetch_thread_num = 12


class DistributedStrategy:
    """How workers and servers train together; :class:`StrategyFactory` makes one of the four modes."""

    mode = ""

    def __init__(self) -> None:
        from ...strategies.build import BuildStrategy, ReduceStrategy
        from ...strategies.execution import ExecutionStrategy

        self._program_config = DistributeTranspilerConfig()
        self._trainer_runtime_config = TrainerRuntimeConfig()
        self._server_runtime_config = ServerRuntimeConfig()
        self._build_strategy = BuildStrategy()
        self._execute_strategy = ExecutionStrategy()
        threads = cpu_num()
        self._execute_strategy.num_threads = threads
        if threads > 1:
            self._build_strategy.reduce_strategy = ReduceStrategy.Reduce
        self.debug_opt: Any = None
        self._set_mode(self._program_config)
        self._trainer_runtime_config.mode = self.mode

    def _set_mode(self, config: DistributeTranspilerConfig) -> None:
        """Have a transpiler's settings say what the mode says."""
        raise InvalidType(
            "StrategyFactory makes a DistributedStrategy: sync, async, half_async or geo."
        )

    def transpiler_config(self) -> DistributeTranspilerConfig:
        """Return the settings by which programs are written."""
        return self._program_config

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._program_config!r}>"

    def set_debug_opt(self, opt_info: Any) -> None:
        """Keep what Paddle would dump; nothing is dumped here."""
        self.debug_opt = opt_info

    def get_debug_opt(self) -> dict[str, Any]:
        """Return what :meth:`set_debug_opt` was given."""
        return dict(self.debug_opt) if isinstance(self.debug_opt, dict) else {}

    def get_program_config(self) -> DistributeTranspilerConfig:
        """Return the transpiler's settings."""
        return self._program_config

    def set_program_config(self, config: Any) -> None:
        """Take other settings of the transpiler, or change some (a dict); the mode stays.

        Raises:
            InvalidType: neither a DistributeTranspilerConfig nor a dict.
            InvalidValue: there is no such setting.
        """
        config = _changed(self._program_config, config, DistributeTranspilerConfig)
        self._set_mode(config)
        self._program_config = config

    def get_trainer_runtime_config(self) -> TrainerRuntimeConfig:
        """Return the settings of a worker's threads."""
        return self._trainer_runtime_config

    def set_trainer_runtime_config(self, config: Any) -> None:
        """Take other settings of a worker's threads, or change some; see :meth:`set_program_config`."""
        if isinstance(config, Mapping):
            for name, value in config.items():
                configs = self._trainer_runtime_config.runtime_configs
                if name not in configs:
                    raise InvalidValue(
                        f"TrainerRuntimeConfig has no {name!r}.{nearest(name, configs)}"
                    )
                configs[name] = value
        else:
            self._trainer_runtime_config = _checked(config, TrainerRuntimeConfig)
        self._trainer_runtime_config.mode = self.mode

    def get_server_runtime_config(self) -> ServerRuntimeConfig:
        """Return the settings of a server's threads."""
        return self._server_runtime_config

    def set_server_runtime_config(self, config: Any) -> None:
        """Take other settings of a server's threads, or change some; see :meth:`set_program_config`."""
        self._server_runtime_config = _changed(
            self._server_runtime_config, config, ServerRuntimeConfig
        )

    def get_execute_strategy(self) -> ExecutionStrategy:
        """Return how a worker's step is run."""
        return self._execute_strategy

    def set_execute_strategy(self, config: Any) -> None:
        """Take another ExecutionStrategy, or change fields (a dict); see :meth:`set_program_config`."""
        self._execute_strategy = _changed(
            self._execute_strategy, config, type(self._execute_strategy)
        )

    def get_build_strategy(self) -> BuildStrategy:
        """Return how a worker's program is compiled."""
        return self._build_strategy

    def set_build_strategy(self, config: Any) -> None:
        """Take another BuildStrategy, or change fields (a dict); see :meth:`set_program_config`."""
        self._build_strategy = _changed(self._build_strategy, config, type(self._build_strategy))


def _checked(config: Any, kind: type[Any]) -> Any:
    if not isinstance(config, kind):
        raise InvalidType(f"a dict or a {kind.__name__} is expected, got {type(config).__name__}.")
    return config


def _changed(current: Any, config: Any, kind: type[Any]) -> Any:
    """Return ``config``, or ``current`` with the fields of a dict set."""
    if not isinstance(config, Mapping):
        return _checked(config, kind)
    for name in config:
        if not hasattr(current, name):
            fields = [field for field in dir(current) if not field.startswith("__")]
            raise InvalidValue(f"{kind.__name__} has no {name!r}.{nearest(name, fields)}")
    for name, value in config.items():
        setattr(current, name, value)
    return current


def _set_flags(
    config: DistributeTranspilerConfig, half: bool = False, waits: bool = False, geo: bool = False
) -> None:
    config.sync_mode = False
    config.runtime_split_send_recv = True
    config.half_async, config.completely_not_async, config.geo_sgd_mode = half, waits, geo


class SyncStrategy(DistributedStrategy):
    """Servers wait for all workers in each step; what is learnt is what one machine would learn."""

    mode = "sync"

    def _set_mode(self, config: DistributeTranspilerConfig) -> None:
        _set_flags(config, half=True, waits=True)

    def transpiler_config(self) -> DistributeTranspilerConfig:
        """Return settings of a synchronous program: its servers add up the gradients of all workers.

        The flags that Paddle's strategy sets make of several workers' gradients as many updates.
        """
        config = copy.copy(self._program_config)
        config.half_async = config.completely_not_async = config.runtime_split_send_recv = False
        config.sync_mode = True
        return config


class AsyncStrategy(DistributedStrategy):
    """Each worker's gradients are applied as they come."""

    mode = "async"

    def _set_mode(self, config: DistributeTranspilerConfig) -> None:
        _set_flags(config)


class HalfAsyncStrategy(DistributedStrategy):
    """As async, and a worker's step ends once its gradients are applied."""

    mode = "half_async"

    def _set_mode(self, config: DistributeTranspilerConfig) -> None:
        _set_flags(config, half=True)


class GeoStrategy(DistributedStrategy):
    """Workers update on their own, and send by how much parameters changed each ``update_frequency`` steps.

    Raises:
        InvalidValue: ``update_frequency`` is not above 0.
    """

    mode = "geo"

    def __init__(self, update_frequency: int = 100) -> None:
        if not isinstance(update_frequency, int) or update_frequency < 1:
            raise InvalidValue(
                f"update_frequency must be a number above 0, got {update_frequency!r}."
            )
        super().__init__()
        self._program_config.geo_sgd_need_push_nums = update_frequency

    def _set_mode(self, config: DistributeTranspilerConfig) -> None:
        _set_flags(config, geo=True)


class StrategyFactory:
    """The kinds of strategies under the names by which programs make them."""

    create_sync_strategy = SyncStrategy
    create_half_async_strategy = HalfAsyncStrategy
    create_async_strategy = AsyncStrategy
    create_geo_strategy = GeoStrategy


def strategy_of(config: Any) -> DistributedStrategy:
    """Return a strategy, or the one that a transpiler's settings or 2.x's switches describe (None: sync).

    Raises:
        InvalidType: none of these.
        Unsupported: a switch of Paddle 2.x that servers do not have.
    """
    from ...strategies.distributed import DistributedStrategy as Strategy2x

    if isinstance(config, Strategy2x):
        return _of_switches(config)
    if config is None:
        return SyncStrategy()
    if isinstance(config, DistributedStrategy):
        return config
    if not isinstance(config, DistributeTranspilerConfig):
        raise InvalidType(
            f"a fleet with servers takes a DistributeTranspilerConfig, or a strategy of StrategyFactory, got "
            f"{type(config).__name__}."
        )
    if config.sync_mode:
        strategy: DistributedStrategy = SyncStrategy()
    elif config.geo_sgd_mode:
        strategy = GeoStrategy(config.geo_sgd_need_push_nums)
    elif config.runtime_split_send_recv and not config.half_async:
        strategy = AsyncStrategy()
    else:
        strategy = HalfAsyncStrategy()
    strategy.set_program_config(config)
    return strategy


def _of_switches(switches: Strategy2x) -> DistributedStrategy:
    """Return the mode that ``a_sync`` and its ``k_steps`` say."""
    switches.hints()
    for name in ("amp", "recompute", "gradient_merge", "lars", "lamb", "dgc", "localsgd"):
        if getattr(switches, name):
            raise Unsupported(
                f"DistributedStrategy.{name} is a collective fleet's: with servers, put what it stands for "
                f"around the optimizer, or call fleet.init(is_collective=True)."
            )
    steps = switches.a_sync_configs.k_steps
    if not switches.a_sync:
        strategy: DistributedStrategy = SyncStrategy()
    else:
        strategy = GeoStrategy(steps) if steps > 0 else AsyncStrategy()
    strategy.set_build_strategy(switches.build_strategy)
    if switches.execution_strategy.changes():
        strategy.set_execute_strategy(switches.execution_strategy)
    return strategy
