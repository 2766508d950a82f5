"""Accept replicas at a driver: each opens one connection for steps, one for heartbeats (``doorway.py``)."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...executor.host.deadline import Deadline
from ...strategies.errors import CollectiveError
from ..primitives.doorway import (
    PATIENCE_S,
    SECRET_BYTES,
    STRANGERS,
    Claim,
    Doorway,
    enter,
    listen_locally,
)

__all__ = ["SECRET_BYTES", "STEPS", "WATCH", "Connections", "Listener", "connect"]

_LOOK_S = 0.2
_AGAIN_S = 0.005
_INSIST_S = 2.0  # a caller that strangers pushed out calls again so long
STEPS, WATCH = 0, 1  # what a connection is for


class Connections(NamedTuple):
    """A replica's connections: one for steps, one that is answered also while a step runs."""

    steps: socket.socket
    watch: socket.socket


class Listener:
    """Takes the connections of replicas, which are named by numbers of the caller's choice.

    They come to a TCP port or, on this host, to the Unix socket ``local_name``, which is faster.

    Raises:
        CollectiveError: no socket can be opened here.
    """

    def __init__(self, host: str, secret: bytes, replicas: Sequence[int]) -> None:
        self._secret = secret
        self._replicas = list(replicas)
        self._connections: dict[tuple[int, int], socket.socket] = {}
        backlog = 2 * len(self._replicas) + STRANGERS
        try:
            self._socket = socket.create_server((host, 0), backlog=backlog)
            self.local_name, self._local = listen_locally(backlog)
        except OSError as error:
            raise CollectiveError(
                f"the driver cannot listen for its replicas at {host}: {error}. It must be an address of this "
                f"host, and the process may need more open files (ulimit -n)."
            ) from error
        self.address: tuple[str, int] = self._socket.getsockname()[:2]

    def accept_all(self, within: float, check: Callable[[], None]) -> dict[int, Connections]:
        """Return the connections of all replicas; callers that do not know the secret are dropped.

        ``check`` is called now and then and raises if a replica cannot come any more.

        Raises:
            CollectiveError: some are missing after ``within`` seconds.
        """
        connections = self._connections
        deadline = Deadline(within)
        doorway = Doorway((self._socket, self._local), self._secret, self._awaited)
        try:
            while len(connections) < 2 * len(self._replicas):
                check()
                if deadline.over:
                    there = {replica for replica, _ in connections}
                    missing = [replica for replica in self._replicas if replica not in there]
                    raise CollectiveError(
                        f"replicas {missing} did not connect within {within:g} s."
                    )
                for claim, connection in doorway.look(_LOOK_S):
                    connections[claim.caller, claim.purpose] = connection
        except BaseException:
            for connection in connections.values():
                connection.close()
            raise
        finally:
            doorway.close()
            self.close()
        return {
            replica: Connections(connections[replica, STEPS], connections[replica, WATCH])
            for replica in self._replicas
        }

    def _awaited(self, claim: Claim) -> bool:
        end = (claim.caller, claim.purpose)
        return (
            claim.caller in self._replicas
            and claim.purpose in (STEPS, WATCH)
            and end not in self._connections
        )

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()
        self._local.close()


def connect(
    host: str, port: int, secret: bytes, replica: int, purpose: int = STEPS, local_name: str = ""
) -> socket.socket:
    """Return a replica's connection to its driver, through the Unix socket if that is on this host.

    Raises:
        Refused: what listens there does not know the secret.
        CollectiveError: the driver does not answer, or does not wait for this replica.
    """
    deadline = Deadline(_INSIST_S)
    while True:
        try:
            return enter(host, port, secret, Claim(replica, purpose), PATIENCE_S, local_name)
        except OSError as error:
            if deadline.over or isinstance(error, ConnectionRefusedError):
                raise CollectiveError(
                    f"the driver at {host}:{port} does not take replica {replica} in: {error}."
                ) from error
        time.sleep(_AGAIN_S)
