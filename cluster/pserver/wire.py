"""A trainer's end of the wire: connections to each server, found by endpoint, and made again when they break.

A server that ended and was restored begins at its last snapshot. So what was sent since is kept here, and sent
again before anything new: messages are numbered, and the server leaves out what it has applied.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from math import inf

from ...executor.host.deadline import Deadline
from ...executor.replica.message import Message as Framed
from ...executor.rpc import messages
from ...executor.rpc.answers import accepted
from ...strategies.endpoints import split_endpoint
from ...strategies.errors import CollectiveError, InvalidState, ServerLost
from ...strategies.log import WaitLog, log
from ..channel.frame import ChannelClosed
from .address import Address
from .buffers import BufferPool
from .codec import framed, record_of
from .connection import CALLS, WATCH, Connection, Late, open_socket
from .receiver import Receiver
from .segments import Sender

_AGAIN_S = 0.1
_BEAT_S = 0.5
_LOOKS = 20  # for a sign of life that is due, before a server is called frozen
_CONNECT_S = 5.0
_LOG_BYTES = 2 << 30  # of pushes that a server might have to hear again
_IDLE = 16  # connections to one server that are kept open
_PROCESS = secrets.randbits(16)  # with the process's number: servers know its wires by it


class Directory:
    """Where servers are, by endpoint."""

    def join(self) -> None:
        """Make ready to look, for as long as that takes; again it does nothing."""

    def find(self, endpoint: str, within: float) -> Address | None:
        """Return the address of a server, None while there is none."""
        raise NotImplementedError

    def others(self) -> list[str]:
        """Return the endpoints of the servers that there are."""
        raise NotImplementedError


class SocketWire(messages.Wire):
    """Carries messages to servers on connections of their own, as many as there are threads that call."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._caller = (_PROCESS ^ os.getpid() & 0xFFFF) << 16 | secrets.randbits(16)
        self._links: dict[str, _Link] = {}
        self._lock = threading.Lock()
        self._closed = False

    def call(self, endpoint: str, message: messages.Message, within: float) -> messages.Answer:
        if self._closed:
            raise InvalidState("this process has hung up its connections to parameter servers.")
        return accepted(self._link(endpoint).call(message, within))

    def _link(self, endpoint: str) -> _Link:
        with self._lock:
            if endpoint not in self._links:
                split_endpoint(endpoint)
                self._links[endpoint] = _Link(endpoint, self._directory, self._caller)
            return self._links[endpoint]

    def close(self) -> None:
        self._closed = True
        with self._lock:
            for link in self._links.values():
                link.close()


