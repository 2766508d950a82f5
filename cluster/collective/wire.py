"""The sockets between hosts: who calls whom, and what stands at the head of a message."""

from __future__ import annotations

import contextlib
import hmac
import socket
import struct
import time
import zlib
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ...executor.agreement import when
from ...strategies.errors import CollectiveAborted, CollectiveError
from ..listener import prepared

SECRET_BYTES = 32
DATA, ALARM = 0, 1  # what a connection is for
_HELLO = struct.Struct("<32sIQI")  # secret of the one called, index of the caller, epoch, what for
_HEADER = struct.Struct(
    "<4sIQqQ224s"
)  # mark, CRC of the text, sequence, step, bytes to follow, text
_MARK = b"RLK2"
HEADER_BYTES = _HEADER.size


class Address(NamedTuple):
    """Where a host (or a rank) listens, and the secret that callers must know."""

    host: str
    port: int
    secret: bytes


class Header(NamedTuple):
    """What a sender came for: two that meet must be equal but for ``nbytes``, which is what follows."""

    crc: int
    sequence: int
    step: int
    nbytes: int
    text: str

    @classmethod
    def of(cls, request: str, sequence: int, step: int, nbytes: int) -> Header:
        """Return the head of a message that belongs to ``request``."""
        return cls(zlib.crc32(request.encode()), sequence, step, nbytes, request)

    def packed(self) -> bytes:
        """Return HEADER_BYTES bytes."""
        text = self.text.encode()[:224]
        return _HEADER.pack(_MARK, self.crc, self.sequence, self.step, self.nbytes, text)

    @classmethod
    def unpacked(cls, data: bytes | bytearray) -> Header:
        """Read :meth:`packed`.

        Raises:
            CollectiveError: the bytes are something else.
        """
        mark, crc, sequence, step, nbytes, text = _HEADER.unpack(data)
        if mark != _MARK:
            raise CollectiveError("a host sent bytes that are no message of a collective.")
        return cls(crc, sequence, step, nbytes, text.rstrip(b"\0").decode(errors="replace"))

    def fits(self, other: Header) -> bool:
        """Tell whether both came for the same."""
        return self[:3] == other[:3]

    def __str__(self) -> str:
        return f"{self.text}{when(self.step)}, its number {self.sequence}"


class Lines:
    """Makes one party's connections to the others, numbered like ``addresses``; ``index`` is this one.

    The lower number of two is called by the higher. Strangers are turned away. Messages call a party a
    ``what``; nobody is waited for any longer once ``aborted()`` tells a reason.
    """

    def __init__(
        self,
        index: int,
        addresses: Sequence[Address],
        listener: socket.socket,
        what: str,
        aborted: Callable[[], str | None],
    ) -> None:
        self.index, self._addresses, self._listener = index, list(addresses), listener
        self._what, self._aborted = what, aborted

    def _refuse_aborted(self) -> None:
        if (reason := self._aborted()) is not None:
            raise CollectiveAborted(f"connecting {self._what}s was aborted: {reason}")

    def connected(
        self, keys: Collection[tuple[int, int]], epoch: int, within: float
    ) -> dict[tuple[int, int], socket.socket]:
        """Return a connection for each (peer, what for).

        Raises:
            CollectiveError: a peer does not answer, or does not call, in time.
        """
        deadline = time.monotonic() + within
        made: dict[tuple[int, int], socket.socket] = {}
        try:
            for key in sorted(keys):
                if key[0] < self.index:
                    made[key] = self._call(*key, epoch, deadline)
            while missing := set(keys) - set(made):
                self._refuse_aborted()
                if (found := self._accept(epoch, set(keys))) is not None:
                    key, connection = found
                    if key in made:
                        made[key].close()
                    made[key] = connection
                elif time.monotonic() > deadline:
                    raise CollectiveError(
                        f"{self._what}s {sorted({peer for peer, _ in missing})} did not connect in time."
                    )
        except BaseException:
            for connection in made.values():
                connection.close()
            raise
        return made

    def _call(self, peer: int, purpose: int, epoch: int, deadline: float) -> socket.socket:
        host, port, secret = self._addresses[peer]
        while True:
            with contextlib.suppress(OSError):
                made = socket.create_connection((host, port), timeout=1.0)
                with contextlib.suppress(OSError):
                    made.sendall(_HELLO.pack(secret, self.index, epoch, purpose))
                    if made.recv(1) == b"+":  # it is in the same epoch, and waits for this
                        made.sendall(b"!")
                        return prepared(made)
                made.close()
            if time.monotonic() > deadline:
                raise CollectiveError(
                    f"{self._what} {peer} ({host}:{port}) did not answer in time."
                )
            self._refuse_aborted()
            time.sleep(0.005)

    def _accept(
        self, epoch: int, known: set[tuple[int, int]]
    ) -> tuple[tuple[int, int], socket.socket] | None:
        """Return who called, or None. One that is known calls again if it missed the answer."""
        self._listener.settimeout(0.2)
        try:
            made, _ = self._listener.accept()
        except TimeoutError:
            return None
        made.settimeout(1.0)
        with contextlib.suppress(OSError):
            hello = made.recv(_HELLO.size, socket.MSG_WAITALL)
            if len(hello) == _HELLO.size:
                secret, peer, theirs, purpose = _HELLO.unpack(hello)
                right = hmac.compare_digest(secret, self._addresses[self.index].secret)
                key = (peer, purpose)
                if right and theirs == epoch and peer > self.index and key in known:
                    made.sendall(b"+")
                    if made.recv(1) == b"!":  # else it gave up waiting, and will call again
                        return key, prepared(made)
        made.close()
        return None
