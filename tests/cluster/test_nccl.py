"""What a group over NCCL does when the GPUs do not: simulated GPUs, in threads of one process."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rowlock.cluster.collective.group import SharedMemoryGroup
from rowlock.cluster.collective.nccl import NcclGroup
from rowlock.cluster.collective.nccl_calls import joined_parts
from rowlock.executor.host.deadline import Deadline
from rowlock.executor.plan.group import When
from rowlock.executor.simulated.simulated import SimulatedRuntime
from rowlock.strategies.errors import CollectiveAborted, CollectiveError


def together(size: int, work: Callable[[NcclGroup], Any]) -> list[Any]:
    """Run ``work`` in one thread per rank; returns results in rank order (exceptions included)."""
    name = f"test-{uuid.uuid4().hex}"

    def body(rank: int) -> Any:
        control = SharedMemoryGroup(name, rank, size, within=60)
        group = NcclGroup(control, SimulatedRuntime(rank), within=60)
        try:
            return work(group)
        except Exception as error:
            return error
        finally:
            group.close()

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(body, range(size)))


def held(group: NcclGroup, values: Any) -> Any:
    array = np.asarray(values)
    place = group.buffer(array.nbytes).view(array.dtype).reshape(array.shape)
    place[...] = array
    return place


@pytest.mark.parametrize(
    ("dtype", "rounding"), [(np.float16, 2e-3), (ml_dtypes.bfloat16, 1.6e-2), (np.float32, 1e-6)]
)
def test_low_precision_is_added_up_in_single(dtype: Any, rounding: float) -> None:
    values = [np.random.default_rng(rank).random(999).astype(dtype) for rank in range(3)]

    def work(group: NcclGroup) -> Any:
        array = held(group, values[group.rank])
        group.all_reduce(array, "mean")
        return array.astype("f8")

    results = together(3, work)
    expected = sum(value.astype("f8") for value in values) / 3
    np.testing.assert_allclose(results[0], expected, rtol=rounding)
    assert all((result == results[0]).all() for result in results)


def test_what_is_bound_waits_for_the_compute_stream_and_is_there_once_landed() -> None:
    def work(group: NcclGroup) -> Any:
        runtime, array = group.runtime, held(group, np.zeros(4, "f4"))
        ones = held(group, np.full(4, 1.0 + group.rank, "f4"))
        out = held(group, np.zeros(4, "f4"))
        call = group.bound_all_reduce(array)
        steps = [
            runtime.copying(array, ones),
            call,
            runtime.copying(out, ones),
            call.finish,
            runtime.copying(out, array),
        ]
        graph = runtime.capture(steps)
        results = []
        for _ in range(3):
            graph()
            before = out.tolist()
            group.landed(When(60, "step"))
            results.append((before, out.tolist()))
        return results

    for result in together(2, work):
        assert result[0] == ([0.0] * 4, [3.0] * 4)
        assert result[2][1] == [3.0] * 4


def test_a_gpu_that_stands_still_is_named_though_its_rank_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wait = NcclGroup._wait

    def wait_too_long(self: NcclGroup, event: Any, deadline: Deadline, when: When) -> None:
        """Let the time be over once all ranks have come."""
        if self.rank == 0 and when.tag == "bucket 3":
            deadline.seconds += 60.0
        wait(self, event, deadline, when)

    monkeypatch.setattr(NcclGroup, "_wait", wait_too_long)

    def work(group: NcclGroup) -> Any:
        call = group.bound_all_reduce(held(group, np.ones(4, "f4")))
        if group.rank == 0:  # the other one puts nothing on its stream
            group.runtime.execute((call, call.finish))
        try:
            group.landed(When(60, "bucket 3"))
            group.vote(When(60, "bucket 3"))
        except CollectiveError as error:
            return type(error), str(error)
        return None

    (kind, said), (other, heard) = together(2, work)
    assert kind is CollectiveError and "bucket 3 was not done by NCCL within 60 s" in said
    assert "waits on the GPU of rank 0" in said
    assert other is CollectiveAborted and "rank 0 failed" in heard


def test_an_abort_releases_who_waits_for_the_gpu() -> None:
    answered = threading.Barrier(2)

    def work(group: NcclGroup) -> Any:
        array = held(group, np.ones(4, "f4"))
        call = group.bound_all_reduce(array)
        if group.rank == 0:
            group.runtime.execute((call, call.finish))
        group.barrier(When(tag="all bound"))
        said = ""
        try:
            if group.rank == 1:
                group.barrier(When(tag="landing step"))
                time.sleep(0.1)
                group.abort("an operator failed")
                raise CollectiveAborted("itself")
            group.landed(When(60, "step"))
        except CollectiveAborted as error:
            said = str(error)
        answered.wait(60)  # replicas are reset by their driver once all of them have answered
        group.reset(1)
        array[...] = 1
        group.all_reduce(array)
        return said, array.tolist()

    (said, first), (_, second) = together(2, work)
    assert "step was aborted: rank 1 failed: an operator failed" in said
    assert first == second == [2.0] * 4


@pytest.mark.parametrize("itself", [True, False])
def test_ranks_do_not_agree_on_a_step_once_one_gave_up(itself: bool) -> None:
    """The CPUs refuse, and NCCL's communicator ends."""

    def work(group: NcclGroup) -> Any:
        agree = group.bound_agree(When(60, "schedule 1"))
        assert agree(5 + group.rank) == [5, 6]
        if (group.rank == 0) == itself:
            group.abort("an operator failed")
        while group._control.aborted is None:
            time.sleep(1e-3)
        with pytest.raises(CollectiveAborted, match=f"rank {1 - itself} failed: an operator"):
            agree(7)
        return group._communicator.world, group.device_vote._given_up[0]

    assert together(2, work) == [(None, 1), (None, 1)]


