"""Messages as bytes: a fixed header, a head of JSON, and the raw data of arrays. Nothing is pickled."""

from __future__ import annotations

import json
import math
import socket
import struct
from typing import Any

import numpy as np

from ..executor.replica import Message
from ..strategies.errors import CollectiveError

_HEADER = struct.Struct("<4sIQQ")  # magic, number of the message, bytes of head, bytes of arrays
_MAGIC = b"RLK1"
_LARGEST = 1 << 40


class ChannelClosed(CollectiveError):
    """The other end of a channel is gone."""


def send(sock: socket.socket, number: int, message: Message) -> None:
    """Write a message; ``number`` pairs an answer with its question."""
    arrays = [np.ascontiguousarray(array) for array in message.arrays]
    described = [[array.dtype.str, array.shape] for array in map(np.asarray, message.arrays)]
    head = json.dumps([message.kind, message.head, described], separators=(",", ":")).encode()
    body = sum(array.nbytes for array in arrays)
    parts: list[Any] = [_HEADER.pack(_MAGIC, number, len(head), body) + head]
    parts += [array.reshape(-1).view(np.uint8).data for array in arrays if array.nbytes]
    if body < 1 << 14:
        sock.sendall(b"".join(parts))
        return
    for part in parts:
        sock.sendall(part)


def receive(sock: socket.socket) -> tuple[int, Message]:
    """Read a message and its number.

    Raises:
        ChannelClosed: the other end closed, or sent something else than a message.
    """
    magic, number, head_bytes, body_bytes = _HEADER.unpack(_read(sock, _HEADER.size))
    if magic != _MAGIC or head_bytes > _LARGEST or body_bytes > _LARGEST:
        raise ChannelClosed("what arrived on the step channel is no message.")
    data = _read(sock, head_bytes + body_bytes)
    kind, head, described = json.loads(bytes(memoryview(data)[:head_bytes]))
    arrays, offset = [], head_bytes
    for text, shape in described:
        dtype = np.dtype(text)
        count = math.prod(shape)
        if (
            offset % dtype.itemsize or offset % 8
        ):  # an unaligned view is slow, and a small copy is cheap
            part = np.frombuffer(
                bytes(memoryview(data)[offset : offset + count * dtype.itemsize]), dtype
            )
        else:
            part = np.frombuffer(data, dtype, count, offset)
        arrays.append(part.reshape(shape))
        offset += count * dtype.itemsize
    return number, Message(kind, head, arrays)


def _read(sock: socket.socket, count: int) -> bytearray:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        try:
            got = sock.recv_into(view)
        except ConnectionError as error:
            raise ChannelClosed(f"the step channel broke: {error}.") from error
        if got == 0:
            raise ChannelClosed("the step channel was closed by the other end.")
        view = view[got:]
    return data
