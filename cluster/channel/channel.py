"""The step channel: a message to each replica, an answer from each, several exchanges under way."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ...executor.gang.delivery import Outcome
from ...executor.gang.recovery import whole
from ...executor.host.deadline import Deadline
from ...executor.replica.message import KEPT, Message, StackedMessages
from ...strategies.bounded_dict import BoundedDict
from ...strategies.errors import CollectiveError
from .connection import SPIN_S, TURNS, ReplicaConnection
from .feed_buffer import DriverFeedBuffer
from .frame import SLOTS, ChannelClosed, Frame, Outgoing, encode, encode_beside
from .near import NearReplicas
from .transport import Transport

_HAND_OVER_S = 2.0
_WATCH_S = 0.25
_STEPS_KEPT = 3  # a replica can be a step ahead of another one, and at the next
_FETCHED = Message("fetched", {})  # an answer in the memory
_BULKY = 1 << 15  # bytes that surely find room in a socket, though no replica takes them out


@dataclass
class _Exchange:
    """Messages in flight: the bytes still to be sent and the answers that came, by rank."""

    slot: int | None
    outgoing: dict[int, Outgoing]
    waiting: set[int]
    ring: Callable[[], None] | None = None  # begins the steps of ``rung``
    rung: frozenset[int] = frozenset()  # whose messages and answers lie in the memory
    answers: dict[int, Message] = field(default_factory=dict)
    posted: dict[int, Message] = field(default_factory=dict)
    stacked: StackedMessages | None = None  # the answers, if all came in the memory and are alike
    own_values: dict[int, BoundedDict[int, Sequence[np.ndarray]]] = field(default_factory=dict)
    wanted: bool = True
    lasting: bool = False  # whether it is asked for until it is given up
    maps: DriverFeedBuffer | None = None  # it tells of this new memory to share
    sending: float = 0.0  # seconds that it took: a replica that is woken may have the core first


class Channels(Transport[_Exchange]):
    """Carries messages by a connection to each replica, and by shared memory to replicas of this host."""

    def __init__(
        self,
        lost: Callable[[int], CollectiveError],
        late: Callable[[list[int], float], CollectiveError],
        watch: Callable[[list[int]], None] = lambda ranks: None,
    ) -> None:
        super().__init__(lost, late, watch)
        self.lines: dict[int, ReplicaConnection] = {}
        self._near = NearReplicas([])
        self._poller = select.epoll()
        self._pollers: dict[int, select.epoll] = {}
        self._bulky = False  # whether replicas post so much that they might wait to be heard
        self._last = -1  # the rank whose answer came last by a socket
        self._waited = 0.0  # seconds for the last answers
        self._ranks: dict[int, int] = {}
        self._silent: set[int] = set()  # ranks that are listened to no more

    def use(self, lines: Mapping[int, ReplicaConnection]) -> None:
        """Use the connections of these replicas from now on; messages in flight are forgotten."""
        self._near.close()
        self._near = near = NearReplicas([rank for rank, line in lines.items() if line.near])
        self.lines = dict(lines)
        self._under_way, self._silent = {}, set()
        self._ranks = {line.connection.fileno(): rank for rank, line in lines.items()}
        self._poller = select.epoll()
        self._pollers = {rank: select.epoll() for rank in lines}
        for descriptor, rank in self._ranks.items():
            self._poller.register(descriptor, select.EPOLLIN)
            for last, poller in self._pollers.items():
                poller.register(descriptor, select.EPOLLIN if rank == last else select.EPOLLRDHUP)
        if near.woken >= 0:
            for poller in (self._poller, *self._pollers.values()):
                poller.register(near.woken, select.EPOLLIN)
        self._last = max(lines, default=-1)

    def start(
        self, messages: Mapping[int, Message], within: float, number: int | None = None
    ) -> int:
        slot: int | None = 0
        rings = not self._under_way
        if not rings:
            deadline = Deadline(within)
            while self._push():  # what an interrupt, or the step before, left on the way
                if not self._turn(deadline):
                    raise self._late(self._unsent(), within)
            busy = {exchange.slot for exchange in self._under_way.values()}
            slot = next((slot for slot in range(SLOTS) if slot not in busy), None)
        else:
            self._make_room(within)
        lasting = number is not None
        number = self.reserve() if number is None else number
        near = self._near
        order = near.write(number, slot, messages)
        heads = order.heads if order is not None else []
        ring = order.ring if order is not None and rings else None
        exchange = _Exchange(slot, {}, set(messages), ring, lasting=lasting)
        if ring is not None:
            exchange.rung = near.all
        if len(exchange.rung) < len(messages):
            by_rank = dict(zip(near.ranks, heads, strict=False))
            exchange.outgoing = _frames(number, messages, exchange.rung, by_rank, slot)
        # From this statement on an interrupt leaves no replica without its message.
        self._under_way[number] = exchange
        began = time.perf_counter()
        try:
            self._push()
        except CollectiveError:
            raise
        except BaseException:  # a recovery that begins again forgets what is under way
            self._hand_over()
            raise
        exchange.sending = time.perf_counter() - began
        return number

    def finish(self, number: int, within: float) -> Mapping[int, Message]:
        exchange = self._under_way[number]
        began = time.perf_counter()
        try:
            if exchange.rung and self._waited < SPIN_S and self._near.waits.awake:
                self._wait_awake(number, began + SPIN_S)
            if exchange.waiting:
                self._wait(exchange, Deadline(within))
        except CollectiveError:
            raise
        except BaseException:
            if exchange.lasting:
                self._hand_over()
            else:
                self.give_up(number)
            raise
        self._waited = time.perf_counter() - began
        if not exchange.lasting:
            self._under_way.pop(number, None)
        if exchange.rung:
            self._near.waits.note(exchange.sending + self._waited)
        if exchange.stacked is not None:
            return exchange.stacked
        posted, answers = exchange.posted, exchange.answers
        return {rank: whole(posted.get(rank), answers[rank]) for rank in sorted(answers)}

    def poll(self, number: int) -> bool:
        exchange = self._under_way.get(number)
        with contextlib.suppress(CollectiveError):
            while (
                exchange is not None
                and exchange.waiting - self._silent
                and self._turn(Deadline(0.0))
            ):
                pass
        return exchange is None or not exchange.waiting - self._silent

    def give_up(self, number: int) -> None:
        exchange = self._under_way.get(number)
        if exchange is None:
            return
        exchange.wanted = False
        if exchange.waiting:
            self._hand_over()
        else:
            self._under_way.pop(number, None)

    def outcome(self, number: int, rank: int) -> Outcome:
        exchange = self._under_way.get(number)
        if exchange is None:
            return Outcome()
        self._look(each=True)
        if exchange.stacked is None and rank not in self._ranks.values():
            self._take_the_rest(rank)
        own_values: Mapping[int, Sequence[np.ndarray]] = exchange.own_values.get(rank, {})
        if exchange.stacked is not None:
            return Outcome(None, exchange.stacked[rank], own_values)
        posted = exchange.posted.get(rank)
        if posted is None and exchange.slot is not None:
            posted = self._near.posted(exchange.slot, number, rank)
        return Outcome(posted, exchange.answers.get(rank), own_values)

    def _take_the_rest(self, rank: int) -> None:
        """Read the bytes that a replica had sent before its connection was hung up."""
        line = self.lines.get(rank)
        frames: list[Frame] = []

        def note(frame: Frame) -> None:
            self._take(rank, frame)
            frames.append(frame)

        with contextlib.suppress(ChannelClosed, OSError):
            while line is not None:
                line.pull(note)
                if not frames:
                    return
                frames.clear()

    def drain(self, ranks: set[int], within: float) -> None:
        deadline = Deadline(within)
        while late := {r for e in self._under_way.values() for r in e.waiting & ranks}:
            if not self._turn(deadline, each=True):
                raise self._late(sorted(late), within)

    def _make_room(self, within: float) -> None:
        """Give near replicas larger shared memory, if something did not fit."""
        if not self._near.cramped:
            return
        number = self.reserve()
        room = self._near.room(number)
        if room is None:
            return
        area, outgoing = room
        exchange = _Exchange(None, outgoing, set(outgoing), wanted=False, maps=area)
        self._under_way[number] = exchange
        # An interrupt leaves it under way: no caller asks for the answers.
        self._wait(exchange, Deadline(within))

    def _wait(self, exchange: _Exchange, deadline: Deadline) -> None:
        """Wait until all replicas have answered.

        Raises:
            CollectiveError: one never will, or not in time.
        """
        while exchange.waiting:
            if self._silent and (silent := exchange.waiting & self._silent):
                raise self._gone(min(silent))
            if not self._turn(deadline):
                raise self._late(sorted(exchange.waiting), deadline.within)

    def _wait_awake(self, number: int, until: float) -> None:
        """Spin for a moment, as replicas do, too."""
        near = self._near
        while time.perf_counter() < until:
            for _ in range(TURNS):
                os.sched_yield()
                if near.all_answered(number):
                    self._look()
                    return
            if self._poller.poll(0):
                return

    def _look(self, each: bool = False) -> bool:
        """Take answers from shared memory, once all are there or ``each`` by itself; tell whether any came."""
        heard = False
        for number, exchange in list(self._under_way.items()):
            if exchange.rung.isdisjoint(exchange.waiting):
                self._end(number, exchange)  # an interrupt may have kept it from being forgotten
                continue
            over, slot = self._near.all_answered(number), exchange.slot
            if not over and not each:
                continue
            alone = exchange.waiting == exchange.rung and not exchange.answers
            if over and alone and slot is not None:
                exchange.stacked = self._near.stacked(slot)
            if exchange.stacked is not None:
                exchange.waiting.clear()
                heard = True
            else:
                posts = self._near.answers(number)
                posted = {rank: post for rank, post in posts.items() if post is not None}
                heard = heard or not exchange.waiting.isdisjoint(posts)
                exchange.posted.update(posted)
                exchange.answers.update(dict.fromkeys(posts, _FETCHED))
                exchange.waiting.difference_update(posts)
            self._end(number, exchange)
        return heard

    def _turn(self, deadline: Deadline, each: bool = False) -> bool:
        """Send what can be sent, wait once, and take in what came; return False after the deadline.

        ``each``: wait for single answers in shared memory, not for all of them.
        """
        poll = self._both_ways() if self._push() else self._for_the_last().poll
        remaining_s = deadline.left
        if remaining_s:
            self._near.listen(each)
        if self._look(each):
            return True
        events = poll(min(remaining_s, _WATCH_S))
        if not events:
            self._look(each=True)
            for rank in self._waiting():
                self._pull(rank)
            waiting = self._waiting()
            if waiting and deadline.over:
                return False
            self._watch(sorted(waiting))
        ready = set()
        for descriptor, event in events:
            if descriptor == self._near.woken:
                self._near.hear()
            elif event != select.POLLOUT:
                ready.add(self._ranks[descriptor])
        for rank in ready:
            self._pull(rank)
        if self._last in ready:  # the others are most likely there, too
            for exchange in list(self._under_way.values()):
                for rank in exchange.waiting - exchange.rung - ready - self._silent:
                    self._pull(rank)
        if ready:
            self._note_last()
        self._look(each)
        return True

    def _note_last(self) -> None:
        """Wait for another replica from now on if the last one has answered."""
        if self._last >= 0:
            waiting = self._waiting()
            if waiting and self._last not in waiting:
                self._last = max(waiting)

    def _waiting(self) -> set[int]:
        """Return the ranks that have yet to answer, without those that never will."""
        waiting = set()
        for exchange in self._under_way.values():
            waiting |= exchange.waiting
        return waiting - self._silent if self._silent else waiting

    def _for_the_last(self) -> select.epoll:
        """Return the poller to wait with: one that wakes for the replica that answered last in the step before.

        It also wakes for answers in shared memory, and if any connection closes. Waking for each answer would
        take the processor from replicas that still compute.
        """
        if not self._bulky:
            for exchange in self._under_way.values():
                if self._last in exchange.waiting and self._last not in exchange.rung:
                    return self._pollers[self._last]
        return self._poller

    def _pull(self, rank: int) -> None:
        try:
            self.lines[rank].pull(partial(self._take, rank))
        except ChannelClosed:
            raise self._gone(rank) from None

    def _take(self, rank: int, frame: Frame) -> None:
        """Note a frame that came; the same frame may be noted twice."""
        exchange = self._under_way.get(frame.number)
        if exchange is None:
            return
        if frame.message.kind == KEPT:
            self._bulky = True
            by_step = exchange.own_values.setdefault(rank, BoundedDict(_STEPS_KEPT))
            by_step[frame.message.step] = frame.message.arrays
            return
        if frame.message.kind == "posted":
            nbytes = sum(a.nbytes for a in frame.message.arrays)
            self._bulky |= nbytes > _BULKY
            padding = 64 * (len(frame.message.arrays) + 1)
            self._near.want_posted(rank, nbytes + padding + len(frame.text))
            exchange.posted[rank] = frame.message
            return
        if frame.posted >= 0:
            posted = self._near.posted(frame.posted, frame.number, rank)
            if posted is not None:
                exchange.posted[rank] = posted
        exchange.answers[rank] = frame.message
        exchange.waiting.discard(rank)
        if exchange.maps is not None and not exchange.waiting:
            well = all([answer.kind == "ok" for answer in exchange.answers.values()])
            self._near.mapped(exchange.maps, well)
        self._end(frame.number, exchange)

    def _end(self, number: int, exchange: _Exchange) -> None:
        """Forget an exchange that was given up, once all have answered."""
        if not exchange.wanted and not exchange.waiting:
            self._under_way.pop(number, None)

    def _push(self) -> bool:
        """Send what can be sent at once, and tell whether something is left."""
        unsent = False
        for exchange in list(self._under_way.values()):
            if exchange.ring is not None:
                exchange.ring()  # an interrupt has it rung once more
                exchange.ring = None
            for rank in list(exchange.outgoing) if exchange.outgoing else ():
                try:
                    if exchange.outgoing[rank].push(self.lines[rank].connection):
                        del exchange.outgoing[rank]
                    else:
                        unsent = True
                except OSError:
                    raise self._gone(rank) from None
        return unsent

    def _gone(self, rank: int) -> CollectiveError:
        """Hang up a replica and return the error; its answers in shared memory can still be read."""
        self.hang_up(rank)
        return self._lost(rank)

    def hang_up(self, rank: int) -> None:
        self._silent.add(rank)
        for descriptor in [d for d, r in self._ranks.items() if r == rank]:
            for poller in (self._poller, *self._pollers.values()):
                with contextlib.suppress(OSError):  # an interrupt left it half done
                    poller.unregister(descriptor)
            del self._ranks[descriptor]
        self._last = -1 if self._last == rank else self._last
        for exchange in self._under_way.values():
            exchange.outgoing.pop(rank, None)

    def _unsent(self) -> list[int]:
        return sorted({rank for e in self._under_way.values() for rank in e.outgoing})

    def _both_ways(self) -> Callable[[float], list[tuple[int, int]]]:
        """Return the wait, in seconds, for what can be sent or has come."""
        poller = select.poll()  # made anew, so that an interrupt cannot leave it wrong
        unsent = set(self._unsent())
        for descriptor, rank in self._ranks.items():
            poller.register(descriptor, select.POLLIN | (select.POLLOUT if rank in unsent else 0))
        if self._near.woken >= 0:
            poller.register(self._near.woken, select.POLLIN)
        return lambda seconds: poller.poll(seconds * 1e3)

    def _hand_over(self) -> None:
        """Send the rest of messages under way, so that no replica waits for a peer that never got the step."""
        deadline = Deadline(_HAND_OVER_S)
        with contextlib.suppress(CollectiveError):
            while self._push() and self._turn(deadline):
                pass

    def close(self) -> None:
        """Close every line, and let go of the memory."""
        self._near.close()
        self._near = NearReplicas([])
        for line in self.lines.values():
            line.close()
        self.lines, self._under_way = {}, {}


def _frames(
    number: int,
    messages: Mapping[int, Message],
    rung: Collection[int],
    heads: Mapping[int, bytes],
    slot: int | None,
) -> dict[int, Outgoing]:
    """Return the bytes for each socket; a message for several ranks is encoded once, one in a slot is not."""
    frames: dict[int, Outgoing] = {}
    pieces: dict[int, list[memoryview]] = {}  # by the identity of a message
    present = dict(messages)  # no identity is used again while they are
    for rank, message in present.items():
        if rank in rung:
            continue
        if rank in heads and slot is not None:
            frames[rank] = Outgoing(encode_beside(number, heads[rank], message.step, slot))
            continue
        if id(message) not in pieces:
            pieces[id(message)] = encode(number, message)
        frames[rank] = Outgoing(pieces[id(message)])
    return frames
