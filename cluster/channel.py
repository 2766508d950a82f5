"""The driver's end of the step channel: one authenticated socket per replica."""

from __future__ import annotations

import contextlib
import hmac
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence

from ..executor.replica import Message
from ..strategies.errors import CollectiveError
from .frame import ChannelClosed, receive, send

SECRET_BYTES = 32
_LARGE = 1 << 18  # bytes of feed above which sends run beside each other
_HELLO_S = 10.0


class Listener:
    """Takes the replicas' connections."""

    def __init__(self, host: str, secret: bytes, size: int) -> None:
        self._secret = secret
        self._size = size
        self._socket = socket.create_server((host, 0), backlog=size)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]

    def accept_all(self, within: float, check: Callable[[], None]) -> list[socket.socket]:
        """Return one connection per rank; peers that do not know the secret are dropped.

        ``check`` is called now and then and raises if a replica cannot come any more.

        Raises:
            CollectiveError: ranks are missing after ``within`` seconds.
        """
        found: dict[int, socket.socket] = {}
        deadline = time.monotonic() + within
        self._socket.settimeout(0.2)
        try:
            while len(found) < self._size:
                check()
                if time.monotonic() > deadline:
                    missing = sorted(set(range(self._size)) - set(found))
                    raise CollectiveError(f"replicas {missing} did not connect within {within} s.")
                with contextlib.suppress(TimeoutError):
                    connection, _ = self._socket.accept()
                    self._greet(connection, found)
        except BaseException:
            for connection in found.values():
                connection.close()
            raise
        finally:
            self._socket.close()
        return [found[rank] for rank in range(self._size)]

    def _greet(self, connection: socket.socket, found: dict[int, socket.socket]) -> None:
        connection.settimeout(_HELLO_S)
        try:
            hello = b""
            while len(hello) < SECRET_BYTES + 4:
                part = connection.recv(SECRET_BYTES + 4 - len(hello))
                if not part:
                    raise ConnectionError("closed before it said who it is")
                hello += part
        except OSError:
            connection.close()
            return
        rank = int.from_bytes(hello[SECRET_BYTES:], "little")
        if not hmac.compare_digest(hello[:SECRET_BYTES], self._secret) or rank >= self._size:
            connection.close()
            return
        found[rank] = prepared(connection)


def connect(host: str, port: int, secret: bytes, rank: int) -> socket.socket:
    """Return a replica's connection to its driver."""
    connection = socket.create_connection((host, port), timeout=_HELLO_S)
    connection.sendall(secret + rank.to_bytes(4, "little"))
    return prepared(connection)


def prepared(connection: socket.socket) -> socket.socket:
    """Return a connection set up for small messages, without a time limit, that notices a dead host."""
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection


class Channels:
    """Sends each replica its message and gathers the answers, whoever is first."""

    def __init__(self, connections: Sequence[socket.socket]) -> None:
        self._connections = list(connections)
        self._number = 0
        self._selector = selectors.DefaultSelector()
        for rank, connection in enumerate(connections):
            self._selector.register(connection, selectors.EVENT_READ, rank)

    def exchange(
        self,
        messages: Sequence[Message],
        within: float,
        lost: Callable[[int], CollectiveError],
        late: Callable[[list[int]], None],
    ) -> list[Message]:
        """Return the answers in rank order.

        ``lost(rank)`` makes the error for a replica whose socket ended; ``late(ranks)`` is told who has not
        answered after ``within`` seconds, before CollectiveError is raised.
        """
        self._number = (self._number + 1) & 0xFFFFFFFF
        self._send_all(messages, lost)
        answers: dict[int, Message] = {}
        deadline = time.monotonic() + within
        while len(answers) < len(messages):
            ready = self._selector.select(max(deadline - time.monotonic(), 0))
            for key, _ in ready:
                rank = key.data
                try:
                    number, answer = receive(self._connections[rank])
                except ChannelClosed:
                    raise lost(rank) from None
                if number == self._number:  # anything else answers a step that was given up
                    answers[rank] = answer
            if not ready and time.monotonic() >= deadline:
                missing = sorted(set(range(len(messages))) - set(answers))
                late(missing)
                raise CollectiveError(f"replicas {missing} did not answer within {within} s.")
        return [answers[rank] for rank in range(len(messages))]

    def _send_all(
        self, messages: Sequence[Message], lost: Callable[[int], CollectiveError]
    ) -> None:
        failed: list[int] = []

        def one(rank: int) -> None:
            try:
                send(self._connections[rank], self._number, messages[rank])
            except OSError:
                failed.append(rank)

        if sum(array.nbytes for message in messages for array in message.arrays) < _LARGE:
            for rank in range(len(messages)):
                one(rank)
        else:
            threads = [threading.Thread(target=one, args=(rank,)) for rank in range(len(messages))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if failed:
            raise lost(min(failed))

    def close(self) -> None:
        """Close every socket."""
        self._selector.close()
        for connection in self._connections:
            connection.close()
