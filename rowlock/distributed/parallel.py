"""``paddle.distributed``'s questions about this worker: what its environment says of a job without servers."""

from __future__ import annotations

import os

from ..cluster.fleet.roles import CloudRoleMaker
from ..names import publish_listed


class ParallelEnv:
    """This worker and the others, as the environment says when it is asked."""

    @property
    def _maker(self) -> CloudRoleMaker:
        maker = CloudRoleMaker(is_collective=True)
        maker.generate_role()
        return maker

    @property
    def rank(self) -> int:
        """This worker's number."""
        return self._maker.worker_index()

    @property
    def world_size(self) -> int:
        """The number of workers."""
        return self._maker.worker_num()

    @property
    def device_id(self) -> int:
        """The first GPU that FLAGS_selected_gpus names, 0 without it."""
        gpus = os.environ.get("FLAGS_selected_gpus", "")  # noqa: SIM112 - Paddle's name
        return int(gpus.split(",")[0] or 0)

    @property
    def trainer_endpoints(self) -> list[str]:
        """The endpoints of all workers."""
        return self._maker.get_trainer_endpoints()

    @property
    def current_endpoint(self) -> str:
        """This worker's endpoint."""
        return self.trainer_endpoints[self.rank]

    local_rank, nranks, dev_id = rank, world_size, device_id


def get_rank(group: None = None) -> int:
    """Return this worker's number: 0 where the environment names no job."""
    return ParallelEnv().rank


def get_world_size(group: None = None) -> int:
    """Return how many workers there are: 1 where the environment names no job."""
    return ParallelEnv().world_size


def init_parallel_env() -> ParallelEnv:
    """Return this worker and the others, as the environment says, which is checked.

    Static programs meet in their first step.

    Raises:
        MissingVariable, InvalidValue: the environment names a job that cannot be.
    """
    environment = ParallelEnv()
    environment._maker.generate_role()
    return environment


__all__ = ["ParallelEnv", "get_rank", "get_world_size", "init_parallel_env"]

publish_listed(__name__)
