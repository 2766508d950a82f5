"""The members of a training: trainers by number, servers by endpoint, and in which mode they work together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ...strategies.endpoints import checked_endpoints
from ...strategies.errors import InvalidType, InvalidValue, require_type

COUNTER = "@LR_DECAY_COUNTER@"


class DistributedMode(IntEnum):
    """Modes of servers, with Paddle's numbers."""

    SYNC = 0
    ASYNC = 1
    HALF_ASYNC = 2
    GEO = 3


@dataclass(frozen=True)
class Topology:
    """Trainers, servers and their mode, as one trainer sees them."""

    trainer_id: int
    trainers: int
    endpoints: list[str]
    sync_mode: bool
    split_late: bool = False  # gradients are cut while they are sent
    # a trainer waits until the servers have what it sent, not for other trainers
    half_async: bool = False
    push_every: int = 0  # in geo-SGD: after how many steps changes are sent

    @property
    def gradient_suffix(self) -> str:
        """What the names of a trainer's gradients end in, where the servers add up those of several."""
        return f".trainer_{self.trainer_id}" if self.merges else ""

    @property
    def merges(self) -> bool:
        """Tell whether servers wait for the gradients of several trainers."""
        return self.sync_mode and self.trainers > 1

    @property
    def server_mode(self) -> DistributedMode:
        """The number of the mode in which servers work: Paddle's ``distributed_mode``."""
        if self.push_every:
            return DistributedMode.GEO
        if self.sync_mode:
            return DistributedMode.SYNC
        return DistributedMode.ASYNC if self.split_late else DistributedMode.HALF_ASYNC

    @property
    def barrier(self) -> dict[str, Any]:
        """Attributes of the operators that wait for all servers."""
        return {"endpoints": self.endpoints, "trainer_id": self.trainer_id}


def check_topology(
    trainer_id: Any, trainers: Any, pservers: Any, sync_mode: Any
) -> tuple[int, int, list[str]]:
    """Return the number of a trainer, how many there are, and the endpoints of the servers.

    Raises:
        InvalidType: no whole number, no bool, or no text of endpoints.
        InvalidValue: numbers out of range, or an endpoint that is no ``host:port`` or appears twice.
    """
    for name, value in (("trainer_id", trainer_id), ("trainers", trainers)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidType(
                f"transpile: {name} must be a whole number, got {value!r} ({type(value).__name__})."
                + (
                    ' Endpoints of trainers belong to config.mode = "nccl2".'
                    if name == "trainers"
                    else ""
                )
            )
    if trainers < 1:
        raise InvalidValue(f"transpile: trainers must be at least 1, got {trainers}.")
    if not 0 <= trainer_id < trainers:
        raise InvalidValue(
            f"transpile: trainer_id must be from 0 to {trainers - 1} (there are {trainers} trainers), got "
            f"{trainer_id}."
        )
    require_type(sync_mode, bool, "transpile: sync_mode must be a bool")
    return trainer_id, trainers, checked_endpoints("transpile: pservers", pservers)
