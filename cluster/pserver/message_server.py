"""The server's end of the wire: takes trainers' connections, hands messages to the service, sends its answers.

A trainer's process has a number of its own choice, some connections that it asks on, each served by a thread,
and one for heartbeats. It is lost once it had neither a connection, nor a heartbeat, for the deadline. Another
process takes its place only if it is gone, or silent.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...executor.host.deadline import Deadline, Stopwatch
from ...executor.replica.message import Message
from ...executor.rpc.answers import refusal_of
from ...executor.rpc.messages import Goodbye, Hello, Refused, Service, parts_of
from ...strategies.endpoints import split_endpoint
from ...strategies.errors import InvalidValue, ProtocolError
from ...strategies.log import log
from ..channel.frame import ChannelClosed, Layout
from ..primitives.doorway import STRANGERS, Claim, Doorway, listen_locally
from ..primitives.shm import Segment
from .buffers import BufferPool
from .codec import Record, framed, pushes_of, record_of
from .connection import CALLS, WATCH, Connection
from .receiver import Places, Receiver
from .segments import Sender

_LOOK_S = 0.1
_PAUSE_S = 1.0  # between two looks: more is none of the trainers' silence
_LAST_ANSWERS_S = 2.0
_CONNECTIONS = 64  # that a trainer's process may have at one time
_SILENCE_S = 2.0  # without a heartbeat, of which a living process sends one each half second
_SAME_PROCESS = 16  # the bits of a caller's number that tell wires of one process apart


@dataclass
class _Caller:
    """A trainer's process: the trainers that it speaks for, its connections, its last sign of life."""

    number: int
    trainers: set[int] = field(default_factory=set)
    connections: set[Connection] = field(default_factory=set)
    heard: float = 0.0  # by the server's clock


def _listen(host: str, endpoint: str) -> list[socket.socket]:
    """Return listening sockets: at a port of ``host``, and at the endpoint if that is here and free."""
    listeners = []
    if endpoint:
        try:
            listeners.append(socket.create_server(split_endpoint(endpoint), backlog=STRANGERS))
        except OSError as error:  # another host's address, or the port is another process's
            log.info("nothing listens at %s itself: %s", endpoint, error)
    if not listeners or listeners[0].getsockname()[0] != host:
        listeners.insert(0, socket.create_server((host, 0), backlog=STRANGERS))
    return listeners


class _Stopped(Exception):
    """The server is closing."""


