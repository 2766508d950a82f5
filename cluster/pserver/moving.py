"""Move a server's values into the process that it is to live in, one by one.

The process that ran the startup program opens a connection, proves that it knows the secret, and sends each
array; no second copy of all of them exists anywhere.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

import numpy as np

from ...executor.host.deadline import Deadline
from ...executor.replica.message import Message
from ...strategies.errors import CollectiveError
from ..channel.frame import ChannelClosed
from ..primitives.doorway import Doorway
from .address import Address
from .buffers import BufferPool
from .connection import Connection, Late, open_socket
from .receiver import Receiver

MOVE = 2  # what the connection is for
_LOOK_S = 0.1
_VALUE, _ALL = "value", "all"


class Destination:
    """Listens, from when it is made, for the process that has the values."""

    def __init__(self, host: str, secret: bytes) -> None:
        self._socket = socket.create_server((host, 0))
        port = self._socket.getsockname()[1]
        self.address = Address(host, port, "", secret, 0, False)
        self._doorway = Doorway((self._socket,), secret, lambda claim: claim.purpose == MOVE)

    def take(self, within: float) -> dict[str, np.ndarray]:
        """Return the arrays by name, memory of this process.

        Raises:
            CollectiveError: they did not come in time.
        """
        deadline = Deadline(within)

        def go_on() -> None:
            if deadline.over:
                raise CollectiveError(f"a server's values did not come within {within:g} s.")

        try:
            while not (callers := self._doorway.look(_LOOK_S)):
                go_on()
            sock = callers[0][1]
            connection = Connection(sock, Receiver(sock, BufferPool(kept_bytes=0)))
            try:
                return _take_all(connection, go_on)
            finally:
                connection.close()
        finally:
            self._doorway.close()
            self._socket.close()


def _take_all(connection: Connection, go_on: Callable[[], None]) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    while True:
        number, message = connection.receive(go_on)
        if message.kind == _VALUE:
            arrays[str(message.head["name"])] = message.arrays[0]
        connection.send(number, Message("ok", {}), go_on)
        if message.kind == _ALL:
            return arrays


def move(
    address: Address,
    names: Iterable[str],
    value_of: Callable[[str], np.ndarray],
    let_go: Callable[[str], object],
    within: float,
) -> None:
    """Send values; ``let_go`` is called with the name of each once it is there.

    Raises:
        CollectiveError: the process that is to have them is gone, or takes nothing in.
    """
    deadline = Deadline(within)
    try:
        sock = open_socket(address, 0, MOVE, within)
        connection = Connection(sock, Receiver(sock, BufferPool(kept_bytes=0)))
        try:
            for name in names:
                connection.exchange(Message(_VALUE, {"name": name}, [value_of(name)]), deadline)
                let_go(name)
            connection.exchange(Message(_ALL, {}), deadline)
        finally:
            connection.close()
    except (ChannelClosed, OSError, Late) as error:
        raise CollectiveError(
            f"a server's values cannot be moved to its actor at {address.host}:{address.port}: "
            f"{error or f'not within {within:g} s'}."
        ) from error
