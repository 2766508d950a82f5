"""The actor that runs a replica: placed by Ray, spoken to through the step channel."""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import socket
from typing import Any

import numpy as np
import ray

from ..executor.replica import Message, Replica
from ..strategies.errors import RowlockError
from .channel import connect
from .collective.backend import Group, form_group
from .frame import ChannelClosed, Incoming, send


@ray.remote(max_restarts=0, concurrency_groups={"step": 1, "admin": 1})  # type: ignore[call-overload]
class ReplicaActor:
    """Holds one replica. ``serve`` occupies a thread of its own for as long as the driver lives."""

    def __init__(self, rank: int, size: int) -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a CPU place sees no GPU
        self._rank, self._size = rank, size
        self._group: Group | None = None
        self._replica: Replica | None = None

    @ray.method(concurrency_group="admin")
    def describe(self) -> dict[str, Any]:
        """Return who and where this replica is."""
        context = ray.get_runtime_context()
        return {
            "pid": os.getpid(),
            "node": context.get_node_id(),
            "host": ray.util.get_node_ip_address(),
        }

    @ray.method(concurrency_group="step")
    def serve(
        self,
        host: str,
        port: int,
        secret: bytes,
        local_name: str,
        group: str,
        threads: int,
        collective_s: float,
    ) -> None:
        """Join the group, connect to the driver, and answer its messages until it goes away."""
        set_threads(threads)
        if self._size > 1:
            self._group = form_group(group, self._rank, self._size)
        self._replica = replica = Replica(self._rank, self._group, collective_s)
        connection = connect(host, port, secret, self._rank, local_name)
        try:
            answer_all(connection, replica)
        finally:
            connection.close()
            replica.close()

    @ray.method(concurrency_group="admin")
    def abort(self, reason: str) -> None:
        """Release this replica, and its peers, from a collective they wait in."""
        if self._group is not None:
            self._group.abort(reason)


def answer_all(connection: socket.socket, replica: Replica) -> None:
    """Answer messages until the driver is gone, or has closed the gang."""
    incoming = Incoming(reuse=True)  # a replica copies what it keeps
    with contextlib.suppress(ChannelClosed, OSError):
        while True:
            received = incoming.pull(connection)
            assert received is not None, "the connection does not block"
            number, message = received
            answer = replica.handle(message)
            try:
                send(connection, number, answer)
            except (RowlockError, TypeError) as error:  # it could not be encoded: nothing was sent
                head = {
                    "rank": replica.rank,
                    "type": type(error).__name__,
                    "text": f"the answer to {message.kind!r} cannot be sent: {error}",
                    "collateral": False,
                }
                send(connection, number, Message("error", head))


def set_threads(count: int) -> None:
    """Tell the BLAS that NumPy carries how many threads to use; it was loaded before anyone could ask."""
    folder = os.path.join(os.path.dirname(os.path.dirname(np.__file__)), "numpy.libs")
    for path in glob.glob(os.path.join(folder, "*openblas*")):
        library = ctypes.CDLL(path)
        for name in (
            "scipy_openblas_set_num_threads64_",
            "openblas_set_num_threads64_",
            "openblas_set_num_threads",
        ):
            if hasattr(library, name):
                getattr(library, name)(count)
                break
