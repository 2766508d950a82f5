"""Gather what differs in size by rank: rows of sparse gradients, the largest elements of dense ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...graph.ir.replica_program import NodeRecord
from ...graph.ops.collective import SPREAD_ROWS
from ...graph.ops.dgc import elements_sent
from .buckets import Bucket
from .group import Call, CollectiveGroup, When


def bind_gather(
    group: CollectiveGroup,
    columns: Mapping[str, tuple[Any, Any]],
    counts: Callable[[], Sequence[int]],
    when: When,
) -> Call:
    """Return the call that brings the parts of all ranks together, each behind those of lower ranks.

    ``columns``: by what they are, this rank's part and the array of all parts. ``counts``: how many rows of
    these each rank has now; all ranks know the same numbers.
    """

    def gather() -> None:
        now = counts()
        for what, (part, whole) in columns.items():
            own, target, ends = _ways(group, whole, now)
            if own:
                target[...] = part[:own]
            about = When(when.within, f"{when.tag} {what}")
            group.broadcast_parts(whole.reshape(-1), ends, range(group.size), about)

    return gather


def _ways(group: CollectiveGroup, whole: Any, counts: Sequence[int]) -> tuple[int, Any, list[int]]:
    """Return how many rows this rank brings, where they go, and where in ``whole`` those of each rank end."""
    own, ends = int(counts[group.rank]), np.cumsum(counts)
    end, width = int(ends[group.rank]), whole.shape[1] if whole.ndim > 1 else 1
    return own, whole[end - own : end], (ends * width).tolist()


def bind_rows(
    node: NodeRecord,
    group: CollectiveGroup,
    arrays: Callable[[Sequence[int]], list[Any]],
    known: Mapping[int, np.ndarray],
    copy: Callable[[Any, Any], Any],
    when: When,
) -> list[Call]:
    """Return the calls that gather the rows of a gradient from all ranks, or spread those of its root.

    How many there are is read when a step runs, or ``known`` now, by position of the value that tells it: then
    a graph can hold the calls.
    """
    columns = {
        what: (*arrays(node.inputs[what]), *arrays(node.outputs[f"Out{what}"]))
        for what in ("Rows", "Values")
    }
    number, root = node.attrs["number"], node.attrs["root"]
    (position,) = node.inputs["Counts"]
    counts = known[position] if position in known else arrays([position])[0]

    def now() -> Sequence[int]:
        if node.op != SPREAD_ROWS:
            return counts[number]
        total = int(counts[number].sum())
        return [total if rank == root else 0 for rank in range(group.size)]

    if position not in known:
        return [bind_gather(group, columns, now, when)]
    calls: list[Call] = []
    for what, (part, whole) in columns.items() if sum(now()) else ():
        own, target, ends = _ways(group, whole, now())
        if own:
            calls.append(partial(copy, target, part[:own]))
        row, about = whole.reshape(-1), When(when.within, f"{when.tag} {what}")
        calls.append(group.bound_broadcast_parts(row, ends, range(group.size), about))
    return calls


class SparseSum:
    """An all-reduce of one array that chooses, by the step, whether it sends the array or its largest elements.

    Which it is follows from the number of the step alone, so all ranks choose alike.
    """

    def __init__(
        self,
        group: CollectiveGroup,
        bucket: Bucket,
        step: Any,
        attrs: Mapping[str, Any],
        when: When,
    ) -> None:
        self._array, self._step, self._attrs = bucket.parts[0].reshape(-1), step, attrs
        self._dense: Call = group.bound_all_reduce(bucket.flat, "sum", when)
        self._sparse = {}
        for count, (numbers, values) in bucket.largest.items():
            own = np.zeros(count, numbers.dtype), np.zeros(count, values.dtype)
            columns = {"places": (own[0], numbers), "values": (own[1], values)}
            counts = [count] * group.size
            gather = bind_gather(group, columns, lambda counts=counts: counts, when)  # type: ignore[misc]
            self._sparse[count] = own, gather, numbers, values

    def __call__(self) -> None:
        count = elements_sent(self._attrs, int(self._step.reshape(-1)[0]), self._array.size)
        if count not in self._sparse:
            self._dense()
            return
        own, gather, numbers, values = self._sparse[count]
        places = np.flatnonzero(self._array)
        own[0][: places.size], own[1][: places.size] = places, self._array[places]
        own[1][places.size :] = 0  # for whatever places stand there
        gather()
        self._array[...] = 0
        np.add.at(self._array, numbers, values)  # in the order of ranks