def test_what_goes_wrong_inside_nccl_is_told() -> None:
    def work(group: NcclGroup) -> Any:
        call = group.bound_all_reduce(held(group, np.ones(4, "f4")))
        if group.rank == 0:
            group.runtime.execute((call, call.finish))
        else:
            group._communicator.world._socket.shutdown(2)  # as if its process had ended
        group.landed(When(60, "bucket 0"))
        if group.rank == 1:
            group.vote(When(60))

    first, second = together(2, work)
    assert type(first) is CollectiveError and "failed in NCCL on rank 0" in str(first)
    assert isinstance(second, CollectiveError)


def test_collectives_go_before_the_kernels_beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    urgent: list[Any] = []
    stream = SimulatedRuntime.stream

    def noted(self: SimulatedRuntime, urgent_: bool = False, **how: bool) -> Any:
        new = stream(self)
        urgent.extend([new] * how.get("urgent", urgent_))
        return new

    monkeypatch.setattr(SimulatedRuntime, "stream", noted)
    (own,) = together(1, lambda group: group._communicator.stream)
    assert urgent == [own]


def test_memory_of_the_host_is_refused() -> None:
    for result in together(2, lambda group: group.all_reduce(np.ones(3), when=When(60))):
        assert isinstance(result, CollectiveError)
        assert "no device memory" in str(result) or "was aborted" in str(result)


def test_elements_that_nccl_does_not_know_are_refused() -> None:
    for result in together(1, lambda group: group.all_reduce(held(group, np.ones(2, "i2")))):
        assert "NCCL cannot combine elements of int16" in str(result)


def test_parts_side_by_side_with_one_root_travel_as_one() -> None:
    assert joined_parts([2, 5, 5, 9], [1, 1, 0, 2]) == [(0, 5, 1), (5, 9, 2)]


@pytest.mark.parametrize("what", ["asked for errors", "given work"])
def test_a_communicator_does_not_end_while_it_is_called(what: str) -> None:
    order: list[str] = []
    asked, ended = threading.Event(), threading.Event()

    class World:
        def check_async_error(self) -> None:
            asked.set()
            ended.wait(0.2)  # only if it may end meanwhile
            order.append("asked")

        def allReduce(self, *arguments: int) -> None:
            self.check_async_error()

        def abort(self) -> None:
            order.append("ended")
            ended.set()

    def work(group: NcclGroup) -> None:
        communicator = group._communicator
        communicator.abort()
        communicator.drain()
        communicator.world = World()
        call = group.bound_all_reduce(held(group, np.ones(4, "f4")))

        def enqueue() -> None:
            group.runtime.use()
            group.runtime.execute((call, call.finish))
            group.runtime.synchronize()

        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(enqueue if what == "given work" else communicator.check)
            assert asked.wait(20)
            communicator.abort()
            asking.result(20)
        communicator.drain()
        communicator.check()  # there is none any more

    (failure,) = together(1, work)
    assert failure is None, failure
    assert order == ["asked", "ended"]


def test_a_call_that_waits_for_a_peer_is_ended_by_an_abort() -> None:
    """Such as a launch, once the queue of a GPU that waits itself is full."""

    def work(group: NcclGroup) -> None:
        communicator = group._communicator
        communicator.abort()
        communicator.drain()
        waiting, ended = threading.Event(), threading.Event()
        ended_in_time: list[bool] = []

        def all_reduce(*arguments: int) -> None:
            waiting.set()
            ended_in_time.append(ended.wait(20))

        communicator.world = SimpleNamespace(allReduce=all_reduce, abort=ended.set)
        call = group.bound_all_reduce(held(group, np.ones(4, "f4")))
        with ThreadPoolExecutor(1) as pool:
            calling = pool.submit(call)
            pool.submit(group.runtime.synchronize)
            assert waiting.wait(20)
            group.abort("an operator failed")
            calling.result(40)
        communicator.drain()
        assert ended_in_time == [True]

    (failure,) = together(1, work)
    assert failure is None, failure


def test_a_new_communicator_waits_for_the_end_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def work(group: NcclGroup) -> None:
        communicator, order = group._communicator, list[str]()
        communicator.abort()
        communicator.drain()

        def end() -> None:
            time.sleep(0.1)
            order.append("ended")

        communicator.world = SimpleNamespace(abort=end)
        monkeypatch.setattr(communicator, "form", lambda: order.append("formed"))
        group.reset(1)
        assert order == ["ended", "formed"]

    (failure,) = together(1, work)
    assert failure is None, failure


def test_a_group_that_is_closed_has_ended_its_communicator() -> None:
    """A process that ends takes the driver down, in which a thread would still be ending it."""

    def work(group: NcclGroup) -> None:
        communicator, ended = group._communicator, threading.Event()
        communicator.abort()
        communicator.drain()

        def end() -> None:
            time.sleep(0.1)
            ended.set()

        communicator.world = SimpleNamespace(abort=end)
        group.close()
        assert ended.is_set()

    (failure,) = together(1, work)
    assert failure is None, failure
