"""Connector: connect hosts with each other. Of two hosts, the one with the higher number calls."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ...executor.host.deadline import Deadline
from ...strategies.errors import CollectiveAborted, CollectiveError
from ..primitives.doorway import Claim, Doorway, Refused, enter

DATA, ABORTS = 0, 1  # what a connection is for
_CALL_S = 1.0  # until a peer that is there should have answered
_AGAIN_S = 0.005
_LOOK_S = 0.2


class Address(NamedTuple):
    """Where a host listens, and the secret that callers must know."""

    host: str
    port: int
    secret: bytes


class Connector:
    """Makes one host's connections to the others, numbered like ``addresses``; ``index`` is this one.

    The lower number of two is called by the higher, and both prove that they know its secret. No host is waited
    for any longer once ``aborted()`` returns a reason.
    """

    def __init__(
        self,
        index: int,
        addresses: Sequence[Address],
        listener: socket.socket,
        aborted: Callable[[], str | None],
    ) -> None:
        self.index, self._addresses, self._listener = index, list(addresses), listener
        self._aborted = aborted

    def _refuse_aborted(self) -> None:
        if (reason := self._aborted()) is not None:
            raise CollectiveAborted(f"connecting hosts was aborted: {reason}")

    def connect(
        self, keys: Collection[tuple[int, int]], epoch: int, within: float
    ) -> dict[tuple[int, int], socket.socket]:
        """Return a connection for each (peer, what for).

        Raises:
            CollectiveError: a peer does not answer, or does not call, in time.
        """
        deadline = Deadline(within)
        connections: dict[tuple[int, int], socket.socket] = {}

        def awaited(claim: Claim) -> bool:
            key = (claim.caller, claim.purpose)
            return claim.epoch == epoch and claim.caller > self.index and key in keys

        doorway = Doorway([self._listener], self._addresses[self.index].secret, awaited)
        try:
            for key in sorted(keys):
                while key[0] < self.index and key not in connections:
                    answer = self._call(*key, epoch, deadline)
                    if answer is not None:
                        connections[key] = answer
                    else:
                        self._take(doorway.look(_AGAIN_S), connections)
            while missing := set(keys) - set(connections):
                self._refuse_aborted()
                callers = doorway.look(_LOOK_S)
                self._take(callers, connections)
                if not callers and deadline.over:
                    raise CollectiveError(
                        f"hosts {sorted({peer for peer, _ in missing})} did not connect in time."
                    )
        except BaseException:
            for connection in connections.values():
                connection.close()
            raise
        finally:
            doorway.close()
        return connections

    @staticmethod
    def _take(
        callers: Sequence[tuple[Claim, socket.socket]],
        connections: dict[tuple[int, int], socket.socket],
    ) -> None:
        """Note the hosts that called. One that calls again did not hear that it was let in."""
        for claim, connection in callers:
            key = (claim.caller, claim.purpose)
            if key in connections:
                connections[key].close()
            connections[key] = connection

    def _call(
        self, peer: int, purpose: int, epoch: int, deadline: Deadline
    ) -> socket.socket | None:
        """Return a connection to a peer, or None if it takes none now: it may be in another epoch."""
        host, port, secret = self._addresses[peer]
        try:
            return enter(host, port, secret, Claim(self.index, purpose, epoch), _CALL_S)
        except (OSError, Refused) as error:
            if deadline.over:
                raise CollectiveError(
                    f"host {peer} ({host}:{port}) did not answer in time: {error}"
                ) from error
        self._refuse_aborted()
        return None
