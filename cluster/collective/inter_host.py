"""Collectives between hosts: every host sends to and receives from every other at once.

Each message begins with a header that says what the host came for. No array is written before the headers of
all hosts have come and agree, so hosts that disagree stop with the same words and with their own data.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ...executor.plan.group import When
from ...strategies.errors import CollectiveAborted
from .abort_channel import AbortChannel
from .combine import combine, combine_apart, describe, flat, share
from .connector import ABORTS, DATA, Address, Connector
from .group import SharedMemoryGroup
from .rendezvous import never_ended
from .stream import Announcement, Arrived, Exchange, Stream

# Bytes: below, every host sends its whole array to all; above, each combines a part.
_SMALL = 1 << 16
_BLOCK = 1 << 18  # bytes that are combined while the next are on the wire

Rows = Sequence[np.ndarray]


class InterHostTransport:
    """One host's connections to the others, numbered like ``addresses``; ``index`` is this host.

    ``local`` joins the ranks of this host (None: only one); an abort there reaches the other hosts, and one of
    theirs releases it. ``names`` are what messages call the hosts. ``within``: for so many seconds others are
    waited for here, and for ``later`` (the same, unless given) when they connect anew. ``ended()`` returns why
    the group was given up from outside.

    Raises:
        CollectiveError: a host does not connect, or does not send, in time; or came for something else.
        CollectiveAborted: a host gave up or is gone.
    """

    def __init__(
        self,
        index: int,
        addresses: Sequence[Address],
        listener: socket.socket,
        within: float,
        local: SharedMemoryGroup | None = None,
        names: Sequence[str] | None = None,
        later: float | None = None,
        ended: Callable[[], str | None] = never_ended,
    ) -> None:
        self.index, self.size = index, len(addresses)
        self.names = list(names or (f"host {host}" for host in range(self.size)))
        self.step = -1
        self.at_work: Callable[[], bool] = lambda: False
        self.waited = 0.0  # seconds until the last host came, in all collectives so far
        self._connector = Connector(index, addresses, listener, lambda: self.aborted)
        self._listener, self._local, self._within = listener, local, within
        self._ended = ended
        self._others = [peer for peer in range(self.size) if peer != index]
        self._scratch: dict[int, np.ndarray] = {}
        self._sockets: dict[int, socket.socket] = {}
        self._aborts: AbortChannel | None = None
        self.reset(0)
        self._within = within if later is None else later

    # -- connections and failures -----------------------------------------------------------------

    def reset(self, epoch: int) -> None:
        """Connect anew; every host calls it with the same number, larger than before."""
        self.hang_up()
        self._sequence = 0
        self._given_up: str | None = None
        keys = [(peer, purpose) for peer in self._others for purpose in (DATA, ABORTS)]
        connections = self._connector.connect(keys, epoch, self._within)
        self._sockets = {peer: connections[peer, DATA] for peer in self._others}
        for connection in self._sockets.values():
            connection.setblocking(False)
        self._aborts = AbortChannel(
            {peer: connections[peer, ABORTS] for peer in self._others},
            dict(enumerate(self.names)),
            self._aborted_here,
            self._heard,
        )

    def _aborted_here(self) -> str | None:
        return None if self._local is None else self._local.aborted

    def _heard(self, reason: str) -> None:
        self._given_up = self._given_up or reason
        if self._local is not None:
            self._local.abort_for(reason)

    @property
    def aborted(self) -> str | None:
        """Why a host gave up since the last reset; None: none did."""
        return self._given_up or self._ended() or self._aborted_here()

    def abort(self, reason: str) -> None:
        """Tell the other hosts that this one gave up."""
        self._given_up = self._given_up or reason
        if self._aborts is not None:
            self._aborts.broadcast(self._given_up)

    def hang_up(self) -> None:
        """End every connection, and the thread that hears aborts: none is passed on after this."""
        if self._aborts is not None:
            self._aborts.close()
            self._aborts = None
        for connection in self._sockets.values():
            connection.close()
        self._sockets = {}

    def close(self) -> None:
        """Close every connection."""
        self.hang_up()
        self._listener.close()

    # -- collectives ------------------------------------------------------------------------------

    def all_reduce(self, array: np.ndarray, op: str, when: When) -> None:
        """Combine a flat array over the hosts, in place and in the order of the hosts (a mean stays a sum)."""
        row = flat(array)
        request, within = f"all_reduce/{op} ({describe(row)} {when.tag})", when.within
        if self.size == 2 and row.nbytes > _SMALL:
            self._swap_and_combine(row, op, request, within)
        elif row.nbytes <= _SMALL:
            theirs = {peer: self._spare(peer, row) for peer in self._others}
            self.exchange(
                {peer: [row] for peer in self._others},
                {p: [g] for p, g in theirs.items()},
                request,
                within,
            )
            combine_apart(self._in_order(row, theirs), op, row)
        else:
            self._scatter_and_gather(row, op, request, within)

    def _swap_and_combine(self, row: np.ndarray, op: str, request: str, within: float) -> None:
        """Combine over two hosts: each sends all, and combines blocks that come once it has sent its own."""
        (peer,) = self._others
        step = max(_BLOCK // row.itemsize, 1)
        mine = [row[at : at + step] for at in range(0, row.size, step)]
        spare = self._spare(peer, row[:step])
        theirs = [spare[: block.size] for block in mine]

        def arrived(_: int, number: int) -> None:
            pair = (mine[number], theirs[number])
            combine(pair if self.index == 0 else pair[::-1], op, mine[number])

        def after(number: int) -> int:
            return min((number + 1) * step, row.size) * row.itemsize

        self.exchange({peer: [row]}, {peer: theirs}, request, within, arrived=arrived, after=after)

    def _scatter_and_gather(self, row: np.ndarray, op: str, request: str, within: float) -> None:
        """Combine this host's part, block by block, and send each block as soon as it is complete."""
        part = [row[share(row.size, row.itemsize, host, self.size)] for host in range(self.size)]
        mine = part[self.index]
        theirs = {peer: self._spare(peer, mine) for peer in self._others}
        step = max(_BLOCK // row.itemsize, 1)
        cuts = [slice(at, at + step) for at in range(0, mine.size, step)]
        into = {p: [*(theirs[p][cut] for cut in cuts), part[p]] for p in self._others}
        counts = [0] * len(cuts)

        def arrived(_: int, number: int) -> None:
            if number < len(cuts):
                counts[number] += 1
                if counts[number] == len(self._others):
                    block = mine[cuts[number]]
                    pieces = {p: g[cuts[number]] for p, g in theirs.items()}
                    combine_apart(self._in_order(block, pieces), op, block)
                    for stream in self._streams.values():
                        stream.add(block)

        out = {p: [part[p]] for p in self._others}
        more = mine.nbytes
        self.exchange(out, into, request, within, arrived=arrived, more=more)

    def reduce_parts(
        self, parts: Sequence[np.ndarray], home: Sequence[int], op: str, when: When
    ) -> None:
        """Combine each part over the hosts, in their order, at its ``home``; the others keep theirs."""
        mine = [part for part, host in zip(parts, home, strict=True) if host == self.index]
        out = {
            peer: [part for part, host in zip(parts, home, strict=True) if host == peer]
            for peer in self._others
        }
        total = sum(part.size for part in mine)
        theirs: dict[int, list[np.ndarray]] = {}
        for peer in self._others:
            spare = self._spare(peer, np.empty(total, parts[0].dtype) if mine else parts[0][:0])
            theirs[peer] = np.split(spare, np.cumsum([part.size for part in mine]))[: len(mine)]
        request = f"reduce_parts/{op} ({describe(parts[0])}.. {len(parts)} parts {when.tag})"
        self.exchange(out, theirs, request, when.within)
        for number, part in enumerate(mine):
            pieces = {peer: theirs[peer][number] for peer in self._others}
            combine_apart(self._in_order(part, pieces), op, part)

    def broadcast_parts(self, parts: Sequence[np.ndarray], home: Sequence[int], when: When) -> None:
        """Copy each part from its ``home`` to every host."""
        of = [
            [part for part, host in zip(parts, home, strict=True) if host == peer]
            for peer in range(self.size)
        ]
        out = dict.fromkeys(self._others, of[self.index])
        request = f"broadcast_parts ({describe(parts[0])}.. {len(parts)} parts {when.tag})"
        self.exchange(out, {p: of[p] for p in self._others}, request, when.within)

    def meet(self, request: str, within: float) -> None:
        """Return when every host is here."""
        nothing: dict[int, Rows] = {peer: [] for peer in self._others}
        self.exchange(nothing, nothing, request, within)

    def _in_order(self, own: np.ndarray, others: Mapping[int, np.ndarray]) -> list[np.ndarray]:
        return [own if host == self.index else others[host] for host in range(self.size)]

    def _spare(self, peer: int, like: np.ndarray) -> np.ndarray:
        """Return memory for what a peer sends, kept from one collective to the next."""
        if peer not in self._scratch or self._scratch[peer].size < like.nbytes:
            self._scratch[peer] = np.zeros(like.nbytes, np.uint8)  # zeroed: its pages are there
        return self._scratch[peer][: like.nbytes].view(like.dtype)

    # -- the exchange -----------------------------------------------------------------------------

    def exchange(
        self,
        out: Mapping[int, Rows],
        into: Mapping[int, Rows],
        request: str,
        within: float,
        *,
        arrived: Arrived | None = None,
        after: Callable[[int], int] | None = None,
        more: int = 0,
    ) -> None:
        """Send each host rows and receive others from each, all at the same time, once all agree.

        ``arrived(peer, number)`` is called when a row is full; it may ``add`` to the streams, ``more`` bytes to
        each in all. Row ``number`` is not filled before ``after(number)`` bytes are sent.
        """
        if self._given_up is not None:
            raise CollectiveAborted(f"{request} was aborted: {self._given_up}")
        self._sequence = self._sequence + 1 & 0xFFFFFFFF
        self._streams = {}
        for peer in self._others:
            nbytes = sum(row.nbytes for row in out[peer]) + more
            mine = Announcement.of(request, self._sequence, self.step, nbytes)
            self._streams[peer] = Stream(
                peer, self._sockets[peer], mine, out[peer], into[peer], after
            )
        exchange = Exchange(
            self._streams,
            dict(enumerate(self.names)),
            mine,
            lambda: self.aborted,
            within,
            self.at_work,
        )
        began = time.perf_counter()
        exchange.agree()
        self.waited += time.perf_counter() - began
        exchange.run(arrived)
