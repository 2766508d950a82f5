"""Connections between parties that share a secret: each proves to the other that it knows it.

The caller says what it wants (a claim) and draws a random number; the party called draws another and answers
with a keyed digest of both and the claim, which the caller checks and answers with its own. The secret itself
never travels, a recorded exchange is of no use again, and neither end's proof can stand for the other's.

A doorway hears all callers at once, so that a silent or slow one holds up no other. They are bounded in number
and in time.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import selectors
import socket
import struct
import time
import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...strategies.errors import CollectiveError

SECRET_BYTES = 32
STRANGERS = 64  # callers that may be proving themselves at one time
PATIENCE_S = 10.0  # until a caller has proved itself
_MAGIC = b"RLK4"
_CLAIM = struct.Struct("<IIQ")  # caller, what for, epoch
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_HELLO_BYTES = len(_MAGIC) + _CLAIM.size + _NONCE_BYTES
_CALLER, _CALLED = b"caller", b"called"
_PAUSE_S = 0.01


class Refused(CollectiveError):
    """The other end does not know the secret, or is no party of this kind at all."""


class Claim(NamedTuple):
    """A caller's introduction: its number, the purpose of the connection, and its epoch."""

    caller: int
    purpose: int
    epoch: int = 0

    def packed(self) -> bytes:
        """Return the claim as it travels."""
        return _CLAIM.pack(*self)


def _proof(secret: bytes, role: bytes, hello: bytes, nonce: bytes) -> bytes:
    return hmac.digest(secret, role + hello + nonce, "sha256")


def listen_locally(backlog: int) -> tuple[str, socket.socket]:
    """Return a name and the Unix socket that listens there, without a file, in this network namespace alone."""
    name, listener = f"\0rowlock-{uuid.uuid4().hex}", socket.socket(socket.AF_UNIX)
    listener.bind(name)
    listener.listen(backlog)
    return name, listener


def enter(
    host: str, port: int, secret: bytes, claim: Claim, within: float, local_name: str = ""
) -> socket.socket:
    """Return a connection on which both parties have proved themselves.

    ``local_name``: the listener's Unix socket ("": it has none), used if it is on this host.

    Raises:
        Refused: what listens there does not know the secret.
        OSError: nothing listens there, or it does not answer in time.
    """
    connection = _dial(host, port, local_name, within)
    try:
        introduce(connection, secret, claim, within)
        return prepared(connection)
    except BaseException:
        connection.close()
        raise


def _dial(host: str, port: int, local_name: str, within: float) -> socket.socket:
    if local_name:
        near = socket.socket(socket.AF_UNIX)
        near.settimeout(within)
        try:
            near.connect(local_name)
            return near
        except OSError:  # the listener is on another host
            near.close()
    return socket.create_connection((host, port), timeout=within)


def introduce(connection: socket.socket, secret: bytes, claim: Claim, within: float) -> None:
    """Prove to the party called that this one knows the secret, once that one has.

    Raises:
        Refused: the party called does not know the secret.
        OSError: it hung up, or did not answer in time.
    """
    deadline = time.monotonic() + within
    hello = _MAGIC + claim.packed() + secrets.token_bytes(_NONCE_BYTES)
    connection.settimeout(within)
    connection.sendall(hello)
    answer = b""
    while len(answer) < _NONCE_BYTES + _PROOF_BYTES:
        connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        part = connection.recv(_NONCE_BYTES + _PROOF_BYTES - len(answer))
        if not part:
            raise ConnectionError("the party called hung up")
        answer += part
    nonce, proof = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
    if not hmac.compare_digest(proof, _proof(secret, _CALLED, hello, nonce)):
        raise Refused("what answers there does not know the secret of this gang.")
    connection.sendall(_proof(secret, _CALLER, hello, nonce))


