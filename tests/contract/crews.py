"""Replicas in threads of one process, joined by each kind of group, and told messages one by one."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from rowlock.cluster.collective.connector import Address
from rowlock.cluster.collective.group import SharedMemoryGroup
from rowlock.cluster.collective.hosts import HostsGroup
from rowlock.cluster.collective.inter_host import InterHostTransport
from rowlock.cluster.collective.nccl import NcclGroup
from rowlock.cluster.primitives.doorway import SECRET_BYTES
from rowlock.executor.cuda.transfers import Arriving
from rowlock.executor.gang.thread_group import ThreadGroup, ThreadRendezvous
from rowlock.executor.replica.message import Message
from rowlock.executor.replica.replica import Replica
from rowlock.executor.simulated.simulated import SimulatedRuntime

_PATIENCE_S = 200.0
HOSTS = {2: [[0], [1]], 3: [[0, 1], [2]]}


class Crew:
    """Some replicas in lockstep. After a failure the next messages are of a new epoch."""

    def __init__(
        self, size: int, join: Callable[[int], Any], pool: ThreadPoolExecutor, within: float
    ) -> None:
        self.size = size
        self._pool = pool
        self.epoch = 0
        groups = list(pool.map(join, range(size)))
        self.replicas = [
            Replica(rank, group, within, getattr(group, "runtime", None))
            for rank, group in enumerate(groups)
        ]

    def tell(self, messages: Mapping[int, Message]) -> dict[int, Message]:
        """Give each rank its message at the same time; return the answers."""
        outgoing = {
            rank: message._replace(head={**message.head, "epoch": self.epoch})
            for rank, message in messages.items()
        }

        def answer(rank: int) -> Message:
            replica = self.replicas[rank]
            return arrived(replica, replica.handle(outgoing[rank]))

        asked = {rank: self._pool.submit(answer, rank) for rank in outgoing}
        return {rank: one.result(_PATIENCE_S) for rank, one in asked.items()}

    def all(self, kind: str, arrays: Sequence[np.ndarray] = (), **head: Any) -> dict[int, Message]:
        """Give every rank the same message; none may fail."""
        answers = self.tell({rank: Message(kind, head, arrays) for rank in range(self.size)})
        assert all(a.kind != "error" for a in answers.values()), answers
        return answers

    def held(self) -> list[dict[tuple[int, str], bytes]]:
        """Return the bits of every persistable on every rank."""
        for replica in self.replicas:
            if replica.runtime is not None:
                replica.runtime.synchronize()
        return [
            {
                (number, name): value.tobytes()
                for number, scope in replica.scopes.items()
                for name, value in scope.arrays.items()
            }
            for replica in self.replicas
        ]


def arrived(replica: Replica, answer: Message) -> Message:
    """Return a replica's answer once what it fetched is there, as the process of one sends it."""
    try:
        if isinstance(answer.arrays, Arriving):
            answer.arrays.wait()
    except Exception as error:
        return replica.failed(error)
    return answer


@contextmanager
def crew(kind: str, size: int, within: float) -> Iterator[Crew]:
    """Replicas joined by a group of threads, of one host's shared memory, of several hosts, or of GPUs."""
    kinds = {"threads": _threads, "memory": _memory, "hosts": _hosts, "nccl": _nccl}
    join = kinds[kind](size, within)
    with ThreadPoolExecutor(size) as pool:
        members = Crew(size, join, pool, within)
        try:
            yield members
        finally:
            for replica in members.replicas:
                replica.close()


def _threads(size: int, within: float) -> Callable[[int], Any]:
    meeting = ThreadRendezvous(size)
    return lambda rank: ThreadGroup(rank, meeting)


def _nccl(size: int, within: float) -> Callable[[int], Any]:
    control = _memory(size, within)
    return lambda rank: NcclGroup(control(rank), SimulatedRuntime(rank), within)


def _memory(size: int, within: float) -> Callable[[int], Any]:
    name = f"test-{uuid.uuid4().hex}"
    return lambda rank: SharedMemoryGroup(name, rank, size, within)


def _hosts(size: int, within: float) -> Callable[[int], Any]:
    hosts, name = HOSTS[size], f"test-{uuid.uuid4().hex}"
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in hosts]
    addresses = [
        Address("127.0.0.1", listener.getsockname()[1], bytes([i + 1]) * SECRET_BYTES)
        for i, listener in enumerate(listeners)
    ]
    names = [f"host {i} (ranks {members})" for i, members in enumerate(hosts)]

    def join(rank: int) -> HostsGroup:
        here = next(i for i, members in enumerate(hosts) if rank in members)
        members, local, links = hosts[here], None, None
        if len(members) > 1:
            seat = members.index(rank)
            local = SharedMemoryGroup(f"{name}-{here}", seat, len(members), within, members)
        if rank == members[0]:
            links = InterHostTransport(here, addresses, listeners[here], within, local, names)
        return HostsGroup(rank, hosts, local, links)

    return join
