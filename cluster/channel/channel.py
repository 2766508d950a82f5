"""The step channel: a message to each replica, an answer from each, several exchanges under way."""

from __future__ import annotations

import contextlib
import math
import os
import select
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from ...executor.gang.recovery import whole
from ...executor.replica.message import KEPT, Message
from ...strategies.errors import CollectiveError
from .connection import SPIN_S, ReplicaConnection, Rung
from .feed_buffer import SLOTS
from .frame import ChannelClosed, Frame, Outgoing
from .writers import frames_of

_HAND_OVER_S = 2.0
_WATCH_MS = 250
_STEPS_KEPT = 3  # a replica can be a step ahead of another one, and at the next
_BULKY = 1 << 15  # bytes that surely find room in a socket, though no replica takes them out


@dataclass
class _Exchange:
    """One message to each replica: what is still to be sent, and what came back, by rank."""

    slot: int | None
    outgoing: dict[int, Outgoing | Rung]
    waiting: set[int]
    answers: dict[int, Message] = field(default_factory=dict)
    posted: dict[int, Message] = field(default_factory=dict)
    own_values: dict[int, OrderedDict[int, Sequence[np.ndarray]]] = field(default_factory=dict)
    wanted: bool = True
    lasting: bool = False  # whether it is asked for until it is given up
    maps: bool = False  # it tells of new memory to share
    rung: set[int] = field(default_factory=set)  # whose message and answer lie in the memory


