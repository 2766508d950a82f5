"""NearReplicas: the replicas on the driver's host, and the memory that the driver shares with them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache, partial
from io import FileIO
from typing import Any, NamedTuple

import numpy as np

from ...executor.replica.message import Message, Stacked, StackedMessages, StepHead
from ...strategies.errors import CollectiveError
from .doorbell import RINGS, TEXT_ROOM
from .feed_buffer import DriverFeedBuffer
from .frame import Outgoing, encode, head_of, read_head
from .waits import WaitChoice

MAP = "map"  # the message that tells where a new area is
_MUCH = 8 << 20  # bytes, which a core takes about a millisecond to write
_CORES = 4  # with fewer, threads that write take turns with replicas that compute
_MOST = 8  # threads: more wait for memory


class Written(NamedTuple):
    """Steps whose feeds lie in a slot: the head for each replica, and a call that starts them by bell."""

    heads: list[bytes]
    ring: Callable[[], None] | None


class NearReplicas:
    """The driver's end of the memory shared with the replicas ``ranks`` (none: nothing is shared).

    A step that goes to all of them at once is fed, started and answered there. ``woken``: a file that becomes
    readable when an answer wakes the driver (-1: none does).
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        self.ranks = tuple(ranks)
        self.all = frozenset(ranks)
        self._heads: Sequence[Mapping[str, Any]] = ()  # of steps before, and those on the way
        self._texts: list[bytes] = []
        self._index = {rank: index for index, rank in enumerate(ranks)}
        self.area: DriverFeedBuffer | None = None
        self._coming: DriverFeedBuffer | None = None  # that replicas do not have yet
        self._new = ""  # its path, while it has a name
        self._wanted = (0, 0)  # bytes of feeds and of posted values that should have fitted
        self.waits = WaitChoice()
        self.cramped = False  # whether there is no room for them: see room()
        self._events = [_event_file() for _ in range(2 if ranks else 0)]
        self.woken = self._events[1].fileno() if ranks else -1

    # -- steps ------------------------------------------------------------------------------------

    def write(
        self, number: int, slot: int | None, messages: Mapping[int, Message]
    ) -> Written | None:
        """Write the feeds of steps to a slot.

        None: not every replica here gets a step, or the feeds do not fit.
        """
        ranks, stacked = self.ranks, None
        if slot is None or not ranks:
            return None
        if isinstance(messages, StackedMessages) and len(messages) == len(ranks):
            stacked, step, alike = messages, messages.step, True
            texts = self._heads_of(messages)
        elif all([rank in messages and messages[rank].kind == "step" for rank in ranks]):
            texts, step = [_head(messages[rank]) for rank in ranks], messages[ranks[0]].step
            alike = all([messages[rank].step == step for rank in ranks])
        else:
            return None
        area = self.area
        fed = area.all_places(slot, texts) if area is not None else None
        if area is None or fed is None:
            self._want(max(read_head(text).offsets()[-1] for text in texts), 0)
            return None
        try:
            area.populate(slot)
        except CollectiveError:  # the host is short of shared memory
            return None
        much = _is_much(fed.nbytes)
        if stacked is not None and fed.stacks is not None and not much:
            _write_all(fed.stacks, stacked.arrays.arrays)
        else:
            arrays = [array for rank in ranks for array in messages[rank].arrays]
            _write_all(fed.places, arrays, threads=much)
        rings = alike and RINGS and fed.longest <= TEXT_ROOM
        ring = partial(area.bell.ring, number, step, slot, texts, self.waits.awake)
        return Written(texts, ring if rings else None)

    def _heads_of(self, messages: StackedMessages) -> list[bytes]:
        """Return the encoded heads of messages: the same list as before for the same heads."""
        if messages.heads is not self._heads:
            self._texts = [_head(messages[rank]) for rank in self.ranks]
            self._heads = messages.heads
        return self._texts

    def all_answered(self, number: int) -> bool:
        """Tell whether all have answered a step, in shared memory or (noted there) by the socket."""
        return self.area is not None and self.area.bell.all_answered(number)

    def stacked(self, slot: int) -> StackedMessages | None:
        """Return what all posted to a slot, after their answers, if types and shapes are the same."""
        posts = self.area.posted_by_all(slot) if self.area is not None else None
        if posts is None or posts.stacks is None:
            return None
        arrays = Stacked([stack.copy() for stack in posts.stacks], len(self.ranks))
        return StackedMessages("fetched", [{}] * len(self.ranks), arrays)

    def answers(self, number: int) -> dict[int, Message | None]:
        """Return the messages posted with answers in shared memory, by rank (None: no message)."""
        area = self.area
        posts: dict[int, Message | None] = {}
        for index, rank in enumerate(self.ranks if area is not None else ()):
            assert area is not None
            answer = area.bell.answer(index, number)
            if answer is not None:
                posts[rank] = self.posted(answer, number, rank) if answer >= 0 else None
        return posts

    def posted(self, slot: int, number: int, rank: int) -> Message | None:
        """Return the message that a replica posted in shared memory before its answer."""
        if self.area is None or rank not in self._index:
            return None
        post = self.area.posted_by(self._index[rank], slot, number)
        return None if post is None else Message(post[0].kind, post[0].head, post[1])

    def listen(self, each: bool) -> None:
        """Note that the driver sleeps until the last answer, or ``each`` one, in shared memory wakes it."""
        if self.area is not None:
            self.area.bell.listen(each)

    def hear(self) -> None:
        """Reset the file that woke the driver."""
        try:
            os.eventfd_read(self.woken)
        except BlockingIOError:
            pass

    # -- the memory -------------------------------------------------------------------------------

    def want_posted(self, rank: int, nbytes: int) -> None:
        """Note that ``nbytes`` were posted by the socket, for which there was no room."""
        if self.area is not None and rank in self._index:
            self._want(0, nbytes)

    def _want(self, fed: int, posted: int) -> None:
        """Note how many bytes a message needed, and whether there is less room than the largest needed."""
        self._wanted = (max(self._wanted[0], fed), max(self._wanted[1], posted))
        area = self.area
        self.cramped = self._wanted > (0, 0) and (
            area is None or self._wanted[0] > area.fed or self._wanted[1] > area.posted
        )

    def room(self, number: int) -> tuple[DriverFeedBuffer, dict[int, Outgoing]] | None:
        """Create larger memory; return it, and the message of each replica. Nothing may be in flight."""
        self._forget_coming()  # an interrupt left it half made
        if not self.cramped:
            return None
        area = self.area
        fed, posted = map(max, self._wanted, (area.fed, area.posted) if area else (0, 0))
        self._new = DriverFeedBuffer.new_path()  # noted before it is there: close() finds it
        wakes, count = self._events[0].fileno(), len(self.ranks)
        try:
            new = DriverFeedBuffer.create(self._new, count, fed, posted, wakes)
        except (CollectiveError, OSError):  # no shared memory to be had: the sockets do it
            self._share_nothing()
            return None
        self._coming = new
        self.area = None
        if area is not None:
            area.close()
        where = {"path": new.segment.path, "count": count, "fed": new.fed, "posted": new.posted}
        outgoing = {}
        for rank, index in self._index.items():
            pieces = encode(number, Message(MAP, {**where, "index": index}))
            outgoing[rank] = Outgoing(pieces, (wakes, self.woken))
        return new, outgoing

    def mapped(self, area: DriverFeedBuffer, well: bool) -> None:
        """Use memory that all replicas have mapped (``well``); share nothing if some could not."""
        if area is not self._coming:
            return
        if well:
            self.area, self._coming = area, None
            self._forget_name()
            self._want(0, 0)
        else:
            self._share_nothing()

    def _share_nothing(self) -> None:
        self.ranks, self.cramped = (), False
        self._forget_coming()

    def _forget_coming(self) -> None:
        self._forget_name()
        if self._coming is not None:
            self._coming.close()
            self._coming = None

    def _forget_name(self) -> None:
        if self._new:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._new)
        self._new = ""

    def close(self) -> None:
        """Release the memory and the files."""
        self._forget_coming()
        if self.area is not None:
            self.area.close()
            self.area = None
        for file in self._events:
            file.close()


def _head(message: Message) -> bytes:
    """Return a message's encoded head, which steps with feeds alike keep."""
    if type(message.head) is not StepHead:
        return head_of(message, message.arrays)
    if not message.head.text:
        message.head.text = head_of(message, message.arrays)
    return message.head.text


def _event_file() -> FileIO:
    """Return a file that can be read once somebody has written to it, closed when nothing refers to it."""
    return FileIO(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), "r+")


def _is_much(nbytes: int) -> bool:
    """Tell whether so many bytes are copied faster by several threads."""
    return nbytes > _MUCH and len(os.sched_getaffinity(0)) >= _CORES


def _write_all(
    places: Sequence[np.ndarray], arrays: Sequence[np.ndarray], threads: bool = False
) -> None:
    """Copy each array to its place, by several ``threads`` or by this one."""
    if not threads:
        for place, array in zip(places, arrays, strict=True):
            place[...] = array
        return
    pairs = zip(places, arrays, strict=True)
    writing = [_writers().submit(np.copyto, place, array) for place, array in pairs]
    try:
        for future in writing:
            future.result()
    finally:  # whatever happens, no thread writes into a slot that is used again
        wait(writing)


@cache
def _writers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), _MOST), "rowlock-feeds")
