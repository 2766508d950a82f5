"""A group whose ranks sit on several hosts: shared memory within each, sockets between their first ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from ...executor.plan.group import WHEN, CollectiveGroup, Ints, When, spans
from ...strategies.errors import CollectiveError
from .combine import check_op, combine, flat
from .group import SharedMemoryGroup
from .inter_host import InterHostTransport

_SLACK_S = 0.5  # ranks wait a little longer for their leader than it does for the other hosts
_ALL, _NOBODY = -2, -1
_T = TypeVar("_T")


class HostsGroup(CollectiveGroup):
    """One rank's handle. ``hosts`` lists the ranks of each host; the first of each leads it.

    ``local`` joins the ranks of this host (None: this rank is alone on it), ``transport`` the leaders (None:
    this rank leads no host). Arrays are as in SharedMemoryGroup. Results are combined within a host in
    rank order, then in the order of the hosts, so every rank gets the same bits.
    """

    def __init__(
        self,
        rank: int,
        hosts: Sequence[Sequence[int]],
        local: SharedMemoryGroup | None,
        transport: InterHostTransport | None,
    ) -> None:
        self.rank = rank
        self.size = sum(len(members) for members in hosts)
        self._hosts = [list(members) for members in hosts]
        self._here = next(i for i, members in enumerate(hosts) if rank in members)
        self._members = self._hosts[self._here]
        self.local_size = len(self._members)
        self._local, self._transport = local, transport
        self._scratch = np.empty(0, np.uint8)

    def buffer(self, nbytes: int) -> np.ndarray:
        """Return zeroed memory (uint8) that the peers of this host can reach; every rank calls it."""
        if self._local is None:
            return np.zeros(nbytes, np.uint8)
        return self._guarded(lambda: self._local.buffer(nbytes))  # type: ignore[union-attr]

    def release(self, buffer: np.ndarray) -> None:
        if self._local is not None:
            self._local.release(buffer)

    def share_cores(self, at_work: Callable[[], bool]) -> None:
        """Have the transport sleep while other threads of this process have use for the processor."""
        if self._transport is not None:
            self._transport.at_work = at_work

    def begin(self, step: int) -> None:
        if self._local is not None:
            self._local.begin(step)
        if self._transport is not None:
            self._transport.step = step

    def vote(self, when: When = WHEN) -> None:
        """Return when every living rank has, or is sure to get, the results of every collective so far.

        A leader comes to it with the results, and the ranks of its host then leave their last meeting too; so
        one exchange between leaders is enough, and a meeting that spreads the word.
        """
        self._guarded(lambda: self._met("vote", when))

    def barrier(self, when: When = WHEN) -> None:

        def work() -> None:
            if self._local is not None:
                self._local.barrier(when)
            self._met("barrier", when)

        self._guarded(work)

    def _met(self, what: str, when: When) -> None:
        if self._transport is not None:
            self._transport.meet(f"{what} ({when.tag})", when.within)
        if self._local is not None:
            self._local.barrier(_longer(when.about(what)))

    # -- collectives ------------------------------------------------------------------------------

    def all_reduce(self, array: np.ndarray, op: str = "sum", when: When = WHEN) -> None:
        """Combine ``array`` over the ranks, in place. ``op``: sum, mean, product, min, max."""
        check_op(op, array.dtype)
        row = flat(array)
        partial = "sum" if op == "mean" else op

        def work() -> None:
            # The arrays stay as they are until all hosts have agreed.
            total = row if self._local is None else self._spare(row)
            if self._local is not None:
                self._local.reduce(row, 0, partial, when, into=total)
            if self._transport is not None:
                self._transport.all_reduce(total, partial, when)
                if op == "mean":
                    combine([total], "sum", total, self.size)
            if self._local is not None:
                self._local.broadcast(row, 0, _longer(when), source=total)

        self._guarded(work)

    def reduce_parts(
        self, array: np.ndarray, ends: Ints, roots: Ints, op: str = "sum", when: When = WHEN
    ) -> None:
        """Combine each part of ``array`` over the ranks into its root's; the others keep theirs.

        Between hosts a part travels only to its root's.
        """
        check_op(op, array.dtype)
        row, home = flat(array), [self._host_of(root) for root in roots]
        partial = "sum" if op == "mean" else op

        def work() -> None:
            total = row if self._local is None else self._spare(row)
            if self._local is not None:
                self._local.reduce(row, 0, partial, when, into=total)
            pieces = _cut(total, ends)
            if self._transport is not None:
                self._transport.reduce_parts(pieces, home, partial, when)
            if self._local is not None:
                at = [0] * len(ends)
                to = self._local_ranks(roots)
                self._local.broadcast_parts(total, ends, at, _longer(when), takers=to)
            for part, piece, root in zip(_cut(row, ends), pieces, roots, strict=True):
                if root == self.rank:
                    combine([piece], "sum", part, self.size if op == "mean" else 1)

        self._guarded(work)

    def broadcast_parts(
        self, array: np.ndarray, ends: Ints, roots: Ints, when: When = WHEN
    ) -> None:
        row, home = flat(array), [self._host_of(root) for root in roots]
        ours = [host == self._here for host in home]

        def work() -> None:
            if self._local is not None:  # what is at home here, to all ranks of this host
                at = [max(rank, 0) for rank in self._local_ranks(roots)]
                to = [_ALL if here else _NOBODY for here in ours]
                self._local.broadcast_parts(row, ends, at, when, takers=to)
            if self._transport is not None:
                self._transport.broadcast_parts(_cut(row, ends), home, when)
            if self._local is not None:  # what came from elsewhere
                at = [0] * len(ends)
                to = [_NOBODY if here else _ALL for here in ours]
                self._local.broadcast_parts(row, ends, at, _longer(when), takers=to)

        self._guarded(work)

    # -- helpers ----------------------------------------------------------------------------------

    def _spare(self, row: np.ndarray) -> np.ndarray:
        """Return shared memory like ``row``, kept for the next time; every rank of the host calls it."""
        if self._scratch.size < row.nbytes:
            self._forget_scratch()
            self._scratch = self.buffer(row.nbytes)
        return self._scratch[: row.nbytes].view(row.dtype)

    def _forget_scratch(self) -> None:
        old, self._scratch = self._scratch, np.empty(0, np.uint8)
        if old.size:
            self.release(old)

    def _host_of(self, rank: int) -> int:
        return next(i for i, members in enumerate(self._hosts) if rank in members)

    def _local_ranks(self, ranks: Sequence[int]) -> list[int]:
        """Return the numbers of ranks within this host; -1 for ranks of other hosts."""
        here = self._members
        return [here.index(rank) if rank in here else _NOBODY for rank in ranks]

    @property
    def waited(self) -> float:
        """Seconds that this rank was in collectives before the last peer came, all added up.

        A rank that leads no host also waits while its leader talks to the other hosts.
        """
        members = (member for member in (self._local, self._transport) if member is not None)
        return sum(member.waited for member in members)

    # -- failures ---------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], _T]) -> _T:
        """Run a collective; if it fails here, release the ranks that wait for this one."""
        try:
            return work()
        except CollectiveError as error:
            self._abort(str(error))
            raise

    @property
    def aborted(self) -> str | None:
        source = self._transport if self._transport is not None else self._local
        return None if source is None else source.aborted

    def _abort(self, reason: str) -> None:
        if self._local is not None:
            self._local.abort_for(reason)
        if self._transport is not None:
            self._transport.abort(reason)

    def abort(self, reason: str) -> None:
        self._abort(f"rank {self.rank} failed: {reason}")

    def reset(self, epoch: int) -> None:
        if self._transport is not None:
            self._transport.hang_up()  # first: an abort that is only heard of now belongs to what ends here
        self._forget_scratch()  # a rank that came for something else may have another size, or none
        if self._local is not None:
            self._local.reset(epoch)
        if self._transport is not None:
            self._transport.reset(epoch)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        if self._local is not None:
            self._local.close()


def _longer(when: When) -> When:
    """Return for how long ranks wait for their leader."""
    return When(when.within + _SLACK_S, when.tag)


def _cut(row: np.ndarray, ends: Sequence[int]) -> list[np.ndarray]:
    return [row[span] for span in spans(ends)]
