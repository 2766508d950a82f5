"""The shared-memory group as a backend of ``ray.util.collective``."""

from __future__ import annotations

from typing import Any

from ray.util import collective
from ray.util.collective import backend_registry, types
from ray.util.collective.collective_group.base_collective_group import BaseGroup

from ...strategies.errors import Unsupported
from .group import SharedMemoryGroup

NAME = "ROWLOCK_SHM"
_OPS = {
    types.ReduceOp.SUM: "sum",
    types.ReduceOp.PRODUCT: "product",
    types.ReduceOp.MIN: "min",
    types.ReduceOp.MAX: "max",
}


class ShmBackend(BaseGroup):
    """Replicas of one host. ``group`` is what the step path uses; the methods are Ray's interface."""

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        self.group = SharedMemoryGroup(group_name, rank, world_size)

    @classmethod
    def backend(cls) -> str:
        """Name under which the backend is registered."""
        return NAME

    @classmethod
    def check_backend_availability(cls) -> bool:
        """Shared memory is always there."""
        return True

    def destroy_group(self) -> None:
        """Let go of the memory."""
        self.group.close()

    def allreduce(self, tensor: Any, allreduce_options: Any = None) -> None:
        """Combine the first tensor over the ranks, in place."""
        self.group.all_reduce(tensor[0], _op(allreduce_options))

    def barrier(self, barrier_options: Any = None) -> None:
        """Wait for every rank."""
        self.group.barrier()

    def reduce(self, tensor: Any, reduce_options: Any = None) -> None:
        """Combine the first tensor into the root's."""
        self.group.reduce(tensor[0], getattr(reduce_options, "root_rank", 0), _op(reduce_options))

    def allgather(self, tensor_list: Any, tensor: Any, allgather_options: Any = None) -> None:
        """Copy every rank's tensor into the first list."""
        for target, value in zip(tensor_list[0], self.group.all_gather(tensor[0]), strict=True):
            target[...] = value

    def broadcast(self, tensor: Any, broadcast_options: Any = None) -> None:
        """Copy the root's tensor."""
        self.group.broadcast(tensor[0], getattr(broadcast_options, "root_rank", 0))

    def reducescatter(
        self, tensor: Any, tensor_list: Any, reducescatter_options: Any = None
    ) -> None:
        """Combine the ranks' lists, one element for each rank."""
        tensor[0][...] = self.group.reduce_scatter(tensor_list[0], _op(reducescatter_options))

    def send(self, tensor: Any, send_options: Any = None) -> None:
        """Refuse: not built."""
        raise Unsupported(f"{NAME}: send is not built yet.")

    def recv(self, tensor: Any, recv_options: Any = None) -> None:
        """Refuse: not built."""
        raise Unsupported(f"{NAME}: recv is not built yet.")


def _op(options: Any) -> str:
    return _OPS[getattr(options, "reduceOp", types.ReduceOp.SUM)]


def register() -> None:
    """Make the backend known to ``ray.util.collective`` in this process."""
    if not backend_registry._global_registry.is_registered(NAME):
        backend_registry.register_collective_backend(NAME, ShmBackend)


def form_group(name: str, rank: int, size: int) -> SharedMemoryGroup:
    """Join the group ``name`` as ``rank``; called inside each actor."""
    register()
    collective.init_collective_group(size, rank, NAME, name)  # type: ignore[arg-type]
    return collective.get_group_handle(name).group
