"""From a rank of one host to a rank of another: a connection for each pair, made when it is first used."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

import numpy as np

from ..primitives.wire import DATA, Address, Header, Lines
from .combine import describe
from .stream import Exchange, Stream


class Direct:
    """One rank's connections; ``addresses`` tells where every rank listens, ``listener`` is this one's.

    ``aborted()`` says why the group was given up (None: it was not).
    """

    def __init__(
        self,
        rank: int,
        addresses: Sequence[Address],
        listener: socket.socket,
        aborted: Callable[[], str | None],
    ) -> None:
        self.step = -1
        self._rank, self._listener, self._aborted = rank, listener, aborted
        self._lines = Lines(rank, addresses, listener, "rank", aborted)
        self._connections: dict[int, socket.socket] = {}
        self._calls: dict[int, int] = {}
        self._epoch = 0

    def send(self, row: np.ndarray, to: int, within: float, tag: str) -> None:
        """Give a row to rank ``to``, once it has come for the same.

        Raises:
            Disagreement: it came for something else; nothing was moved.
            CollectiveError: it did not come in time.
            CollectiveAborted: the group was given up, or the other is gone.
        """
        request = f"send from rank {self._rank} to rank {to} ({describe(row)} {tag})"
        exchange, stream = self._met(to, request, [], row.nbytes, within)
        stream.add(row)
        exchange.run()

    def recv(self, row: np.ndarray, source: int, within: float, tag: str) -> None:
        """Fill a row with what rank ``source`` sends; raises as :meth:`send` does."""
        request = f"send from rank {source} to rank {self._rank} ({describe(row)} {tag})"
        exchange, _ = self._met(source, request, [row], 0, within)
        exchange.run()

    def _met(
        self, peer: int, request: str, into: list[np.ndarray], nbytes: int, within: float
    ) -> tuple[Exchange, Stream]:
        if peer not in self._connections:
            made = self._lines.connected([(peer, DATA)], self._epoch, within)[peer, DATA]
            made.setblocking(False)
            self._connections[peer] = made
        self._calls[peer] = self._calls.get(peer, 0) + 1
        mine = Header.of(request, self._calls[peer], self.step, nbytes)
        stream = Stream(peer, self._connections[peer], mine, [], into)
        names = {rank: f"rank {rank}" for rank in (self._rank, peer)}
        exchange = Exchange({peer: stream}, names, mine, self._aborted, within)
        exchange.agree()
        return exchange, stream

    def reset(self, epoch: int) -> None:
        """Forget the connections; new ones are made when they are used."""
        for connection in self._connections.values():
            connection.close()
        self._connections, self._calls, self._epoch = {}, {}, epoch

    def close(self) -> None:
        """Close every connection."""
        self.reset(self._epoch)
        self._listener.close()
