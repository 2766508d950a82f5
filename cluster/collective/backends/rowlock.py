"""Our groups as backends of ``ray.util.collective``: of CPUs (shared memory, sockets), and of GPUs (NCCL)."""

from __future__ import annotations

import functools
import json
import secrets
import socket
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import ray
from ray.util import collective
from ray.util.collective import backend_registry, types
from ray.util.collective.collective_group.base_collective_group import BaseGroup

from ....executor.cuda.runtime import Runtime
from ....executor.device.gpus import open_gpu
from ....executor.gang.staged import StagedGroup
from ....executor.host.deadline import Deadline
from ....executor.plan.group import CollectiveGroup, When
from ....executor.replica.agreement import named
from ....strategies.errors import CollectiveError, Unsupported
from ...primitives import ray_private
from ...primitives.doorway import SECRET_BYTES, STRANGERS
from ..connector import Address
from ..forming import Forming, Terms
from ..group import SharedMemoryGroup
from ..hosts import HostsGroup
from ..inter_host import InterHostTransport
from ..nccl import NcclGroup

NAME, NCCL_NAME = "ROWLOCK", "ROWLOCK_NCCL"
_OPS = {
    types.ReduceOp.SUM: "sum",
    types.ReduceOp.PRODUCT: "product",
    types.ReduceOp.MIN: "min",
    types.ReduceOp.MAX: "max",
}


# What Ray passes when its caller says nothing.
_ALLREDUCE, _REDUCE = types.AllReduceOptions(), types.ReduceOptions()
_ALLGATHER, _BROADCAST = types.AllGatherOptions(), types.BroadcastOptions()
_REDUCESCATTER = types.ReduceScatterOptions()


class RowlockBackend(BaseGroup):
    """Replicas on CPUs. Steps use ``group``; the methods are Ray's interface.

    ``terms`` are those that :func:`form` was given, by the name of the group that is being formed.
    """

    terms: ClassVar[dict[str, Terms]] = {}

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        self._terms = terms = self.terms.pop(group_name, Terms())
        forming = Forming(group_name, terms)
        formed: CollectiveGroup | None = None
        try:
            formed = _form(group_name, rank, world_size, forming)
            # All have read what all published.
            formed.barrier(When(terms.forming_s))
        except BaseException as error:
            forming.give_up(rank, error)
            if formed is not None:
                formed.close()
            raise
        finally:
            forming.under_way = False
            ray_private.delete(_key(group_name, rank))
        self.group: CollectiveGroup = formed

    @classmethod
    def backend(cls) -> str:
        """Name under which the backend is registered."""
        return NAME

    @classmethod
    def check_backend_availability(cls) -> bool:
        """Return True: shared memory and sockets are always there."""
        return True

    def destroy_group(self) -> None:
        """Let go of memory and sockets."""
        self.group.close()

    def allreduce(self, tensor: Any, allreduce_options: Any = _ALLREDUCE) -> None:
        """Combine the first tensor over the ranks, in place."""
        self.group.all_reduce(tensor[0], _op(allreduce_options))

    def barrier(self, barrier_options: Any = None) -> None:
        """Wait for every rank."""
        self.group.barrier()

    def reduce(self, tensor: Any, reduce_options: Any = _REDUCE) -> None:
        """Combine the first tensor into the root's."""
        self.group.reduce(tensor[0], reduce_options.root_rank, _op(reduce_options))

    def allgather(self, tensor_list: Any, tensor: Any, allgather_options: Any = _ALLGATHER) -> None:
        """Copy every rank's tensor into the first list."""
        for target, value in zip(tensor_list[0], self.group.all_gather(tensor[0]), strict=True):
            target[...] = value

    def broadcast(self, tensor: Any, broadcast_options: Any = _BROADCAST) -> None:
        """Copy the root's tensor."""
        self.group.broadcast(tensor[0], broadcast_options.root_rank)

    def reducescatter(
        self, tensor: Any, tensor_list: Any, reducescatter_options: Any = _REDUCESCATTER
    ) -> None:
        """Combine the ranks' lists, one element for each rank."""
        tensor[0][...] = self.group.reduce_scatter(tensor_list[0], _op(reducescatter_options))

    def send(self, tensor: Any, send_options: Any) -> None:
        """Raise Unsupported: training passes nothing between two ranks alone."""
        raise Unsupported(
            "Rowlock's groups have no send; broadcast from the rank that has the array."
        )

    def recv(self, tensor: Any, recv_options: Any) -> None:
        """Raise Unsupported, as :meth:`send` does."""
        raise Unsupported(
            "Rowlock's groups have no recv; broadcast from the rank that has the array."
        )


