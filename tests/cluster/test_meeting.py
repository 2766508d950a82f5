"""What a group of processes promises when ranks disagree, give up or are killed."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rowlock.cluster.collective.group import SharedMemoryGroup
from rowlock.cluster.collective.hosts import HostsGroup
from rowlock.cluster.collective.ray_groups import RayGroup
from rowlock.cluster.collective.rendezvous import _LINE, Rendezvous
from rowlock.executor.plan.group import When
from rowlock.strategies.errors import CollectiveAborted, CollectiveError
from rowlock.strategies.types import BFLOAT16
from tests.cluster.test_collective_group import together
from tests.conftest import draws, eventually, sample
from tests.pauses import paused

_context = multiprocessing.get_context("fork")


# -- agreement ---------------------------------------------------------------------------------------


def failing(work: Callable[[], Any]) -> str:
    with pytest.raises(CollectiveError) as caught:
        work()
    return str(caught.value)


@pytest.mark.parametrize("count", [4, 100_000])
def test_a_rank_that_skipped_a_step_is_stopped_everywhere(count: int) -> None:
    def work(group: SharedMemoryGroup) -> Any:
        array = group.buffer(4 * count).view("f4")
        for step in range(3):
            array[...] = 10 * group.rank + step
            group.begin(step + 1 if group.rank == 1 and step == 2 else step)
            if step == 2:
                text = failing(lambda: group.all_reduce(array, when=When(tag="bucket 0 of ab12")))
                assert np.all(array == 10 * group.rank + step)  # nothing was combined
                return text
            group.all_reduce(array, when=When(tag="bucket 0 of ab12"))

    texts = together(3, work)
    assert len({text.partition(": ")[2] for text in texts}) == 1
    what = f"all_reduce/sum (float32[{count}] bucket 0 of ab12)"
    assert f"ranks [0, 2] came for {what} in step 2; rank 1 came for {what} in step 3" in texts[0]


def test_what_differs_is_said_in_words() -> None:
    def work(group: SharedMemoryGroup) -> Any:
        if group.rank == 0:
            return failing(lambda: group.barrier(When(tag="end")))
        return failing(lambda: group.broadcast(np.zeros(3), when=When(tag="loss")))

    def work_in_memory(group: SharedMemoryGroup) -> Any:
        array = group.buffer(64)
        return failing(
            lambda: group.all_reduce(array, "max" if group.rank else "sum", when=When(tag="b"))
        )

    for text in together(2, work):
        assert "rank 0 came for barrier (end)" in text and "rank 1 came for buffer" in text
    for text in together(2, work_in_memory):
        assert (
            "rank 0 came for all_reduce/sum (uint8[64] b); rank 1 came for all_reduce/max" in text
        )


# -- death and abort ---------------------------------------------------------------------------------


@pytest.mark.kills
@pytest.mark.parametrize("how", ["killed", "aborts"])
@pytest.mark.parametrize("size", [2, 3])
def test_who_arrived_before_it_died_counts(
    how: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last to come ends right after its arrival is written, before anybody is woken."""

    def work(group: SharedMemoryGroup) -> Any:
        if group.rank == 1:
            words = group._rendezvous._words
            others = [rank * _LINE for rank in range(size) if rank != 1]
            assert eventually(lambda: all(words[at] > words[_LINE] for at in others))

            def end() -> None:
                if how == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                monkeypatch.undo()
                group.abort("told to")

            monkeypatch.setattr(group._rendezvous, "_wakers", [end] * size)
        group.barrier(When(60))
        if group.rank != 1:
            return "through", failing(lambda: group.barrier(When(60)))

    results = among(size, work)
    results.pop(1, None)
    assert sorted(results) == [rank for rank in range(size) if rank != 1]
    for passed, then in results.values():
        assert passed == "through"
        assert "rank 1 failed: told to" in then if how == "aborts" else "rank 1 has ended" in then


def test_a_rank_that_is_late_to_show_that_it_lives_is_not_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    show = Rendezvous._show_alive

    def late(self: Rendezvous) -> None:
        time.sleep(0.0 if self.rank else 2.0)
        show(self)

    monkeypatch.setattr(Rendezvous, "_show_alive", late)
    assert together(2, lambda group: group.barrier()) == [None, None]


