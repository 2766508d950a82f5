"""Memory that a trainer and a server of one host share, so that large arrays need not pass through a socket.

A sender has one segment: a frame tells where its arrays lie there, and brings the segment's descriptor when
the other end does not have it yet. A trainer has one for each connection, and writes what it pushes there; it
leaves that alone until it is answered, and hangs up if it is not. A server has one for all trainers: its
parameters live there, and trainers can only read them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...executor.host.memory import available_memory
from ...executor.replica.message import Message
from ...strategies.bounded_dict import BoundedDict
from ..channel.frame import Layout, NoMessage, Outgoing, encode, head_of
from ..primitives.shm import Segment
from ..primitives.wire import STEP, frame_head

BESIDE = 1  # the flag of a frame whose arrays lie in the segment; its body tells where
_LEAST_BYTES = 1 << 16  # of arrays; less is sent as it is
_ALIGN = 64
_LAYOUTS_KEPT = 16
_OFFSET = np.dtype("<i8")


class Sender:
    """Makes frames of messages, and puts their arrays into memory of its own, if the receiver is near.

    Memory that ``published`` has is not copied; a sender that publishes has no other.
    """

    def __init__(self, *, near: bool, published: Segment | None = None) -> None:
        self._near, self._published = near, published
        self._segment = published
        self._is_shared = False  # whether the receiver has the segment

    def frame(self, number: int, message: Message) -> Outgoing:
        """Return a message as what goes into the socket."""
        arrays = [np.asarray(array) for array in message.arrays]
        if not self._near or sum(array.nbytes for array in arrays) <= _LEAST_BYTES:
            return Outgoing(encode(number, message))
        places = self._copied(arrays) if self._published is None else self._found(arrays)
        if places is None:
            return Outgoing(encode(number, message))
        text, body = head_of(message, arrays), np.array(places, _OFFSET).tobytes()
        head = frame_head(STEP, number, text, BESIDE, len(body), message.step)
        assert self._segment is not None
        descriptors = () if self._is_shared else (self._segment.descriptor,)
        self._is_shared = True
        return Outgoing([memoryview(head + body)], descriptors)

    def _found(self, arrays: Sequence[np.ndarray]) -> list[int] | None:
        """Return where arrays lie in the published memory (None: some of them do not)."""
        assert self._published is not None
        begin, size = self._published.address, len(self._published.array)
        places = [int(array.ctypes.data) - begin for array in arrays]
        inside = all(
            0 <= place <= size - array.nbytes and not place % _ALIGN and array.flags.c_contiguous
            for place, array in zip(places, arrays, strict=True)
        )
        return places if inside else None

    def _copied(self, arrays: Sequence[np.ndarray]) -> list[int] | None:
        """Copy arrays into the segment and return where they lie (None: there is no memory for them)."""
        offsets = _offsets([array.nbytes for array in arrays])
        if self._segment is None or offsets[-1] > len(self._segment.array):
            if offsets[-1] > available_memory() // 2:
                return None
            try:
                self._segment, self._is_shared = Segment.unnamed(_rounded(offsets[-1])), False
            except OSError:
                self._near = False
                return None
        for offset, array in zip(offsets, arrays, strict=False):
            place = np.ndarray(array.shape, array.dtype, self._segment.array.data, offset)
            np.copyto(place, array)
        return offsets[:-1]

    def sent(self) -> None:
        """Close the descriptor of memory that the receiver has now, or will never have."""
        if self._segment is not None and self._published is None and self._segment.descriptor >= 0:
            os.close(self._segment.descriptor)
            self._segment.descriptor = -1


class Inbox:
    """The segment of the other end, as frames tell of it."""

    def __init__(self) -> None:
        self._segment: Segment | None = None
        self._views: BoundedDict[tuple[Any, bytes], list[np.ndarray]] = BoundedDict(_LAYOUTS_KEPT)

    def take(self, descriptors: Sequence[int]) -> None:
        """Map the memory that came with a frame, in place of the last.

        Raises:
            NoMessage: what came is none.
        """
        self._views.clear()
        *others, descriptor = descriptors
        for other in others:
            os.close(other)
        try:
            self._segment = Segment.received(descriptor)
        except (OSError, ValueError) as error:
            raise NoMessage(f"what came is no memory of the other end: {error}.") from error

    def arrays(self, layout: Layout, places: bytes) -> list[np.ndarray]:
        """Return the arrays that a head describes and that lie at these places: the same ones each time.

        Raises:
            NoMessage: there is nothing at these places.
        """
        key = (tuple(layout.arrays), places)
        views = self._views.get(key)
        if views is None:
            memory = self._segment.array.data if self._segment is not None else b""
            offsets = np.frombuffer(places, _OFFSET).tolist()
            try:
                if any(offset % _ALIGN for offset in offsets):
                    raise ValueError("an array lies where none can begin")
                views = self._views[key] = [
                    np.ndarray(shape, dtype, memory, offset)
                    for (dtype, shape), offset in zip(layout.arrays, offsets, strict=True)
                ]
            except (ValueError, TypeError) as error:
                raise NoMessage(f"a message cannot be read: {error}.") from error
        return views


def publish(values: dict[str, np.ndarray], names: Sequence[str]) -> Segment | None:
    """Move arrays, one by one, into memory that other processes may read: ``values`` has them there then.

    None: there is no such memory, or nothing to publish.
    """
    if not names:
        return None
    offsets = _offsets([values[name].nbytes for name in names])
    try:
        segment = Segment.unnamed(max(offsets[-1], _ALIGN))
    except OSError:
        return None
    for name, offset in zip(names, offsets, strict=False):
        array = values[name]
        values[name] = np.ndarray(array.shape, array.dtype, segment.array.data, offset)
        np.copyto(values[name], array)
    segment.seal()
    return segment


def places_bytes(layout: Layout) -> int:
    """Return the bytes that tell where the arrays of a message lie."""
    return len(layout.arrays) * _OFFSET.itemsize


def _offsets(sizes: Sequence[int]) -> list[int]:
    """Return where arrays of these sizes begin behind each other, and where the last one ends."""
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + size + -size % _ALIGN)
    return offsets


def _rounded(nbytes: int) -> int:
    """Return room for at least so many bytes, in powers of two so that it rarely has to grow."""
    return 1 << (nbytes - 1).bit_length()