class Channels:
    """Sends each replica its message and gathers the answers in any order.

    ``lost(rank)`` makes the error for a replica whose line ended, ``late(ranks, seconds)`` the one for
    replicas that did not answer in time. ``watch(ranks)`` is called now and then while these do not answer, and
    raises if one of them never will.
    """

    def __init__(
        self,
        lost: Callable[[int], CollectiveError],
        late: Callable[[list[int], float], CollectiveError],
        watch: Callable[[list[int]], None] = lambda ranks: None,
    ) -> None:
        self.lines: dict[int, ReplicaConnection] = {}
        self._lost, self._late, self._watch = lost, late, watch
        self._number = 0
        self._under_way: dict[int, _Exchange] = {}
        self._poller = select.poll()
        self._pollers: dict[int, select.poll] = {}
        self._bulky = False  # whether replicas post so much that they might wait to be heard
        self._last = -1  # the rank whose answer came last
        self._waited = 0.0  # seconds for the last answers
        self._ranks: dict[int, int] = {}
        self._silent: set[int] = set()  # ranks that are listened to no more

    def use(self, lines: Mapping[int, ReplicaConnection]) -> None:
        """Talk to these replicas from now on; what was under way is forgotten."""
        self.lines = dict(lines)
        self._under_way, self._silent = {}, set()
        self._ranks = {line.connection.fileno(): rank for rank, line in lines.items()}
        self._poller = select.poll()
        for descriptor in self._ranks:
            self._poller.register(descriptor, select.POLLIN)
        self._pollers = {rank: select.poll() for rank in lines}
        for last, poller in self._pollers.items():
            for descriptor, rank in self._ranks.items():
                poller.register(descriptor, select.POLLIN if rank == last else select.POLLRDHUP)
        self._last = max(lines, default=-1)

    def reserve(self) -> int:
        """Return a number for messages to be sent."""
        self._number = (self._number + 1) & 0xFFFFFFFF
        return self._number

    def knows(self, number: int) -> bool:
        """Tell whether messages are on their way under a number, or there, and not given up."""
        return number in self._under_way

    def start(
        self, messages: Mapping[int, Message], within: float, number: int | None = None
    ) -> int:
        """Send messages by rank; return the number under which :meth:`finish` gives the answers.

        With a ``number`` of :meth:`reserve` it gives them until they are given up, else once.

        Raises:
            CollectiveError: a replica is gone, or does not take in what was sent before.
        """
        deadline = time.monotonic() + within
        slot: int | None = 0
        rings = not self._under_way
        if not rings:
            while self._push():  # what an interrupt, or the step before, left on the way
                if not self._turn(deadline):
                    raise self._late(self._unsent(), within)
            taken = {exchange.slot for exchange in self._under_way.values()}
            slot = next((slot for slot in range(SLOTS) if slot not in taken), None)
        else:
            self._make_room(within)
        lasting = number is not None
        number = self.reserve() if number is None else number
        outgoing = frames_of(self.lines, number, messages, slot, rings)
        exchange = _Exchange(slot, outgoing, set(messages), lasting=lasting)
        if rings:
            exchange.rung = {rank for rank, one in outgoing.items() if type(one) is Rung}
        # From this statement on an interrupt leaves no replica without its message.
        self._under_way[number] = exchange
        try:
            self._push()
        except CollectiveError:
            raise
        except BaseException:  # a recovery that begins again forgets what is under way
            self._hand_over()
            raise
        return number

    def finish(self, number: int, within: float) -> dict[int, Message]:
        """Return the answers by rank, what was posted joined to them.

        An interrupt (Ctrl-C) leaves no replica without its message: they finish the step together. Its answers
        can be asked for again if they are kept, and are thrown away otherwise.

        Raises:
            CollectiveError: a replica is gone or late.
        """
        deadline = time.monotonic() + within
        exchange = self._under_way[number]
        began = time.perf_counter()
        try:
            if exchange.rung and self._waited < SPIN_S:
                self._spin(exchange, began + SPIN_S)
            while exchange.waiting:
                if self._silent and (silent := exchange.waiting & self._silent):
                    raise self._gone(min(silent))
                if not self._turn(deadline):
                    raise self._late(sorted(exchange.waiting), within)
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
        posted, answers = exchange.posted, exchange.answers
        return {rank: whole(posted.get(rank), answers[rank]) for rank in sorted(answers)}

    def poll(self, number: int) -> bool:
        """Tell, without waiting, whether :meth:`finish` would wait."""
        exchange = self._under_way.get(number)
        with contextlib.suppress(CollectiveError):
            while exchange is not None and exchange.waiting - self._silent and self._turn(0.0):
                pass
        return exchange is None or not exchange.waiting - self._silent

    def give_up(self, number: int) -> None:
        """Throw these answers away when they come."""
        exchange = self._under_way.get(number)
        if exchange is None:
            return
        exchange.wanted = False
        if exchange.waiting:
            self._hand_over()
        else:
            self._under_way.pop(number, None)

    def came(self, number: int, rank: int) -> tuple[Message | None, Message | None]:
        """Return what a replica posted for a message, and its answer, as far as either came."""
        exchange = self._under_way.get(number)
        if exchange is None:
            return None, None
        self._look()
        if rank not in self._ranks.values():
            self._take_the_rest(rank)
        posted = exchange.posted.get(rank)
        line = self.lines.get(rank)
        if posted is None and exchange.slot is not None and line is not None:
            posted = line.posted(exchange.slot, number)
        return posted, exchange.answers.get(rank)

    def own(self, number: int, rank: int) -> Mapping[int, Sequence[np.ndarray]]:
        """Return what a replica posted of its own after steps of a message, by the number of steps done."""
        exchange = self._under_way.get(number)
        return exchange.own_values.get(rank, {}) if exchange is not None else {}

    def _take_the_rest(self, rank: int) -> None:
        """Take in what a replica that is listened to no more had sent before."""
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
        """Wait until these replicas have answered everything."""
        deadline = time.monotonic() + within
        while late := {r for e in self._under_way.values() for r in e.waiting & ranks}:
            if not self._turn(deadline):
                raise self._late(sorted(late), within)

    def _make_room(self, within: float) -> None:
        """Give replicas a larger area, if something did not fit."""
        messages = {}
        for rank, line in self.lines.items():
            if line.cramped and (room := line.room()) is not None:
                messages[rank] = room
        if not messages:
            return
        number = self.reserve()
        outgoing = frames_of(self.lines, number, messages, None, rings=False)
        exchange = _Exchange(None, outgoing, set(messages), wanted=False, maps=True)
        self._under_way[number] = exchange
        deadline = time.monotonic() + within
        while exchange.waiting:  # an interrupt leaves it under way: no caller asks for the answers
            if self._silent and (silent := exchange.waiting & self._silent):
                raise self._gone(min(silent))
            if not self._turn(deadline):
                raise self._late(sorted(exchange.waiting), within)

    def _spin(self, exchange: _Exchange, until: float) -> None:
        """Wait awake for a moment if all replicas have processors of their own, and do the same."""
        while exchange.waiting and time.perf_counter() < until:
            if not self._look():
                if not all([self.lines[rank].spins for rank in exchange.waiting]):
                    return
                os.sched_yield()
                if self._poller.poll(0):
                    return

    def _look(self) -> bool:
        """Take in what replicas answered in the memory, and tell whether one did."""
        heard = False
        for number, exchange in list(self._under_way.items()):
            for rank in exchange.waiting & exchange.rung if exchange.rung else ():
                answered = self.lines[rank].answered(number)
                if answered is not None:
                    posted, answer = answered
                    if posted is not None:
                        exchange.posted[rank] = posted
                    self._answered(number, exchange, rank, answer)
                    heard = True
        return heard

    def _turn(self, deadline: float) -> bool:
        """Send what can be sent, wait, and take in what came. False: it is too late."""
        poller, heard = (
            (self._both_ways(), self._waiting()) if self._push() else self._for_the_last()
        )
        if self._look():
            self._note_last()
            return True
        remaining_ms = max(math.ceil((deadline - time.monotonic()) * 1e3), 0)
        lines = [self.lines[rank] for rank in heard] if remaining_ms else []
        for line in lines:
            line.listen(True)
        if lines and self._look():
            self._note_last()
            return True
        events = poller.poll(min(remaining_ms, _WATCH_MS))
        for line in lines:
            line.listen(False)
        if not events:
            for rank in self._waiting():
                self._pull(rank)
            waiting = self._waiting()
            if waiting and time.monotonic() >= deadline:
                return False
            self._watch(sorted(waiting))
        ready = set()
        for descriptor, event in events:
            if event != select.POLLOUT:
                ready.add(self._ranks[descriptor])
        for rank in ready:
            self._pull(rank)
        if self._last in ready:  # the others are most likely there, too
            self._look()
            for exchange in list(self._under_way.values()):
                for rank in exchange.waiting - exchange.rung - ready - self._silent:
                    self._pull(rank)
        self._note_last()
        return True

    def _note_last(self) -> None:
        """Wait for another replica from now on if the last one has answered."""
        if self._last >= 0:
            waiting = self._waiting()
            if waiting and self._last not in waiting:
                self._last = max(waiting)

    def _waiting(self) -> set[int]:
        """Return the ranks that still have to answer, less those that never will."""
        waiting = set()
        for exchange in self._under_way.values():
            waiting |= exchange.waiting
        return waiting - self._silent if self._silent else waiting

    def _for_the_last(self) -> tuple[select.poll, Collection[int]]:
        """Return what to wait with, and for whose answer: that of the replica that was last before.

        The end of any other is told, too.

        To be woken by each answer would take the processor from a replica that still computes.
        """
        if not self._bulky:
            for exchange in self._under_way.values():
                if self._last in exchange.waiting:
                    return self._pollers[self._last], (self._last,)
        return self._poller, self._waiting()

    def _pull(self, rank: int) -> None:
        try:
            self.lines[rank].pull(partial(self._take, rank))
        except ChannelClosed:
            raise self._gone(rank) from None

    def _take(self, rank: int, frame: Frame) -> None:
        """Note what came; the same frame may be noted twice."""
        exchange = self._under_way.get(frame.number)
        if exchange is None:
            return
        if frame.message.kind == KEPT:
            self._bulky = True
            by_step = exchange.own_values.setdefault(rank, OrderedDict())
            by_step[frame.message.step] = frame.message.arrays
            if len(by_step) > _STEPS_KEPT:
                by_step.popitem(last=False)
            return
        if frame.message.kind == "posted":
            self._bulky |= sum(a.nbytes for a in frame.message.arrays) > _BULKY
            exchange.posted[rank] = frame.message
            return
        if frame.posted >= 0:
            posted = self.lines[rank].posted(frame.posted, frame.number)
            if posted is not None:
                exchange.posted[rank] = posted
        if exchange.maps:
            self.lines[rank].mapped(frame.message.kind == "ok")
        self._answered(frame.number, exchange, rank, frame.message)

    def _answered(self, number: int, exchange: _Exchange, rank: int, answer: Message) -> None:
        exchange.answers[rank] = answer
        exchange.waiting.discard(rank)
        if not exchange.wanted and not exchange.waiting:
            self._under_way.pop(number, None)

    def _push(self) -> bool:
        """Send what can be sent at once, and tell whether something is left."""
        unsent = False
        for exchange in list(self._under_way.values()):
            for rank in list(exchange.outgoing):
                try:
                    if exchange.outgoing[rank].push(self.lines[rank].connection):
                        del exchange.outgoing[rank]
                    else:
                        unsent = True
                except OSError:
                    raise self._gone(rank) from None
        return unsent

    def _gone(self, rank: int) -> CollectiveError:
        """Listen to a replica no more; what it left in its area can still be read."""
        self.hang_up(rank)
        return self._lost(rank)

    def hang_up(self, rank: int) -> None:
        """Neither send to a replica nor listen to it any more."""
        self._silent.add(rank)
        for descriptor in [d for d, r in self._ranks.items() if r == rank]:
            for poller in (self._poller, *self._pollers.values()):
                with contextlib.suppress(KeyError):  # an interrupt left it half done
                    poller.unregister(descriptor)
            del self._ranks[descriptor]
        self._last = -1 if self._last == rank else self._last
        for exchange in self._under_way.values():
            exchange.outgoing.pop(rank, None)

    def _unsent(self) -> list[int]:
        return sorted({rank for e in self._under_way.values() for rank in e.outgoing})

    def _both_ways(self) -> select.poll:
        poller = select.poll()  # made anew, so that an interrupt cannot leave it wrong
        unsent = set(self._unsent())
        for descriptor, rank in self._ranks.items():
            poller.register(descriptor, select.POLLIN | (select.POLLOUT if rank in unsent else 0))
        return poller

    def _hand_over(self) -> None:
        """Deliver what is on its way, so that no replica waits for one that never got the step."""
        deadline = time.monotonic() + _HAND_OVER_S
        with contextlib.suppress(CollectiveError):
            while self._push() and self._turn(deadline):
                pass

    def close(self) -> None:
        """Close every line."""
        for line in self.lines.values():
            line.close()
        self.lines, self._under_way = {}, {}