def among(size: int, work: Callable[[SharedMemoryGroup], Any]) -> dict[int, Any]:
    """Run ``work`` in processes some of which may be killed; returns the results of those that had one."""
    name, results = f"test-{uuid.uuid4().hex}", _context.SimpleQueue()

    def body(rank: int) -> None:
        group = SharedMemoryGroup(name, rank, size, within=60)
        try:
            results.put((rank, work(group)))
        except Exception as error:
            results.put((rank, error))

    processes = [_context.Process(target=body, args=(rank,)) for rank in range(size)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode is not None
    by_rank = {}
    while not results.empty():
        rank, result = results.get()
        by_rank[rank] = result
    return by_rank


@draws(4, 12)
@pytest.mark.kills
@pytest.mark.parametrize("how", ["killed", "aborts"])
def test_living_ranks_leave_together_whenever_a_rank_ends(how: str, draws: int) -> None:
    """At a random moment: those who live got through the same number of meetings.

    An abort comes from another thread, as a watcher's does.
    """
    for seed in sample(12, draws):
        delay = float(np.random.default_rng(seed).uniform(0.0, 0.02))

        def work(group: SharedMemoryGroup, delay: float = delay) -> Any:
            group.barrier()
            if group.rank == 2 and how == "killed":
                signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
                signal.setitimer(signal.ITIMER_REAL, delay + 1e-5)
            elif group.rank == 2:
                threading.Timer(delay, group.abort, ["told to"]).start()
            passed = 0
            try:
                while True:
                    group.barrier(When(60))
                    passed += 1
            except CollectiveAborted:  # no deadline: they are released
                return passed

        counts = among(3, work)
        assert sorted(counts) == ([0, 1] if how == "killed" else [0, 1, 2])
        assert len(set(counts.values())) == 1


def test_ranks_that_were_stopped_together_meet() -> None:
    goes_on = _context.Event()

    def work(group: SharedMemoryGroup) -> None:
        if group.rank == 0:
            paused(goes_on.set)
        else:
            assert goes_on.wait(60)
        group.barrier(When(60))

    assert among(2, work) == {0: None, 1: None}


# -- elements ----------------------------------------------------------------------------------------

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("count", [7, 50_000])
def test_every_type_with_every_op(count: int) -> None:
    dtypes = [*INTEGERS, "float16", "float32", "float64"]

    def work(group: SharedMemoryGroup) -> Any:
        arrays = {}
        for dtype in dtypes:
            for op in ("sum", "product", "min", "max", "mean"):
                array = (np.arange(count) % 5 + group.rank).astype(dtype)
                group.all_reduce(array, op)
                arrays[dtype, op] = array
        truth = np.arange(count) % 3 == group.rank
        group.all_reduce(truth, "max")
        refused = failing(lambda: group.all_reduce(truth, "sum"))
        return arrays, truth, refused

    for arrays, truth, refused in together(3, work):
        for (dtype, op), array in arrays.items():
            parts = np.stack([(np.arange(count) % 5 + rank).astype(dtype) for rank in range(3)])
            name = {"product": "prod"}.get(op, op)
            expected = getattr(np, name)(parts, axis=0).astype(dtype)
            np.testing.assert_allclose(array, expected, rtol=1e-3, err_msg=f"{dtype} {op}")
            assert array.dtype == dtype
        np.testing.assert_array_equal(truth, np.arange(count) % 3 < 3)
        assert "min and max can combine elements of bool" in refused


def bfloat16(values: np.ndarray) -> np.ndarray:
    """Round float32 to bfloat16 bits, to the nearest even, by way of integers (an independent reference)."""
    bits = values.astype("f4").view("u4").astype("u8")
    low, high = bits & 0xFFFF, bits >> 16
    up = (low > 0x8000) | ((low == 0x8000) & (high % 2 == 1))
    return (high + up).astype("u2")


@pytest.mark.parametrize("count", [5, 70_000])
@pytest.mark.parametrize("op", ["sum", "mean", "max"])
def test_bfloat16_is_combined_in_float32_and_rounded_once(count: int, op: str) -> None:
    def part(rank: int) -> np.ndarray:
        return bfloat16(np.random.default_rng(rank).standard_normal(count))

    def work(group: SharedMemoryGroup) -> Any:
        array = part(group.rank)
        group.all_reduce(array.view(BFLOAT16), op)
        return array

    wide = [(part(rank).astype("u4") << 16).view("f4") for rank in range(3)]
    total = {"sum": sum(wide), "max": np.maximum.reduce(wide)}
    total["mean"] = total["sum"] / np.float32(3)
    for array in together(3, work):
        np.testing.assert_array_equal(array, bfloat16(total[op]))


def test_what_cannot_be_combined_is_refused() -> None:
    def work(group: SharedMemoryGroup) -> Any:
        return [
            failing(lambda: group.all_reduce(np.zeros((4, 4)).T[:2])),
            failing(lambda: group.all_reduce(np.zeros(2, "c8"))),
            failing(lambda: group.all_reduce(np.zeros(2), "xor")),
        ]

    strided, complex_, op = together(1, work)[0]
    assert "contiguous" in strided and "complex64" in complex_ and "xor" in op


def test_no_room_is_said_on_every_rank() -> None:
    def work(group: SharedMemoryGroup) -> Any:
        return failing(lambda: group.buffer(1 if group.rank else 1 << 50))

    first, second = together(2, work)
    assert "no room" in first and ("no room" in second or "rank 0" in second)


def test_nothing_at_all_can_be_combined_and_moved() -> None:
    def work(group: SharedMemoryGroup) -> Any:
        empty = np.zeros(0)
        group.all_reduce(empty)
        group.broadcast(empty)
        group.reduce(empty)
        return [len(array) for array in group.all_gather(empty)]

    assert together(2, work) == [[0, 0], [0, 0]]


def test_an_abort_after_the_end_is_nothing() -> None:
    def work(group: SharedMemoryGroup) -> Any:
        group.barrier()
        group.close()
        group.abort("a watcher that comes too late")
        return "fine"

    assert together(2, work) == ["fine", "fine"]


def test_kinds_of_groups_have_the_same_methods() -> None:
    """What a plan may call on one group it may call on all."""
    kinds = (SharedMemoryGroup, HostsGroup, RayGroup)
    for name, method in inspect.getmembers(HostsGroup, inspect.isfunction):
        if not name.startswith("_"):
            asked = inspect.signature(method).parameters
            for kind in kinds:
                has = inspect.signature(getattr(kind, name)).parameters
                shared = {key: (has[key].kind, has[key].default) for key in asked if key in has}
                expected = {key: (each.kind, each.default) for key, each in asked.items()}
                assert shared == expected, f"{kind.__name__}.{name}"
