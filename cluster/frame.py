"""Messages as bytes: a fixed header, a head of JSON, and the raw data of arrays. Nothing is pickled.

``magic, number, bytes of head, bytes of body | head | array | array | ...``; head and arrays are padded, so
that arrays can be used where they arrived.

Both directions can be left at any point and taken up again, which a non-blocking socket needs and which
keeps a Ctrl-C from leaving half a message behind: Python may raise KeyboardInterrupt between a system call
and the line that notes how much it moved, but not inside ``list.extend(map(...))``.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

import msgpack  # comes with Ray
import numpy as np

from ..executor.replica import Message
from ..strategies.errors import CollectiveError, InvalidType

_HEADER = struct.Struct("<4sIQQ8x")  # a multiple of _ALIGN
_MAGIC = b"RLK2"
_ALIGN = 16
_LARGEST_HEAD = 1 << 30
_LARGEST_BODY = 1 << 40
_SMALL = 1 << 14  # bytes of arrays up to which copying is cheaper than not
_ROOM = 1 << 15  # a message up to this size is read by one system call
_PIECES = 512  # system calls take about twice as many at once
_KEPT = 64 << 20  # a larger buffer is not held between messages


class ChannelClosed(CollectiveError):
    """The other end of a channel is gone, or sent something else than a message."""


def encode(number: int, message: Message) -> list[memoryview]:
    """Return a message as pieces to send; ``number`` pairs an answer with its question.

    Raises:
        InvalidType: an array holds objects or records.
    """
    arrays = [np.asarray(array) for array in message.arrays]
    for array in arrays:
        if array.dtype.hasobject or array.dtype.names:
            raise InvalidType(f"an array of {array.dtype} cannot be sent to or from a replica.")
    described = [[array.dtype.str, array.shape] for array in arrays]
    text: bytes = _to_bytes([message.kind, message.head, described])
    text += b" " * _padding(len(text))
    body = sum(array.nbytes + _padding(array.nbytes) for array in arrays)
    pieces: list[Any] = [_HEADER.pack(_MAGIC, number, len(text), body) + text]
    for array in arrays:
        if body <= _SMALL:
            pieces.append(array.tobytes())
        elif array.nbytes:
            pieces.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        pieces.append(bytes(_padding(array.nbytes)))
    if body <= _SMALL:
        return [memoryview(b"".join(pieces))]
    return [memoryview(piece) for piece in pieces if len(piece)]


class Outgoing:
    """A message on its way into a socket."""

    def __init__(self, pieces: list[memoryview]) -> None:
        self._pieces = pieces
        self._total = sum(map(len, pieces))
        self._moved: list[int] = []

    def push(self, sock: socket.socket) -> bool:
        """Write as much as the socket takes, and tell whether that was the rest."""
        moved = self._moved
        while (done := sum(moved)) < self._total:
            moved[:] = [done]
            try:
                moved.extend(map(sock.sendmsg, (self._from(done),)))
            except BlockingIOError:
                return False
        return True

    def _from(self, start: int) -> list[memoryview]:
        if start == 0:
            return self._pieces[:_PIECES]
        first = 0
        while start >= len(self._pieces[first]):
            start -= len(self._pieces[first])
            first += 1
        return [self._pieces[first][start:], *self._pieces[first + 1 : first + _PIECES]]


class Incoming:
    """Messages on their way out of a socket.

    With ``reuse`` an array is valid until the next message is asked for; otherwise it is the receiver's own.
    """

    def __init__(self, reuse: bool = False) -> None:
        self._reuse = reuse
        self._large = np.empty(0, np.uint8)
        self._room = memoryview(bytearray(_ROOM))
        # Buffer, bytes that came, bytes wanted. Always assigned at once: an interrupt leaves the state before
        # or the state after, and a message that was not handed out is found again.
        self._state = (self._room, [0], _HEADER.size)

    def pull(self, sock: socket.socket) -> tuple[int, Message] | None:
        """Read what is there; return the next message and its number, or None if it is not all here.

        Raises:
            ChannelClosed: the other end closed, or sent no message.
        """
        while True:
            buffer, moved, wanted = self._state
            if (done := sum(moved)) < wanted:
                moved[:] = [done]
                if not self._read(sock, buffer[done:], moved):
                    return None
                continue
            number, head, total = _read_header(buffer)
            if total > wanted:
                self._state = self._make_room(buffer, moved, total)
                continue
            message = _decode(buffer[:total], head, own=not self._reuse)
            self._state = self._after(buffer, done, total)
            return number, message

    @property
    def ahead(self) -> bool:
        """Whether something of the next message was read already; no event of the socket will tell."""
        return sum(self._state[1]) > 0

    @staticmethod
    def _read(sock: socket.socket, rest: memoryview, moved: list[int]) -> bool:
        # A blocking socket is to fill a large buffer in one call, a small one with what there is.
        flags = socket.MSG_WAITALL if len(rest) > _ROOM else 0
        try:
            moved.extend(map(sock.recv_into, (rest,), (0,), (flags,)))
        except BlockingIOError:
            return False
        except OSError as error:
            raise ChannelClosed(f"the step channel broke: {error}.") from error
        if moved[-1] == 0:
            raise ChannelClosed("the step channel was closed by the other end.")
        return True

    def _make_room(
        self, buffer: memoryview, moved: list[int], total: int
    ) -> tuple[memoryview, list[int], int]:
        """Return the state in which a message of ``total`` bytes fits; its beginning is in ``buffer``."""
        if total <= len(buffer):
            return buffer, moved, total
        large = self._large
        if not self._reuse or total > len(large):
            large = np.empty(total, np.uint8)
            if self._reuse and total <= _KEPT:
                self._large = large
        done = sum(moved)
        large[:done] = buffer[:done]
        return large[:total].data, [done], total

    def _after(
        self, buffer: memoryview, done: int, total: int
    ) -> tuple[memoryview, list[int], int]:
        """Return the state after a message; what came behind it begins the next."""
        if done > total:
            self._room = memoryview(bytearray(_ROOM))  # the old one is still being read
            self._room[: done - total] = buffer[total:done]
        return self._room, [done - total], _HEADER.size


def send(sock: socket.socket, number: int, message: Message) -> None:
    """Write a message to a blocking socket."""
    Outgoing(encode(number, message)).push(sock)


def _read_header(buffer: memoryview) -> tuple[int, int, int]:
    """Return number, bytes of head, and bytes in all."""
    magic, number, head, body = _HEADER.unpack_from(buffer)
    if magic != _MAGIC or not 0 < head <= _LARGEST_HEAD or body > _LARGEST_BODY:
        raise ChannelClosed("what arrived on the step channel is no message.")
    return number, head, _HEADER.size + head + body


def _decode(buffer: memoryview, head_bytes: int, own: bool) -> Message:
    arrays, offset = [], _HEADER.size + head_bytes
    try:
        reader = msgpack.Unpacker(strict_map_key=False)
        reader.feed(buffer[_HEADER.size : offset])
        kind, head, described = reader.unpack()
        for text, shape in described:
            dtype = np.dtype(text)
            if dtype.hasobject:  # its bytes would be taken for pointers
                raise ValueError(f"it describes an array of {dtype}")
            array: np.ndarray = np.ndarray(tuple(shape), dtype, buffer, offset)
            offset += array.nbytes + _padding(array.nbytes)
            # The room is used again; and who keeps a loss must not keep large arrays that came with it.
            apart = own and (array.nbytes <= _SMALL or len(buffer) <= _ROOM)
            arrays.append(array.copy() if apart else array)
    except (ValueError, TypeError) as error:
        raise ChannelClosed(f"a message on the step channel cannot be read: {error}.") from error
    return Message(kind, head, arrays)


def _padding(nbytes: int) -> int:
    return -nbytes % _ALIGN


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot stand in the head of a message")


_to_bytes = msgpack.Packer(default=_plain).pack
