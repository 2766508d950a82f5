"""Encode messages as frames: a header (``cluster/primitives/wire.py``), a MessagePack head, raw array data.

Nothing is pickled. Head and arrays are padded, so that arrays can be used where they arrived. Arrays may also
lie in memory that both ends share (``feed_buffer.py``): then the body is empty, and the flags say where they
are.

Both directions can be left at any point and taken up again, which a non-blocking socket needs and which
keeps a Ctrl-C from leaving half a message behind: Python may raise KeyboardInterrupt between a system call
and the line that notes how much it moved, but not inside ``list.extend(map(...))``.
"""

from __future__ import annotations

import functools
import math
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgpack
import numpy as np

from ...executor.host.memory import total_memory
from ...executor.replica.message import Message, StepHead
from ...strategies.errors import CollectiveError, InvalidType, ProtocolError
from ...strategies.types import BFLOAT16
from ..primitives.wire import HEADER_BYTES, STEP, frame_head, read_header

_ALIGN = 16  # of which a header's size is a multiple
_LARGEST_ITEM = 1 << 20  # bytes of an element (a text)
_LARGEST_COUNT = 1 << 48  # elements of an array
_DIMENSIONS = 32
_NESTED = 64  # lists and maps within each other, in a head
_REMEMBERED = 1 << 14  # bytes of a head up to which what it says is kept
_SMALL = 1 << 14  # bytes of arrays up to which copying is cheaper than not
_ROOM = 1 << 15  # a message up to this size is read by one system call
_PIECES = 512  # system calls take about twice as many at once
_FILES_ROOM = socket.CMSG_SPACE(16)  # for the descriptors of some files
_KEPT = 64 << 20  # a larger buffer is not held between messages
SLOTS = 2  # parts of the memory that both ends share (``feed_buffer.py``)
# Flags: the slot that holds the arrays, the one that holds a post; plus one.
_SLOT, _POSTED_SHIFT = 0xFF, 8
_FLAGS = frozenset(s | p << _POSTED_SHIFT for s in range(SLOTS + 1) for p in range(SLOTS + 1))
_DTYPE = re.compile(r"[<>|=]([biufc]\d{1,2}|[SU]\d{1,7}|[mM]8(\[\d{0,9}[A-Za-z]{1,2}\])?)")


class ChannelClosed(CollectiveError):
    """The other end of a channel is gone, or sent something else than a message."""


class NoMessage(ChannelClosed, ProtocolError):
    """The other end sent something else than a message."""


class Layout(NamedTuple):
    """What a head says: kind, plain data, dtype and shape of each array, and the bytes of all with padding."""

    kind: str
    head: Mapping[str, Any]
    arrays: Sequence[tuple[np.dtype, tuple[int, ...]]]
    nbytes: int

    def offsets(self) -> list[int]:
        """Return where each array begins, and where the last one ends."""
        return _offsets(self.arrays)


def _offsets(arrays: Sequence[tuple[np.dtype, tuple[int, ...]]]) -> list[int]:
    offsets = [0]
    for dtype, shape in arrays:
        nbytes = dtype.itemsize * math.prod(shape)
        offsets.append(offsets[-1] + nbytes + _padding(nbytes))
    return offsets


def head_of(message: Message, arrays: Sequence[np.ndarray]) -> bytes:
    """Return a message's head: kind, plain data, what the arrays are.

    Raises:
        InvalidType: an array holds objects or records.
    """
    if not arrays and not message.head:
        return _bare_head(message.kind)
    described = [[_dtype_name(array.dtype), array.shape] for array in arrays]
    text: bytes = _to_bytes([message.kind, message.head, described])
    return text + b" " * _padding(len(text))


@functools.lru_cache(maxsize=64)
def _dtype_name(dtype: np.dtype) -> str:
    if dtype == BFLOAT16:  # NumPy has no code for it
        return BFLOAT16.name
    if not _DTYPE.fullmatch(dtype.str):
        raise InvalidType(f"an array of {dtype} cannot be sent to or from a replica.")
    return dtype.str


