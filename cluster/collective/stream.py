"""Stream and Exchange: agree on a collective, then move rows over several connections at once."""

from __future__ import annotations

import os
import select
import socket
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...executor.host.deadline import Deadline
from ...executor.replica.agreement import format_step
from ...strategies.errors import CollectiveAborted, CollectiveError, ProtocolError
from ..primitives.wire import ANNOUNCED_BYTES, COLLECTIVE, HEADER_BYTES, frame_head, read_header
from .combine import plain

FRAME_BYTES = HEADER_BYTES + ANNOUNCED_BYTES  # of what a host came for
_PIECE = 1 << 18  # bytes handed to the kernel at once
_SPIN_S = 100e-6
# Between two looks while other threads need the processor: packets come in one by one.
_NAP_S = 200e-6
_SLICE_S = 0.02  # how often an abort is looked for
_REASON_S = 0.2  # for which the reason may be on its way why a connection ended
_GRACE_S = 0.5  # how long one that disagrees waits to hear what all the others came for

Arrived = Callable[[int, int], None]
"""Called with the peer and the number of its row that is full."""


class Announcement(NamedTuple):
    """What a host came for: two that meet must be equal but for ``nbytes``, which is what follows."""

    crc: int
    sequence: int
    step: int
    nbytes: int
    text: str

    @classmethod
    def of(cls, request: str, sequence: int, step: int, nbytes: int) -> Announcement:
        """Return the announcement of ``nbytes`` bytes that belong to ``request``."""
        return cls(zlib.crc32(request.encode()), sequence, step, nbytes, request)

    def packed(self) -> bytes:
        """Return FRAME_BYTES bytes."""
        text = self.text.encode()[:ANNOUNCED_BYTES].ljust(ANNOUNCED_BYTES, b"\0")
        return frame_head(COLLECTIVE, self.sequence, text, self.crc, self.nbytes, self.step)

    @classmethod
    def unpacked(cls, data: bytes | bytearray) -> Announcement:
        """Read :meth:`packed`.

        Raises:
            ProtocolError: the bytes are something else.
        """
        _, sequence, size, crc, nbytes, step = read_header(data, COLLECTIVE)
        if size != ANNOUNCED_BYTES:
            raise ProtocolError("a host sent bytes that are no message of a collective.")
        text = data[HEADER_BYTES:].rstrip(b"\0").decode(errors="replace")
        return cls(crc, sequence, step, nbytes, text)

    def fits(self, other: Announcement) -> bool:
        """Tell whether both came for the same."""
        return self[:3] == other[:3]

    def __str__(self) -> str:
        return f"{self.text}{format_step(self.step)}, its number {self.sequence}"


class Disagreement(CollectiveError):
    """Parties came for different things; no row was filled."""


class Stream:
    """What is still to be sent to a peer, and to be received from it.

    A row is filled only after ``after(number)`` bytes have been sent to the peer (None: at once).
    """

    def __init__(
        self,
        peer: int,
        connection: socket.socket,
        mine: Announcement,
        out: Sequence[np.ndarray],
        into: Sequence[np.ndarray],
        after: Callable[[int], int] | None = None,
    ) -> None:
        self.peer, self.connection, self._after = peer, connection, after
        self._arrived: Arrived | None = None
        self._open = False
        self._out = [memoryview(mine.packed()), *(_bytes(row) for row in out if row.size)]
        self._position = -FRAME_BYTES
        self._head = bytearray(FRAME_BYTES)
        self._remainder = memoryview(self._head)
        self._into = [_bytes(row) for row in into]
        self.expected = sum(len(view) for view in self._into)
        self.header: Announcement | None = None
        self.block = 0  # the row to be filled next

    def add(self, row: np.ndarray) -> None:
        """Send a row after what is to be sent already."""
        self._out.append(_bytes(row))

    def open(self, arrived: Arrived | None) -> None:
        """Allow rows to be filled; ``arrived`` is called for each that is full, in order."""
        self._open, self._arrived = True, arrived

    @property
    def done(self) -> bool:
        """Whether all is sent and received."""
        return not self._out and self.block == len(self._into)

    @property
    def events(self) -> int:
        """What to wait for; 0: nothing, or only for what others have to do first."""
        mask = select.POLLOUT if self._out else 0
        if self._remainder or (self._open and self.block < len(self._into) and self._ready()):
            mask |= select.POLLIN
        return mask

    def _ready(self) -> bool:
        return self._after is None or self._position >= self._after(self.block)

    def send(self) -> bool:
        """Send what the kernel takes now; returns whether it took any."""
        out = self._out
        if not out:
            return False
        first = out[0][:_PIECE]
        try:
            if len(out) > 1 and len(first) == len(out[0]):  # else the next would cut into it
                count = self.connection.sendmsg([first, out[1][:_PIECE]])
            else:
                count = self.connection.send(first)
        except (BlockingIOError, InterruptedError):
            return False
        self._position += count
        while out:
            piece = min(count, len(out[0]))
            if piece < len(out[0]):
                out[0] = out[0][piece:]
                break
            out.pop(0)
            count -= piece
        return True

    def receive_header(self) -> bool:
        """Take what has come of the header; returns whether any has."""
        count = self._take(self._remainder)
        self._remainder = self._remainder[count:]
        if not len(self._remainder):
            self.header = Announcement.unpacked(self._head)
        return count > 0

    def receive(self) -> bool:
        """Take what has come for the next row; returns whether any has."""
        if self.block == len(self._into) or not self._ready():
            return False
        view = self._into[self.block]
        if len(view):
            count = self._take(view)
            self._into[self.block] = view = view[count:]
            if not count:
                return False
        if not len(view):
            self.block += 1
            if self._arrived is not None:
                self._arrived(self.peer, self.block - 1)
        return True

    def _take(self, view: memoryview) -> int:
        try:
            count = self.connection.recv_into(view)
        except (BlockingIOError, InterruptedError):
            return 0
        if count == 0:
            raise ConnectionError("its connection ended")
        return count


