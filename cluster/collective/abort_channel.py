"""Aborts between hosts: a connection of their own, and a thread that listens to it while others compute."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Mapping

from ...strategies.errors import ProtocolError
from ..primitives.wire import ABORT, FAREWELL, HEADER_BYTES, REASON_BYTES, frame_head, read_header

_LOOK_S = 0.05  # how often an abort on the own host is looked for
_SEND_S = 0.2


class AbortChannel:
    """Tells the other hosts when this one gives up, and this one when another does or is gone.

    ``here()`` returns why a rank of this host gave up (None: none did). ``heard(reason)`` is called once, from
    the thread, when another host gives up, or its connection ends without a farewell.
    """

    def __init__(
        self,
        connections: Mapping[int, socket.socket],
        names: Mapping[int, str],
        here: Callable[[], str | None],
        heard: Callable[[str], None],
    ) -> None:
        self._connections = dict(connections)
        self._names, self._here, self._heard = names, here, heard
        self._sending = threading.Lock()
        self._has_sent = self._closed = False
        self._selector = selectors.DefaultSelector()
        for peer, connection in self._connections.items():
            connection.settimeout(_SEND_S)
            self._selector.register(connection, selectors.EVENT_READ, peer)
        self._thread = threading.Thread(target=self._watch, name="rowlock-aborts", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._closed:
            for key, _ in self._selector.select(_LOOK_S):
                self._listen(key.data)
            if not self._has_sent and not self._closed and (reason := self._here()) is not None:
                self.broadcast(reason)

    def _listen(self, peer: int) -> None:
        connection, reason = self._connections[peer], None
        try:
            head = connection.recv(HEADER_BYTES, socket.MSG_WAITALL)
            if len(head) < HEADER_BYTES:
                reason = "its connection ended"
            else:
                kind, _, nbytes, *_ = read_header(head, ABORT, FAREWELL)
                text = connection.recv(nbytes, socket.MSG_WAITALL) if nbytes else b""
                if kind == ABORT and not self._closed:
                    self._heard(text.decode(errors="replace"))
                    return
        except (OSError, ProtocolError) as error:
            reason = str(error)
        self._selector.unregister(connection)
        if reason is not None and not self._closed:
            self._heard(f"{self._names[peer]} is gone: {reason}")

    def broadcast(self, reason: str) -> None:
        """Tell every other host, once."""
        with self._sending:
            if not self._has_sent:
                self._has_sent = True
                self._send(ABORT, reason.encode()[:REASON_BYTES])

    def _send(self, kind: bytes, text: bytes = b"") -> None:
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                connection.sendall(frame_head(kind, 0, text))

    def close(self) -> None:
        """Say farewell, so that no host takes this for a loss, and end the thread."""
        self._closed = True
        with self._sending:
            self._send(FAREWELL)
        if threading.current_thread() is not self._thread:
            self._thread.join(5)
        self._selector.close()
        for connection in self._connections.values():
            connection.close()
