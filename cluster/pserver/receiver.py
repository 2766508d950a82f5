"""Reads frames from a socket, each array straight into the memory that it is meant for."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence

import numpy as np

from ...executor.host.memory import total_memory
from ...executor.replica.message import Message
from ...strategies.errors import ProtocolError
from ..channel.frame import ChannelClosed, Layout, NoMessage, read_head
from ..primitives.wire import HEADER_BYTES, STEP, read_header
from .buffers import BufferPool
from .segments import BESIDE, Inbox, places_bytes

_ALIGN = 16
_INT = struct.Struct("@i")
_AT_ONCE = 1 << 16  # a body up to this size is read by one system call
_DESCRIPTORS = 2  # room for one more than are ever sent

Places = Sequence[np.ndarray | None]


def _nowhere(layout: Layout, lent: Sequence[np.ndarray] | None) -> Places:
    return [None] * len(layout.arrays)


class Receiver:
    """Takes messages out of a socket that waits for no longer than a tick at a time.

    ``places(layout, lent)`` returns, for each array of a message, the memory that it is to be read into, or
    None for memory of ``buffers``. ``lent``: the arrays themselves, where they lie in memory of the other end.
    """

    def __init__(
        self,
        sock: socket.socket,
        buffers: BufferPool,
        places: Callable[[Layout, Sequence[np.ndarray] | None], Places] = _nowhere,
    ) -> None:
        self._socket, self._buffers, self._places = sock, buffers, places
        self._inbox = Inbox()
        self._header = bytearray(HEADER_BYTES)

    def receive(self, go_on: Callable[[], None]) -> tuple[int, Message]:
        """Return the next message and its number; ``go_on`` is called at every tick, and may raise.

        Raises:
            ChannelClosed: the other end is gone, or sent something else than a message.
        """
        self._begin(go_on)
        try:
            _, number, head_bytes, flags, body, step = read_header(self._header, STEP)
        except ProtocolError as error:
            raise NoMessage(str(error)) from error
        if flags & ~BESIDE or step < 0 or head_bytes + body > total_memory():
            raise NoMessage("what arrived is no message between trainers and servers.")
        text = bytearray(head_bytes)
        self._fill(memoryview(text), go_on)
        layout = read_head(bytes(text))
        if body != (places_bytes(layout) if flags else layout.nbytes):
            raise NoMessage("what arrived is no message: its head describes another body.")
        if flags:
            arrays = self._beside(layout, go_on)
        else:
            arrays = self._arrays(layout, go_on) if body else _empty(layout)
        return number, Message(layout.kind, layout.head, arrays, step)

    def _begin(self, go_on: Callable[[], None]) -> None:
        """Read a header, and take in the descriptor that came with it, if any did."""
        header, room = memoryview(self._header), socket.CMSG_SPACE(_DESCRIPTORS * _INT.size)
        flags = socket.MSG_WAITALL | socket.MSG_CMSG_CLOEXEC
        while True:
            try:
                count, ancillary, _, _ = self._socket.recvmsg_into([header], room, flags)
                break
            except BlockingIOError:
                go_on()
            except OSError as error:
                raise ChannelClosed(f"the connection broke: {error}.") from error
        if not count:
            raise ChannelClosed("the other end hung up.")
        for _, _, files in ancillary:
            self._inbox.take([number for (number,) in _INT.iter_unpack(files)])
        self._fill(header[count:], go_on)

    def _beside(self, layout: Layout, go_on: Callable[[], None]) -> Sequence[np.ndarray]:
        """Return arrays that lie in memory of the other end."""
        places = bytearray(places_bytes(layout))
        self._fill(memoryview(places), go_on)
        arrays = self._inbox.arrays(layout, bytes(places))
        self._places(layout, arrays)
        return arrays

    def _arrays(self, layout: Layout, go_on: Callable[[], None]) -> list[np.ndarray]:
        if layout.nbytes <= _AT_ONCE:
            buffer = np.empty(layout.nbytes, np.uint8)
            self._fill(buffer.data, go_on)
            return _views(layout, buffer.data)
        places = self._places(layout, None)
        if all(place is None for place in places):
            try:
                buffer = self._buffers.take(layout.nbytes)
            except MemoryError as error:
                raise NoMessage(
                    f"a message of {layout.nbytes} bytes cannot be read: {error}."
                ) from error
            self._fill(buffer.data, go_on)
            return _views(layout, buffer.data)
        return [
            self._array(dtype, shape, place, go_on)
            for (dtype, shape), place in zip(layout.arrays, places, strict=True)
        ]

    def _array(
        self,
        dtype: np.dtype,
        shape: tuple[int, ...],
        place: np.ndarray | None,
        go_on: Callable[[], None],
    ) -> np.ndarray:
        """Read one array, and what pads it."""
        nbytes = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        if place is None or place.shape != shape or place.dtype != dtype or not _flat(place):
            place = np.ndarray(shape, dtype, self._buffers.take(max(nbytes, 1)).data)
        if nbytes:
            self._fill(place.reshape(-1).view(np.uint8).data, go_on)
        self._fill(memoryview(bytearray(-nbytes % _ALIGN)), go_on)
        return place

    def _fill(self, rest: memoryview, go_on: Callable[[], None]) -> None:
        while len(rest):
            try:
                count = self._socket.recv_into(rest, 0, socket.MSG_WAITALL)
            except BlockingIOError:
                go_on()
                continue
            except OSError as error:
                raise ChannelClosed(f"the connection broke: {error}.") from error
            if not count:
                raise ChannelClosed("the other end hung up.")
            rest = rest[count:]
            if len(rest):
                go_on()


def _flat(place: np.ndarray) -> bool:
    return place.flags.c_contiguous and place.flags.writeable


def _empty(layout: Layout) -> list[np.ndarray]:
    return [np.empty(shape, dtype) for dtype, shape in layout.arrays]


def _views(layout: Layout, buffer: memoryview) -> list[np.ndarray]:
    offsets = layout.offsets()
    try:
        return [
            np.ndarray(shape, dtype, buffer, offset)
            for offset, (dtype, shape) in zip(offsets, layout.arrays, strict=False)
        ]
    except (ValueError, TypeError) as error:
        raise NoMessage(f"a message cannot be read: {error}.") from error
