"""The configuration of DistributeTranspiler."""

from __future__ import annotations

from typing import Any

from ...strategies.errors import InvalidArgument, InvalidType, InvalidValue, UnknownField, nearest
from .dispatch import PSDispatcher

SMALLEST_BLOCK = 8192
MODES = ("pserver", "nccl2", "collective")
COLLECTIVE_MODES = ("grad_allreduce", "local_sgd", "single_process_multi_thread")


class DistributeTranspilerConfig:
    """Settings of :class:`DistributeTranspiler`, as class attributes with their defaults.

    ``slice_var_up``: cut large parameters by rows, so that all servers share them. ``split_method``: which
    server has which part: RoundRobin (None), HashName or another class derived from PSDispatcher.
    ``min_block_size``: elements of the smallest part. ``mode``: "pserver", "nccl2" or "collective".
    ``wait_port``: the trainer's program is given out once all servers listen.

    Raises:
        UnknownField: there is no such setting.
        InvalidValue: a value that cannot work, or does not go with the others.
    """

    slice_var_up: bool = True
    split_method: type[PSDispatcher] | None = None
    min_block_size: int = SMALLEST_BLOCK
    enable_dc_asgd: bool = False
    mode: str = "pserver"
    print_log: bool = False
    wait_port: bool = True
    nccl_comm_num: int = 1
    use_hierarchical_allreduce: bool = False
    hierarchical_allreduce_inter_nranks: int = 0
    collective_mode: str | None = None
    half_async: bool = False
    completely_not_async: bool = False
    geo_sgd_mode: bool = False
    geo_sgd_need_push_nums: int = 100

    def __init__(self) -> None:
        self._sync_mode = True
        self._runtime_split_send_recv = False

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            _check_field(type(self), name, value)
        super().__setattr__(name, value)

    @property
    def sync_mode(self) -> bool:
        """Servers wait for the gradients of all trainers before they update."""
        return self._sync_mode

    @sync_mode.setter
    def sync_mode(self, value: bool) -> None:
        if value and self._runtime_split_send_recv:
            raise _conflict("sync_mode")
        self._sync_mode = value

    @property
    def runtime_split_send_recv(self) -> bool:
        """Gradients are cut while they are sent, and parameters joined while they are received; async only."""
        return self._runtime_split_send_recv

    @runtime_split_send_recv.setter
    def runtime_split_send_recv(self, value: bool) -> None:
        if value and self._sync_mode:
            raise _conflict("runtime_split_send_recv")
        self._runtime_split_send_recv = value

    def __repr__(self) -> str:
        names = (*_FIELDS, "sync_mode", "runtime_split_send_recv")
        fields = (f"{n}={getattr(self, n)!r}" for n in names if getattr(self, n) != _DEFAULTS[n])
        return f"DistributeTranspilerConfig({', '.join(fields)})"


_FIELDS = [name for name in DistributeTranspilerConfig.__annotations__ if not name.startswith("_")]
_DEFAULTS = {name: getattr(DistributeTranspilerConfig, name) for name in _FIELDS}
_DEFAULTS |= {"sync_mode": True, "runtime_split_send_recv": False}


def _check_field(kind: type, name: str, value: Any) -> None:
    if name not in _DEFAULTS and not hasattr(kind, name):
        raise UnknownField(
            f"DistributeTranspilerConfig has no setting {name!r}.{nearest(name, _DEFAULTS)}"
        )
    default = _DEFAULTS.get(name)
    if isinstance(default, bool) and not isinstance(value, bool):
        raise InvalidValue(f"DistributeTranspilerConfig.{name} must be a bool, got {value!r}.")
    least = 1 if name in ("geo_sgd_need_push_nums", "nccl_comm_num") else 0
    if type(default) is int and (type(value) is not int or value < least):
        raise InvalidValue(
            f"DistributeTranspilerConfig.{name} must be a whole number from {least} on, got {value!r}."
        )
    if name == "mode" and value not in MODES:
        raise InvalidValue(
            f"DistributeTranspilerConfig.mode must be one of {', '.join(MODES)}, got {value!r}."
            f"{nearest(str(value), MODES)}"
        )


def _conflict(name: str) -> InvalidValue:
    other = "runtime_split_send_recv" if name == "sync_mode" else "sync_mode"
    return InvalidValue(
        f"DistributeTranspilerConfig.{name} cannot be True while {other} is: gradients are cut while they are "
        f"sent in asynchronous training alone. Set {other} = False first."
    )


def check_config(config: Any) -> DistributeTranspilerConfig:
    """Return the settings, or the defaults if they are None.

    Raises:
        InvalidType: they are no DistributeTranspilerConfig.
        InvalidArgument: parts are too small, or ``split_method`` is no dispatcher.
        InvalidValue: settings that do not go together.
    """
    if config is None:
        return DistributeTranspilerConfig()
    if not isinstance(config, DistributeTranspilerConfig):
        raise InvalidType(
            f"DistributeTranspiler takes a DistributeTranspilerConfig, got {type(config).__name__}."
        )
    if config.min_block_size < SMALLEST_BLOCK:
        raise InvalidArgument(
            f"DistributeTranspilerConfig.min_block_size must be at least {SMALLEST_BLOCK} elements (smaller "
            f"messages cost more than they carry), got {config.min_block_size}."
        )
    method = config.split_method
    if method is not None and not (isinstance(method, type) and issubclass(method, PSDispatcher)):
        raise InvalidArgument(
            f"DistributeTranspilerConfig.split_method must be a class derived from PSDispatcher, such as "
            f"RoundRobin or HashName, got {method!r}."
        )
    return config
