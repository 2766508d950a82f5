"""The two ends of a step channel: the driver's line to one replica, and how that replica answers."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ...executor.cuda.transfers import Arriving
from ...executor.replica.message import KEPT, Message, StepHead
from ...executor.replica.replica import Replica
from ...strategies.errors import CollectiveError
from .doorbell import RINGS, TEXT_ROOM, Doorbell
from .feed_buffer import SharedFeedBuffer
from .frame import (
    SLOTS,
    ChannelClosed,
    Frame,
    Incoming,
    Layout,
    NoMessage,
    Outgoing,
    encode,
    encode_beside,
    head_of,
    read_head,
    send,
)

_MAP = "map"  # the message that tells where a new area is
_POSTED = "posted"
_RUNG = "rung"  # the message that wakes a replica, to look at the memory
SPIN_S = 300e-6  # after a step: what a driver in a loop takes until the next, and no more
_TURNS = 16  # looks at the memory for one at the socket


class Rung:
    """A message that lies in the memory; who sleeps is woken, by a frame that says no more."""

    def __init__(self, bell: Doorbell, number: int, step: int, slot: int, text: bytes) -> None:
        self._bell, self._message = bell, (number, step, slot, text)
        self._waking: Outgoing | None = None

    def push(self, sock: socket.socket) -> bool:
        """Leave the message, wake the replica, and tell whether that is done; it may be repeated."""
        if self._waking is None:
            if not self._bell.ring(*self._message):
                return True
            self._waking = Outgoing(_WAKING)
        return self._waking.push(sock)


_FETCHED = Message("fetched", {})
_NOTHING_FED: Any = (b"", Layout("", {}, [], 0), [])
_WAKING = encode(0, Message(_RUNG, {}))


class ReplicaConnection:
    """The driver's end: frames to and from one replica, and the memory shared with it if it is near."""

    def __init__(self, connection: socket.socket, *, near: bool) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.area: SharedFeedBuffer | None = None
        self._near = near
        self._new = ""  # path of an area that the replica does not have yet
        self._wanted = (0, 0)  # bytes of feeds and of posted values that should have fitted
        self.cramped = False  # whether there is no room for them: see room()
        self._incoming = Incoming()
        self._last: tuple[dict[str, Any], list[Any], bytes] = ({}, [], b"")
        self.spins = False  # whether the replica waits awake for a moment, and the driver may, too

    def frame(
        self, number: int, message: Message, slot: int | None, rings: bool = False
    ) -> list[memoryview] | Rung:
        """Return a message as pieces to send; arrays that are fed are written to the slot if they fit.

        ``rings``: nothing is under way, so that all of it may lie in the memory.
        """
        if slot is None or message.kind != "step" or not self._near:
            return encode(number, message)
        text = self._head(message)
        area = self.area if not self._new else None
        places = area.places(slot, text) if area is not None else None
        if area is None or places is None:
            self._want(read_head(text).offsets()[-1], 0)
            return encode(number, message)
        try:
            area.take(slot)
        except CollectiveError:  # the host is short of shared memory
            return encode(number, message)
        for place, array in zip(places, message.arrays, strict=True):
            place[...] = array
        if rings and RINGS and len(text) <= TEXT_ROOM:
            return Rung(area.bell, number, message.step, slot, text)
        return encode_beside(number, text, message.step, slot)

    def _head(self, message: Message) -> bytes:
        """Return a message's head; steps have the same one over and over."""
        if type(message.head) is StepHead:
            if not message.head.text:
                message.head.text = head_of(message, message.arrays)
            return message.head.text
        shapes: list[Any] = []
        for array in message.arrays:
            shapes += (array.dtype, array.shape)
        if message.head != self._last[0] or shapes != self._last[1]:
            self._last = (dict(message.head), shapes, head_of(message, message.arrays))
        return self._last[2]

    def room(self) -> Message | None:
        """Return the message that makes room for what did not fit; sent when nothing is under way."""
        if self._new:  # an interrupt left it half made
            self.mapped(well=False)
        if not self.cramped:
            return None
        area = self.area
        fed, posted = map(max, self._wanted, (area.fed, area.posted) if area else (0, 0))
        self._new = (
            SharedFeedBuffer.new_path()
        )  # noted before it is there, so that close() finds it
        try:
            new = SharedFeedBuffer.create(self._new, fed, posted)
        except (CollectiveError, OSError):  # no shared memory to be had: the socket does it
            self._near = self.cramped = False
            self._forget_name()
            return None
        self.area = new
        if area is not None:
            area.close()
        return Message(_MAP, {"path": new.segment.path, "fed": new.fed, "posted": new.posted})

    def mapped(self, well: bool) -> None:
        """Forget the name of the new area, which the replica has if all went ``well``; else the area too."""
        self._forget_name()
        if self.area is not None and not well:
            self.area.close()
            self.area = None
        self._want(0, 0)

    def _want(self, fed: int, posted: int) -> None:
        """Note how many bytes a message needed, and whether there is less room than any needed."""
        self._wanted = (max(self._wanted[0], fed), max(self._wanted[1], posted))
        area = self.area
        self.cramped = self._wanted > (0, 0) and (
            area is None or self._wanted[0] > area.fed or self._wanted[1] > area.posted
        )

    def _forget_name(self) -> None:
        if self._new:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._new)
        self._new = ""

    def pull(self, note: Callable[[Frame], None]) -> None:
        """Note the frames that came; after an interrupt the last one may be noted once more."""
        while (frame := self._incoming.pull(self.connection, note=note)) is not None:
            if frame.message.kind == _POSTED and self.area is not None:
                nbytes = sum(a.nbytes + 64 for a in frame.message.arrays) + len(frame.text) + 64
                self._want(0, nbytes)
            if not self._incoming.ahead:
                return

    def posted(self, slot: int, number: int) -> Message | None:
        """Return what the replica left in the area for a message."""
        post = self.area.read_posted(slot, number) if self.area is not None else None
        if post is None:
            return None
        layout, arrays = post
        return Message(layout.kind, layout.head, arrays)

    def answered(self, number: int) -> tuple[Message | None, Message] | None:
        """Return what was posted for a message, and the answer, if it was answered in the memory."""
        if self.area is None or (answer := self.area.bell.answer(number)) is None:
            return None
        slot, self.spins = answer
        return (self.posted(slot, number) if slot >= 0 else None), _FETCHED

    def listen(self, on: bool) -> None:
        """Say whether the driver sleeps until this replica answers, in the memory or not."""
        if self.area is not None:
            self.area.bell.listen(on)

    def close(self) -> None:
        """Close the socket and let go of the memory."""
        self.connection.close()
        self._forget_name()
        if self.area is not None:
            self.area.close()
            self.area = None


