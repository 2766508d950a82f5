"""The shared-memory group among plain processes, without Ray."""

from __future__ import annotations

import glob
import multiprocessing
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rowlock.cluster.collective.group import SharedMemoryGroup
from rowlock.cluster.collective.shm import segment_path
from rowlock.strategies.errors import CollectiveAborted, CollectiveError

_context = multiprocessing.get_context("fork")


def together(size: int, work: Callable[[SharedMemoryGroup], Any]) -> list[Any]:
    """Run ``work`` in one process per rank; returns its results in rank order (exceptions included)."""
    name = f"test-{uuid.uuid4().hex}"
    results: Any = _context.Queue()

    def body(rank: int) -> None:
        group = SharedMemoryGroup(name, rank, size, within=10)
        try:
            results.put((rank, work(group)))
        except Exception as error:
            results.put((rank, error))
        finally:
            group.close()

    processes = [_context.Process(target=body, args=(rank,)) for rank in range(size)]
    for process in processes:
        process.start()
    found = dict(results.get(timeout=30) for _ in range(size))
    for process in processes:
        process.join(10)
    assert not glob.glob(segment_path(name, "*"))
    return [found[rank] for rank in range(size)]


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
@pytest.mark.parametrize("count", [1, 5, 1000])
def test_all_reduce_in_a_shared_buffer(size: int, dtype: str, count: int) -> None:
    def work(group: SharedMemoryGroup) -> Any:
        array = group.buffer(count * np.dtype(dtype).itemsize).view(dtype)
        array[...] = np.arange(count) % 7 + group.rank
        group.all_reduce(array)
        group.all_reduce(array, "max")
        return array.copy()

    expected = sum((np.arange(count) % 7 + rank).astype(dtype) for rank in range(size))
    for result in together(size, work):
        np.testing.assert_array_equal(result, expected)


def test_released_buffers_are_unmapped_and_the_others_work() -> None:
    def work(group: SharedMemoryGroup) -> Any:
        kept = group.buffer(4096).view("float32")
        for _ in range(50):
            buffer = group.buffer(1 << 20)
            group.all_reduce(buffer.view("float32"))
            group.release(buffer)
            del buffer
        with open("/proc/self/maps") as maps:
            mapped = sum("rowlock" in line for line in maps)
        kept[...] = group.rank + 1
        group.all_reduce(kept)
        return mapped, float(kept[0])

    for mapped, value in together(2, work):
        assert mapped <= 5 and value == 3


def test_every_op_on_any_array() -> None:
    def work(group: SharedMemoryGroup) -> Any:
        results = {}
        for op in ("sum", "mean", "product", "min", "max"):
            array = np.array([1.0, 2.0, 3.0]) + group.rank
            group.all_reduce(array, op)
            results[op] = array
        return results

    expected = {
        "sum": [3, 5, 7],
        "mean": [1.5, 2.5, 3.5],
        "product": [2, 6, 12],
        "min": [1, 2, 3],
        "max": [2, 3, 4],
    }
    for result in together(2, work):
        assert {op: list(value) for op, value in result.items()} == expected


def test_broadcast_gather_reduce_and_scatter() -> None:
    def work(group: SharedMemoryGroup) -> Any:
        seen = np.full(3, group.rank, "f4")
        group.broadcast(seen, root=1)
        gathered = group.all_gather(np.array([group.rank]))
        total = np.array([1.0, 2.0])
        group.reduce(total, root=0)
        scattered = group.reduce_scatter([np.array([1.0 + group.rank]), np.array([5.0, 6.0])])
        return seen.tolist(), [g.tolist() for g in gathered], total.tolist(), scattered.tolist()

    first, second = together(2, work)
    assert first == ([1.0] * 3, [[0], [1]], [2.0, 4.0], [3.0])
    assert second == ([1.0] * 3, [[0], [1]], [1.0, 2.0], [10.0, 12.0])


def test_ranks_that_disagree_all_stop() -> None:
    def work(group: SharedMemoryGroup) -> None:
        group.all_reduce(group.buffer(64)[: 32 + group.rank], tag="bucket 0")

    for result in together(2, work):
        assert isinstance(result, CollectiveError)
        assert "another collective" in str(result)


def test_a_missing_rank_is_named_after_the_deadline() -> None:
    def work(group: SharedMemoryGroup) -> None:
        if group.rank == 0:
            group.barrier(within=0.2)
        time.sleep(0.5)  # still there, but late

    result = together(2, work)[0]
    assert isinstance(result, CollectiveError)
    assert "ranks [1] are missing after 0.2 s" in str(result)


def test_an_abort_releases_the_others_and_a_reset_mends_the_group() -> None:
    def work(group: SharedMemoryGroup) -> Any:
        array = group.buffer(4).view("f4")
        said = ""
        try:
            if group.rank == 1:
                time.sleep(0.3)  # the other rank has its buffer and waits at the barrier by now
                group.abort("label 12 is no class")
            group.barrier()
        except CollectiveAborted as error:
            said = str(error)
        time.sleep(0.3)  # replicas are reset by their driver once all of them have answered
        group.reset(1)
        array[...] = 1
        group.all_reduce(array)
        return said, float(array[0])

    for said, total in together(2, work):
        assert "rank 1 failed: label 12 is no class" in said
        assert total == 2.0


def test_nothing_stays_behind_when_a_rank_is_killed() -> None:
    def work(group: SharedMemoryGroup) -> Any:
        group.buffer(1024)
        if group.rank == 1:
            return "gone"
        try:
            group.barrier(within=10)
        except CollectiveAborted as error:
            return str(error)

    assert "the process of rank 1 has ended" in together(2, work)[0]


def test_after_ranks_brought_other_sizes_all_have_the_same_memory() -> None:
    def work(group: SharedMemoryGroup) -> Any:
        group.all_reduce(np.ones(10_000), tag="0", within=10)
        with pytest.raises(CollectiveError):  # rank 0 must make room first, the others need not
            group.all_reduce(np.ones(90_000 if group.rank == 0 else 10_000), tag="1", within=10)
        found = []
        for epoch, size in enumerate((10_000, 5_000, 50_000), 1):
            group.reset(epoch)
            array = np.full(size, group.rank + 1.0)
            group.all_reduce(array, tag="2", within=10)
            found.append((float(array.min()), float(array.max())))
        return found

    assert together(3, work) == [[(6.0, 6.0)] * 3] * 3