class _Stranger:
    """A caller that has not proved yet that it knows the secret."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.deadline = time.monotonic() + PATIENCE_S
        self.claim: Claim | None = None
        self.expected = b""  # its proof
        self._buffer = b""

    def listen(self) -> bytes | None:
        """Return the bytes once all came, fewer if they are wrong or the caller left; None: more may come."""
        length = _PROOF_BYTES if self.claim is not None else _HELLO_BYTES
        try:
            part = self.connection.recv(length - len(self._buffer))
        except BlockingIOError:
            return None
        except OSError:
            part = b""
        self._buffer += part
        wrong = self.claim is None and not _MAGIC.startswith(self._buffer[: len(_MAGIC)])
        if part and len(self._buffer) < length and not wrong:
            return None
        message, self._buffer = self._buffer, b""
        return message

    def challenge(self, secret: bytes, hello: bytes) -> bool:
        """Prove that this end knows the secret, and ask for the same; tell whether that was possible."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        self.expected = _proof(secret, _CALLER, hello, nonce)
        answer = nonce + _proof(secret, _CALLED, hello, nonce)
        try:
            return self.connection.send(answer) == len(answer)
        except OSError:
            return False


class Doorway:
    """Takes callers at listening sockets, which stay open when it is closed.

    ``awaited(claim)`` tells whether a caller with this claim is waited for now; others are turned away.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        secret: bytes,
        awaited: Callable[[Claim], bool],
    ) -> None:
        self._secret, self._awaited = secret, awaited
        self._strangers: dict[socket.socket, _Stranger] = {}
        self._listeners = list(listeners)
        self._selector = selectors.DefaultSelector()
        for listener in self._listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)

    def look(self, within: float) -> list[tuple[Claim, socket.socket]]:
        """Return the callers that proved themselves; wait ``within`` seconds at most until one moves."""
        callers = []
        for key, _ in self._selector.select(within):
            if key.fileobj in self._listeners:
                self._let_in(key.fileobj)  # a socket
                continue
            stranger = self._strangers.get(key.fileobj)  # type: ignore[call-overload]  # a socket
            message = stranger.listen() if stranger is not None else None
            if stranger is None or message is None:  # it made room for another, or says more later
                continue
            claim = stranger.claim
            if claim is None:
                if not self._greet(stranger, message):
                    self._turn_away(stranger)
            elif hmac.compare_digest(message, stranger.expected) and self._awaited(claim):
                self._forget(stranger)
                callers.append((claim, prepared(stranger.connection)))
            else:
                self._turn_away(stranger)
        now = time.monotonic()
        for stranger in [s for s in self._strangers.values() if now > s.deadline]:
            self._turn_away(stranger)
        return callers

    def _let_in(self, listener: socket.socket) -> None:
        """Take the callers of now; silent ones make room for them first, then the one that is there longest."""
        for _ in range(STRANGERS):
            try:
                connection, _ = listener.accept()
            except (BlockingIOError, ConnectionError, InterruptedError):
                return
            except OSError:  # no descriptors are left; to look again at once would be of no use
                self._make_room()
                time.sleep(_PAUSE_S)
                return
            if len(self._strangers) >= STRANGERS:
                self._make_room()
            connection.setblocking(False)
            self._strangers[connection] = _Stranger(connection)
            self._selector.register(connection, selectors.EVENT_READ)

    def _make_room(self) -> None:
        silent = (s for s in self._strangers.values() if s.claim is None)
        first = next(silent, None) or next(iter(self._strangers.values()), None)
        if first is not None:
            self._turn_away(first)

    def _greet(self, stranger: _Stranger, hello: bytes) -> bool:
        """Answer a caller's introduction; tell whether it may go on."""
        if len(hello) != _HELLO_BYTES or not hello.startswith(_MAGIC):
            return False
        claim = Claim(*_CLAIM.unpack_from(hello, len(_MAGIC)))
        if not self._awaited(claim):
            return False
        stranger.claim = claim
        return stranger.challenge(self._secret, hello)

    def _forget(self, stranger: _Stranger) -> None:
        self._selector.unregister(stranger.connection)
        del self._strangers[stranger.connection]

    def _turn_away(self, stranger: _Stranger) -> None:
        self._forget(stranger)
        with contextlib.suppress(OSError):
            stranger.connection.close()

    def close(self) -> None:
        """Turn away every caller that has not proved itself."""
        for stranger in list(self._strangers.values()):
            self._turn_away(stranger)
        self._selector.close()


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
