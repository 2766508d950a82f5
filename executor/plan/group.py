"""CollectiveGroup: the interface of collectives, and defaults for what a backend need not define."""

# ruff: noqa: B027  (a default that does nothing is right for a group that has nothing to do)

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...strategies.errors import CollectiveError
from ..cuda.device_vote import DeviceVote
from ..cuda.runtime import Event
from ..host.deadline import Deadline

# For which a rank waits for the others unless it is told another number of seconds
DEADLINE_S = 60.0

Call = Callable[[], Any]
Agree = Callable[[int], Sequence[int]]
Ints: TypeAlias = Sequence[int]


class When(NamedTuple):
    """The seconds that a collective waits for other ranks, and the words that errors name it by (``tag``)."""

    within: float = DEADLINE_S
    tag: str = ""

    def about(self, what: str) -> When:
        """Return it with ``what`` in front of the tag."""
        return When(self.within, f"{what} {self.tag}")


WHEN = When()


def spans(ends: Ints) -> list[slice]:
    """Return the elements of each part of an array, from where the parts end."""
    return [slice(begin, end) for begin, end in zip((0, *ends), ends, strict=False)]


class CollectiveGroup(ABC):
    """One rank's handle on a group of ``size`` ranks, ``local_size`` of them on this host.

    All ranks call the same collectives in the same order. Arrays are contiguous; a plan's are views of the
    group's own buffers. ``ends`` are the element offsets at which the parts of an array end, ``roots`` a rank
    for each part. ``op`` is "sum", and where a group says so "mean", "product", "min" or "max".

    A group defines :meth:`all_reduce`, :meth:`reduce_parts`, :meth:`broadcast_parts`, :meth:`barrier`,
    :meth:`abort`, :meth:`reset`, :meth:`close`, and where its arrays lie (:meth:`buffer`).

    ``asynchronous``: what ``bound_*`` returns only begins a collective. Then ranks compare what they are at in
    :meth:`bound_agree`, and the results are there after :meth:`landed`.

    Raises:
        CollectiveError: from any collective: a rank is missing after the deadline, or came for another one.
        CollectiveAborted: from any collective: a rank gave up, or its process ended.
    """

    rank: int = 0
    size: int = 1
    local_size: int = 1
    asynchronous: bool = False

    # -- memory -----------------------------------------------------------------------------------

    def buffer(self, nbytes: int) -> Any:
        """Return ``nbytes`` of zeroed memory (uint8) that suits the group; every rank calls it."""
        return np.zeros(nbytes, np.uint8)

    def release(self, buffer: Any) -> None:
        """Give back what :meth:`buffer` returned; every rank calls it. Here it goes with its last reference."""

    # -- collectives ------------------------------------------------------------------------------

    @abstractmethod
    def all_reduce(self, array: Any, op: str = "sum", when: When = WHEN) -> None:
        """Combine ``array`` over the ranks, in place."""

    @abstractmethod
    def reduce_parts(
        self, array: Any, ends: Ints, roots: Ints, op: str = "sum", when: When = WHEN
    ) -> None:
        """Combine each part of ``array`` over the ranks into its root's; the others keep theirs."""

    @abstractmethod
    def broadcast_parts(self, array: Any, ends: Ints, roots: Ints, when: When = WHEN) -> None:
        """Copy each part of ``array`` from its root's to every rank's."""

    @abstractmethod
    def barrier(self, when: When = WHEN) -> None:
        """Wait until every rank has called it."""

    def reduce(self, array: Any, root: int = 0, op: str = "sum", when: When = WHEN) -> None:
        """Combine ``array`` over the ranks into the root's; the others keep theirs."""
        self._check_rank(root)
        self.reduce_parts(array, [array.size], [root], op, when.about(f"{root}"))

    def broadcast(self, array: Any, root: int = 0, when: When = WHEN) -> None:
        """Copy the root's ``array`` to every rank's."""
        self._check_rank(root)
        self.broadcast_parts(array, [array.size], [root], when.about(f"{root}"))

    def all_gather(self, array: Any, when: When = WHEN) -> list[Any]:
        """Return every rank's ``array``, in rank order."""
        buffer = self.buffer(self.size * array.nbytes)
        row = buffer.view(array.dtype)
        ends = [array.size * (rank + 1) for rank in range(self.size)]
        row[ends[self.rank] - array.size : ends[self.rank]] = array.reshape(-1)
        self.broadcast_parts(row, ends, range(self.size), when)
        parts = [row[end - array.size : end].copy().reshape(array.shape) for end in ends]
        self.release(buffer)
        return parts

    def reduce_scatter(self, arrays: Sequence[Any], op: str = "sum", when: When = WHEN) -> Any:
        """Return the combination over the ranks of their ``arrays[rank]``."""
        ends = np.cumsum([array.size for array in arrays]).tolist()
        buffer = self.buffer(sum(array.nbytes for array in arrays))
        row = buffer.view(arrays[0].dtype)
        for array, end in zip(arrays, ends, strict=True):
            row[end - array.size : end] = array.reshape(-1)
        self.reduce_parts(row, ends, range(self.size), op, when)
        own, end = arrays[self.rank], ends[self.rank]
        part = row[end - own.size : end].copy().reshape(own.shape)
        self.release(buffer)
        return part

    def exchange(self, numbers: np.ndarray, when: When = WHEN) -> np.ndarray:
        """Return every rank's ``numbers``, an array of the host, stacked in rank order."""
        table = np.repeat(numbers[np.newaxis], self.size, axis=0)
        ends = [numbers.size * (rank + 1) for rank in range(self.size)]
        self.broadcast_parts(table.reshape(-1), ends, range(self.size), when)
        return table

    def _check_rank(self, rank: int) -> None:
        if not 0 <= rank < self.size:
            raise CollectiveError(f"rank {rank} is no rank of {self.size}.")

    # -- what a plan calls ------------------------------------------------------------------------

    def bound_all_reduce(self, array: Any, op: str = "sum", when: When = WHEN) -> Call:
        """Return a call that does :meth:`all_reduce` on this array. Ranks bind in the same order."""
        return partial(self.all_reduce, array, op, when)

    def bound_reduce_parts(
        self, array: Any, ends: Ints, roots: Ints, op: str = "sum", when: When = WHEN
    ) -> Call:
        """Return a call that does :meth:`reduce_parts` on this array."""
        return partial(self.reduce_parts, array, ends, roots, op, when)

    def bound_broadcast_parts(self, array: Any, ends: Ints, roots: Ints, when: When = WHEN) -> Call:
        """Return a call that does :meth:`broadcast_parts` on this array."""
        return partial(self.broadcast_parts, array, ends, roots, when)

    def bound_agree(self, when: When = WHEN) -> Agree:
        """Return a call that takes a number of 63 bits, and returns that of every rank.

        It returns when all begin the same step of the same program. Here the collectives compare that, and the
        call returns this rank's number alone.
        """
        return lambda standing: [standing]

    def landed(self, when: When = WHEN) -> None:
        """Wait for the results of every collective that was begun; here they are there at once."""

    def reached(self, when: When = WHEN, collectives: bool = False) -> None:
        """Return when this rank's GPU has done what its compute stream holds, and perhaps its collectives.

        These wait for peers. Without them on the GPU nothing needs a deadline, and nothing is done here.
        """

    def vote(self, when: When = WHEN) -> None:
        """Wait until every living rank has, or is sure to get, the results of every collective so far."""
        self.barrier(when)

    @property
    def device_vote(self) -> DeviceVote | None:
        """How GPUs vote without the host; None: they cannot."""
        return None

    def bound_vote(self, failed: Any) -> Sequence[Call]:
        """Return the calls by which GPUs vote, behind the results of every collective so far.

        ``failed``: a word of device memory (int64) by which this rank's GPU votes against its step.
        """
        raise NotImplementedError

    def passed(self, event: Event, deadline: Deadline, when: When = WHEN) -> bool:
        """Tell, without waiting, whether this rank's GPU has come to an event; it must by a deadline."""
        return event.done()

    def begin(self, step: int) -> None:
        """Say which step the collectives that follow belong to (see :func:`pack_step`).

        A group that compares what ranks came for compares it, too; here nothing does.
        """

    def share_cores(self, at_work: Callable[[], bool]) -> None:
        """Take a function that tells whether other threads of this process have use for the processor.

        A group that keeps a core busy while it waits asks it; here waiting takes none.
        """

    def while_waiting(self, call: Callable[[], None]) -> None:
        """Take a function to call now and then while this rank's GPU works on collectives; here none does."""

    @property
    def waited(self) -> float:
        """Seconds that this rank waited in collectives for the last peer, all added up; 0: not measured."""
        return 0.0

    # -- failures ---------------------------------------------------------------------------------

    @property
    def aborted(self) -> str | None:
        """Why a rank gave up since the last reset; None: none did, as far as is known."""
        return None

    @abstractmethod
    def abort(self, reason: str) -> None:
        """Release every rank that waits; collectives raise CollectiveAborted until the group is reset."""

    @abstractmethod
    def reset(self, epoch: int) -> None:
        """Begin afresh after an abort; every rank calls it with the same number, larger than before."""

    @abstractmethod
    def close(self) -> None:
        """Release memory and connections."""
