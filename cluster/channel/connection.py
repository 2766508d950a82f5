"""The two ends of a step channel: the driver's connection to a replica, and the replica's server."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ...executor.cuda.transfers import Arriving
from ...executor.replica.message import KEPT, Message
from ...executor.replica.replica import Replica
from ...strategies.errors import CollectiveError
from .doorbell import BY_SOCKET
from .feed_buffer import ReplicaFeedBuffer
from .frame import (
    SLOTS,
    ChannelClosed,
    FileReceiver,
    Frame,
    Incoming,
    Layout,
    NoMessage,
    Outgoing,
    encode,
    head_of,
    read_head,
    send,
)
from .near import MAP

SPIN_S = 300e-6  # awake: what a driver in a loop takes until the next step, and no more
TURNS = 16  # looks at the memory for one at the socket


_NOTHING_FED: Any = (b"", Layout("", {}, [], 0), [])


class ReplicaConnection:
    """The driver's end of a connection to one replica. ``near``: it may share memory with the driver."""

    def __init__(self, connection: socket.socket, *, near: bool) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.near = near and connection.family == socket.AF_UNIX  # open files go by no other socket
        self._incoming = Incoming()

    def pull(self, note: Callable[[Frame], None]) -> None:
        """Call ``note`` with each frame that has come; after an interrupt, perhaps twice with the last one."""
        while self._incoming.pull(self.connection, note=note) is not None:
            if not self._incoming.ahead:
                return

    def close(self) -> None:
        """Close the socket."""
        self.connection.close()


