"""Groups among plain processes, without Ray: shared memory, NCCL on simulated GPUs, GPUs by way of the host."""

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
from rowlock.cluster.collective.nccl import NcclGroup
from rowlock.cluster.primitives.shm import segment_path
from rowlock.executor.gang.staged import StagedGroup
from rowlock.executor.plan.group import When
from rowlock.executor.simulated.simulated import SimulatedRuntime
from rowlock.strategies.errors import CollectiveAborted, CollectiveError
from tests.conftest import one_in

_context = multiprocessing.get_context("fork")


@pytest.fixture(params=["memory", "nccl", "staged"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def together(size: int, work: Callable[[Any], Any], kind: str = "memory") -> list[Any]:
    """Run ``work`` in one process per rank; returns its results in rank order (exceptions included)."""
    name = f"test-{uuid.uuid4().hex}"
    results: Any = _context.Queue()
    all_told = _context.Event()

    def body(rank: int) -> None:
        group: Any = SharedMemoryGroup(name, rank, size, within=60)
        if kind == "nccl":
            group = NcclGroup(group, SimulatedRuntime(), within=60)
        elif kind == "staged":
            group = StagedGroup(group, SimulatedRuntime())
        try:
            results.put((rank, work(group)))
        except Exception as error:
            results.put((rank, error))
        finally:
            group.close()
            # Simulated NCCL lives in rank 0's process, and others may still need it.
            all_told.wait(240)

    processes = [_context.Process(target=body, args=(rank,)) for rank in range(size)]
    for process in processes:
        process.start()
    by_rank = dict(results.get(timeout=240) for _ in range(size))
    all_told.set()
    for process in processes:
        process.join(60)
    assert not glob.glob(segment_path(name, "*"))
    return [by_rank[rank] for rank in range(size)]


def placed(group: Any, values: Any) -> Any:
    """Return an array where the group wants it."""
    array = np.asarray(values)
    if isinstance(group, SharedMemoryGroup):
        return array.copy()
    place = group.buffer(array.nbytes).view(array.dtype).reshape(array.shape)
    place[...] = array
    return place


ON_HOST = [
    ("memory", size, dtype, count)
    for size in (1, 2, 3)
    for dtype in ("float32", "float64", "float16", "bfloat16", "int64")
    for count in (1, 5, 1000)
]
ON_GPUS = [("float32", 1, 5), ("float32", 3, 1000), ("float64", 2, 5), ("float16", 2, 1000)]
CASES = [
    *ON_HOST,
    *(
        (kind, size, dtype, count)
        for kind in ("nccl", "staged")
        for dtype, size, count in [*ON_GPUS, ("int64", 2, 1)]
    ),
]


@pytest.mark.parametrize(("where", "size", "dtype", "count"), one_in(2, CASES))
def test_all_reduce_in_a_buffer(where: str, size: int, dtype: str, count: int) -> None:
    def work(group: Any) -> Any:
        array = group.buffer(count * np.dtype(dtype).itemsize).view(dtype)
        array[...] = np.arange(count) % 7 + group.rank
        group.all_reduce(array)
        group.all_reduce(array, "max")
        return array.copy()

    expected = sum((np.arange(count) % 7 + rank).astype(dtype) for rank in range(size))
    for result in together(size, work, where):
        np.testing.assert_array_equal(result, expected)


def test_released_buffers_are_unmapped_and_the_others_work() -> None:
    def work(group: Any) -> Any:
        sums = group.buffer(4096).view("float32")
        for _ in range(50):
            buffer = group.buffer(1 << 20)
            group.all_reduce(buffer.view("float32"))
            group.release(buffer)
            del buffer
        with open("/proc/self/maps") as maps:
            mapped = sum("/dev/shm/rowlock" in line for line in maps)
        sums[...] = group.rank + 1
        group.all_reduce(sums)
        return mapped, float(sums[0])

    for mapped, value in together(2, work):
        assert mapped <= 5 and value == 3


def test_every_op_on_any_array(kind: str) -> None:
    def work(group: Any) -> Any:
        results = {}
        for op in ("sum", "mean", "product", "min", "max"):
            array = placed(group, np.array([1.0, 2.0, 3.0]) + group.rank)
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
    for result in together(2, work, kind):
        assert {op: list(value) for op, value in result.items()} == expected


@pytest.mark.parametrize("kind", ["memory", "nccl"])
def test_broadcast_gather_reduce_and_scatter(kind: str) -> None:
    def work(group: Any) -> Any:
        seen = placed(group, np.full(3, group.rank, "f4"))
        group.broadcast(seen, root=1)
        gathered = group.all_gather(placed(group, [group.rank]))
        total = placed(group, [1.0, 2.0])
        group.reduce(total, root=0)
        scattered = group.reduce_scatter(
            [placed(group, [1.0 + group.rank]), placed(group, [5.0, 6.0])]
        )
        return seen.tolist(), [g.tolist() for g in gathered], total.tolist(), scattered.tolist()

    first, second = together(2, work, kind)
    assert first == ([1.0] * 3, [[0], [1]], [2.0, 4.0], [3.0])
    assert second == ([1.0] * 3, [[0], [1]], [1.0, 2.0], [10.0, 12.0])


def test_numbers_of_hosts_are_exchanged(kind: str) -> None:
    tables = together(3, lambda group: group.exchange(np.array([group.rank, 7])).tolist(), kind)
    assert tables == [[[0, 7], [1, 7], [2, 7]]] * 3


def test_parts_come_from_and_go_to_their_roots(kind: str) -> None:
    def work(group: Any) -> Any:
        row = placed(group, np.full(10, group.rank + 1, "f4"))
        group.reduce_parts(row, [3, 3, 7, 10], [1, 0, 2, 2], when=When(60, "a"))
        reduced = row.tolist()
        group.broadcast_parts(row, [3, 3, 7, 10], [1, 0, 2, 2], when=When(60, "b"))
        return reduced, row.tolist()

    results = together(3, work, kind)
    assert [reduced for reduced, _ in results] == [
        [1.0] * 10,
        [6.0] * 3 + [2.0] * 7,
        [3.0] * 3 + [6.0] * 7,
    ]
    assert [row for _, row in results] == [[6.0] * 10] * 3


def test_ranks_that_disagree_all_stop(kind: str) -> None:
    def work(group: Any) -> None:
        group.all_reduce(group.buffer(64)[: 32 + group.rank], when=When(tag="bucket 0"))

    for result in together(2, work, kind):
        assert isinstance(result, CollectiveError)
        assert "another collective" in str(result)


def test_a_missing_rank_is_named_after_the_deadline(kind: str) -> None:
    over = _context.Event()

    def work(group: Any) -> None:
        array = group.buffer(4).view("f4")
        if group.rank:
            over.wait(60)  # still there, but late
            return
        try:
            group.all_reduce(array, when=When(0.2))
        finally:
            over.set()

    result = together(2, work, kind)[0]
    assert isinstance(result, CollectiveError)
    assert "ranks [1] are missing after 0.2 s" in str(result)


def test_an_abort_releases_the_others_and_a_reset_mends_the_group(kind: str) -> None:
    answered, ready = _context.Barrier(2), _context.Event()

    def work(group: Any) -> Any:
        array = group.buffer(4).view("f4")
        said = ""
        try:
            if group.rank == 1:
                assert ready.wait(60)
                time.sleep(0.1)  # the other rank most likely waits at the barrier by now
                group.abort("label 12 is no class")
            ready.set()
            group.barrier()
        except CollectiveAborted as error:
            said = str(error)
        answered.wait(60)  # replicas are reset by their driver once all of them have answered
        group.reset(1)
        array[...] = 1
        group.all_reduce(array)
        return said, float(array[0])

    for said, total in together(2, work, kind):
        assert "rank 1 failed: label 12 is no class" in said
        assert total == 2.0


@pytest.mark.kills
def test_nothing_stays_behind_when_a_rank_is_killed() -> None:
    def work(group: SharedMemoryGroup) -> Any:
        group.buffer(1024)
        if group.rank == 1:
            return "gone"
        try:
            group.barrier(When(60))
        except CollectiveAborted as error:
            return str(error)

    assert "the process of rank 1 has ended" in together(2, work)[0]


@pytest.mark.parametrize("kind", ["memory", "nccl"])
def test_after_ranks_brought_other_sizes_all_have_the_same_memory(kind: str) -> None:
    def work(group: Any) -> Any:
        large = placed(group, np.ones(90_000))
        group.all_reduce(large[:10_000], when=When(60, "0"))
        with pytest.raises(CollectiveError):  # rank 0 must make room first, the others need not
            group.all_reduce(large[: 90_000 if group.rank == 0 else 10_000], when=When(60, "1"))
        extremes = []
        for epoch, size in enumerate((10_000, 5_000, 50_000), 1):
            group.reset(epoch)
            array = large[:size]
            array[...] = group.rank + 1.0
            group.all_reduce(array, when=When(60, "2"))
            extremes.append((float(array.min()), float(array.max())))
        return extremes

    assert together(3, work, kind) == [[(6.0, 6.0)] * 3] * 3
