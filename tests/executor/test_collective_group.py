"""What a group gets from its base: a kind that brings only what it must, among threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from rowlock.executor.gang.thread_group import ThreadGroup, ThreadRendezvous
from rowlock.executor.plan.dry import NullGroup
from rowlock.executor.plan.group import CollectiveGroup, When
from rowlock.strategies.errors import CollectiveError


def together(size: int, work: Callable[[CollectiveGroup], Any]) -> list[Any]:
    """Run ``work`` in a thread per rank; returns results in rank order."""
    meeting = ThreadRendezvous(size)
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: work(ThreadGroup(rank, meeting)), range(size)))


def test_other_collectives_come_from_parts() -> None:
    def work(group: CollectiveGroup) -> Any:
        total, spread = np.full(3, group.rank + 1.0), np.full(2, group.rank)
        group.reduce(total, 1, when=When(60))
        group.broadcast(spread, 2, when=When(60))
        gathered = group.all_gather(np.array([[group.rank, 7]]), when=When(60))
        arrays = [np.full(1 + k, group.rank + k, "f4") for k in range(group.size)]
        scattered = group.reduce_scatter(arrays, when=When(60))
        return total.tolist(), spread.tolist(), [g.tolist() for g in gathered], scattered.tolist()

    results = together(3, work)
    assert [total for total, *_ in results] == [[1.0] * 3, [6.0] * 3, [3.0] * 3]
    assert all(spread == [2, 2] for _, spread, *_ in results)
    assert all(gathered == [[[0, 7]], [[1, 7]], [[2, 7]]] for *_, gathered, _ in results)
    assert [scattered for *_, scattered in results] == [[3.0], [6.0] * 2, [9.0] * 3]


def test_what_is_bound_is_done_at_each_call() -> None:
    def work(group: CollectiveGroup) -> Any:
        row = np.full(4, group.rank + 1.0)
        for call in (
            group.bound_all_reduce(row, when=When(60)),
            group.bound_reduce_parts(row, [1, 4], [1, 0], when=When(60)),
            group.bound_broadcast_parts(row, [1, 4], [1, 0], when=When(60)),
        ):
            call()
        assert group.bound_agree(When(60))(7) == [7]
        group.landed(When(60))
        group.vote(When(60))
        return row.tolist()

    assert together(2, work) == [[6.0] * 4] * 2


def test_a_group_that_measures_and_knows_nothing_says_so() -> None:
    group = NullGroup()
    assert (group.waited, group.aborted, group.asynchronous) == (0.0, None, False)
    group.begin(3)
    group.share_cores(lambda: True)
    group.release(group.buffer(16))
    with pytest.raises(CollectiveError, match="rank 1 is no rank of 1"):
        group.broadcast(np.zeros(1), 1)


def test_what_every_group_must_bring_is_asked_for() -> None:
    missing = CollectiveGroup.__abstractmethods__
    assert missing == {
        *("all_reduce", "reduce_parts", "broadcast_parts", "barrier", "abort", "reset", "close")
    }
