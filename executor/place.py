"""Places: which device computes. Cluster-wide they are numbered by node, then by device."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ..strategies.errors import InvalidArgument, InvalidValue, Unsupported


@dataclass(frozen=True)
class CPUPlace:
    """A CPU slot."""

    def __repr__(self) -> str:
        return "CPUPlace"


@dataclass(frozen=True)
class CUDAPlace:
    """GPU number ``device_id``."""

    device_id: int = 0

    def __post_init__(self) -> None:
        raise Unsupported(
            f"CUDAPlace({self.device_id}): running on GPUs is not built yet. Use CPUPlace()."
        )


Place = CPUPlace | CUDAPlace


def cpu_places(device_count: int | None = None) -> list[CPUPlace]:
    """Return ``device_count`` CPU places; without a count, as many as the environment's CPU_NUM says.

    CPU_NUM not set means one place, and sets it to 1.

    Raises:
        InvalidValue: CPU_NUM is no integer.
    """
    if device_count is None:
        if "CPU_NUM" not in os.environ and (os.cpu_count() or 1) > 1:
            print(
                f"CPU_NUM is not set: one CPU place is used. Set CPU_NUM (up to {os.cpu_count()}) for more.",
                file=sys.stderr,
            )
        text = os.environ.setdefault("CPU_NUM", "1")
        try:
            device_count = int(text)
        except ValueError:
            raise InvalidValue(
                f"the environment's CPU_NUM must be an integer, got {text!r}."
            ) from None
    return [CPUPlace()] * device_count


def cuda_places(device_ids: Sequence[int] | None = None) -> list[CUDAPlace]:
    """Return GPU places.

    Raises:
        InvalidArgument: this build runs on no GPU.
    """
    raise InvalidArgument("cuda_places: running on GPUs is not built yet. Use cpu_places().")


def check_place(place: object, argument: str) -> Place:
    """Return ``place`` if it is one.

    Raises:
        InvalidValue: it is not.
    """
    if isinstance(place, (CPUPlace, CUDAPlace)):
        return place
    raise InvalidValue(f"{argument} must be a place such as CPUPlace(), got {place!r}.")
