"""A group of processes on one host that reduce, gather and broadcast arrays through shared memory.

A collective is: meet (see ``rendezvous.py``), work on one another's memory, meet again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ...executor.plan.group import DEADLINE_S, WHEN, CollectiveGroup, Ints, When, spans
from .buffers import Buffers
from .combine import (
    bound_combine,
    check_op,
    combine,
    combine_apart,
    combine_everywhere,
    describe,
    flat,
    plain,
    share,
)
from .rendezvous import DONE, Rendezvous, never_ended, request_of

_SMALL = 1 << 15  # bytes up to which combining everything oneself is cheaper than a second meeting
_ALL = -2


class SharedMemoryGroup(CollectiveGroup):
    """One rank's handle. All ranks call the same collectives in the same order.

    Arrays are contiguous, of integers, float16, bfloat16, float32 or float64; bool can be moved, and combined
    by min and max. Results are combined in rank order, so they have the same bits on every rank and in every
    run.

    Args:
        within: seconds that the others are waited for here.
        ranks: the numbers of the members in messages; default: 0 to size - 1.
        later: seconds that the others are waited for when memory is made; default: ``within``.
        ended: returns why the group was given up from outside, None if it was not; a waiting rank asks it.

    Raises:
        CollectiveError: a rank is missing after the deadline, or ranks disagree about a collective.
        CollectiveAborted: a rank gave up or its process ended; the message says which and why.
    """

    def __init__(
        self,
        name: str,
        rank: int,
        size: int,
        within: float = DEADLINE_S,
        ranks: Sequence[int] | None = None,
        later: float | None = None,
        ended: Callable[[], str | None] = never_ended,
    ) -> None:
        self.name, self.rank, self.size = name, rank, size
        self.local_size = size
        self._rendezvous = Rendezvous(name, rank, size, within, ranks, ended)
        self._buffers = Buffers(self._rendezvous, within if later is None else later)
        try:
            self._buffers.allocate(2 * _SMALL)
        except BaseException:
            self._rendezvous.close()
            raise
        self._slots = self._buffers.newest()
        self._turn = 0

    # -- memory -----------------------------------------------------------------------------------

    def buffer(self, nbytes: int) -> np.ndarray:
        """Return ``nbytes`` of zeroed memory (uint8) that the peers can reach; every rank calls it.

        What is reduced in place there is not copied anywhere first.
        """
        return self._buffers.allocate(nbytes)

    def release(self, buffer: np.ndarray) -> None:
        self._buffers.release(buffer)

    def _reachable(
        self, row: np.ndarray, filled: bool = True
    ) -> tuple[list[np.ndarray], np.ndarray | None]:
        """Return every rank's row, and this rank's staging copy (None: ``row`` is reached where it lies)."""
        everyone = self._buffers.peers(row)
        if everyone is not None:
            return everyone, None
        everyone = self._buffers.staged(row)
        if filled:
            plain(everyone[self.rank])[...] = plain(row)
        return everyone, everyone[self.rank]

    # -- collectives ------------------------------------------------------------------------------

    def _meet(self, kind: str, row: np.ndarray, when: When) -> None:
        self._rendezvous.meet(kind, _describe(row, when), when.within)

    def _end(self, when: When) -> None:
        self._rendezvous.meet(DONE, when.tag, when.within)

    def begin(self, step: int) -> None:
        self._rendezvous.step = step

    def vote(self, when: When = WHEN) -> None:
        """Return when every living rank has, or is sure to get, the results of every collective so far.

        That is so already: a collective ends with a meeting, which all living ranks leave if one does.
        """

    def all_reduce(self, array: np.ndarray, op: str = "sum", when: When = WHEN) -> None:
        """Combine ``array`` over the ranks, in place. ``op``: sum, mean, product, min, max."""
        check_op(op, array.dtype)
        row, divisor = flat(array), self.size if op == "mean" else 1
        if row.nbytes <= _SMALL:
            parts = self._shown(row)
            self._meet(f"all_reduce/{op}", row, when)
            combine(parts, op, row, divisor)
            return
        parts, staged = self._reachable(row)
        self._meet(f"all_reduce/{op}", row, when)
        combine_everywhere(parts, op, share(row.size, row.itemsize, self.rank, self.size), divisor)
        self._end(when)
        _copied(row, staged)

    def bound_all_reduce(
        self, array: np.ndarray, op: str = "sum", when: When = WHEN
    ) -> Callable[[], None]:
        """Return a call that does :meth:`all_reduce` on this array; what can be done once is done now."""
        check_op(op, array.dtype)
        row, rendezvous = flat(array), self._rendezvous
        if row.nbytes > _SMALL or op == "mean":
            return partial(self.all_reduce, array, op, when)
        request = request_of(f"all_reduce/{op}", _describe(row, when))
        slots = [self._slots_for(row, turn) for turn in (0, 1)]
        turns = [(parts[self.rank], bound_combine(parts, op, row)) for parts in slots]

        def all_reduce() -> None:
            turn = self._turn
            self._turn = 1 - turn
            own, calls = turns[turn]
            own[...] = row
            rendezvous.meet_for(request, when.within)
            for call in calls:
                call()

        return all_reduce

    def _slots_for(self, row: np.ndarray, turn: int) -> list[np.ndarray]:
        begin = turn * _SMALL
        return [slot[begin : begin + row.nbytes].view(row.dtype) for slot in self._slots]

    def _shown(self, row: np.ndarray) -> list[np.ndarray]:
        """Copy a small row to shared memory, and return the rows of all ranks.

        With it, ranks meet once: each combines all copies for itself, instead of a part for all. Two
        slots take turns. A rank that writes a slot again has met its peers in between, so they are done with
        reading it.
        """
        parts = self._slots_for(row, self._turn)
        self._turn ^= 1
        plain(parts[self.rank])[...] = plain(row)
        return parts

    def reduce(
        self,
        array: np.ndarray,
        root: int = 0,
        op: str = "sum",
        when: When = WHEN,
        into: np.ndarray | None = None,
    ) -> None:
        """Combine ``array`` over the ranks into the root's; the others keep theirs.

        With ``into``, each rank's array like it in a shared buffer, the result goes to the root's of those.
        """
        check_op(op, array.dtype)
        self._check_rank(root)
        row = flat(array)
        parts, staged = self._reachable(row)
        target = parts[root] if into is None else (self._buffers.peers(into) or parts)[root]
        self._meet(f"reduce/{op}/{root}", row, when)
        chunk = share(row.size, row.itemsize, self.rank, self.size)
        divisor = self.size if op == "mean" else 1
        combine_apart([part[chunk] for part in parts], op, target[chunk], divisor)
        self._end(when)
        if self.rank == root and into is None:
            _copied(row, staged)

    def broadcast(
        self, array: np.ndarray, root: int = 0, when: When = WHEN, source: np.ndarray | None = None
    ) -> None:
        """Copy the root's ``array`` to every rank's.

        With ``source``, each rank's array like it in a shared buffer, the root's of those is copied.
        """
        self._check_rank(root)
        row = flat(array)
        if source is None:
            parts, _ = self._reachable(row, filled=self.rank == root)
        else:
            parts = self._buffers.peers(source) or [source]
        self._meet(f"broadcast/{root}", row, when)
        if self.rank != root or source is not None:
            plain(row)[...] = plain(parts[root])
        self._end(when)

    def all_gather(self, array: np.ndarray, when: When = WHEN) -> list[np.ndarray]:
        row = flat(array)
        parts, _ = self._reachable(row)
        self._meet("all_gather", row, when)
        gathered = [part.copy().view(array.dtype).reshape(array.shape) for part in parts]
        self._end(when)
        return gathered

    def reduce_scatter(
        self, arrays: Sequence[np.ndarray], op: str = "sum", when: When = WHEN
    ) -> np.ndarray:
        check_op(op, arrays[0].dtype)
        rows = [flat(array) for array in arrays]
        ends = [0, *np.cumsum([row.size for row in rows]).tolist()]
        parts = self._buffers.staged(np.empty(ends[-1], rows[0].dtype))
        for row, begin, end in zip(rows, ends, ends[1:], strict=False):
            plain(parts[self.rank][begin:end])[...] = plain(row)
        sizes = f"{rows[0].dtype.name}{ends[1:]} {when.tag}"
        self._rendezvous.meet(f"reduce_scatter/{op}", sizes, when.within)
        result = np.empty_like(arrays[self.rank])
        chunk = slice(ends[self.rank], ends[self.rank + 1])
        divisor = self.size if op == "mean" else 1
        combine_apart([part[chunk] for part in parts], op, flat(result), divisor)
        self._end(when)
        return result

    def barrier(self, when: When = WHEN) -> None:
        self._rendezvous.meet("barrier", when.tag, when.within)

    def reduce_parts(
        self, array: np.ndarray, ends: Ints, roots: Ints, op: str = "sum", when: When = WHEN
    ) -> None:
        """Combine each part of ``array`` into its root's; the others keep theirs.

        Part i ends at element ``ends[i]`` and is combined, in rank order, at ``roots[i]``.
        """
        check_op(op, array.dtype)
        row = flat(array)
        everyone, staged = self._reachable(row)
        self._meet(f"reduce_parts/{op}", row, when)
        for span, root in zip(spans(ends), roots, strict=True):
            if root == self.rank:
                combine_apart([part[span] for part in everyone], op, everyone[root][span])
        self._end(when)
        _copied(row, staged)

    def broadcast_parts(
        self,
        array: np.ndarray,
        ends: Ints,
        roots: Ints,
        when: When = WHEN,
        takers: Ints | None = None,
    ) -> None:
        """Copy each part of ``array`` from its root's to every rank's.

        With ``takers``, part i goes to rank ``takers[i]`` alone (-1: to none, -2: to all).
        """
        row = flat(array)
        everyone, _ = self._reachable(row)
        self._meet("broadcast_parts", row, when)
        takers = [_ALL] * len(ends) if takers is None else takers
        for span, root, taker in zip(spans(ends), roots, takers, strict=True):
            if root != self.rank and taker in (_ALL, self.rank):
                plain(row[span])[...] = plain(everyone[root][span])
        self._end(when)

    @property
    def waited(self) -> float:
        return self._rendezvous.waited

    # -- failures ---------------------------------------------------------------------------------

    @property
    def aborted(self) -> str | None:
        return self._rendezvous.aborted

    def abort(self, reason: str) -> None:
        self._rendezvous.abort(f"rank {self._rendezvous.ranks[self.rank]} failed: {reason}")

    def abort_for(self, reason: str) -> None:
        """Abort because of a failure elsewhere, which ``reason`` names."""
        self._rendezvous.abort(reason)

    def reset(self, epoch: int) -> None:
        self._rendezvous.reset(epoch)
        self._buffers.forget_staging()
        self._turn = 0

    def close(self) -> None:
        self._slots = []
        self._buffers.close()
        self._rendezvous.close()


def _copied(row: np.ndarray, staged: np.ndarray | None) -> None:
    if staged is not None:
        plain(row)[...] = plain(staged)


def _describe(row: np.ndarray, when: When) -> str:
    return f"{describe(row)} {when.tag}"