class _Link:
    """The connection to one server, and each trainer's membership there."""

    def __init__(self, endpoint: str, directory: Directory, caller: int) -> None:
        self._endpoint, self._directory, self._caller = endpoint, directory, caller
        self._address: Address | None = None
        self._last: Address | None = None  # also after the server there ended
        self._finding = threading.RLock()
        self._idle: list[tuple[int, Connection]] = []  # with the generation that they lead to
        self._asking: set[Connection] = set()
        self._buffers = BufferPool()
        self._lock = threading.Lock()
        self._watch: _Watch | None = None
        self._trainers: dict[int, _Membership] = {}
        self._closed = False

    def call(self, message: messages.Message, within: float) -> messages.Answer:
        if self._address is None:
            self._directory.join()
        deadline = Deadline(within)
        membership = self._membership(message)
        if membership is not None:
            membership.keep(message, self._last)
        question = framed(message)
        while True:
            try:
                generation, connection = self._connection(deadline)
                if membership is not None:
                    self._join(membership, generation, connection, deadline)
                answer = self._exchange(generation, connection, question, deadline)
            except Late:
                raise self._silent(within) from None
            except (ChannelClosed, OSError) as error:
                self._check_open()
                if isinstance(message, messages.Goodbye) and self._address is None:
                    return messages.Taken()
                self._forget_address()
                if deadline.over:
                    raise self._unreachable(within, error) from error
                time.sleep(_AGAIN_S)
                continue
            record = record_of(answer)
            if membership is not None:
                membership.answered(message, record, answer.step, generation)
            return record  # type: ignore[return-value]  # a server sends answers

    # -- connections ---------------------------------------------------------------------------------

    def _connection(self, deadline: Deadline) -> tuple[int, Connection]:
        """Return a connection to the server as it is now, which this caller alone uses."""
        address = self._find(deadline)
        with self._lock:
            while self._idle:
                generation, connection = self._idle.pop()
                if generation == address.generation:
                    return generation, connection
                connection.close()
        return address.generation, self._open(address, CALLS, deadline)

    def _open(self, address: Address, purpose: int, deadline: Deadline) -> Connection:
        patience = min(max(deadline.left, _AGAIN_S), _CONNECT_S)
        try:
            sock = open_socket(address, self._caller, purpose, patience)
        except CollectiveError as error:  # another process listens there now
            raise ChannelClosed(str(error)) from error
        near = sock.family == socket.AF_UNIX
        return Connection(sock, Receiver(sock, self._buffers), Sender(near=near))

    def _exchange(
        self, generation: int, connection: Connection, question: Framed, deadline: Deadline
    ) -> Framed:
        """Ask; a connection on which something was left half done is of no further use."""
        with self._lock:
            self._asking.add(connection)
        try:
            self._check_open()
            answer = connection.exchange(question, deadline)
        except BaseException:
            connection.close()
            raise
        finally:
            with self._lock:
                self._asking.discard(connection)
        with self._lock:
            if self._closed or len(self._idle) >= _IDLE:
                connection.close()
            else:
                self._idle.append((generation, connection))
        return answer

    def _find(self, deadline: Deadline) -> Address:
        """Return where the server is; wait for one that is not there yet.

        Raises:
            ServerLost: there is none, or will be none again.
        """
        waiting = WaitLog()
        with self._finding:
            while self._address is None:
                self._check_open()
                address = self._directory.find(self._endpoint, max(deadline.left, _AGAIN_S))
                if address is not None:
                    self._take_up(address, deadline)
                elif self._last is not None and not self._last.restores:
                    raise self._ended()
                elif deadline.over:
                    raise self._absent(deadline.within)
                else:
                    waiting.look(f"the parameter server {self._endpoint}")
                    time.sleep(_AGAIN_S)
            return self._address

    def _take_up(self, address: Address, deadline: Deadline) -> None:
        """Talk to the server at an address from now on."""
        before, self._last = self._last, address
        if before is not None and address.generation != before.generation and not before.restores:
            raise self._ended()
        if self._watch is not None:
            self._watch.close()
        self._watch = _Watch(self._open(address, WATCH, deadline))
        if self._closed:
            self._watch.close()
        self._address = address

    def _forget_address(self) -> None:
        with self._finding:
            self._address = None

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidState(f"the connections to {self._endpoint} were closed meanwhile.")

    def close(self) -> None:
        """Hang up; calls that are under way end with InvalidState."""
        self._closed = True
        if self._watch is not None:
            self._watch.close()
        with self._lock:
            for connection in (*(idle for _, idle in self._idle), *self._asking):
                connection.close()
            self._idle.clear()

    # -- a server that was restored ------------------------------------------------------------------

    def _membership(self, message: messages.Message) -> _Membership | None:
        """Return the membership of the trainer that sends a message; None if no trainer does."""
        trainer = getattr(messages.parts_of(message)[0], "trainer", None)
        if trainer is None:
            return None
        with self._lock:
            return self._trainers.setdefault(trainer, _Membership(self._endpoint))

    def _join(
        self, membership: _Membership, generation: int, connection: Connection, deadline: Deadline
    ) -> None:
        """Repeat to a restored server the messages that it forgot, once for each trainer."""
        if membership.generation in (generation, None):
            return
        with membership.turn:
            if membership.generation == generation:
                return
            try:
                membership.tell_again(lambda question: connection.exchange(question, deadline))
            except BaseException:
                connection.close()
                raise
            membership.generation = generation

    # -- errors --------------------------------------------------------------------------------------

    def _absent(self, within: float) -> ServerLost:
        if self._last is not None:
            return ServerLost(
                f"the parameter server {self._endpoint} ended, and was not restored within {within:g} s. The "
                f"process that ran its program (exe.run) restores it as long as it lives: look there for the "
                f"reason. If that process ended, start all roles anew, and have servers load what "
                f"fluid.io.save_persistables saved (fluid.io.load_persistables, fleet.init_server)."
            )
        others = ", ".join(self._directory.others()) or "none"
        return ServerLost(
            f"there is no parameter server {self._endpoint} after {within:g} s. Servers of this cluster: "
            f"{others}. Run that server's program (exe.run(pserver_program)) under this very endpoint, and in "
            f"the same Ray cluster (RAY_ADDRESS) as its trainers."
        )

    def _unreachable(self, within: float, error: Exception) -> ServerLost:
        return ServerLost(
            f"the parameter server {self._endpoint} is there, but no connection to it held within {within:g} s "
            f"({error}). It is about to end, or the network lets nothing through between its host and this one."
        )

    def _ended(self) -> ServerLost:
        return ServerLost(
            f"the parameter server {self._endpoint} ended, and its values with it: no snapshots were taken. "
            f"Begin anew from what fluid.io.save_persistables saved; with ClusterConfig.server_snapshot_folder "
            f"a server that ends is restored as long as the process that ran its program lives."
        )

    def _silent(self, within: float) -> ServerLost:
        silence = self._watch.listen() if self._watch is not None else None
        if silence is None or silence > 0:
            since = "" if silence is None else f"; the last sign of life is {silence:.1f} s old"
            return ServerLost(
                f"the parameter server {self._endpoint} did not answer within {within:g} s{since}. Its process "
                f"is frozen, or cut off from the network: look at it, or start the servers anew."
            )
        return ServerLost(
            f"the parameter server {self._endpoint} is alive, but did not answer within {within:g} s: it waits "
            f"for other trainers, or computes for longer than ClusterConfig.step_deadline_s."
        )