class ReplicaServer:
    """The replica's end: takes messages from the socket, or from it and the area, and answers.

    ``spins``: tells whether the replica has a processor to itself, so that it may wait awake for a moment.
    """

    def __init__(
        self, connection: socket.socket, replica: Replica, spins: Callable[[], bool] = lambda: False
    ) -> None:
        self._connection = connection
        self._replica = replica
        self._spins, self._spin = spins, False
        self._area: SharedFeedBuffer | None = None
        self._at: Frame | None = None
        self._incoming = Incoming(reuse=True)  # a replica copies what it keeps
        self._ahead: Frame | None = None  # that came while a GPU was waited for
        self._last: tuple[Any, bytes] = ({}, b"")  # head of what was posted, and its bytes
        self._posted = -1
        self._sent = False  # whether something went by the socket since the message came
        self._fed: list[tuple[bytes, Layout, list[np.ndarray]]] = [_NOTHING_FED] * SLOTS

    def serve(self) -> None:
        """Answer messages until the driver is gone, or has closed the gang."""
        self._replica.post, self._replica.look_ahead = self.post, self._look_ahead
        # An answer that is still on its way from a GPU.
        owed: tuple[Frame, Message, int] | None = None
        with contextlib.suppress(ChannelClosed, OSError):
            while True:
                frame = self._next() if owed is None else self._before(owed[1])
                answer = None
                if frame is not None:
                    self._at, self._posted, self._sent = frame, -1, False
                    answer = frame, self._handle(frame), self._posted
                    self._spin = frame.message.kind == "step" and self._spins()
                if owed is not None:
                    self._answer(*owed)
                owed = answer
                if answer is not None and type(answer[1].arrays) is not Arriving:
                    self._answer(*answer)
                    owed = None
        self._let_go()

    def _look_ahead(self) -> None:
        """Take the next message if it is here, and have its feed copied to the GPU, which works on this one's.

        What this one feeds lies in the area, so that the next one is not read over it.
        """
        if self._ahead is not None or self._at is None or self._at.slot < 0:
            return
        with contextlib.suppress(ChannelClosed, OSError):  # who asks for the next message is told
            self._ahead = self._incoming.pull(self._connection, wait=False)
        frame = self._ahead
        if frame is None or frame.slot < 0 or self._area is None:
            return
        places = self._area.places(frame.slot, frame.text)
        if places is not None:
            with contextlib.suppress(Exception):  # who handles it is told
                self._replica.stage(frame.message._replace(arrays=places, lasting=True))

    def _pull(self, wait: bool) -> Frame | None:
        """Return the next frame of the socket; None if it is not all here, or only wakes this replica."""
        frame, self._ahead = self._ahead, None
        if frame is None:
            frame = self._incoming.pull(self._connection, wait=wait)
        return None if frame is not None and frame.message.kind == _RUNG else frame

    def _before(self, answer: Message) -> Frame | None:
        """Return the next frame if it comes before what an answer consists of."""
        arriving = answer.arrays
        assert isinstance(arriving, Arriving)
        while not arriving.here():
            frame = self._pull(wait=False)
            if frame is not None:
                return frame
            os.sched_yield()
        return None

    def _next(self) -> Frame:
        """Return the next frame; one that comes soon finds a processor that is awake, its caches warm."""
        bell = self._area.bell if self._area is not None else None
        if self._spin:
            until = time.perf_counter() + SPIN_S
            while time.perf_counter() < until:
                frame = self._take() or self._first(self._pull(wait=False))
                if frame is not None:
                    return frame
                for _ in range(_TURNS):
                    os.sched_yield()
                    if bell is not None and bell.rung:
                        break
        while True:
            if bell is not None:
                bell.sleep()
            frame = self._take() or self._pull(wait=True)
            if bell is not None:
                bell.wake()
            frame = self._first(frame)
            if frame is not None:
                return frame

    def _first(self, frame: Frame | None) -> Frame | None:
        """Return what was sent first: the message in the memory, if it was not taken, or one of the socket."""
        if frame is not None and frame.rung:
            return frame
        rung = self._take()
        if rung is not None:
            self._ahead = frame
        return rung or frame

    def _take(self) -> Frame | None:
        """Return the message that was left in the memory, once."""
        if self._area is None or (rung := self._area.bell.take()) is None:
            return None
        number, step, slot, text = rung
        if not 0 <= slot < SLOTS:
            raise NoMessage("a message says that its arrays lie where there is no room for them.")
        known, layout, places = self._fed[slot]
        if text is not known:
            layout = read_head(text)
            places = self._places(slot, text)
            self._fed[slot] = text, layout, places
        message = Message(layout.kind, layout.head, places, step, lasting=True)
        return Frame(number, message, text, slot, -1, rung=True)

    def _places(self, slot: int, text: bytes) -> list[np.ndarray]:
        places = self._area.places(slot, text) if self._area is not None else None
        if places is None:
            raise NoMessage("a message says that its arrays lie where there is no room for them.")
        return places

    def _handle(self, frame: Frame) -> Message:
        if frame.rung or frame.slot < 0:
            if frame.message.kind == _MAP:
                return self._map(frame.message)
            return self._replica.handle(frame.message)
        kind, head, _, step, _ = frame.message
        places = self._places(frame.slot, frame.text)
        return self._replica.handle(Message(kind, head, places, step, lasting=True))

    def _map(self, message: Message) -> Message:
        head = message.head
        try:
            area = SharedFeedBuffer.attach(head["path"], head["fed"], head["posted"])
        except (CollectiveError, OSError, KeyError, TypeError, ValueError, OverflowError) as error:
            return Message("error", {"text": str(error)})
        if self._area is not None:
            self._replica.forget_fed()
        self._let_go()
        self._area, self._fed = area, [_NOTHING_FED] * SLOTS
        if self._replica.runtime is not None:
            self._replica.runtime.pin(area.segment.array)
        return Message("ok", {})

    def _let_go(self) -> None:
        """Close the area; a GPU reads nothing of it any more."""
        if self._area is None:
            return
        runtime = self._replica.runtime
        if runtime is not None:
            runtime.use()
            runtime.synchronize()
            runtime.unpin(self._area.segment.array)
        self._area.close()
        self._area = None

    def post(self, message: Message) -> None:
        """Leave what belongs to the answer where the driver finds it, whatever happens here."""
        assert self._at is not None
        number, slot = self._at.number, self._at.slot
        if slot >= 0 and self._area is not None and message.kind != KEPT:
            if message.head is not self._last[0]:
                self._last = (message.head, head_of(message, message.arrays))
            if self._area.post(slot, number, self._last[1], message.arrays):
                self._posted = slot
                return
        self._sent = True
        send(self._connection, number, message)

    def _answer(self, frame: Frame, answer: Message, posted: int) -> None:
        """Answer a message: in the memory if it lay there, and nothing need be said beyond what was posted."""
        number, bell = frame.number, self._area.bell if self._area is not None else None
        beside = bell if frame.rung and not self._sent and _is_brief(answer) else None
        if beside is not None and not beside.reply(number, posted, self._spin):
            return  # the driver is awake
        try:
            pieces = encode(number, answer, posted)
        except Exception as error:  # of a GPU, too, whose work failed behind the step
            pieces = encode(number, self._replica.failed(error))
        Outgoing(pieces).push(self._connection)


def _is_brief(answer: Message) -> bool:
    """Tell whether an answer says no more than that the steps were done."""
    arrays = answer.arrays
    return answer.kind == "fetched" and type(arrays) is list and not arrays
