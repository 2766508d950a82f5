"""Tensors in page-locked memory go to a GPU from where they lie, and are not written while they do."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rowlock
import rowlock.fluid as fluid
from rowlock.executor.cuda.page_locked import PageLockedBlocks, page_locked
from rowlock.executor.cuda.runtime import Runtime
from rowlock.executor.cuda.transfers import Staged, device_array, download
from rowlock.executor.device.gpus import local_gpus
from rowlock.executor.host.host_memory import MemoryRanges
from rowlock.executor.simulated.simulated import COUNT
from tests.ops.gpu import gpu, needs_compiler
from tests.programs import on_places, own_programs

pytestmark = needs_compiler
PINNED = fluid.CUDAPinnedPlace()


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    """A GPU, simulated where there is none, and a gang of threads."""
    if not local_gpus():
        monkeypatch.setenv(COUNT, "2")
    runtime = gpu().runtime
    assert runtime is not None
    with rowlock.cluster(launcher="threads"):
        yield runtime


def blocks_of(tensor: fluid.Tensor) -> int:
    assert tensor._blocks is not None
    return len(tensor._blocks._blocks)


def test_a_block_is_written_again_when_nothing_lies_in_it(runtime: Runtime) -> None:
    blocks = PageLockedBlocks(runtime)
    first = blocks.array((2, 3), np.float32)
    address, part = first.ctypes.data, first[1:].reshape(3, 1)
    assert page_locked(part) and not page_locked(np.zeros(3)) and runtime.on_host(part)
    del first
    second = blocks.array((6,), np.float32)
    assert not np.shares_memory(second, part), "a part of it is still in use"
    del part
    third = blocks.array((3, 2), np.float32)
    assert third.ctypes.data == address
    del second, third
    assert blocks.array((7,), np.int64).nbytes == 56
    assert len(blocks._blocks) == 1, "blocks of other sizes are given back"


def test_they_are_copied_without_the_host(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[Any] = []
    copyto = np.copyto
    monkeypatch.setattr(np, "copyto", lambda to, value: (copied.append(value), copyto(to, value)))
    places = [device_array(runtime, (4, 2), np.uint8), device_array(runtime, (4,), np.int64)]
    staged, image = Staged(runtime, places), fluid.Tensor()
    image.set(np.arange(8, dtype=np.uint8).reshape(4, 2), PINNED)
    label = np.arange(4)
    del copied[:]
    staged.send([image.memory(), label])
    if runtime.name == "simulated":  # whose own copies are NumPy's, and come later
        assert [value is label for value in copied] == [True]
    label[:], before = 7, image.numpy()
    image.set(-before, PINNED)
    runtime.synchronize()
    np.testing.assert_array_equal(download(runtime, places[0]), before)
    np.testing.assert_array_equal(download(runtime, places[1]), np.arange(4))


def test_what_goes_to_the_gpu_directly_is_not_written_before_it_is_there(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "copy", lambda *_arrays: None)  # a GPU knows addresses alone
    blocks = PageLockedBlocks(runtime)
    staged = Staged(runtime, [device_array(runtime, (4,), np.float32)])
    addresses = []
    for _ in range(3):
        feeds = [blocks.array((4,), np.float32)]
        addresses.append(feeds[0].ctypes.data)
        staged.send(feeds)
        del feeds
    assert len({*addresses}) == 3, "two may be on their way"


def losses(feeds: Any, behind: bool) -> tuple[list[float], fluid.Tensor]:
    """Train on two GPUs; ``behind``: results are read when all steps were begun."""
    with own_programs(3) as (main, start):
        x = fluid.data("x", [None, 3], "float32")
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, 2)))
        fluid.optimizer.SGD(0.1).minimize(loss)
    tensor, results = fluid.Tensor(), []
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CUDAPlace(0))
        exe.run(start)
        places = fluid.cuda_places([0, 1]) if local_gpus() > 1 else fluid.cuda_places([0])
        train = on_places(main, places, loss)
        for step in range(8):
            value = np.random.default_rng(step).standard_normal((4, 3)).astype("f4")
            feed = {"x": feeds(tensor, value)}
            if behind:
                results.append(exe.run_async(train, feed=feed, fetch_list=[loss]))
            else:
                results.append(exe.run(train, feed=feed, fetch_list=[loss]))
        if behind:
            results = [future.result() for future in results]
    return [float(np.mean(result[0])) for result in results], tensor


@pytest.mark.parametrize("behind", [False, True])
def test_steps_under_way_read_what_they_were_fed(runtime: Runtime, behind: bool) -> None:
    def from_tensor(tensor: fluid.Tensor, value: np.ndarray) -> fluid.Tensor:
        tensor.set(value, PINNED)
        assert page_locked(tensor.memory())
        return tensor

    expected, _ = losses(lambda tensor, value: value, behind)
    results, tensor = losses(from_tensor, behind)
    assert results == expected
    assert blocks_of(tensor) <= 10
    gc.collect()
    tensor.set(np.zeros((4, 3), "f4"), PINNED)
    assert blocks_of(tensor) <= 4, "those of steps that ended are used again"


def test_another_place_ends_it_and_a_scope_has_none(runtime: Runtime) -> None:
    tensor = fluid.Tensor()
    tensor.set(np.ones(3), PINNED)
    tensor.set(np.zeros(3))
    assert page_locked(tensor.memory()), "without a place it stays where it is"
    tensor.set(np.zeros(3), fluid.CPUPlace())
    assert not page_locked(tensor.memory())
    rows = fluid.create_lod_tensor(np.ones((3, 1), "f4"), [[1, 2]], PINNED)
    assert page_locked(rows.memory()) and rows.lod() == [[0, 1, 3]]
    scope = fluid.Scope()
    scope.var("w").get_tensor().set(np.ones(3), PINNED)
    assert not page_locked(scope.var("w").get_tensor().memory())


def test_without_a_gpu_it_is_memory_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    if local_gpus() and COUNT not in os.environ:
        pytest.skip("this host has a GPU")
    monkeypatch.delenv(COUNT, raising=False)
    tensor = fluid.Tensor()
    tensor.set(np.ones(3), PINNED)
    assert not page_locked(tensor.memory())


def test_memory_that_garbage_held_may_go_while_ranges_are_looked_through() -> None:
    ranges, thresholds = MemoryRanges(), gc.get_threshold()
    arrays = [ranges.bytes(8) for _ in range(500)]
    gc.collect()
    gc.disable()
    for _ in range(10):
        cycle: list[Any] = [ranges.bytes(8)]
        cycle.append(cycle)
    del cycle
    pairs = [(k, k) for k in range(5000)]  # none is left that a new pair may lie in
    gc.set_threshold(gc.get_count()[0] + 200)
    gc.enable()
    try:
        assert arrays[-1] in ranges and pairs
    finally:
        gc.set_threshold(*thresholds)