class Exchange:
    """Drives the streams of one collective. ``aborted()`` returns why a host gave up (None: none did).

    ``at_work()`` tells whether other threads of this process have use for the processor.
    """

    def __init__(
        self,
        streams: Mapping[int, Stream],
        names: Mapping[int, str],
        mine: Announcement,
        aborted: Callable[[], str | None],
        within: float,
        at_work: Callable[[], bool],
    ) -> None:
        self.streams, self._at_work = streams, at_work
        self._names, self._mine, self._aborted = names, mine, aborted
        self._deadline = Deadline(within)
        self._moved_at = time.perf_counter()

    def agree(self) -> None:
        """Return when every peer has come for the same thing; nothing but headers is received.

        Raises:
            Disagreement: a peer came for something else.
            CollectiveError: a peer did not come in time.
            CollectiveAborted: a host gave up, or is gone.
        """
        differ = False
        while waiting := [stream for stream in self.streams.values() if stream.header is None]:
            progress = False
            for stream in self.streams.values():
                progress |= self._guarded(stream, stream.send)
                if stream.header is None:
                    progress |= self._guarded(stream, stream.receive_header)
                    if stream.header is not None and not differ and not self._fits(stream):
                        differ = True
                        if self._deadline.left > _GRACE_S:
                            self._deadline = Deadline(_GRACE_S)
            if not progress and self._idle(waiting, differ):
                break
        if differ or not all(self._fits(stream) for stream in self.streams.values()):
            self._disagree()

    def _fits(self, stream: Stream) -> bool:
        theirs = stream.header
        return theirs is None or (theirs.fits(self._mine) and theirs.nbytes == stream.expected)

    def run(self, arrived: Arrived | None = None) -> None:
        """Return when all is sent and received; ``arrived(peer, number)`` is called for each row, in order."""
        for stream in self.streams.values():
            stream.open(arrived)
        while waiting := [stream for stream in self.streams.values() if not stream.done]:
            progress = False
            for stream in waiting:
                progress |= self._guarded(stream, stream.send)
                progress |= self._guarded(stream, stream.receive)
            if not progress:
                self._idle(waiting, False)

    def _guarded(self, stream: Stream, move: Callable[[], bool]) -> bool:
        try:
            if move():
                self._moved_at = time.perf_counter()
                return True
            return False
        except OSError as error:
            patience = Deadline(_REASON_S)
            while (reason := self._aborted()) is None and not patience.over:
                time.sleep(0.002)
            reason = reason or f"{self._names[stream.peer]} is gone: {error}"
            raise CollectiveAborted(f"{self._mine} was aborted: {reason}") from error

    def _idle(self, waiting: Sequence[Stream], differ: bool) -> bool:
        """Wait until something can move; returns True when one that disagrees has waited enough."""
        if self._at_work():
            time.sleep(_NAP_S)
        elif time.perf_counter() - self._moved_at < _SPIN_S:
            os.sched_yield()  # the peer, or the kernel's work for it, may be waiting for this very core
            return False
        poll = select.poll()
        for stream in self.streams.values():
            if events := stream.events:
                poll.register(stream.connection, events)
        poll.poll(_SLICE_S * 1000)
        if self._deadline.over:
            if differ:
                return True
            late, within = [self._names[stream.peer] for stream in waiting], self._deadline.within
            raise CollectiveError(f"{self._mine}: {', '.join(late)} are missing after {within} s.")
        reason = self._aborted()
        if reason is not None and not differ:
            raise CollectiveAborted(f"{self._mine} was aborted: {reason}")
        return False

    def _disagree(self) -> None:
        parties_by_text: dict[str, list[int]] = {}
        for party in sorted(self._names):
            header = self.streams[party].header if party in self.streams else self._mine
            if header is not None:
                parties_by_text.setdefault(str(header), []).append(party)
        sentences = [
            f"{' and '.join(self._names[party] for party in parties)} came for {text}"
            for text, parties in parties_by_text.items()
        ]
        raise Disagreement(
            f"one came for another collective than the others: {'; '.join(sentences)}."
        )


def _bytes(row: np.ndarray) -> memoryview:
    return memoryview(plain(row).view(np.uint8).data)
