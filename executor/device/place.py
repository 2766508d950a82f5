"""Places: which device computes. Cluster-wide they are numbered by node, then by device."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...strategies.errors import InvalidArgument, InvalidType, InvalidValue
from ...strategies.flags import flag_value
from ..cuda.runtime import Runtime
from .gpus import local_gpus, open_gpu

NO_PLACES = (
    "there are no places to run on: the place list is empty. cpu_places(n) makes n of them; without n, the "
    "environment's CPU_NUM says how many."
)
_NO_GPU = "{}: there is no GPU here. Use cpu_places()."


@dataclass(frozen=True)
class CPUPlace:
    """A CPU slot."""

    def __repr__(self) -> str:
        return "CPUPlace"


@dataclass(frozen=True)
class CUDAPlace:
    """GPU number ``device_id``.

    Raises:
        InvalidArgument: there is no GPU, here or in the cluster.
    """

    device_id: int = 0

    def __post_init__(self) -> None:
        if gpu_count() == 0:
            raise InvalidArgument(_NO_GPU.format(f"CUDAPlace({self.device_id})"))


@dataclass(frozen=True)
class CUDAPinnedPlace:
    """Host memory that a GPU can read while the host goes on: a place for data, not for computing.

    A tensor set with this place is copied to a GPU of this process straight from its own memory.
    """

    def __repr__(self) -> str:
        return "CUDAPinnedPlace"


Place = CPUPlace | CUDAPlace

_default: Place = CPUPlace()


def default_place() -> Place:
    """Return the place of executors that are created without one."""
    return _default


def set_default_place(place: Place) -> None:
    """Set the place of executors that are created without one."""
    global _default
    _default = place


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """Return ``device_count`` CPU places; without a count, the environment's CPU_NUM.

    CPU_NUM not set means one place, and sets it to 1.

    Raises:
        InvalidType: the count is no integer.
        InvalidValue: CPU_NUM is no integer.
    """
    if device_count is None:
        if "CPU_NUM" not in os.environ and (os.cpu_count() or 1) > 1:
            print(
                f"CPU_NUM is not set: one CPU place is used. Set CPU_NUM (up to {os.cpu_count()}) for more.",
                file=sys.stderr,
            )
        os.environ.setdefault("CPU_NUM", "1")
        device_count = cpu_num()
    elif not isinstance(device_count, (int, np.integer)):
        raise InvalidType(f"cpu_places: device_count must be an int, got {device_count!r}.")
    return [CPUPlace()] * int(device_count)


def cpu_num() -> int:
    """Return the environment's CPU_NUM, 1 without it.

    Raises:
        InvalidValue: it is no integer.
    """
    text = os.environ.get("CPU_NUM", "1")
    try:
        return int(text)
    except ValueError:
        raise InvalidValue(f"the environment's CPU_NUM must be an integer, got {text!r}.") from None


def cuda_pinned_places(device_count: int | None = None) -> list[CUDAPinnedPlace]:
    """Return ``device_count`` pinned places; without a count, the environment's CPU_NUM.

    Raises:
        InvalidType: the count is no integer.
        InvalidValue: CPU_NUM is no integer.
    """
    return [CUDAPinnedPlace()] * len(cpu_places(device_count))


def register_gpu_counter(count: Callable[[], int]) -> None:
    """Register a function that counts GPUs in the place of those that this process sees; 0: these count."""
    _counters.append(count)


def gpu_count() -> int:
    """Return how many GPUs the cluster has, or this machine if no cluster with GPUs is joined."""
    return next((number for count in reversed(_counters) if (number := count())), 0)


_counters: list[Callable[[], int]] = [local_gpus]


def cuda_places(device_ids: Sequence[int] | None = None) -> list[CUDAPlace]:
    """Return GPU places: those named, else those in FLAGS_selected_gpus ("0,1"), else all.

    On a cluster they are numbered by node, then by device; see ``rowlock.cluster.ray.nodes``.

    Raises:
        InvalidArgument: there is no GPU, or not the one named.
        InvalidValue: FLAGS_selected_gpus is no list of whole numbers.
    """
    count = gpu_count()
    if count == 0:
        raise InvalidArgument(_NO_GPU.format("cuda_places"))
    if device_ids is None:
        text = flag_value("FLAGS_selected_gpus")
        try:
            device_ids = [int(part) for part in text.split(",")] if text else range(count)
        except ValueError:
            raise InvalidValue(
                f"FLAGS_selected_gpus must list whole numbers, got {text!r}."
            ) from None
    for device_id in device_ids:
        if not 0 <= device_id < count:
            raise InvalidArgument(f"there is no GPU {device_id}: there are {count}.")
    return [CUDAPlace(device_id) for device_id in device_ids]


def runtime_of(place: Place) -> Runtime | None:
    """Return the GPU of this process that a place names; None for a CPU place.

    Raises:
        Unsupported: there is none, or no CuPy.
    """
    return open_gpu(place.device_id) if isinstance(place, CUDAPlace) else None


def check_source(place: object) -> None:
    """Refuse a value that is no place that data can come from.

    Raises:
        InvalidValue: it is no place.
    """
    if not isinstance(place, CUDAPinnedPlace):
        check_place(place)


def check_place(place: object) -> Place:
    """Return one of ``places`` if it is a place.

    Raises:
        InvalidValue: it is not.
    """
    if isinstance(place, (CPUPlace, CUDAPlace)):
        return place
    if isinstance(place, CUDAPinnedPlace):
        raise InvalidValue(
            f"places: nothing computes on {place!r}, which is memory of the host. Use CPUPlace() or "
            f"CUDAPlace(0)."
        )
    raise InvalidValue(
        f"places must be a place such as CPUPlace(), got {place!r}. fluid.cpu_places(n) makes n of them."
    )