@functools.lru_cache(maxsize=64)
def _bare_head(kind: str) -> bytes:
    text: bytes = _to_bytes([kind, {}, []])
    return text + b" " * _padding(len(text))


def encode(number: int, message: Message, posted: int = -1) -> list[memoryview]:
    """Return a message as pieces to send; ``number`` pairs an answer with its question.

    ``posted`` is the slot of the area where something lies that belongs to it (-1: nothing).

    Raises:
        InvalidType: an array holds objects or records.
    """
    arrays = [np.asarray(array) for array in message.arrays]
    text = head_of(message, arrays)
    flags = (posted + 1) << _POSTED_SHIFT
    if not arrays:
        return [memoryview(frame_head(STEP, number, text, flags, 0, message.step))]
    body = 0
    for array in arrays:
        body += array.nbytes + -array.nbytes % _ALIGN
    pieces: list[Any] = [frame_head(STEP, number, text, flags, body, message.step)]
    for array in arrays:
        if body <= _SMALL:
            pieces.append(array.tobytes())
        elif array.nbytes:
            pieces.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        pieces.append(bytes(-array.nbytes % _ALIGN))
    if body <= _SMALL:
        return [memoryview(b"".join(pieces))]
    return [memoryview(piece) for piece in pieces if len(piece)]


def encode_beside(number: int, text: bytes, step: int, slot: int) -> list[memoryview]:
    """Return a message whose arrays lie in a slot of the area; ``text`` is its head."""
    return [memoryview(frame_head(STEP, number, text, slot + 1, 0, step))]


class Outgoing:
    """A message on its way into a socket; ``descriptors``: open files that go with its first byte."""

    def __init__(self, pieces: list[memoryview], descriptors: Sequence[int] = ()) -> None:
        self._pieces = pieces
        self._files: list[Any] = []
        if descriptors:
            files = np.array(descriptors, np.intc).tobytes()
            self._files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)]
        self._total = sum(map(len, pieces))
        self._moved: list[int] = []

    def push(self, sock: socket.socket) -> bool:
        """Write as much as the socket takes, and tell whether that was the rest."""
        moved = self._moved
        while (done := sum(moved)) < self._total:
            moved[:] = [done]
            try:
                rest = self._from(done) if done else self._pieces[:_PIECES]
                moved.extend(map(sock.sendmsg, (rest,), ([] if done else self._files,)))
            except BlockingIOError:
                return False
        return True

    def _from(self, start: int) -> list[memoryview]:
        first = 0
        while start >= len(self._pieces[first]):
            start -= len(self._pieces[first])
            first += 1
        return [self._pieces[first][start:], *self._pieces[first + 1 : first + _PIECES]]


