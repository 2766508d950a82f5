"""How replicas come to their driver: each opens two connections, and says who it is and that it may."""

from __future__ import annotations

import contextlib
import hmac
import selectors
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..strategies.errors import CollectiveError

SECRET_BYTES = 32
_HELLO_BYTES = SECRET_BYTES + 5  # secret, who, what for
_HELLO_S = 10.0
_STRANGERS = 64  # connections that may be saying who they are at one time
_LOOK_S = 0.2
STEPS, WATCH = 0, 1  # what a connection is for


class Connections(NamedTuple):
    """A replica's connections: one for steps, one that is answered also while a step runs."""

    steps: socket.socket
    watch: socket.socket


class Listener:
    """Takes the connections of replicas, who are named by numbers of the caller's choice.

    They come to a TCP port or, on this host, to a Unix socket, which is faster. ``local_name`` is the Unix
    socket's; it has no file, and is seen on this host (network namespace) only.
    """

    def __init__(self, host: str, secret: bytes, who: Sequence[int]) -> None:
        self._secret = secret
        self._who = list(who)
        backlog = 2 * len(self._who) + _STRANGERS
        self._socket = socket.create_server((host, 0), backlog=backlog)
        self._socket.setblocking(False)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self.local_name = f"\0rowlock-{uuid.uuid4().hex}"
        self._local = socket.socket(socket.AF_UNIX)
        self._local.bind(self.local_name)
        self._local.listen(backlog)
        self._local.setblocking(False)

    def accept_all(self, within: float, check: Callable[[], None]) -> dict[int, Connections]:
        """Return everybody's connections; peers that do not know the secret are dropped.

        ``check`` is called now and then and raises if a replica cannot come any more.

        Raises:
            CollectiveError: some are missing after ``within`` seconds.
        """
        found: dict[tuple[int, int], socket.socket] = {}
        strangers: dict[socket.socket, _Stranger] = {}
        deadline = time.monotonic() + within
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                selector.register(self._local, selectors.EVENT_READ)
                while len(found) < 2 * len(self._who):
                    check()
                    if time.monotonic() > deadline:
                        there = {who for who, _ in found}
                        missing = [who for who in self._who if who not in there]
                        raise CollectiveError(
                            f"replicas {missing} did not connect within {within:g} s."
                        )
                    self._look(selector, strangers, found)
        except BaseException:
            for connection in found.values():
                connection.close()
            raise
        finally:
            for connection in strangers:
                connection.close()
            self.close()
        return {who: Connections(found[who, STEPS], found[who, WATCH]) for who in self._who}

    def _look(
        self,
        selector: selectors.BaseSelector,
        strangers: dict[socket.socket, _Stranger],
        found: dict[tuple[int, int], socket.socket],
    ) -> None:
        """Wait a moment; take in who connects, and who says who it is. Nobody can hold up the others."""
        for key, _ in selector.select(_LOOK_S):
            if key.fileobj in (self._socket, self._local):
                with contextlib.suppress(OSError):  # it went away again
                    connection, _ = key.fileobj.accept()  # type: ignore[union-attr]  # a socket
                    connection.setblocking(False)
                    strangers[connection] = _Stranger(connection)
                    selector.register(connection, selectors.EVENT_READ)
                continue
            stranger = strangers[key.fileobj]  # type: ignore[index]  # we registered sockets
            hello = stranger.listen()
            if hello is not None:
                selector.unregister(stranger.connection)
                del strangers[stranger.connection]
                end = self._recognise(hello)
                if end is None or end in found:
                    stranger.connection.close()
                else:
                    found[end] = prepared(stranger.connection)
        late = [s for s in strangers.values() if time.monotonic() > s.deadline]
        for stranger in late or list(strangers.values())[:-_STRANGERS]:
            selector.unregister(stranger.connection)
            del strangers[stranger.connection]
            stranger.connection.close()

    def _recognise(self, hello: bytes) -> tuple[int, int] | None:
        """Return who it is and what for, if it may come."""
        if len(hello) != _HELLO_BYTES or not hmac.compare_digest(
            hello[:SECRET_BYTES], self._secret
        ):
            return None
        who, purpose = int.from_bytes(hello[SECRET_BYTES:-1], "little"), hello[-1]
        return (who, purpose) if who in self._who and purpose in (STEPS, WATCH) else None

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()
        self._local.close()


class _Stranger:
    """A peer that has not said yet who it is."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.deadline = time.monotonic() + _HELLO_S
        self._said = b""

    def listen(self) -> bytes | None:
        """Return what it said once that is all, short if it hung up; None while more may come."""
        try:
            part = self.connection.recv(_HELLO_BYTES - len(self._said))
        except BlockingIOError:
            return None
        except OSError:
            return self._said
        self._said += part
        return self._said if not part or len(self._said) == _HELLO_BYTES else None


def connect(
    host: str, port: int, secret: bytes, who: int, purpose: int = STEPS, local_name: str = ""
) -> socket.socket:
    """Return a replica's connection to its driver, through the Unix socket if that is on this host."""
    connection = _beside(local_name) if local_name else None
    if connection is None:
        connection = socket.create_connection((host, port), timeout=_HELLO_S)
    connection.sendall(secret + who.to_bytes(4, "little") + bytes([purpose]))
    return prepared(connection)


def _beside(name: str) -> socket.socket | None:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(_HELLO_S)
    try:
        made.connect(name)
    except OSError:  # the driver is on another host
        made.close()
        return None
    return made


def prepared(connection: socket.socket) -> socket.socket:
    """Return a connection set up for small messages, without a time limit, that notices a dead host."""
    connection.settimeout(None)
    if connection.family == socket.AF_UNIX:
        return connection
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection
