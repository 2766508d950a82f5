"""Heartbeats, answered even while a replica computes, with what it computes.

A replica answers on a connection and a thread of their own. One that does not was stopped, is frozen, or is cut
off; that it computes for long is no reason not to answer, unless an op keeps Python's lock all the while, which
the operating system then tells.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ...executor.host.deadline import Stopwatch
from ...executor.replica.message import Message
from ...executor.replica.replica import Replica
from .frame import ChannelClosed, Frame, Incoming, encode, send

_PAUSE_S = 0.5  # between two looks: more is none of the replicas' silence


class Sign(NamedTuple):
    """The last sign of life of a replica: when it was asked, when it answered (-1: not yet), what it was at."""

    asked: float
    answered: float
    doing: Mapping[str, Any]


class HeartbeatMonitor:
    """The driver's end: asks replicas for signs of life, and keeps the last of each."""

    def __init__(self, connections: Mapping[int, socket.socket]) -> None:
        self._connections = dict(connections)
        self._incoming = {rank: Incoming() for rank in connections}
        self._signs: dict[int, Sign] = {}
        self._watch = Stopwatch(_PAUSE_S)
        for connection in connections.values():
            connection.setblocking(False)

    def silent(self, ranks: Iterable[int], longest: float) -> list[int]:
        """Ask these replicas again; return those that left a question unanswered for so many seconds."""
        now, late = self._watch.look(), []
        for rank in ranks:
            sign = self._heard(rank)
            if sign is None or sign.answered >= sign.asked:
                self._ask(rank, now)
            elif now - sign.asked > longest:
                late.append(rank)
        return late

    def doing(self, rank: int) -> Mapping[str, Any]:
        """Return what a replica said last that it was at: op, where it was built, for how many seconds."""
        sign = self._heard(rank)
        return sign.doing if sign is not None else {}

    def abort(self, ranks: Iterable[int], group: str, reason: str) -> None:
        """Have replicas leave a collective group, formed or not, and what they wait for there."""
        for rank in ranks:
            self._send(rank, Message("abort", {"group": group, "reason": reason}))

    def _ask(self, rank: int, now: float) -> None:
        before = self._signs.get(rank)
        self._send(rank, Message("ping", {}))
        # Noted after it was sent: an interrupt in between leaves no question that was never asked.
        self._signs[rank] = Sign(now, -1.0, before.doing if before else {})

    def _send(self, rank: int, message: Message) -> None:
        with contextlib.suppress(OSError):  # it is gone, or takes nothing in: silence tells
            self._connections[rank].sendmsg(encode(0, message))

    def _heard(self, rank: int) -> Sign | None:
        def note(frame: Frame) -> None:
            sign = self._signs.get(rank)
            asked = sign.asked if sign else 0.0
            self._signs[rank] = Sign(asked, self._watch.look(), frame.message.head)

        with contextlib.suppress(ChannelClosed):
            while self._incoming[rank].pull(self._connections[rank], note=note) is not None:
                pass
        return self._signs.get(rank)

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()


class HeartbeatServer(threading.Thread):
    """The replica's end: answers while the replica computes."""

    def __init__(
        self, connection: socket.socket, replica: Replica, abort: Callable[[str, str], None]
    ) -> None:
        super().__init__(name="rowlock-watch", daemon=True)
        self._connection, self._replica, self._abort = connection, replica, abort

    def run(self) -> None:
        incoming = Incoming(reuse=True)
        with contextlib.suppress(ChannelClosed, OSError):
            while (frame := incoming.pull(self._connection)) is not None:
                if frame.message.kind == "abort":
                    head = frame.message.head
                    self._abort(str(head.get("group", "")), str(head.get("reason", "")))
                else:
                    send(self._connection, frame.number, Message("pong", self._replica.doing()))

    def close(self) -> None:
        """End the thread."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self.join(1.0)
        self._connection.close()
