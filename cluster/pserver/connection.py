"""One end of a connection between a trainer and a server: a question, then its answer."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable

from ...executor.host.deadline import Deadline
from ...executor.replica.message import Message
from ..channel.frame import ChannelClosed
from ..primitives.doorway import Claim, enter
from .address import Address
from .receiver import Receiver
from .segments import Sender

CALLS, WATCH = 0, 1  # what a connection is for
TICK_S = 0.25  # after which a waiting end looks whether it should go on
_TIMEVAL = struct.pack("@ll", 0, int(TICK_S * 1e6))
_BUFFER_BYTES = 4 << 20  # of a socket, in each direction


class Late(Exception):
    """Nothing came, or could be sent, before the deadline."""


class Connection:
    """Sends and receives whole messages; waits no longer than a tick at a time.

    ``go_on`` is asked at every tick, and ends the waiting by raising. ``sender``: how arrays are sent (default:
    through the socket).
    """

    def __init__(
        self, sock: socket.socket, receiver: Receiver, sender: Sender | None = None
    ) -> None:
        self._socket, self._receiver = sock, receiver
        self._sender = sender if sender is not None else Sender(near=False)
        self._number = 0
        sock.setblocking(True)
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            with contextlib.suppress(OSError):
                if sock.family == socket.AF_UNIX:
                    sock.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)

    def send(self, number: int, message: Message, go_on: Callable[[], None]) -> None:
        """Send a message.

        Raises:
            ChannelClosed: the other end is gone.
        """
        outgoing = self._sender.frame(number, message)
        try:
            while not outgoing.push(self._socket):
                go_on()
        except OSError as error:
            raise ChannelClosed(f"the connection broke: {error}.") from error
        finally:
            self._sender.sent()

    def receive(self, go_on: Callable[[], None]) -> tuple[int, Message]:
        """Return the next message and its number.

        Raises:
            ChannelClosed: the other end is gone, or sent something else.
        """
        return self._receiver.receive(go_on)

    def exchange(self, message: Message, deadline: Deadline) -> Message:
        """Send a question and return its answer.

        Raises:
            ChannelClosed: the other end is gone, or sent something else.
            Late: there is none at the deadline.
        """

        def go_on() -> None:
            if deadline.over:
                raise Late

        self._number = (self._number + 1) & 0xFFFFFFFF
        self.send(self._number, message, go_on)
        number, answer = self.receive(go_on)
        if number != self._number:
            raise ChannelClosed("an answer to another question came.")
        return answer

    def close(self) -> None:
        """Hang up; whoever waits at the connection is told."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def open_socket(address: Address, caller: int, purpose: int, within: float) -> socket.socket:
    """Return a connection to a server, through the Unix socket if that is on this host.

    Raises:
        Refused: what listens there does not know the secret.
        OSError: nothing listens there, or it does not answer in time.
    """
    claim = Claim(caller, purpose, address.generation)
    return enter(address.host, address.port, address.secret, claim, within, address.local_name)