class _Watch(threading.Thread):
    """Heartbeats to one server, on a connection and a thread of their own."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(name="rowlock-heartbeats", daemon=True)
        self._connection = connection
        self._closed = threading.Event()
        self._ping_at = self._pong_at = time.monotonic()
        self.start()

    def listen(self) -> float:
        """Return the seconds since a sign of life was asked for that does not come; 0 where all came.

        This process, too, may have been stopped until just now: looks are counted, not seconds.
        """
        for _ in range(_LOOKS):
            if self._pong_at >= self._ping_at:
                return 0.0
            time.sleep(_AGAIN_S)
        return time.monotonic() - self._ping_at

    def run(self) -> None:
        with contextlib.suppress(ChannelClosed, OSError, Late):
            while not self._closed.wait(_BEAT_S):
                self._ping_at = time.monotonic()
                self._connection.exchange(Framed("ping", {}), Deadline(inf))
                self._pong_at = time.monotonic()

    def close(self) -> None:
        """Hang up."""
        self._closed.set()
        self._connection.close()


class _Membership:
    """One trainer's messages to a server, as far as the server might have to hear them again."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.generation: int | None = None
        self.turn = threading.RLock()
        self._hello: messages.Hello | None = None
        self._log: deque[messages.Push | messages.Barrier] = deque()
        self._bytes = 0
        self._dropped = 0  # the last step of which something was left out
        self._lock = threading.Lock()

    def keep(self, message: messages.Message, address: Address | None) -> None:
        """Keep what changes the server until a snapshot has it."""
        if address is None or not address.restores:
            return
        for part in messages.parts_of(message):
            self._keep(part)

    def _keep(self, message: messages.Single) -> None:
        if not isinstance(message, (messages.Push, messages.Barrier)):
            return
        if isinstance(message, messages.Push):
            rows = None if message.rows is None else message.rows.copy()
            message = replace(message, values=message.values.copy(), rows=rows)
        with self._lock:
            self._log.append(message)
            self._bytes += _nbytes(message)
            while self._bytes > _LOG_BYTES:
                oldest = self._log.popleft()
                self._bytes -= _nbytes(oldest)
                self._dropped = oldest.number

    def answered(
        self, message: messages.Message, answer: object, durable: int, generation: int
    ) -> None:
        """Note that the server has taken a message."""
        if isinstance(message, messages.Hello) and isinstance(answer, messages.Welcome):
            self._hello, self.generation = message, generation
        with self._lock:
            while self._log and self._log[0].number <= durable:
                self._bytes -= _nbytes(self._log.popleft())

    def tell_again(self, exchange: Callable[[Framed], Framed]) -> None:
        """Join a restored server, and repeat the messages that it does not have.

        Raises:
            ServerLost: it went back further than what is kept here.
            EnforceNotMet: it refuses.
        """
        if self._hello is None:
            return
        welcome = _answered(exchange(framed(self._hello)))
        assert isinstance(welcome, messages.Welcome)
        with self._lock:
            missing = [message for message in self._log if message.number > welcome.number]
            if self._dropped > welcome.number:
                raise ServerLost(
                    f"the parameter server {self._endpoint} was restored from step {welcome.number}, and this "
                    f"trainer kept its gradients from step {self._dropped + 1} on only. Take snapshots more "
                    f"often (ClusterConfig.server_snapshot_steps), and begin anew from the last."
                )
        log.warning(
            "the parameter server %s was restored from step %d; %d message(s) are sent again",
            self._endpoint,
            welcome.number,
            len(missing),
        )
        for message in missing:
            _answered(exchange(framed(message)))


def _answered(message: Framed) -> messages.Answer:
    """Return the answer in a message of a server; raise the error that a refusal names."""
    return accepted(record_of(message))  # type: ignore[arg-type]  # a server sends answers


def _nbytes(message: messages.Push | messages.Barrier) -> int:
    if isinstance(message, messages.Barrier):
        return 0
    return message.values.nbytes + (0 if message.rows is None else message.rows.nbytes)
