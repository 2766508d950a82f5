"""Our CPU groups as a backend of ``ray.util.collective``: shared memory in a host, sockets between hosts."""

from __future__ import annotations

import json
import secrets
import socket
import time
from typing import Any

import ray
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_put
from ray.util import collective
from ray.util.collective import backend_registry, types
from ray.util.collective.collective_group.base_collective_group import BaseGroup

from ...strategies.errors import CollectiveError, Unsupported
from .group import SharedMemoryGroup
from .hosts import HostsGroup
from .links import SECRET_BYTES, Address, Links

NAME = "ROWLOCK"
_FORMING_S = 60.0
_NAMESPACE = b"rowlock"
_OPS = {
    types.ReduceOp.SUM: "sum",
    types.ReduceOp.PRODUCT: "product",
    types.ReduceOp.MIN: "min",
    types.ReduceOp.MAX: "max",
}


Group = SharedMemoryGroup | HostsGroup


class RowlockBackend(BaseGroup):
    """Replicas on CPUs. ``group`` is what the step path uses; the methods are Ray's interface."""

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        self.group = _form(group_name, rank, world_size)
        self.group.barrier()  # everybody has read what everybody published
        _internal_kv_del(_key(group_name, rank), namespace=_NAMESPACE)

    @classmethod
    def backend(cls) -> str:
        """Name under which the backend is registered."""
        return NAME

    @classmethod
    def check_backend_availability(cls) -> bool:
        """Shared memory and sockets are always there."""
        return True

    def destroy_group(self) -> None:
        """Let go of memory and sockets."""
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
        backend_registry.register_collective_backend(NAME, RowlockBackend)


def form_group(name: str, rank: int, size: int) -> Group:
    """Join the group ``name`` as ``rank``; called inside each actor."""
    register()
    collective.init_collective_group(size, rank, NAME, name)  # type: ignore[arg-type]
    made: Group = collective.get_group_handle(name).group
    return made


def _form(name: str, rank: int, size: int) -> Group:
    """Find out who sits where, through Ray's key-value store, and make the group that fits."""
    address = ray.util.get_node_ip_address()
    listener = socket.create_server((address, 0), backlog=size)
    node = ray.get_runtime_context().get_node_id()
    own = [node, address, listener.getsockname()[1], secrets.token_hex(SECRET_BYTES)]
    _internal_kv_put(_key(name, rank), json.dumps(own).encode(), namespace=_NAMESPACE)
    everyone = [_published(name, peer, time.monotonic() + _FORMING_S) for peer in range(size)]
    hosts: dict[str, list[int]] = {}
    for peer, (where, *_) in enumerate(everyone):
        hosts.setdefault(where, []).append(peer)
    if len(hosts) == 1:
        listener.close()
        return SharedMemoryGroup(name, rank, size)
    members = hosts[node]
    local = None
    if len(members) > 1:
        local = SharedMemoryGroup(f"{name}-{node}", members.index(rank), len(members))
    if rank != members[0]:
        listener.close()
        return HostsGroup(rank, list(hosts.values()), local, None)
    leaders = [everyone[ranks[0]] for ranks in hosts.values()]
    links = Links(
        list(hosts).index(node),
        [Address(host, port, bytes.fromhex(secret)) for _, host, port, secret in leaders],
        listener,
        local.refuse_aborted if local is not None else lambda request: None,
        _FORMING_S,
    )
    return HostsGroup(rank, list(hosts.values()), local, links)


def _key(name: str, rank: int) -> bytes:
    return f"group/{name}/{rank}".encode()


def _published(name: str, rank: int, deadline: float) -> list[Any]:
    while (found := _internal_kv_get(_key(name, rank), namespace=_NAMESPACE)) is None:
        if time.monotonic() > deadline:
            raise CollectiveError(f"group {name}: rank {rank} did not join within {_FORMING_S} s.")
        time.sleep(0.002)
    told: list[Any] = json.loads(found)
    return told