class RowlockNcclBackend(RowlockBackend):
    """Replicas on GPUs, one in each process: the GPU that :func:`form` was given, else the first."""

    runtimes: ClassVar[dict[str, Runtime]] = {}  # by name of the group that is being formed

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        runtime = self.runtimes.pop(group_name, None) or open_gpu()
        runtime.use()
        control = self.group
        try:
            self.group = NcclGroup(control, runtime, self._terms.collective_s, self._terms.ended)
        except BaseException as error:
            control.abort(str(error))  # the others may be waiting for this rank
            control.close()
            raise

    @classmethod
    def backend(cls) -> str:
        return NCCL_NAME

    @classmethod
    def check_backend_availability(cls) -> bool:
        """Tell whether this process has a GPU, and NCCL."""
        try:
            return open_gpu().nccl is not None
        except Unsupported:
            return False


def _op(options: Any) -> str:
    return _OPS[options.reduceOp]


@functools.cache
def register() -> None:
    """Make the backends known to ``ray.util.collective`` in this process, once."""
    for name, backend in ((NAME, RowlockBackend), (NCCL_NAME, RowlockNcclBackend)):
        backend_registry.register_collective_backend(name, backend)


def form_here(name: str, rank: int, size: int, within: float, later: float) -> CollectiveGroup:
    """Join a group from a driver, which ``ray.util.collective`` lets no driver do.

    Raises:
        CollectiveError: a rank does not come within so many seconds.
        CollectiveAborted: another rank gave up.
    """
    RowlockBackend.terms[name] = Terms(within, later)
    return RowlockBackend(size, rank, name).group


def leave_group(name: str) -> None:
    """Have this process forget a group."""
    if collective.is_group_initialized(name):
        collective.destroy_collective_group(name)


def form(name: str, rank: int, size: int, runtime: Runtime | None, terms: Terms) -> CollectiveGroup:
    """Join a group (see :mod:`~.backends`); without NCCL, arrays of a GPU meet on the host."""
    register()
    RowlockBackend.terms[name] = terms
    by_nccl = runtime is not None and runtime.nccl is not None
    if runtime is not None and by_nccl:
        RowlockNcclBackend.runtimes[name] = runtime
    backend = NCCL_NAME if by_nccl else NAME
    collective.init_collective_group(size, rank, backend, name)  # type: ignore[arg-type]
    group: CollectiveGroup = collective.get_group_handle(name).group
    return group if runtime is None or by_nccl else StagedGroup(group, runtime)


def _form(name: str, rank: int, size: int, forming: Forming) -> CollectiveGroup:
    """Learn each rank's node from the table that the cluster shares, and make the group that fits."""
    forming.refuse_ended()
    address = ray.util.get_node_ip_address()
    listener = socket.create_server((address, 0), backlog=size + STRANGERS)
    node = ray.get_runtime_context().get_node_id()
    own = [node, address, listener.getsockname()[1], secrets.token_hex(SECRET_BYTES)]
    hosts: dict[str, list[int]] = {}
    try:
        ray_private.put(_key(name, rank), json.dumps(own).encode())
        everyone = _published(name, size, forming)
        for peer, (where, *_) in enumerate(everyone):
            hosts.setdefault(where, []).append(peer)
        if len(hosts) > 1:
            seats = list(hosts.values()), list(hosts).index(node)
            return _joined(name, rank, seats, everyone, listener, forming)
    except BaseException:
        listener.close()
        raise
    listener.close()
    within, later, _ = forming.terms
    return SharedMemoryGroup(name, rank, size, within, later=later, ended=forming.ended)


def _joined(
    name: str,
    rank: int,
    seats: tuple[list[list[int]], int],
    everyone: Sequence[Any],
    listener: socket.socket,
    forming: Forming,
) -> HostsGroup:
    """Make the group of ranks that sit on several hosts; ``seats`` are they, and the number of this one."""
    members, here = seats
    within, later, _ = forming.terms
    local = None
    if len(members[here]) > 1:
        ranks = members[here]
        within_host = f"{name}-{everyone[rank][0]}"
        local = SharedMemoryGroup(
            within_host, ranks.index(rank), len(ranks), within, ranks, later, forming.ended
        )
    addresses = [Address(host, port, bytes.fromhex(key)) for _, host, port, key in everyone]
    transport = None
    if rank == members[here][0]:
        names = [f"host {i} ({named(ranks)})" for i, ranks in enumerate(members)]
        leaders = [addresses[ranks[0]] for ranks in members]
        try:
            transport = InterHostTransport(
                here, leaders, listener, within, local, names, later, forming.ended
            )
        except BaseException:
            if local is not None:
                local.close()
            raise
    else:
        listener.close()
    return HostsGroup(rank, members, local, transport)


def _key(name: str, rank: int) -> str:
    return f"group/{name}/{rank}"


def _published(name: str, size: int, forming: Forming) -> list[Any]:
    """Return what every rank published."""
    within = forming.terms.forming_s
    deadline, entries = Deadline(within), []
    for rank in range(size):
        while (entry := ray_private.get(_key(name, rank))) is None:
            forming.refuse_ended()
            if deadline.over:
                raise CollectiveError(
                    f"group {name}: rank {rank} did not join within {within:g} s "
                    f"(ClusterConfig.start_deadline_s)."
                )
            time.sleep(0.002)
        entries.append(json.loads(entry))
    return entries
