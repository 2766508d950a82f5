"""A group of processes on one host that reduce, gather and broadcast arrays through shared memory.

A collective is: meet (see ``meeting.py``), work on one another's memory, meet again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...strategies.errors import CollectiveError
from .meeting import Meeting
from .shm import Segment, segment_path

_SMALL = 1 << 14  # bytes up to which combining everything oneself is cheaper than a second meeting
_FORMING_S = 60.0

_COMBINE: dict[str, Any] = {
    "sum": np.add,
    "mean": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


class SharedMemoryGroup:
    """One rank's handle. All ranks call the same collectives in the same order.

    Results are combined in rank order, so they are the same bits on every rank and in every run.

    Raises:
        CollectiveError: a rank is missing after the deadline, or ranks disagree about a collective.
        CollectiveAborted: a rank gave up; the message says which and why.
    """

    def __init__(self, name: str, rank: int, size: int, within: float = _FORMING_S) -> None:
        self.name, self.rank, self.size = name, rank, size
        self.local_size = size
        self._within = within
        self._meeting = Meeting(name, rank, size, within)
        self._buffers: list[list[Segment]] = []
        self._parts: dict[tuple[int, int, str], list[np.ndarray]] = {}
        self._staging = 0
        self._slots: list[Segment] = []
        self._turn = 0

    # -- memory -----------------------------------------------------------------------------------

    def buffer(self, nbytes: int) -> np.ndarray:
        """Return ``nbytes`` of zeroed memory (uint8) that the peers can reach; every rank calls it.

        What is reduced in place there is not copied anywhere first.
        """
        number = len(self._buffers)
        size = max(nbytes, 1)
        own = Segment.create(
            segment_path(self.name, f"{number}-{self.rank}-{self._meeting.epoch}"), size
        )
        try:
            self._meeting.meet("buffer", f"buffer of {nbytes} bytes", self._within)
            segments = [
                own
                if rank == self.rank
                else Segment.attach(
                    segment_path(self.name, f"{number}-{rank}-{self._meeting.epoch}"),
                    size,
                    self._within,
                    f"rank {rank}",
                )
                for rank in range(self.size)
            ]
            self._meeting.meet("buffer/done", "", self._within)
        finally:
            own.unlink()
        self._buffers.append(segments)
        return own.array[:nbytes]

    def release(self, buffer: np.ndarray) -> None:
        """Give back what :meth:`buffer` returned; every rank calls it."""
        begin = buffer.__array_interface__["data"][0]
        for number, segments in enumerate(self._buffers):
            if segments and segments[self.rank].address == begin:
                end = begin + len(segments[self.rank].array)
                self._parts = {k: v for k, v in self._parts.items() if not begin <= k[0] < end}
                for segment in segments:
                    segment.close()
                self._buffers[number] = []  # the others keep their numbers

    def _peers(self, array: np.ndarray) -> list[np.ndarray] | None:
        """Return every rank's array at the place of ``array``, or None if it is in no shared buffer."""
        address, nbytes = array.__array_interface__["data"][0], array.nbytes
        key = (address, nbytes, array.dtype.char)
        if key not in self._parts:
            for segments in filter(None, self._buffers):
                offset = address - segments[self.rank].address
                if offset >= 0 and offset + nbytes <= len(segments[self.rank].array):
                    self._parts[key] = [
                        s.array[offset : offset + nbytes].view(array.dtype) for s in segments
                    ]
                    return self._parts[key]
            return None
        return self._parts[key]

    def _staged(self, nbytes: int) -> list[Segment]:
        """Return every rank's staging memory of at least ``nbytes``."""
        if not self._staging or len(self._buffers[self._staging - 1][0].array) < nbytes:
            self.buffer(nbytes)
            self._staging = len(self._buffers)
        return self._buffers[self._staging - 1]

    def _views(self, array: np.ndarray) -> list[np.ndarray]:
        """Return every rank's staging memory as arrays like ``array`` (flat)."""
        return [s.array[: array.nbytes].view(array.dtype) for s in self._staged(array.nbytes)]

    # -- collectives ------------------------------------------------------------------------------

    def all_reduce(
        self, array: np.ndarray, op: str = "sum", *, within: float = _FORMING_S, tag: str = ""
    ) -> None:
        """Combine ``array`` (contiguous) over the ranks, in place. ``op``: sum, mean, product, min, max."""
        check_op(op)
        if array.nbytes <= _SMALL:
            self._all_reduce_small(array, op, within, tag)
            return
        parts, staged = self._reachable(array)
        self._meeting.meet(f"all_reduce/{op}", _describe(array, tag), within)
        chunk = self._chunk(array.size)
        mine = [part[chunk] for part in parts]
        self._combine(mine, op, mine[0])
        for part in mine[1:]:
            part[...] = mine[0]
        self._meeting.meet("done", tag, within)
        if staged:
            array.reshape(-1)[...] = parts[self.rank]

    def _all_reduce_small(self, array: np.ndarray, op: str, within: float, tag: str) -> None:
        """Meet once: every rank combines everybody's copies for itself, instead of a part for all.

        Two slots take turns. A rank that writes a slot again has met its peers in between, so they are done
        with reading it.
        """
        if not self._slots:
            self.buffer(2 * _SMALL)
            self._slots = self._buffers[-1]
        begin = self._turn * _SMALL
        self._turn ^= 1
        parts = [s.array[begin : begin + array.nbytes].view(array.dtype) for s in self._slots]
        flat = array.reshape(-1)
        parts[self.rank][...] = flat
        self._meeting.meet(f"all_reduce/{op}", _describe(array, tag), within)
        self._combine(parts, op, flat)

    def reduce(
        self, array: np.ndarray, root: int = 0, op: str = "sum", *, within: float = _FORMING_S
    ) -> None:
        """Combine ``array`` over the ranks into the root's."""
        check_op(op)
        parts = self._exchange(array, f"reduce/{op}/{root}", within)
        if self.rank == root:
            self._combine(parts, op, array.reshape(-1))
        self._meeting.meet("done", "", within)

    def broadcast(self, array: np.ndarray, root: int = 0, *, within: float = _FORMING_S) -> None:
        """Copy the root's ``array`` to every rank's."""
        parts = self._exchange(array, f"broadcast/{root}", within)
        if self.rank != root:
            array.reshape(-1)[...] = parts[root]
        self._meeting.meet("done", "", within)

    def all_gather(self, array: np.ndarray, *, within: float = _FORMING_S) -> list[np.ndarray]:
        """Return every rank's ``array``, in rank order."""
        parts = self._exchange(array, "all_gather", within)
        gathered = [part.copy().reshape(array.shape) for part in parts]
        self._meeting.meet("done", "", within)
        return gathered

    def reduce_scatter(
        self, arrays: list[np.ndarray], op: str = "sum", *, within: float = _FORMING_S
    ) -> np.ndarray:
        """Return the combination over the ranks of their ``arrays[rank]``."""
        check_op(op)
        joined = np.concatenate([a.reshape(-1) for a in arrays])
        parts = self._exchange(joined, f"reduce_scatter/{op}", within)
        start = sum(a.size for a in arrays[: self.rank])
        result = np.empty_like(arrays[self.rank])
        chunk = slice(start, start + result.size)
        self._combine([part[chunk] for part in parts], op, result.reshape(-1))
        self._meeting.meet("done", "", within)
        return result

    def barrier(self, *, within: float = _FORMING_S, tag: str = "") -> None:
        """Return when every rank is here."""
        self._meeting.meet("barrier", tag, within)

    def reduce_parts(
        self,
        array: np.ndarray,
        ends: Sequence[int],
        roots: Sequence[int],
        *,
        within: float = _FORMING_S,
        tag: str = "",
    ) -> None:
        """Sum each part of ``array`` into its root's; the others keep theirs.

        Part i ends at element ``ends[i]`` and is summed, in rank order, at ``roots[i]``.
        """
        everyone, staged = self._reachable(array)
        self._meeting.meet("reduce_parts", _describe(array, tag), within)
        for begin, end, root in zip((0, *ends), ends, roots, strict=False):
            if root == self.rank:
                mine = everyone[root][begin:end]
                # A later rank's own summand must not be overwritten by the sum of those before it.
                total = mine if self.rank < 2 else np.empty_like(mine)
                self._combine([part[begin:end] for part in everyone], "sum", total)
                if total is not mine:
                    mine[...] = total
        self._meeting.meet("done", tag, within)
        if staged:
            array.reshape(-1)[...] = everyone[self.rank]

    def broadcast_parts(
        self,
        array: np.ndarray,
        ends: Sequence[int],
        roots: Sequence[int],
        *,
        within: float = _FORMING_S,
        tag: str = "",
    ) -> None:
        """Copy each part of ``array`` from its root's to every rank's."""
        everyone, staged = self._reachable(array)
        self._meeting.meet("broadcast_parts", _describe(array, tag), within)
        for begin, end, root in zip((0, *ends), ends, roots, strict=False):
            if root != self.rank:
                everyone[self.rank][begin:end] = everyone[root][begin:end]
        self._meeting.meet("done", tag, within)
        if staged:
            array.reshape(-1)[...] = everyone[self.rank]

    def _reachable(self, array: np.ndarray) -> tuple[list[np.ndarray], bool]:
        """Return every rank's array (flat), and whether it had to be copied to where the peers reach it."""
        everyone = self._peers(array)
        if everyone is not None:
            return everyone, False
        everyone = self._views(array)
        everyone[self.rank][...] = array.reshape(-1)
        return everyone, True

    def _exchange(self, array: np.ndarray, kind: str, within: float) -> list[np.ndarray]:
        parts = self._views(array)
        parts[self.rank][...] = array.reshape(-1)
        self._meeting.meet(kind, _describe(array, ""), within)
        return parts

    def _chunk(self, count: int) -> slice:
        share = -(-count // self.size)
        return slice(min(self.rank * share, count), min((self.rank + 1) * share, count))

    def _combine(self, parts: list[np.ndarray], op: str, out: np.ndarray) -> None:
        combine(parts, op, out)
        if op == "mean":
            np.divide(out, self.size, out=out, casting="unsafe")

    # -- failures ---------------------------------------------------------------------------------

    def refuse_aborted(self, kind: str) -> None:
        """Raise CollectiveAborted if a rank gave up in this epoch."""
        self._meeting.refuse_aborted(kind)

    def abort(self, reason: str) -> None:
        """Release every rank that waits; they raise CollectiveAborted until the group is reset."""
        self._meeting.abort(f"rank {self.rank} failed: {reason}")

    def reset(self, epoch: int) -> None:
        """Begin afresh after an abort; every rank calls it with the same number, larger than before."""
        self._meeting.reset(epoch)
        self._turn = 0

    def close(self) -> None:
        """Let go of the memory."""
        self._parts.clear()
        for segments in self._buffers:
            for segment in segments:
                segment.close()
        self._buffers.clear()
        self._meeting.close()


def check_op(op: str) -> None:
    """Refuse a way to combine that is not known."""
    if op not in _COMBINE:
        raise CollectiveError(f"collective op {op!r} is not one of {', '.join(_COMBINE)}.")


def combine(parts: Sequence[np.ndarray], op: str, out: np.ndarray) -> None:
    """Combine arrays in their order into ``out``, which may be one of the first two (a mean is left a sum)."""
    join: Callable[..., Any] = _COMBINE[op]
    if len(parts) == 1:
        out[...] = parts[0]
        return
    join(parts[0], parts[1], out=out)
    for part in parts[2:]:
        join(out, part, out=out)


def _describe(array: np.ndarray, tag: str) -> str:
    return f"{array.dtype}[{array.size}] {tag}"