class ReplicaServer:
    """The replica's end: takes messages from the socket and from shared memory, and answers them.

    ``own_core`` tells whether the replica has a processor to itself, so that it may spin for a moment while it
    waits. Where it shares memory with the driver, the driver decides that.
    """

    def __init__(
        self,
        connection: socket.socket,
        replica: Replica,
        own_core: Callable[[], bool] = lambda: False,
    ) -> None:
        self._connection = connection
        self._replica = replica
        self._own_core, self._awake = own_core, False  # the latter: for the next message
        self._area: ReplicaFeedBuffer | None = None
        self._sleeper = select.epoll()  # until the socket has something, or the driver rings
        self._descriptor = connection.fileno()
        self._sleeper.register(connection, select.EPOLLIN)
        # Files of events: by which the driver wakes this replica, and this replica the driver.
        self._wakes: list[int] = []
        self._receiver = FileReceiver(connection)
        self._at: Frame | None = None
        self._incoming = Incoming(reuse=True)  # a replica copies what it keeps
        self._ahead: Frame | None = None  # that came before its turn
        self._looked_at: Frame | None = None  # whose feed was copied ahead, where it could be
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
                    self._awake = frame.message.kind == "step" and self._may_be_awake()
                if owed is not None:
                    self._answer(*owed)
                owed = answer
                if answer is not None and type(answer[1].arrays) is not Arriving:
                    self._answer(*answer)
                    owed = None
        self._let_go()
        self._sleeper.close()

    def _look_ahead(self) -> None:
        """Take the next message if it is here, and begin to copy its feeds while the GPU is at a step.

        This is done if the feeds of the last step lie in shared memory, so that reading does not overwrite
        them.
        """
        if self._at is None or self._at.slot < 0:
            return
        if self._ahead is None:
            # Of an error the next wait for a message tells.
            with contextlib.suppress(ChannelClosed, OSError):
                self._ahead = self._incoming.pull(self._receiver, wait=False)
        frame = self._ahead
        if frame is None or frame is self._looked_at or frame.slot < 0 or self._area is None:
            return
        self._looked_at = frame
        places = self._area.places(frame.slot, frame.text)
        if places is not None:
            with contextlib.suppress(Exception):  # handling the message raises it again
                self._replica.stage(frame.message._replace(arrays=places, lasting=True))

    def _pull(self, wait: bool) -> Frame | None:
        """Return the next frame from the socket; None if it is not complete."""
        frame, self._ahead = self._ahead, None
        return frame or self._incoming.pull(self._receiver, wait=wait)

    def _before(self, answer: Message) -> Frame | None:
        """Return the next frame if it arrives before the answer's arrays have left the GPU."""
        arriving = answer.arrays
        assert isinstance(arriving, Arriving)
        while not arriving.here():
            frame = self._pull(wait=False)
            if frame is not None:
                return frame
            os.sched_yield()
        return None

    def _may_be_awake(self) -> bool:
        """Tell whether to spin for a moment while waiting for the next message."""
        return self._area.bell.awake if self._area is not None else self._own_core()

    def _next(self) -> Frame:
        """Wait for the next frame; spin first if that is allowed, so that it finds a warm processor."""
        bell = self._area.bell if self._area is not None else None
        if self._awake:
            until = time.perf_counter() + SPIN_S
            turns = TURNS if bell is not None and self._at is not None and self._at.rung else 1
            while time.perf_counter() < until:
                for _ in range(turns):
                    os.sched_yield()
                    if bell is not None and bell.rung:
                        break
                frame = self._look(0.0)
                if frame is not None:
                    return frame
        while bell is not None:
            bell.sleep()
            frame = self._look(None)
            bell.wake()
            if frame is not None:
                return frame
        frame = self._pull(wait=True)
        assert frame is not None, "it was waited for"
        return frame

    def _look(self, seconds: float | None) -> Frame | None:
        """Return a message that is here, or comes by the socket within so many seconds (None: without limit).

        The socket is read only if it is readable: reading from an empty one takes as long as a kernel.
        """
        frame = self._take()
        if frame is None and (self._ahead is not None or self._incoming.ahead):
            frame = self._first(self._pull(wait=False))
        if frame is not None:
            return frame
        readable = dict(self._sleeper.poll(seconds))
        return self._first(self._pull(wait=False) if self._descriptor in readable else None)

    def _first(self, frame: Frame | None) -> Frame | None:
        """Return what was sent first: a message in shared memory that was not taken, or the socket's frame."""
        rung = self._take()
        if rung is not None:
            self._ahead = frame
        return rung or frame

    def _take(self) -> Frame | None:
        """Return the message in shared memory, once."""
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
            if frame.message.kind == MAP:
                return self._map(frame.message)
            return self._replica.handle(frame.message)
        kind, head, _, step, _ = frame.message
        places = self._places(frame.slot, frame.text)
        return self._replica.handle(Message(kind, head, places, step, lasting=True))

    def _map(self, message: Message) -> Message:
        head, files = message.head, self._receiver.descriptors
        self._receiver.descriptors = []
        try:
            wakes, woken = files
            area = ReplicaFeedBuffer.attach(
                *(head["path"], head["count"], head["fed"], head["posted"], head["index"]), woken
            )
        except (CollectiveError, OSError, KeyError, TypeError, ValueError, OverflowError) as error:
            _close_all(files)
            return Message("error", {"text": str(error)})
        if self._area is not None:
            self._replica.forget_fed()
        self._let_go()
        self._area, self._fed, self._wakes = area, [_NOTHING_FED] * SLOTS, files
        # All replicas share this file and none empties it: each is told of what is written from now on.
        self._sleeper.register(wakes, select.EPOLLIN | select.EPOLLET)
        if self._replica.runtime is not None:
            self._replica.runtime.pin(area.own)
        return Message("ok", {})

    def _let_go(self) -> None:
        """Unmap the shared memory, once the GPU has read what it needs of it."""
        if self._area is None:
            return
        runtime = self._replica.runtime
        if runtime is not None:
            runtime.use()
            runtime.synchronize()
            runtime.unpin(self._area.own)
        self._area.close()
        self._area = None
        self._sleeper.unregister(self._wakes[0])
        _close_all(self._wakes)
        self._wakes = []

    def post(self, message: Message) -> None:
        """Leave a part of the answer where the driver finds it even if this process ends."""
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
        """Answer a message: in shared memory if it came there and adds nothing to what was posted."""
        number = frame.number
        bell = self._area.bell if frame.rung and self._area is not None else None
        if bell is not None and not self._sent and _is_brief(answer):
            bell.reply(number, posted)
            return
        try:
            pieces = encode(number, answer, posted)
        except Exception as error:  # of a GPU, too, whose work failed behind the step
            pieces = encode(number, self._replica.failed(error))
        Outgoing(pieces).push(self._connection)
        if bell is not None:
            bell.reply(number, BY_SOCKET)


def _close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _is_brief(answer: Message) -> bool:
    """Tell whether an answer only says that the steps were done."""
    arrays = answer.arrays
    return answer.kind == "fetched" and type(arrays) is list and not arrays