class MessageServer:
    """Serves from :meth:`start` until :meth:`close`.

    ``answered(record, answer)`` is called before an answer is sent, and returns the step of its sender that
    is surely not forgotten when the server ends (0: none). ``published``: memory in which arrays of answers lie
    that trainers of this host read there.
    """

    def __init__(
        self,
        service: Service,
        host: str,
        secret: bytes,
        generation: int = 0,
        lost_after_s: float = 30.0,
        answered: Callable[[Record, Record], int] = lambda record, answer: 0,
        endpoint: str = "",
        published: Segment | None = None,
    ) -> None:
        self._service, self._generation, self._lost_after = service, generation, lost_after_s
        self._published = published
        self._answered = answered
        self._callers: dict[int, _Caller] = {}
        self._clock = Stopwatch(_PAUSE_S)
        self._lock = threading.Lock()
        self._buffers = BufferPool()
        self._closed = False
        self._busy = 0  # messages that are being answered
        self._sockets = _listen(host, endpoint)
        self.port: int = self._sockets[0].getsockname()[1]
        self.local_name, self._local = listen_locally(STRANGERS)
        self._doorway = Doorway((*self._sockets, self._local), secret, self._awaited)
        self._thread = threading.Thread(target=self._attend, name="rowlock-server", daemon=True)

    def start(self) -> None:
        """Take connections from now on."""
        self._thread.start()

    def close(self) -> None:
        """Take no more messages, send the answers that are due, hang up."""
        deadline = Deadline(_LAST_ANSWERS_S)
        while self._busy and not deadline.over:
            time.sleep(0.01)
        self._closed = True
        if self._thread.is_alive():
            self._thread.join(_LAST_ANSWERS_S)
        self._doorway.close()
        for listener in (*self._sockets, self._local):
            listener.close()
        with self._lock:
            connections = [link for caller in self._callers.values() for link in caller.connections]
        for connection in connections:
            connection.close()

    # -- trainers come and go ------------------------------------------------------------------------

    def _awaited(self, claim: Claim) -> bool:
        caller = self._callers.get(claim.caller)
        full = caller is not None and len(caller.connections) >= _CONNECTIONS
        return claim.purpose in (CALLS, WATCH) and claim.epoch == self._generation and not full

    def _attend(self) -> None:
        """Let callers in, and look whether any is lost, until the server closes."""
        while not self._closed:
            for claim, sock in self._doorway.look(_LOOK_S):
                self._let_in(claim, sock)
            self._look_after()

    def _let_in(self, claim: Claim, sock: socket.socket) -> None:
        near = sock.family == socket.AF_UNIX and self._published is not None
        sender = Sender(near=near, published=self._published)
        connection = Connection(sock, Receiver(sock, self._buffers, self._places), sender)
        with self._lock:
            caller = self._callers.setdefault(claim.caller, _Caller(claim.caller))
            caller.connections.add(connection)
            caller.heard = self._clock.seconds
        serve = self._answer_calls if claim.purpose == CALLS else self._answer_heartbeats
        threading.Thread(
            target=self._serve,
            args=(caller, connection, serve),
            name="rowlock-trainer",
            daemon=True,
        ).start()

    def _serve(
        self,
        caller: _Caller,
        connection: Connection,
        serve: Callable[[_Caller, Connection], None],
    ) -> None:
        try:
            with contextlib.suppress(ChannelClosed, _Stopped):
                serve(caller, connection)
        finally:
            with self._lock:
                caller.connections.discard(connection)
            connection.close()

    def _look_after(self) -> None:
        """Tell the service of trainers without a sign of life for too long; forget callers that left."""
        now = self._clock.look()
        with self._lock:
            silent = {
                number: caller
                for number, caller in self._callers.items()
                if now - caller.heard > self._lost_after
            }
            for number in silent:
                del self._callers[number]
        for caller in silent.values():
            is_connected = bool(caller.connections)
            for connection in list(caller.connections):
                connection.close()
            for trainer in sorted(caller.trainers):
                self._lose(trainer, is_connected)

    def _lose(self, trainer: int, is_connected: bool) -> None:
        how = (
            "is frozen, or cut off from the network: it was not heard of"
            if is_connected
            else "ended without exe.close() or fleet.stop_worker(), and did not come again"
        )
        reason = f"trainer {trainer} {how} for {self._lost_after:g} s (ClusterConfig.trainer_deadline_s)."
        log.warning("%s", reason)
        self._service.lost(trainer, reason)

    def _refuse_second(self, caller: _Caller, trainer: int) -> None:
        """Raise if another process that is alive is this trainer: half of what they send would be left out."""
        arrival, deadline = self._clock.seconds, Deadline(_SILENCE_S)
        while not deadline.over:
            with self._lock:
                rivals = [
                    other
                    for other in self._callers.values()
                    if trainer in other.trainers
                    and other.connections
                    and other.number >> _SAME_PROCESS != caller.number >> _SAME_PROCESS
                ]
            if not rivals:
                return
            if any(other.heard > arrival for other in rivals):
                raise InvalidValue(
                    f"two processes are trainer {trainer} of one training. Give each a trainer_id of its own "
                    f"(PADDLE_TRAINER_ID); one that takes another's place begins when that has ended."
                )
            self._go_on()
            time.sleep(_LOOK_S)

    def _note(self, caller: _Caller, record: Record) -> None:
        """Note which trainer a caller speaks for: the process that said hello last."""
        for part in parts_of(record):  # type: ignore[arg-type]  # a trainer sends messages
            if not isinstance(part, (Hello, Goodbye)):
                continue
            with self._lock:
                for other in self._callers.values() if isinstance(part, Hello) else (caller,):
                    other.trainers.discard(part.trainer)
                if isinstance(part, Hello):
                    caller.trainers.add(part.trainer)

    # -- messages ------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._closed:
            raise _Stopped

    def _answer_heartbeats(self, caller: _Caller, connection: Connection) -> None:
        while True:
            number, _ = connection.receive(self._go_on)
            caller.heard = self._clock.seconds
            connection.send(number, Message("pong", {}), self._go_on)

    def _answer_calls(self, caller: _Caller, connection: Connection) -> None:
        while True:
            number, message = connection.receive(self._go_on)
            with self._lock:
                self._busy += 1
            try:
                answer, durable = self._answer(caller, message)
                # Nothing refers to the arrays of the question any more: their memory is used again.
                message = framed(answer)._replace(step=durable)
                connection.send(number, message, self._go_on)
            finally:
                with self._lock:
                    self._busy -= 1

    def _places(self, layout: Layout, lent: Sequence[np.ndarray] | None) -> Places:
        """Return where the service wants the arrays of pushes that are about to be read, or are lent."""
        places: list[np.ndarray | None] = [None] * len(layout.arrays)
        for at, trainer, number, name in pushes_of(layout.kind, layout.head):
            dtype, shape = layout.arrays[at]
            array = None if lent is None else lent[at]
            places[at] = self._service.destination(trainer, number, name, shape, dtype.name, array)
        return places

    def _answer(self, caller: _Caller, message: Message) -> tuple[Record, int]:
        try:
            record = record_of(message)
        except ProtocolError as error:
            return refusal_of(error), 0
        try:
            for part in parts_of(record):  # type: ignore[arg-type]  # a trainer sends messages
                if isinstance(part, Hello):
                    self._refuse_second(caller, part.trainer)
            answer: Record = self._service.handle(record)  # type: ignore[arg-type]  # others it refuses
        except Exception as error:
            return refusal_of(error), 0
        if isinstance(answer, Refused):
            return answer, 0
        self._note(caller, record)
        return answer, self._answered(record, answer)
