"""The sockets between hosts: who calls whom, and what stands at the head of a message."""

from __future__ import annotations

import socket
import struct
import time
import zlib
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ...executor.replica.agreement import format_step
from ...strategies.errors import CollectiveAborted, CollectiveError, ProtocolError
from .doorway import SECRET_BYTES, Claim, Doorway, Refused, introduce, prepared

__all__ = ["ALARM", "DATA", "HEADER_BYTES", "SECRET_BYTES", "Address", "Header", "Lines"]

DATA, ALARM = 0, 1  # what a connection is for
_CALL_S = 1.0  # until a peer that is there should have answered
_AGAIN_S = 0.005
_LOOK_S = 0.2
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
            ProtocolError: the bytes are something else.
        """
        mark, crc, sequence, step, nbytes, text = _HEADER.unpack(data)
        if mark != _MARK:
            raise ProtocolError("a host sent bytes that are no message of a collective.")
        return cls(crc, sequence, step, nbytes, text.rstrip(b"\0").decode(errors="replace"))

    def fits(self, other: Header) -> bool:
        """Tell whether both came for the same."""
        return self[:3] == other[:3]

    def __str__(self) -> str:
        return f"{self.text}{format_step(self.step)}, its number {self.sequence}"


class Lines:
    """Makes one party's connections to the others, numbered like ``addresses``; ``index`` is this one.

    The lower number of two is called by the higher, and both prove that they know its secret. Messages call
    a party a ``what``; nobody is waited for any longer once ``aborted()`` tells a reason.
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

        def awaited(claim: Claim) -> bool:
            key = (claim.who, claim.purpose)
            return claim.epoch == epoch and claim.who > self.index and key in keys

        doorway = Doorway([self._listener], self._addresses[self.index].secret, awaited)
        try:
            for key in sorted(keys):
                while key[0] < self.index and key not in made:
                    called = self._call(*key, epoch, deadline)
                    if called is not None:
                        made[key] = called
                    else:
                        self._take(doorway.look(_AGAIN_S), made)
            while missing := set(keys) - set(made):
                self._refuse_aborted()
                came = doorway.look(_LOOK_S)
                self._take(came, made)
                if not came and time.monotonic() > deadline:
                    raise CollectiveError(
                        f"{self._what}s {sorted({peer for peer, _ in missing})} did not connect in time."
                    )
        except BaseException:
            for connection in made.values():
                connection.close()
            raise
        finally:
            doorway.close()
        return made

    @staticmethod
    def _take(
        came: Sequence[tuple[Claim, socket.socket]], made: dict[tuple[int, int], socket.socket]
    ) -> None:
        """Note who called. One that calls again did not hear that it was let in."""
        for claim, connection in came:
            key = (claim.who, claim.purpose)
            if key in made:
                made[key].close()
            made[key] = connection

    def _call(self, peer: int, purpose: int, epoch: int, deadline: float) -> socket.socket | None:
        """Return a connection to a peer, or None if it takes none now: it may be in another epoch."""
        host, port, secret = self._addresses[peer]
        why: Exception
        try:
            connection = socket.create_connection((host, port), timeout=_CALL_S)
        except OSError as error:
            why = error
        else:
            try:
                introduce(connection, secret, Claim(self.index, purpose, epoch), _CALL_S)
                return prepared(connection)
            except (OSError, Refused) as error:
                connection.close()
                why = error
            except BaseException:
                connection.close()
                raise
        if time.monotonic() > deadline:
            raise CollectiveError(
                f"{self._what} {peer} ({host}:{port}) did not answer in time: {why}"
            )
        self._refuse_aborted()
        return None
