"""The driver's end of the step channel: one authenticated socket per replica."""

from __future__ import annotations

import contextlib
import hmac
import math
import select
import selectors
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence

from ..executor.replica import Message
from ..strategies.errors import CollectiveError
from .frame import ChannelClosed, Incoming, Outgoing, encode

SECRET_BYTES = 32
_HELLO_BYTES = SECRET_BYTES + 4
_HELLO_S = 10.0
_STRANGERS = 64  # connections that may be saying who they are at one time
_LOOK_S = 0.2
_HAND_OVER_S = 2.0
_WATCH_MS = 500


class Listener:
    """Takes the replicas' connections: at a TCP port, and on this host at a Unix socket, which is faster.

    ``local_name`` is the Unix socket's; it has no file, and is seen on this host (network namespace) only.
    """

    def __init__(self, host: str, secret: bytes, size: int) -> None:
        self._secret = secret
        self._size = size
        self._socket = socket.create_server((host, 0), backlog=size + _STRANGERS)
        self._socket.setblocking(False)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self.local_name = f"\0rowlock-{uuid.uuid4().hex}"
        self._local = socket.socket(socket.AF_UNIX)
        self._local.bind(self.local_name)
        self._local.listen(size + _STRANGERS)
        self._local.setblocking(False)

    def accept_all(self, within: float, check: Callable[[], None]) -> list[socket.socket]:
        """Return one connection per rank; peers that do not know the secret are dropped.

        ``check`` is called now and then and raises if a replica cannot come any more.

        Raises:
            CollectiveError: ranks are missing after ``within`` seconds.
        """
        found: dict[int, socket.socket] = {}
        strangers: dict[socket.socket, _Stranger] = {}
        deadline = time.monotonic() + within
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                selector.register(self._local, selectors.EVENT_READ)
                while len(found) < self._size:
                    check()
                    if time.monotonic() > deadline:
                        missing = sorted(set(range(self._size)) - set(found))
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
        return [found[rank] for rank in range(self._size)]

    def _look(
        self,
        selector: selectors.BaseSelector,
        strangers: dict[socket.socket, _Stranger],
        found: dict[int, socket.socket],
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
                rank = self._recognise(hello)
                if rank is None or rank in found:
                    stranger.connection.close()
                else:
                    found[rank] = prepared(stranger.connection)
        late = [s for s in strangers.values() if time.monotonic() > s.deadline]
        for stranger in late or list(strangers.values())[:-_STRANGERS]:
            selector.unregister(stranger.connection)
            del strangers[stranger.connection]
            stranger.connection.close()

    def _recognise(self, hello: bytes) -> int | None:
        rank = int.from_bytes(hello[SECRET_BYTES:], "little")
        known = hmac.compare_digest(hello[:SECRET_BYTES], self._secret)
        return rank if known and len(hello) == _HELLO_BYTES and rank < self._size else None

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


def connect(host: str, port: int, secret: bytes, rank: int, local_name: str = "") -> socket.socket:
    """Return a replica's connection to its driver, through the Unix socket if that is on this host."""
    connection = _beside(local_name) if local_name else None
    if connection is None:
        connection = socket.create_connection((host, port), timeout=_HELLO_S)
    connection.sendall(secret + rank.to_bytes(4, "little"))
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


class Channels:
    """Sends each replica its message and gathers the answers, whoever is first.

    ``lost(rank)`` makes the error for a replica whose socket ended, ``late(ranks, seconds)`` the one for
    replicas that did not answer in time. ``watch`` is called now and then while nothing comes, and raises if
    a replica will not answer any more.
    """

    def __init__(
        self,
        connections: Sequence[socket.socket],
        lost: Callable[[int], CollectiveError],
        late: Callable[[list[int], float], CollectiveError],
        watch: Callable[[], None] = lambda: None,
    ) -> None:
        self._connections = list(connections)
        self._lost, self._late, self._watch = lost, late, watch
        self._ranks = {c.fileno(): rank for rank, c in enumerate(self._connections)}
        self._incoming = [Incoming() for _ in self._connections]
        self._outgoing: dict[int, Outgoing] = {}
        self._number = 0
        self._answers = select.poll()
        for connection in self._connections:
            connection.setblocking(False)
            self._answers.register(connection, select.POLLIN)

    def exchange(self, messages: Sequence[Message], within: float) -> list[Message]:
        """Return the answers in rank order.

        An interrupt (Ctrl-C) leaves no replica without its message: they finish the step together, and
        the next exchange throws its answers away.

        Raises:
            CollectiveError: a replica is gone or late.
        """
        deadline = time.monotonic() + within
        self._number = number = (self._number + 1) & 0xFFFFFFFF
        different = {id(message): message for message in messages}  # a broadcast is encoded once
        frames = {key: encode(number, message) for key, message in different.items()}
        while self._push():  # what an interrupt left on the way
            if self._turn(deadline) is None:
                raise self._late(sorted(self._outgoing), within)
        self._outgoing = {rank: Outgoing(frames[id(m)]) for rank, m in enumerate(messages)}
        answers: dict[int, Message] = {}
        try:
            while len(answers) < len(messages):
                came = self._turn(deadline)
                if came is None:
                    raise self._late(sorted(set(self._ranks.values()) - set(answers)), within)
                # Any other number answers a step that was given up.
                answers.update((rank, answer) for rank, n, answer in came if n == number)
        except CollectiveError:
            raise
        except BaseException:
            self._hand_over()
            raise
        return [answers[rank] for rank in range(len(messages))]

    def _turn(self, deadline: float) -> list[tuple[int, int, Message]] | None:
        """Send what can be sent, wait, and return what came: (rank, number, message). None: too late."""
        self._push()
        left = max(math.ceil((deadline - time.monotonic()) * 1e3), 0)
        events = self._poller().poll(min(left, _WATCH_MS))
        if not events:
            if time.monotonic() >= deadline:
                return None
            self._watch()
        came = []
        for descriptor, event in events:
            rank = self._ranks[descriptor]
            if event == select.POLLOUT:
                continue
            try:
                came += [(rank, *received) for received in self._pull(rank)]
            except ChannelClosed:
                raise self._lost(rank) from None
        return came

    def _pull(self, rank: int) -> Iterator[tuple[int, Message]]:
        incoming = self._incoming[rank]
        while (received := incoming.pull(self._connections[rank])) is not None:
            yield received
            if not incoming.ahead:
                return

    def _push(self) -> bool:
        """Send what can be sent at once, and tell whether something is left."""
        for rank in list(self._outgoing):
            try:
                if self._outgoing[rank].push(self._connections[rank]):
                    del self._outgoing[rank]
            except OSError:
                raise self._lost(rank) from None
        return bool(self._outgoing)

    def _poller(self) -> select.poll:
        if not self._outgoing:
            return self._answers
        poller = select.poll()  # made anew, so that an interrupt cannot leave it wrong
        for rank, connection in enumerate(self._connections):
            poller.register(
                connection, select.POLLIN | (select.POLLOUT if rank in self._outgoing else 0)
            )
        return poller

    def _hand_over(self) -> None:
        """Deliver what is on its way, so that no replica waits for one that never got the step."""
        deadline = time.monotonic() + _HAND_OVER_S
        with contextlib.suppress(CollectiveError):
            while self._push() and self._turn(deadline) is not None:
                pass

    def close(self) -> None:
        """Close every socket."""
        for connection in self._connections:
            connection.close()
