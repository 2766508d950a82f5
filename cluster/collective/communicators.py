"""NCCL's communicators of one rank: rings, each with a stream of its own, whole or in two levels."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...executor.cuda.runtime import Runtime, Stream
from ...graph.ops.collective import HOST
from ...strategies.errors import CollectiveAborted, CollectiveError
from .rendezvous import lasts

_LOOK_S = 0.05
_ID_BYTES = 128
_PART_BYTES = 128  # what a rank combines in two levels begins on a multiple of this


@dataclass
class CommunicatorSet:
    """Communicators on one stream: of all ranks, or of a group of ranks and, across groups, of one of each."""

    stream: Stream
    world: Any = None
    inside: Any = None
    across: Any = None
    inner: int = 0
    seat: int = 0  # of this rank in its group

    def communicators(self) -> list[Any]:
        """Return those that there are."""
        return [one for one in (self.world, self.inside, self.across) if one is not None]

    def in_three_steps(
        self, address: int, count: int, itemsize: int, how: tuple[int, int, int]
    ) -> None:
        """Combine inside the group, each rank a part; that part across the groups; gather inside the group.

        What does not divide into parts is combined whole, inside and then across. ``how``: type, op, stream.
        """
        kind, op, stream = how
        aligned = _PART_BYTES // itemsize
        part = count // self.inner // aligned * aligned
        if part:
            own = address + self.seat * part * itemsize
            self.inside.reduceScatter(address, own, part, kind, op, stream)
            self.across.allReduce(own, own, part, kind, op, stream)
            self.inside.allGather(own, address, part, kind, stream)
        rest, left = address + self.inner * part * itemsize, count - self.inner * part
        if left:
            self.inside.allReduce(rest, rest, left, kind, op, stream)
            self.across.allReduce(rest, rest, left, kind, op, stream)


class NcclCommunicators:
    """Makes communicators, all ranks at the same time, ends them, and makes them again.

    A ring is a stream with communicators of its own, so that collectives of several rings run side by side.
    ``inner`` is the size of the groups of consecutive ranks of which two levels are made (0: one level).
    ``ended()`` returns why the group was given up from outside (None: it was not).
    """

    def __init__(
        self,
        control: Any,
        runtime: Runtime,
        within: float,
        ended: Callable[[], str | None] = lasts,
    ) -> None:
        self.within = within
        self._ended = ended
        self.paths: dict[tuple[int, int], CommunicatorSet] = {}
        self._control, self._runtime, self._nccl = control, runtime, runtime.nccl
        self._streams: dict[int, Stream] = {}
        self._ending: list[threading.Thread] = []
        self._by_host = self._told(control.local_size)

    def _told(self, own: int) -> list[int]:
        """Return every rank's number."""
        size = self._control.size
        numbers = np.full(size, own, np.int64)
        ends, roots = list(range(1, size + 1)), list(range(size))
        self._control.broadcast_parts(numbers, ends, roots, within=self.within, tag="ranks by host")
        return [int(number) for number in numbers]

    def stream(self, ring: int) -> Stream:
        """Return a ring's stream."""
        if ring not in self._streams:
            self._streams[ring] = self._runtime.stream()
        return self._streams[ring]

    def key(self, ring: int, inner: int) -> tuple[int, int]:
        """Return where the communicators of a ring are; two levels of which one is empty are one."""
        inner = self._by_host[0] if inner == HOST else inner
        return ring, inner if 1 < inner < self._control.size else 0

    def prepare(self, ring: int, inner: int) -> None:
        """Make what :meth:`key` names, if it is not there.

        Raises:
            CollectiveError: the ranks cannot be put in such groups, or do not come.
        """
        size = self._control.size
        if inner == HOST and len(set(self._by_host)) > 1:
            raise CollectiveError(
                f"use_hierarchical_allreduce: the hosts have {sorted(set(self._by_host))} replicas each; "
                f"hierarchical_allreduce_inter_nranks must say how many form a group."
            )
        key = self.key(ring, inner)
        if key[1] and size % key[1]:
            raise CollectiveError(
                f"hierarchical_allreduce_inter_nranks={key[1]} does not divide {size} replicas."
            )
        if key not in self.paths:
            self.paths[key] = self._formed(*key)

    def _formed(self, ring: int, inner: int) -> CommunicatorSet:
        control = self._control
        everyone = range(control.size)
        path = CommunicatorSet(self.stream(ring), inner=inner)
        if not inner:
            path.world = self._communicator([list(everyone)])
            return path
        path.seat = control.rank % inner
        inside = [list(everyone[first : first + inner]) for first in everyone[::inner]]
        path.inside = self._communicator(inside)
        path.across = self._communicator([list(everyone[seat::inner]) for seat in range(inner)])
        return path

    def _communicator(self, teams: Sequence[list[int]]) -> Any:
        """Make a communicator for each of some teams of ranks; return this rank's."""
        rank = self._control.rank
        ids = np.zeros((len(teams), _ID_BYTES), np.uint8)
        for row, team in zip(ids, teams, strict=True):
            if team[0] == rank:
                row[...] = np.frombuffer(self._nccl.get_unique_id(), np.uint8)
        ends = [_ID_BYTES * (k + 1) for k in range(len(teams))]
        roots = [team[0] for team in teams]
        self._control.broadcast_parts(
            ids.reshape(-1), ends, roots, within=self.within, tag="NCCL's unique ids"
        )
        mine = next(k for k, team in enumerate(teams) if rank in team)
        team, number = teams[mine], ids[mine].tobytes()
        return self._in_time(
            lambda: self._nccl.NcclCommunicator(len(team), number, team.index(rank)),
            f"a communicator of ranks {team}",
        )

    def _in_time(self, work: Callable[[], Any], what: str) -> Any:
        """Do what waits for all ranks and knows no deadline, in a thread that can be left behind."""
        found: list[Any] = []
        failed: list[Exception] = []

        def run() -> None:
            try:
                self._runtime.use()
                found.append(work())
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        until = time.monotonic() + self.within
        while thread.is_alive() and time.monotonic() < until:
            thread.join(_LOOK_S)
            reason = self._ended() or self._control.aborted
            if reason is not None and not found:
                raise CollectiveAborted(f"making {what} was aborted: {reason}")
        if found:
            return found[0]
        why = failed[0] if failed else f"not every rank came within {self.within:g} s"
        raise CollectiveError(
            f"rank {self._control.rank}: NCCL could not make {what}: {why}. NCCL_DEBUG=INFO tells more."
        ) from (failed[0] if failed else None)

    def check(self) -> None:
        """Raise what went wrong in a communicator."""
        for path in list(self.paths.values()):
            for communicator in path.communicators():
                communicator.check_async_error()

    def abort(self) -> None:
        """End all communicators. What waits for a peer ends at once; a thread stays until graphs are gone."""
        for key, path in self.paths.items():
            self.paths[key] = CommunicatorSet(path.stream)
            for communicator in path.communicators():
                ending = threading.Thread(target=self._end, args=(communicator,), daemon=True)
                ending.start()
                self._ending.append(ending)

    def _end(self, communicator: Any) -> None:
        with contextlib.suppress(Exception):  # it is of no use any more, whatever it says
            self._runtime.use()
            communicator.abort()

    def settle(self) -> None:
        """Return when the communicators that were to end have ended.

        Raises:
            CollectiveError: they do not, so this process cannot go on.
        """
        until = time.monotonic() + self.within
        while self._ending:
            self._ending[-1].join(max(until - time.monotonic(), 0))
            if self._ending[-1].is_alive():
                raise CollectiveError(
                    f"rank {self._control.rank}: NCCL did not end a communicator within {self.within:g} s."
                )
            self._ending.pop()

    def form_again(self) -> None:
        """Make those that there were; every rank calls it."""
        for key in sorted(self.paths):
            self.paths[key] = self._formed(*key)