class FileReceiver:
    """A socket whose messages may bring open files along: ``descriptors`` are those that came."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.descriptors: list[int] = []

    def recv_into(self, buffer: memoryview, nbytes: int, flags: int) -> int:
        """Read into a buffer, as a socket does, and note the files that came."""
        flags |= socket.MSG_CMSG_CLOEXEC
        count, ancillary, _, _ = self._socket.recvmsg_into([buffer], _FILES_ROOM, flags)
        for _, kind, files in ancillary:
            if kind == socket.SCM_RIGHTS:
                self.descriptors += np.frombuffer(files, np.intc).tolist()
        return count


class Frame(NamedTuple):
    """What came. ``text`` is its head as bytes.

    ``slot`` of the area holds its arrays, ``posted`` what was posted before it (-1: none does). ``rung``: it
    did not come by the socket.
    """

    number: int
    message: Message
    text: bytes
    slot: int
    posted: int
    rung: bool = False


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
        self._state = (self._room, [0], HEADER_BYTES)

    def pull(
        self,
        sock: socket.socket | FileReceiver,
        wait: bool = True,
        note: Callable[[Frame], None] | None = None,
    ) -> Frame | None:
        """Read what is there; return the next message, or None if it is not all here.

        A blocking socket is waited for, unless ``wait`` is False. ``note`` is called with the message before it
        is left behind, so that an interrupt loses none: it may be called twice with the same one.

        Raises:
            ChannelClosed: the other end closed, or sent no message.
        """
        while self._fill(sock, wait):
            buffer, moved, _ = self._state
            done = sum(moved)
            frame, size = self._read(buffer, done)
            if frame is None:
                self._state = self._make_room(buffer, moved, size)
                continue
            if note is not None:
                note(frame)
            again = (self._room, [0], HEADER_BYTES)
            self._state = again if done == size else self._after(buffer, done, size)
            return frame
        return None

    def _fill(self, sock: socket.socket | FileReceiver, wait: bool) -> bool:
        """Read what is wanted; tell whether all of it is here."""
        buffer, moved, wanted = self._state
        while (done := sum(moved)) < wanted:
            moved[:] = [done]
            rest = buffer[done:]
            # A blocking socket is to fill a large buffer in one call, a small one with what there is.
            flags = socket.MSG_WAITALL if len(rest) > _ROOM else 0
            if not wait:
                flags = socket.MSG_DONTWAIT
            try:
                moved.extend(map(sock.recv_into, (rest,), (0,), (flags,)))
            except BlockingIOError:
                return False
            except OSError as error:
                raise ChannelClosed(f"the step channel broke: {error}.") from error
            if moved[-1] == 0:
                raise ChannelClosed("the step channel was closed by the other end.")
        return True

    def _read(self, buffer: memoryview, done: int) -> tuple[Frame | None, int]:
        """Return a message, of which ``done`` bytes are here, and its size; or None, and the bytes wanted next.

        Raises:
            NoMessage: it is none.
        """
        try:
            _, number, head, flags, body, step = read_header(buffer, STEP)
        except ProtocolError as error:
            raise NoMessage(str(error)) from error
        if flags not in _FLAGS or step < 0:
            raise NoMessage("what arrived on the step channel is no message.")
        size = HEADER_BYTES + head + body
        # What is announced is believed, and given memory, once a head describes just that.
        first = size if size <= _ROOM else HEADER_BYTES + head
        if first > done:
            return None, first
        text = bytes(buffer[HEADER_BYTES : HEADER_BYTES + head])
        layout = read_head(text)
        if body != (0 if flags & _SLOT else layout.nbytes):
            raise NoMessage("what arrived is no message: its head describes another body.")
        if size > done:
            if body > total_memory():
                raise NoMessage(
                    f"a message cannot be read: {body} bytes are more than this host has."
                )
            return None, size
        beside = flags & _SLOT or not layout.arrays
        arrays = [] if beside else self._arrays(buffer[:size], head, layout)
        message = Message(layout.kind, layout.head, arrays, step)
        posted = (flags >> _POSTED_SHIFT & _SLOT) - 1
        return Frame(number, message, text, (flags & _SLOT) - 1, posted), size

    @property
    def ahead(self) -> bool:
        """Whether something of the next message was read already; no event of the socket will tell."""
        return sum(self._state[1]) > 0

    def _arrays(self, buffer: memoryview, head: int, layout: Layout) -> list[np.ndarray]:
        offset, arrays = HEADER_BYTES + head, []
        try:
            for dtype, shape in layout.arrays:
                array: np.ndarray = np.ndarray(shape, dtype, buffer, offset)
                offset += array.nbytes + _padding(array.nbytes)
                # The room is used again; and an owner of a loss must not keep large arrays that came with it.
                apart = not self._reuse and (array.nbytes <= _SMALL or len(buffer) <= _ROOM)
                arrays.append(array.copy() if apart else array)
        except (ValueError, TypeError) as error:
            raise NoMessage(f"a message on the step channel cannot be read: {error}.") from error
        return arrays

    def _make_room(
        self, buffer: memoryview, moved: list[int], total: int
    ) -> tuple[memoryview, list[int], int]:
        """Return the state in which a message of ``total`` bytes fits; its beginning is in ``buffer``."""
        if total <= len(buffer):
            return buffer, moved, total
        large = self._large
        if not self._reuse or total > len(large):
            try:
                large = np.empty(total, np.uint8)
            except MemoryError as error:
                raise NoMessage(f"a message of {total} bytes cannot be read: {error}.") from error
            if self._reuse and total <= _KEPT:
                self._large = large
        done = sum(moved)
        large[:done] = buffer[:done]
        return large[:total].data, [done], total

    def _after(
        self, buffer: memoryview, done: int, total: int
    ) -> tuple[memoryview, list[int], int]:
        """Return the state after a message behind which the beginning of the next came."""
        self._room = memoryview(bytearray(_ROOM))  # the old one is still being read
        self._room[: done - total] = buffer[total:done]
        return self._room, [done - total], HEADER_BYTES


def send(sock: socket.socket, number: int, message: Message) -> None:
    """Write a message to a blocking socket."""
    Outgoing(encode(number, message)).push(sock)


def read_head(text: bytes) -> Layout:
    """Return what a head says.

    Raises:
        NoMessage: it is none.
    """
    return _remembered(text) if len(text) <= _REMEMBERED else _read_head(text)


def _read_head(text: bytes) -> Layout:
    try:
        reader = msgpack.Unpacker(strict_map_key=False, max_buffer_size=len(text))
        reader.feed(text)
        # First without making anything: a list that says it is long must be, or memory is taken for it.
        reader.skip()
        if text[reader.tell() :].strip():
            raise ValueError("something stands behind it")
        kind, head, described = msgpack.unpackb(text[: reader.tell()], strict_map_key=False)
        if not isinstance(kind, str) or not isinstance(head, dict):
            raise ValueError("it does not say what it is")
        _check_depth(head)
        head = StepHead(head) if kind == "step" else head
        arrays = [_described(*array) for array in described]
        return Layout(kind, head, arrays, _offsets(arrays)[-1])
    except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as error:
        raise NoMessage(f"a message on the step channel cannot be read: {error}.") from error


# Step after step has the same head, or those of 200 lengths
_remembered = functools.lru_cache(maxsize=256)(_read_head)


def _described(name: object, sizes: object) -> tuple[np.dtype, tuple[int, ...]]:
    """Return the dtype and shape of an array that a head describes.

    Raises:
        ValueError, TypeError: no array of plain elements can be so.
    """
    if not isinstance(name, str):
        raise ValueError("it describes an array without a type")
    if not isinstance(sizes, list):
        raise ValueError("it describes an array without a shape")
    if len(sizes) > _DIMENSIONS:
        raise ValueError("it describes an array of a shape that there is not")
    count = 1
    for size in sizes:
        if type(size) is not int:
            raise ValueError("it describes an array without a shape")
        if size < 0:
            raise ValueError("it describes an array of a shape that there is not")
        count *= size or 1
    if count > _LARGEST_COUNT:
        raise ValueError(f"it describes an array of shape {sizes}")
    return _dtype_of(name), tuple(sizes)


@functools.lru_cache(maxsize=64)
def _dtype_of(name: str) -> np.dtype:
    """Return the dtype of a name.

    Raises:
        ValueError, TypeError: its elements are not plain.
    """
    if name != BFLOAT16.name and not _DTYPE.fullmatch(name):
        raise ValueError("it describes an array of something else than numbers, times or text")
    dtype = BFLOAT16 if name == BFLOAT16.name else np.dtype(name)
    if not 0 < dtype.itemsize <= _LARGEST_ITEM:
        raise ValueError(f"it describes elements of {dtype.itemsize} bytes")
    return dtype


def _check_depth(head: object) -> None:
    """Raise ValueError where lists and maps stand too deep within each other to be worked with."""
    level: list[Any] = [head]
    for _ in range(_NESTED):
        inner: list[Any] = []
        for item in level:
            values = item.values() if isinstance(item, dict) else item
            inner.extend(value for value in values if isinstance(value, (dict, list)))
        if not inner:
            return
        level = inner
    raise ValueError(f"it is nested more than {_NESTED} deep")


def _padding(nbytes: int) -> int:
    return -nbytes % _ALIGN


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot stand in the head of a message")


_to_bytes = msgpack.Packer(default=_plain).pack
