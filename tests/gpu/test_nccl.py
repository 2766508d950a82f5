"""NCCL with one rank: what is put on its stream can be captured, and results are there when they should be."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import numpy as np
import pytest

from rowlock.cluster.collective.group import SharedMemoryGroup
from rowlock.cluster.collective.nccl import NcclGroup
from rowlock.executor.cuda import nvrtc
from rowlock.executor.cuda.device_assert import DeviceAsserts
from rowlock.executor.cuda.device_vote import DECIDE, OFFER
from rowlock.executor.cuda.kernel import CudaKernel
from rowlock.executor.cuda.runtime import Runtime
from rowlock.executor.cuda.transfers import download, upload
from tests.ops.gpu import needs_compiler

pytestmark = needs_compiler

COUNT = 1 << 16


@pytest.fixture
def group(runtime: Runtime) -> Iterator[NcclGroup]:
    """A group of this process alone."""
    if runtime.nccl is None:
        pytest.skip("there is no NCCL here")
    control = SharedMemoryGroup(f"test-{uuid.uuid4().hex}", 0, 1, within=10)
    group = NcclGroup(control, runtime, within=20)
    yield group
    group.close()


@pytest.fixture
def store() -> CudaKernel:
    return CudaKernel("store_one", (("int*", "x"), ("int", "value")), "*x = value;")


def test_a_gpu_votes_alone_and_holds_kernels_back_once_it_gave_up(
    group: NcclGroup, store: CudaKernel
) -> None:
    runtime, vote = group.runtime, group.device_vote
    word = runtime.empty(4).view(np.int32)
    upload(runtime, word, np.zeros(1, np.int32))
    asserts = DeviceAsserts(runtime)
    kernel, arguments = vote.guarded(store, [word, 7])
    steps = [
        *group.bound_vote(asserts.word),
        runtime.launch(kernel, (1, 1, 1), (1, 1, 1), arguments),
    ]
    runtime.execute(steps)
    runtime.synchronize()
    graph = runtime.capture(steps)
    assert (vote.reached, download(runtime, word).tolist()) == (1, [7])
    upload(runtime, word, np.zeros(1, np.int32))
    graph()
    runtime.synchronize()
    assert (vote.reached, download(runtime, word).tolist()) == (2, [7])
    upload(runtime, word, np.zeros(1, np.int32))
    vote.give_up()
    graph()
    runtime.synchronize()
    assert (vote.reached, download(runtime, word).tolist()) == (2, [0])


@pytest.mark.skipif(not nvrtc.version(), reason="NVRTC is not installed")
def test_kernels_of_votes_compile(store: CudaKernel) -> None:
    for kernel in (OFFER, DECIDE, store.guarded(unless=False), store.guarded(unless=True)):
        assert nvrtc.machine_code(kernel, (9, 0))


@pytest.mark.parametrize("op", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_one_rank_keeps_its_values(group: NcclGroup, op: str, dtype: str) -> None:
    values = np.random.default_rng(0).random(COUNT).astype(dtype)
    array = group.buffer(values.nbytes).view(dtype)
    upload(group.runtime, array, values)
    group.all_reduce(array, op)
    np.testing.assert_array_equal(download(group.runtime, array), values)


def test_collectives_are_captured_with_what_is_around_them(group: NcclGroup) -> None:
    runtime = group.runtime
    array = group.buffer(4 * COUNT).view(np.float32)
    other = runtime.empty(4 * COUNT).view(np.float32)
    reduced = group.bound_all_reduce(array)
    steps = [reduced, reduced.finish, runtime.copying(other, array)]
    for turn in range(4):
        upload(runtime, array, np.full(COUNT, turn, np.float32))
        if turn == 0:
            runtime.execute(steps)
            group.landed()
            graph = runtime.capture(steps)
            continue
        graph()
        group.landed()
        np.testing.assert_array_equal(download(runtime, other), turn)
