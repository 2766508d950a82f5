"""A group whose ranks sit on several hosts: shared memory within each, sockets between their first ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...strategies.errors import CollectiveError
from .group import SharedMemoryGroup, check_op
from .links import Links

_FORMING_S = 60.0


class HostsGroup:
    """One rank's handle. ``hosts`` lists the ranks of each host; the first of each leads it.

    ``local`` joins the ranks of this host (None: this rank is alone on it), ``links`` the leaders (None: this
    rank leads no host). Within a host results are combined in rank order, then in the order of the hosts, so
    every rank gets the same bits.
    """

    def __init__(
        self,
        rank: int,
        hosts: Sequence[Sequence[int]],
        local: SharedMemoryGroup | None,
        links: Links | None,
    ) -> None:
        self.rank = rank
        self.size = sum(len(members) for members in hosts)
        self._hosts = [list(members) for members in hosts]
        self._here = next(i for i, members in enumerate(hosts) if rank in members)
        self.local_size = len(self._hosts[self._here])
        self._local = local
        self._links = links

    def buffer(self, nbytes: int) -> np.ndarray:
        """Return zeroed memory (uint8) that the peers of this host can reach; every rank calls it."""
        return np.zeros(nbytes, np.uint8) if self._local is None else self._local.buffer(nbytes)

    def release(self, buffer: np.ndarray) -> None:
        """Give back what :meth:`buffer` returned; every rank calls it."""
        if self._local is not None:
            self._local.release(buffer)

    def all_reduce(
        self, array: np.ndarray, op: str = "sum", *, within: float = _FORMING_S, tag: str = ""
    ) -> None:
        """Combine ``array`` (contiguous) over the ranks, in place. ``op``: sum, mean, product, min, max."""
        check_op(op)
        flat = array.reshape(-1)
        joined = "sum" if op == "mean" else op

        def work() -> None:
            if self._local is not None:
                self._local.all_reduce(flat, joined, within=within, tag=tag)
            if self._links is not None:
                self._links.all_reduce(flat, joined, within, tag)
            self._spread(flat, within, tag)

        self._guarded(work)
        if op == "mean":
            np.divide(flat, self.size, out=flat, casting="unsafe")

    def reduce_parts(
        self,
        array: np.ndarray,
        ends: Sequence[int],
        roots: Sequence[int],
        *,
        within: float = _FORMING_S,
        tag: str = "",
    ) -> None:
        """Sum each part of ``array`` over the ranks into its root's; the others keep theirs."""
        total = array.copy()
        self.all_reduce(total, "sum", within=within, tag=tag)
        for begin, end, root in zip((0, *ends), ends, roots, strict=False):
            if root == self.rank:
                array[begin:end] = total[begin:end]

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
        flat = array.reshape(-1)
        parts = [flat[begin:end] for begin, end in zip((0, *ends), ends, strict=False)]
        home = [self._host_of(root) for root in roots]

        def work() -> None:
            if self._local is not None:  # first to the leader of the root's host
                members = self._hosts[self._here]
                at = [members.index(r) if r in members else 0 for r in roots]
                self._local.broadcast_parts(flat, ends, at, within=within, tag=tag)
            if self._links is not None:
                self._swap(parts, home, self._links, within, tag)
            self._spread(flat, within, tag)

        self._guarded(work)

    def _swap(
        self, parts: list[np.ndarray], home: list[int], links: Links, within: float, tag: str
    ) -> None:
        """Send the other leaders what this host is the home of, and take what they are."""

        def of(host: int) -> list[np.ndarray]:
            return [part for part, at in zip(parts, home, strict=True) if at == host]

        mine = np.concatenate([np.empty(0, parts[0].dtype), *of(self._here)])
        others = [host for host in range(len(self._hosts)) if host != self._here]
        got = {h: np.empty(sum(part.size for part in of(h)), parts[0].dtype) for h in others}
        links.exchange(dict.fromkeys(others, mine), got, f"broadcast_parts {tag}", within)
        for host, joined in got.items():
            offset = 0
            for part in of(host):
                part[...] = joined[offset : offset + part.size]
                offset += part.size

    def barrier(self, *, within: float = _FORMING_S, tag: str = "") -> None:
        """Return when every rank is here."""
        self.all_reduce(np.zeros(1, np.uint8), "max", within=within, tag=f"barrier {tag}")

    # -- what ray.util.collective offers besides ------------------------------------------------------

    def reduce(
        self, array: np.ndarray, root: int = 0, op: str = "sum", *, within: float = _FORMING_S
    ) -> None:
        """Combine ``array`` over the ranks into the root's."""
        total = array.copy()
        self.all_reduce(total, op, within=within)
        if self.rank == root:
            array[...] = total

    def broadcast(self, array: np.ndarray, root: int = 0, *, within: float = _FORMING_S) -> None:
        """Copy the root's ``array`` to every rank's."""
        self.broadcast_parts(array, [array.size], [root], within=within)

    def all_gather(self, array: np.ndarray, *, within: float = _FORMING_S) -> list[np.ndarray]:
        """Return every rank's ``array``, in rank order."""
        gathered = np.zeros((self.size, *array.shape), array.dtype)
        gathered[self.rank] = array
        ends = [array.size * (rank + 1) for rank in range(self.size)]
        self.broadcast_parts(gathered.reshape(-1), ends, list(range(self.size)), within=within)
        return list(gathered)

    def reduce_scatter(
        self, arrays: list[np.ndarray], op: str = "sum", *, within: float = _FORMING_S
    ) -> np.ndarray:
        """Return the combination over the ranks of their ``arrays[rank]``."""
        joined = np.concatenate([array.reshape(-1) for array in arrays])
        self.all_reduce(joined, op, within=within)
        begin = sum(array.size for array in arrays[: self.rank])
        mine = arrays[self.rank]
        return joined[begin : begin + mine.size].reshape(mine.shape)

    # -- failures -------------------------------------------------------------------------------------

    def _spread(self, flat: np.ndarray, within: float, tag: str) -> None:
        """Give what the leader has to the ranks of its host."""
        if self._local is not None:
            self._local.broadcast_parts(flat, [flat.size], [0], within=within, tag=f"{tag}/spread")

    def _guarded(self, work: Callable[[], None]) -> None:
        """Run a collective; if it fails here, those who wait for this rank are released."""
        try:
            work()
        except CollectiveError as error:
            self.abort(str(error))
            raise

    def _host_of(self, rank: int) -> int:
        return next(i for i, members in enumerate(self._hosts) if rank in members)

    def abort(self, reason: str) -> None:
        """Release every rank that waits; they raise CollectiveAborted until the group is reset."""
        if self._local is not None:
            self._local.abort(reason)
        if self._links is not None:
            self._links.abort(reason)

    def reset(self, epoch: int) -> None:
        """Begin afresh after an abort; every rank calls it with the same number, larger than before."""
        if self._local is not None:
            self._local.reset(epoch)
        if self._links is not None:
            self._links.reset(epoch)

    def close(self) -> None:
        """Let go of memory and sockets."""
        if self._links is not None:
            self._links.close()
        if self._local is not None:
            self._local.close()
